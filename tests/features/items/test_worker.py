"""Workers of a step with items that have no queue: what a step is given, and what it leaves."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from slipway.features.items.pod.item_worker import ITEMS_FAILED
from slipway.runtime.exits import BAD_INPUT, INTERRUPTED, INTERRUPTED_BY_KEYBOARD, USAGE
from slipway.runtime.steps.outputs import NO_RESULT
from slipway.runtime.store import check
from tests.features.items.workers import Step, alive, ended, wait_until
from tests.support.steps import only_error

DAYS = {"day-1": "ok", "day-2": "ok", "day-3": "ok"}
ORDERED = (sys.executable, "-S", "program.py", "{item}", "{output}", "{previous}")


def test_the_program_runs_once_for_each_item_and_all_are_listed(step: Step) -> None:
    step.data(DAYS)
    output = step.run()

    assert step.runs == list(DAYS)
    lines = output.splitlines()
    assert lines[0] == "day-1: claimed (attempt 1)"
    assert lines[1].startswith("day-1: done in ")
    assert lines[-1] == f"Published 10 files of 3 items: {step.output}"
    row = step.rows["day-2"]
    assert (row["state"], row["attempts"], row["model"], row["resumed"]) == ("done", 1, "2", 0)
    assert "curve" not in row
    assert (step.output / row["path"] / "model").read_text() == "2"
    manifest = check(step.output)
    assert f"{row['path']}/model" in manifest.files
    assert "items.json" in manifest.files
    check(step.output / row["path"])


@pytest.mark.slow
def test_an_item_may_have_any_name_that_a_file_can_have_and_people_can_read(step: Step) -> None:
    names = ["-rf", "a b;c", "items", "v1.2", "{output}", "日"]
    step.data(dict.fromkeys(names, "ok"))
    step.run()
    assert {name: row["model"] for name, row in step.rows.items()} == {name: name[-1] for name in names}


@pytest.mark.slow
def test_a_finished_step_is_not_worked_on_again(step: Step) -> None:
    step.data(DAYS)
    step.run()
    assert step.run().startswith("Nothing to do: ")
    assert step.run("--workers", 2, JOB_COMPLETION_INDEX="1").startswith("Nothing to do: ")
    assert step.runs == list(DAYS)


@pytest.mark.slow
def test_workers_have_their_shares_and_do_not_need_places_at_the_same_time(step: Step) -> None:
    step.data({**DAYS, "day-4": "ok"})
    assert "not needed" in step.run("--workers", 2, "--lingering", 0.1)
    assert step.runs == ["day-1", "day-3"]
    assert "Published" in step.run("--workers", 2, JOB_COMPLETION_INDEX="1")
    assert step.runs == ["day-1", "day-3", "day-2", "day-4"]


@pytest.mark.slow
def test_of_workers_at_the_same_time_one_makes_the_result(step: Step) -> None:
    step.data({**DAYS, "day-4": "ok"})
    workers = [step.start("--workers", 2, JOB_COMPLETION_INDEX=index) for index in "01"]
    assert any("Published" in ended(worker) for worker in workers)
    assert sorted(step.runs) == ["day-1", "day-2", "day-3", "day-4"]


@pytest.mark.slow
def test_only_the_worker_that_leaves_the_result_leaves_the_record(step: Step, tmp_path: Path) -> None:
    step.data(DAYS)
    record = tmp_path / "record"
    step.run("--workers", 2, "--lingering", 0.1, JOB_COMPLETION_INDEX="1", SLIPWAY_RECORD=str(record))
    assert not record.exists()
    step.run("--workers", 2, SLIPWAY_RECORD=str(record))
    assert record.exists()


@pytest.mark.slow
def test_an_item_that_fails_is_named_with_its_reason_and_the_others_are_done(step: Step) -> None:
    step.data({**DAYS, "day-2": "fail ValueError: no column AMOUNT"})
    output = step.run("--attempts", 2, code=ITEMS_FAILED)

    assert output.count("day-2: failed: exit code 1: ValueError: no column AMOUNT") == 2
    assert only_error(output) == (
        "error: churn.days: 1 of 3 items failed, and none may: day-2: exit code 1: ValueError: no column AMOUNT "
        "(tried 2 times). The next start tries them again, and only them (exit code 10)"
    )
    assert output.splitlines()[-1] == only_error(output)
    assert not (step.output / "manifest.json").exists()
    assert step.rows["day-2"] == {
        "item": "day-2", "state": "failed", "attempts": 2, "reason": "exit code 1: ValueError: no column AMOUNT",
    }  # fmt: skip
    assert sorted(step.runs) == ["day-1", "day-2", "day-2", "day-3"]

    # In the same round it is not tried again; in the next one it is, and only it.
    step.run("--attempts", 2, code=ITEMS_FAILED)
    assert len(step.runs) == 4
    (step.seen / "repaired").touch()
    step.run("--attempts", 2, JOB_UID="round-2")
    assert step.runs[4:] == ["day-2"]
    assert {row["state"] for row in step.rows.values()} == {"done"}
    check(step.output)


def test_as_many_items_may_fail_as_are_allowed(step: Step) -> None:
    step.data({**DAYS, "day-2": "fail early"})
    step.run("--attempts", 1, "--allow-failed", 1)
    assert step.rows["day-2"]["state"] == "failed"
    assert check(step.output).summary["failed"] == 1


def test_in_order_each_item_begins_from_the_one_before(step: Step) -> None:
    step.data({**DAYS, "day-4": "fail twice", "day-5": "ok"})
    step.run("--mode", "ordered", "--allow-failed", 1, words=ORDERED)
    models = {name: row.get("model") for name, row in step.rows.items()}
    assert models == {"day-1": "1", "day-2": "12", "day-3": "123", "day-4": None, "day-5": "1235"}


def test_side_by_side_each_item_begins_from_nothing(step: Step) -> None:
    step.data(DAYS)
    step.run(words=ORDERED)
    assert {name: row["model"] for name, row in step.rows.items()} == {name: name[-1] for name in DAYS}


@pytest.mark.slow
def test_in_order_what_comes_after_an_item_that_is_repaired_is_done_again(step: Step) -> None:
    step.data({"day-1": "ok", "day-2": "fail", "day-3": "ok"})
    step.run("--mode", "ordered", "--attempts", 1, words=ORDERED, code=ITEMS_FAILED)
    (step.seen / "repaired").touch()
    step.run("--mode", "ordered", "--attempts", 1, words=ORDERED, JOB_UID="round-2")
    assert step.rows["day-3"]["model"] == "123"
    assert step.runs == ["day-1", "day-2", "day-3", "day-2", "day-3"]


@pytest.mark.slow
def test_the_next_attempt_goes_on_where_the_one_before_was(step: Step) -> None:
    step.data({"day-1": "wait"})
    worker = step.start()
    step.pid("day-1")
    wait_until(lambda: list(step.output.glob("day-1/1-*/steps")))
    worker.send_signal(signal.SIGTERM)
    output = ended(worker, INTERRUPTED)
    assert "day-1: given back" in output
    assert only_error(output) == "error: churn.days: stopped by SIGTERM: the same command goes on (exit code 143)"
    step.go("day-1")
    assert "day-1: claimed (attempt 1)" in step.run()
    assert step.rows["day-1"]["resumed"] == 1
    assert step.rows["day-1"]["attempts"] == 1
    # What the first attempt left is of no use any more.
    assert len(list(step.output.glob("day-1/*-*"))) == 1


def test_a_worker_that_was_killed_leaves_no_process_and_has_lost_an_attempt(step: Step) -> None:
    script = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    step.data({"day-1": "ok"})
    worker = step.start("--attempts", 1, words=(sys.executable, "-S", "-c", script, "{item}"))
    sleeping = f"/proc/{worker.pid}"
    wait_until(lambda: list(step.output.glob("day-1/1-*")))
    wait_until(lambda: [pid for pid in children(worker.pid) for child in children(pid) if child])
    descendants = [pid for child in children(worker.pid) for pid in (child, *children(child))]
    assert len(descendants) >= 3
    worker.kill()
    worker.wait()
    wait_until(lambda: not any(alive(pid) for pid in descendants), 10)
    assert not Path(sleeping).exists()
    error = only_error(step.run("--attempts", 1, code=ITEMS_FAILED))
    assert "day-1: its worker died; it was tried 1 times" in error


def children(pid: int) -> list[int]:
    try:
        return [int(part) for part in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def test_what_a_program_leaves_running_is_ended_with_it(step: Step) -> None:
    step.data({"day-1": "ok"})
    script = (
        "import pathlib, subprocess, sys;"
        "child = subprocess.Popen(['sleep', '600']); pathlib.Path(sys.argv[2], 'pid').write_text(str(child.pid))"
    )
    step.run(words=(sys.executable, "-S", "-c", script, "{item}", "{output}"))
    [pid] = step.output.glob("day-1/1-*/pid")
    assert not alive(int(pid.read_text()))


def test_an_interrupted_worker_gives_its_item_back(step: Step) -> None:
    step.data({"day-1": "wait"})
    worker = step.start()
    program = step.pid("day-1")
    worker.send_signal(signal.SIGINT)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == INTERRUPTED_BY_KEYBOARD
    assert output.splitlines()[-2:] == [
        "day-1: given back",
        "error: churn.days: interrupted: the same command goes on (exit code 130)",
    ]
    assert not alive(program)


@pytest.mark.slow
def test_a_result_of_another_command_is_not_taken(step: Step) -> None:
    step.data({"day-1": "ok"})
    step.run()
    output = step.run(words=(*ORDERED[:-1], "other"))
    assert "Doing it again" in output
    assert step.runs == ["day-1", "day-1"]
    assert check(step.output)


@pytest.mark.slow
def test_a_result_that_was_altered_is_made_again(step: Step) -> None:
    step.data(DAYS)
    step.run()
    (step.output / step.rows["day-2"]["path"] / "model").write_text("altered")
    step.run()
    assert step.runs == [*DAYS, "day-2"]
    check(step.output)


@pytest.mark.slow
def test_in_order_a_result_that_was_altered_before_the_next_begins_is_made_again(step: Step) -> None:
    step.data({"day-1": "ok", "day-2": "wait"})
    worker = step.start("--mode", "ordered", words=ORDERED)
    step.pid("day-2")
    worker.kill()
    worker.wait()
    [model] = step.output.glob("day-1/1-*/model")
    model.write_text("altered")
    step.go("day-2")
    output = step.run("--mode", "ordered", words=ORDERED)
    assert "day-2: given back: the result of day-1 is made again: model " in output
    assert [row["model"] for row in step.rows.values()] == ["1", "12"]


@pytest.mark.slow
def test_items_of_an_earlier_run_are_copied_and_only_a_new_one_is_worked_on(step: Step) -> None:
    step.data(DAYS)
    step.run()
    earlier = step.rows
    step.data({**DAYS, "day-2": "ok, altered", "day-4": "ok"}, "newer")
    (step.folder / "data").rename(step.folder / "older")
    (step.folder / "newer").rename(step.folder / "data")
    step.output = step.output.with_name("two")
    output = step.run()
    assert "day-1: taken from an earlier run" in output
    assert step.runs == [*DAYS, "day-2", "day-4"]
    assert step.rows["day-1"]["seconds"] == earlier["day-1"]["seconds"]
    assert step.rows["day-1"]["manifest"] == earlier["day-1"]["manifest"]
    check(step.output)


@pytest.mark.slow
def test_an_earlier_run_that_failed_gives_what_it_has(step: Step) -> None:
    step.data({**DAYS, "day-2": "wait"})
    worker = step.start()
    step.pid("day-2")
    worker.kill()
    worker.wait()
    step.output = step.output.with_name("two")
    step.go("day-2")
    step.run()
    assert step.runs == ["day-1", "day-2", "day-2", "day-3"]


@pytest.mark.slow
def test_in_order_a_new_item_at_the_end_is_the_only_one_that_is_worked_on(step: Step) -> None:
    step.data(DAYS)
    step.run("--mode", "ordered", words=ORDERED)
    step.data({**DAYS, "day-4": "ok"}, "newer")
    (step.folder / "data").rename(step.folder / "older")
    (step.folder / "newer").rename(step.folder / "data")
    step.output = step.output.with_name("two")
    step.run("--mode", "ordered", words=ORDERED)
    assert step.runs == [*DAYS, "day-4"]
    assert step.rows["day-4"]["model"] == "1234"


@pytest.mark.slow
def test_what_was_altered_in_an_earlier_run_is_not_copied(step: Step) -> None:
    step.data(DAYS)
    step.run()
    (step.output / step.rows["day-1"]["path"] / "model").write_text("x")
    step.output = step.output.with_name("two")
    step.run()
    assert step.runs == [*DAYS, "day-1"]
    assert step.rows["day-1"]["model"] == "1"


@pytest.mark.parametrize("change", ["fingerprint", "code", "input"])
@pytest.mark.slow
def test_what_else_decides_a_result_keeps_it_from_being_copied(step: Step, change: str) -> None:
    step.data({"day-1": "ok"})
    other = step.data({"x": "x"}, "other")
    step.run("--input", f"other={other}", "--fingerprint", "image-1")
    flags = ["--input", f"other={other}", "--fingerprint", "image-1"]
    if change == "fingerprint":
        flags[-1] = "image-2"
    elif change == "code":
        (step.code / "helper.py").touch()
    else:
        flags[1] = f"other={step.data({'x': 'y'}, 'another')}"
    step.output = step.output.with_name("two")
    step.run(*flags)
    assert step.runs == ["day-1", "day-1"]


def test_an_item_whose_file_was_altered_fails_and_the_others_go_on(step: Step) -> None:
    data = step.data(DAYS)
    (data / "days" / "day-2.csv").write_text("altered")
    error = only_error(step.run("--attempts", 2, code=ITEMS_FAILED))
    assert "day-2.csv was altered: its SHA-256 is not the one that was published" in error
    assert sorted(step.runs) == ["day-1", "day-3"]


@pytest.mark.slow
def test_files_that_are_no_result_of_a_step_are_items_too(step: Step) -> None:
    step.data({})
    uploads = step.folder / "uploads"
    uploads.mkdir()
    for name in ("b.csv.gz", "a.csv.gz", ".hidden.csv.gz", "c.txt"):
        (uploads / name).write_text("ok")
    step.run("--items", f"{uploads}/*.csv.gz")
    assert list(step.rows) == ["a", "b"]
    assert step.run("--items", f"{uploads}/*.csv.gz").startswith("Nothing to do")
    (uploads / "a.csv.gz").write_text("ok, altered")
    step.run("--items", f"{uploads}/*.csv.gz")
    assert step.runs == ["a.csv", "b.csv", "a.csv"]


def test_declared_results_of_the_step_are_looked_for_in_the_list(step: Step) -> None:
    step.data({"day-1": "ok"})
    step.run("--result", "model=items.json#/0/model")
    step.output = step.output.with_name("two")
    error = only_error(step.run("--result", "model=items.json#/0/modle", code=NO_RESULT))
    assert "items.json has no /0/modle" in error


def test_secrets_are_masked_in_reasons_and_in_what_the_program_prints(step: Step) -> None:
    step.data({"day-1": "ok"})
    script = (
        "import os, sys; print('it is', os.environ['TOKEN'], flush=True); sys.exit('with ' + os.environ['TOKEN'])"
    )
    output = step.run(
        "--attempts", 1, "--secret", "TOKEN", words=(sys.executable, "-c", script, "{item}"), TOKEN="hunter22",
        code=ITEMS_FAILED,
    )  # fmt: skip
    assert "hunter22" not in output
    assert "it is [secret]" in output
    assert "exit code 1: with [secret]" in output
    assert not [path for path in step.output.rglob("*") if path.is_file() and "hunter22" in path.read_text()]


@pytest.mark.parametrize(
    ("flags", "words", "message"),
    [
        (("--mode", "ordered", "--workers", 2), ORDERED, "--mode ordered with --workers 2 needs --queue"),
        ((), ("true",), "no word of the program is {item}"),
        (("--attempts", 0), ORDERED[:-1], "--attempts 0: write a number above 0"),
        (("--lease", 0), ORDERED[:-1], "--lease 0.0: write a number above 0"),
        (("--allow-failed", -1), ORDERED[:-1], "--allow-failed -1: write 0 or more"),
        (("--queue", "queue"), ORDERED[:-1], "--queue 'queue'; write HOST:PORT"),
        (("--queue-password", "NOWHERE"), ORDERED[:-1], "--queue-password: NOWHERE is not set"),
        (("--unknown", 1), ORDERED[:-1], "unrecognized arguments: --unknown"),
    ],
)
def test_a_wrong_command_line_is_refused(
    step: Step, flags: tuple[object, ...], words: tuple[str, ...], message: str
) -> None:
    step.data(DAYS)
    assert message in step.run(*flags, words=words, code=USAGE)
    assert not step.output.exists()


@pytest.mark.parametrize(
    ("days", "pattern", "message"),
    [
        ({}, "*.csv", "no file among the files of the result in"),
        ({"a": "", "b": ""}, "*.tsv", "days/a.csv, days/b.csv: correct `items.files`"),
        ({"a": "", "a.csv": ""}, "*", "2 files have the name 'a'"),
        ({"items.json": ""}, "*", "'items.json' cannot be the name of an item"),
        ({"a\nb": ""}, "*", "cannot be the name of an item: it has characters that cannot be shown"),
    ],
)
def test_files_that_cannot_be_items_are_named(
    step: Step, days: dict[str, str], pattern: str, message: str
) -> None:
    data = step.data(days)
    if "a.csv" in days:
        (data / "days" / "a.csv.csv").rename(data / "days" / "a.csv.gz")
        manifest = (data / "manifest.json").read_text().replace("a.csv.csv", "a.csv.gz")
        (data / "manifest.json").write_text(manifest)
    assert message in only_error(step.run("--items", f"{data}/days/{pattern}", code=BAD_INPUT))


def test_a_program_that_is_not_there_is_named_before_any_item_is_tried(step: Step) -> None:
    step.data(DAYS)
    error = only_error(step.run(words=("traim", "{item}"), code=BAD_INPUT))
    assert "there is no program 'traim' in this image" in error


def test_items_json_is_one_row_a_line(step: Step) -> None:
    step.data(DAYS)
    step.run()
    lines = (step.output / "items.json").read_text().splitlines()
    assert len(lines) == len(DAYS) + 2
    assert [json.loads(line.rstrip(","))["item"] for line in lines[1:-1]] == list(DAYS)


@pytest.mark.parametrize("fixture", ["step", "queued"])
@pytest.mark.slow
def test_an_item_that_was_altered_after_a_kill_is_made_again(fixture: str, request: pytest.FixtureRequest) -> None:
    step: Step = request.getfixturevalue(fixture)
    step.data(DAYS)
    step.run()
    (step.output / step.rows["day-2"]["path"] / "model").write_text("altered")
    (step.output / "manifest.json").unlink()
    step.run()
    assert step.runs == [*DAYS, "day-2"]
    assert [row["model"] for row in step.rows.values()] == ["1", "2", "3"]
    check(step.output)


@pytest.mark.parametrize("name", ["items.json", "manifest.json", "day-2/result.json", "day-2/failed.json"])
@pytest.mark.slow
def test_a_directory_in_place_of_a_file_is_set_aside(step: Step, name: str) -> None:
    step.data(DAYS)
    if name == "day-2/failed.json":
        (step.output / name).mkdir(parents=True)
    else:
        step.run()
        (step.output / "manifest.json").unlink()
        (step.output / name).unlink(missing_ok=True)
        (step.output / name).mkdir()
    (step.output / name / "mine").write_text("somebody's own")
    output = step.run()
    assert sorted(step.rows) == sorted(DAYS)
    check(step.output)
    assert (step.output / f"{name}.1.slipway-partial" / "mine").read_text() == "somebody's own"
    assert f"{step.output / name} is a directory where a file belongs" in output
    assert "Nothing to do" in step.run()


@pytest.mark.slow
def test_a_file_in_place_of_an_items_directory_is_set_aside(step: Step) -> None:
    step.data(DAYS)
    step.output.mkdir(parents=True)
    (step.output / "day-2").write_text("somebody's own")
    step.run()
    assert sorted(step.rows) == sorted(DAYS)
    assert (step.output / "day-2.1.slipway-partial").read_text() == "somebody's own"


KEPT_PER_ITEM = """
import pathlib, sys, time
item, output, folder = map(pathlib.Path, sys.argv[1:])
before = (folder / "state").read_text() if (folder / "state").exists() else "nothing"
if item.stem == "day-2" and before == "nothing":
    (folder / "state.new").write_text(f"half of {item.stem}")
    (folder / "state.new").replace(folder / "state")
    time.sleep(600)
(output / "summary.json").write_text('{"before": "%s"}' % before)
"""


@pytest.mark.slow
def test_each_item_has_its_own_checkpoints_and_an_end_comes_after_their_copy(step: Step) -> None:
    step.data(DAYS)
    (step.code / "program.py").write_text(KEPT_PER_ITEM)
    flags = ("--checkpoints", '{"grace": 20, "every": 3600}')
    words = (sys.executable, "-S", "program.py", "{item}", "{output}", "{checkpoint}")
    worker = step.start(*flags, words=words)
    store = step.output / "day-2"
    wait_until(lambda: list(store.glob("checkpoints*/*/0/manifest.json")))
    worker.send_signal(signal.SIGTERM)
    ended(worker, INTERRUPTED)
    step.run(*flags, words=words)
    assert [step.rows[day]["before"] for day in DAYS] == ["nothing", "half of day-2", "nothing"]
    assert [row["attempts"] for row in step.rows.values()] == [1, 1, 1]
    assert not list(step.output.rglob("checkpoints*"))
