"""Workers that share a queue: killed, paused, told to stop; and a queue that goes away and comes back."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from slipway.features.items.pod.item_worker import ITEMS_FAILED
from slipway.features.items.pod.queue import QUEUE_TROUBLE
from slipway.runtime.exits import INTERRUPTED
from slipway.runtime.store import check
from tests.features.items.workers import Step, alive, ended, wait_until
from tests.support.servers.valkey import PASSWORD
from tests.support.steps import only_error

DAYS = {f"day-{number}": "ok" for number in range(1, 7)}
ORDERED = (sys.executable, "-S", "program.py", "{item}", "{output}", "{previous}")


def waiting(step: Step, days: dict[str, str], *flags: object, **variables: str) -> subprocess.Popen[str]:
    """A worker whose program waits at the first of `days`."""
    step.data(days)
    worker = step.start(*flags, **variables)
    step.pid(next(iter(days)))
    return worker


@pytest.mark.slow
def test_two_workers_share_the_items_and_each_is_worked_on_once(queued: Step) -> None:
    queued.data({name: "wait" if name in {"day-1", "day-2"} else "ok" for name in DAYS})
    workers = [queued.start("--workers", 2, JOB_COMPLETION_INDEX=index) for index in "01"]
    queued.pid("day-1")
    queued.pid("day-2")
    queued.go("day-1", "day-2")
    outputs = [ended(worker) for worker in workers]
    assert sorted(queued.runs) == list(DAYS)
    assert sum(output.count(": done in ") for output in outputs) == len(DAYS)
    assert list(queued.rows) == list(DAYS)
    check(queued.output)


@pytest.mark.slow
def test_the_password_of_the_queue_is_masked(queued: Step) -> None:
    queued.data({"day-1": "ok"})
    script = "import os; print('it is', os.environ['QUEUE_PASSWORD'])"
    output = queued.run(words=(sys.executable, "-S", "-c", script, "{item}"))
    assert "it is [secret]" in output
    assert PASSWORD not in output


@pytest.mark.slow
def test_another_worker_takes_the_item_of_one_that_was_killed(queued: Step) -> None:
    killed = waiting(queued, {"day-1": "wait"}, "--lease", 3)
    other = queued.start("--lease", 3)
    program = queued.pid("day-1")
    queued.again("day-1")
    killed.kill()
    queued.pid("day-1")
    assert not alive(program)
    queued.go("day-1")
    assert "day-1: claimed (attempt 2)" in ended(other)
    assert queued.rows["day-1"]["attempts"] == 2
    assert queued.rows["day-1"]["resumed"] == 1


@pytest.mark.slow
def test_a_worker_that_was_paused_for_longer_than_its_lease_publishes_nothing(queued: Step) -> None:
    slow = waiting(queued, {"day-1": "wait"}, "--lease", 1)
    program = queued.pid("day-1")
    other = queued.start("--lease", 1)
    slow.send_signal(signal.SIGSTOP)
    queued.again("day-1")
    taken = queued.pid("day-1")
    assert alive(program)
    slow.send_signal(signal.SIGCONT)
    wait_until(lambda: not alive(program), 5)
    assert alive(taken)
    queued.go("day-1")
    assert "day-1: done in " in ended(other)
    output = ended(slow)
    assert "day-1: stopped: another worker may have it: its lease ran out" in output
    assert "day-1: done in " not in output
    assert queued.rows["day-1"]["path"].startswith("day-1/2-")
    check(queued.output)


@pytest.mark.slow
def test_a_worker_that_was_paused_until_its_program_had_ended_publishes_nothing(queued: Step) -> None:
    slow = waiting(queued, {"day-1": "wait"}, "--lease", 1)
    program = queued.pid("day-1")
    slow.send_signal(signal.SIGSTOP)
    queued.go("day-1")
    wait_until(lambda: not alive(program))
    other = queued.start("--lease", 1)
    ended(other)
    row = queued.rows["day-1"]
    slow.send_signal(signal.SIGCONT)
    assert "day-1: done in " not in ended(slow)
    assert queued.rows["day-1"] == row
    check(queued.output)


@pytest.mark.slow
def test_a_worker_that_was_paused_until_its_attempt_was_deleted_goes_on_with_other_items(queued: Step) -> None:
    slow = waiting(queued, {"day-1": "wait", "day-2": "wait"}, "--lease", 1)
    [attempt] = queued.output.glob("day-1/1-*")
    other = queued.start("--lease", 1)
    queued.pid("day-2")
    slow.send_signal(signal.SIGSTOP)
    queued.again("day-1")
    queued.go("day-1", "day-2")
    wait_until(lambda: (queued.output / "day-1" / "result.json").exists() and not attempt.exists())
    slow.send_signal(signal.SIGCONT)
    assert "day-1: done in " not in ended(slow)
    ended(other)
    assert not attempt.exists()
    check(queued.output)


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_gives_its_item_back_at_once(queued: Step) -> None:
    told = waiting(queued, {"day-1": "wait"}, "--lease", 60, "--attempts", 1)
    told.send_signal(signal.SIGTERM)
    assert "day-1: given back" in ended(told, INTERRUPTED)
    queued.go("day-1")
    began = time.monotonic()
    assert "day-1: claimed (attempt 1)" in queued.run("--lease", 60, "--attempts", 1)
    assert time.monotonic() - began < 20
    assert queued.rows["day-1"]["resumed"] == 1


def test_a_worker_that_waits_ends_at_once_when_told(queued: Step) -> None:
    waiting(queued, {"day-1": "wait"})
    idle = queued.start()
    assert idle.stdout is not None
    assert idle.stdout.readline() == "waiting: others work on 1 item\n"
    idle.send_signal(signal.SIGTERM)
    ended(idle, INTERRUPTED)


@pytest.mark.slow
def test_an_item_that_fails_is_set_aside_and_tried_again_in_the_next_round(queued: Step) -> None:
    queued.data({**DAYS, "day-2": "fail ValueError: no column AMOUNT"})
    first = queued.start("--attempts", 2)
    second = queued.start("--attempts", 2, JOB_COMPLETION_INDEX="1")
    error = only_error(ended(first, ITEMS_FAILED))
    assert "1 of 6 items failed" in error
    assert "day-2: exit code 1: ValueError: no column AMOUNT (tried 2 times)" in error
    assert second.wait(60) in {0, ITEMS_FAILED}
    assert sorted(queued.runs) == sorted([*DAYS, "day-2"])
    assert not (queued.output / "manifest.json").exists()

    queued.run("--attempts", 2, code=ITEMS_FAILED)
    (queued.seen / "repaired").touch()
    queued.run("--attempts", 2, JOB_UID="round-2")
    assert sorted(queued.runs) == sorted([*DAYS, "day-2", "day-2"])
    assert {row["state"] for row in queued.rows.values()} == {"done"}
    check(queued.output)


@pytest.mark.slow
def test_an_item_that_kills_its_workers_is_set_aside(queued: Step) -> None:
    queued.data({"day-1": "wait", "day-2": "ok"})
    for _ in range(2):
        worker = queued.start("--lease", 1, "--attempts", 2)
        queued.pid("day-1")
        worker.kill()
        worker.wait()
        queued.again("day-1")
    error = only_error(queued.run("--lease", 1, "--attempts", 2, code=ITEMS_FAILED))
    assert "day-1: its worker died 2 times (tried 2 times)" in error
    assert queued.rows["day-2"]["state"] == "done"


@pytest.mark.slow
def test_a_queue_that_is_killed_loses_nothing(queued: Step) -> None:
    assert queued.queue is not None
    worker = waiting(queued, {"day-1": "wait", "day-2": "ok", "day-3": "wait", "day-4": "ok"}, "--lease", 20)
    queued.queue.kill()
    queued.go("day-1")
    time.sleep(1)
    queued.queue.start()
    queued.pid("day-3")
    time.sleep(1.5)
    queued.queue.kill()
    queued.queue.start()
    queued.go("day-3")
    ended(worker)
    assert sorted(set(queued.runs)) == ["day-1", "day-2", "day-3", "day-4"]
    assert {row["state"] for row in queued.rows.values()} == {"done"}
    assert all(queued.rows[day]["attempts"] == 1 for day in queued.rows)
    check(queued.output)


@pytest.mark.slow
def test_a_program_is_ended_when_the_queue_is_away_for_longer_than_the_lease(queued: Step) -> None:
    assert queued.queue is not None
    worker = waiting(queued, {"day-1": "wait"}, "--lease", 1.5, "--attempts", 1)
    program = queued.pid("day-1")
    # The disk of the queue has the claim.
    time.sleep(1.2)
    queued.queue.kill()
    wait_until(lambda: not alive(program), 6)
    queued.again("day-1")
    queued.go("day-1")
    queued.queue.start()
    output = ended(worker)
    assert "day-1: stopped: the queue could not be reached for longer than the lease" in output
    assert queued.rows["day-1"]["attempts"] == 1


@pytest.mark.slow
def test_what_is_done_stays_done_where_the_queue_lost_its_data(queued: Step) -> None:
    assert queued.queue is not None
    worker = waiting(queued, {"day-1": "ok", "day-2": "ok", "day-3": "wait"}, "--lease", 20)
    queued.pid("day-3")
    wait_until((queued.output / "day-2" / "result.json").exists)
    queued.queue.delete()
    queued.queue.start()
    queued.go("day-3")
    ended(worker)
    assert queued.runs.count("day-1") == 1
    assert queued.runs.count("day-2") == 1
    # The third was claimed in the queue that is gone: its result was whole, and not worked on again either.
    assert queued.runs.count("day-3") == 1
    check(queued.output)


@pytest.mark.slow
def test_filling_twice_adds_nothing(queued: Step) -> None:
    queued.data(DAYS)
    output = queued.run()
    assert "put 6 items into the queue, of which 0 are done" in output
    (queued.output / "manifest.json").unlink()
    output = queued.run()
    assert "into the queue" not in output
    assert "claimed" not in output
    assert sorted(queued.runs) == list(DAYS)
    check(queued.output)


@pytest.mark.slow
def test_a_result_whose_worker_died_before_it_was_recorded_is_recorded_by_another(queued: Step) -> None:
    queued.data(DAYS)
    queued.run()
    before = queued.rows
    # What a worker leaves that is killed between the two.
    (queued.output / "manifest.json").unlink()
    (queued.output / "items.json").unlink()
    (queued.output / "day-2" / "result.json").unlink()
    assert "claimed" not in queued.run()
    assert queued.rows == before
    assert (queued.output / "day-2" / "result.json").exists()


@pytest.mark.slow
def test_in_order_each_item_begins_from_the_one_before_whoever_works_on_it(queued: Step) -> None:
    queued.data({**DAYS, "day-4": "fail early"})
    flags = ("--mode", "ordered", "--allow-failed", 1, "--attempts", 2)
    workers = [queued.start(*flags, words=ORDERED, JOB_COMPLETION_INDEX=index) for index in "01"]
    for worker in workers:
        ended(worker)
    models = {name: row.get("model") for name, row in queued.rows.items()}
    assert models == {
        "day-1": "1",
        "day-2": "12",
        "day-3": "123",
        "day-4": None,
        "day-5": "1235",
        "day-6": "12356",
    }
    assert queued.runs == ["day-1", "day-2", "day-3", "day-4", "day-4", "day-5", "day-6"]


@pytest.mark.slow
def test_in_order_a_worker_that_was_killed_is_followed_from_its_checkpoint(queued: Step) -> None:
    queued.data({"day-1": "ok", "day-2": "wait", "day-3": "ok"})
    flags = ("--mode", "ordered", "--lease", 1)
    killed = queued.start(*flags, words=ORDERED)
    program = queued.pid("day-2")
    wait_until(lambda: list(queued.output.glob("day-2/1-*/steps")))
    killed.kill()
    wait_until(lambda: not alive(program))  # its guard ends it
    queued.go("day-2")
    queued.run(*flags, words=ORDERED)
    rows = queued.rows
    assert [row["model"] for row in rows.values()] == ["1", "12", "123"]
    assert (rows["day-2"]["resumed"], rows["day-2"]["attempts"]) == (1, 2)


@pytest.mark.slow
def test_in_order_a_result_that_was_altered_before_the_next_begins_is_made_again(queued: Step) -> None:
    queued.data({"day-1": "ok", "day-2": "wait"})
    worker = queued.start("--mode", "ordered", "--lease", 1, words=ORDERED)
    queued.pid("day-2")
    worker.kill()
    worker.wait()
    [model] = queued.output.glob("day-1/1-*/model")
    model.write_text("altered")
    queued.go("day-2")
    queued.run("--mode", "ordered", "--lease", 1, words=ORDERED)
    assert [row["model"] for row in queued.rows.values()] == ["1", "12"]
    check(queued.output)


@pytest.mark.slow
def test_a_new_item_is_the_only_one_that_the_next_run_works_on(queued: Step) -> None:
    queued.data(DAYS)
    queued.run()
    queued.data({**DAYS, "day-7": "ok"}, "newer")
    (queued.folder / "data").rename(queued.folder / "older")
    (queued.folder / "newer").rename(queued.folder / "data")
    queued.output = queued.output.with_name("two")
    queued.run()
    assert queued.runs[len(DAYS) :] == ["day-7"]
    assert len(queued.rows) == 7


@pytest.mark.slow
def test_a_result_that_vanished_from_the_store_is_made_again(queued: Step) -> None:
    queued.data(DAYS)
    queued.run()
    (queued.output / "manifest.json").unlink()
    for path in (queued.output / queued.rows["day-2"]["path"]).iterdir():
        path.unlink()
    assert "the results of 1 item are not as they were, and are made again" in queued.run()
    assert queued.runs == [*DAYS, "day-2"]
    check(queued.output)


@pytest.mark.slow
def test_a_result_that_was_altered_is_made_again(queued: Step) -> None:
    queued.data(DAYS)
    queued.run()
    (queued.output / queued.rows["day-2"]["path"] / "model").write_text("altered")
    queued.run()
    assert queued.runs == [*DAYS, "day-2"]
    check(queued.output)


@pytest.mark.slow
def test_no_queue_and_a_wrong_password_are_one_line(queued: Step) -> None:
    assert queued.queue is not None
    queued.data(DAYS)
    output = queued.run(QUEUE_PASSWORD="wrong horse", code=QUEUE_TROUBLE)
    assert "refused: WRONGPASS" in only_error(output)
    assert "wrong horse" not in output
    queued.queue.kill()
    output = queued.run("--patience", 0.5, code=QUEUE_TROUBLE)
    assert f"the queue at {queued.queue.address} could not be reached for 0.5 s: " in only_error(output)
    assert PASSWORD not in output
    assert queued.runs == []


@pytest.mark.slow
def test_a_worker_that_waits_for_the_queue_ends_at_once_when_told(queued: Step) -> None:
    assert queued.queue is not None
    queued.data(DAYS)
    queued.queue.kill()
    worker = queued.start()
    time.sleep(2)
    worker.send_signal(signal.SIGTERM)
    ended(worker, INTERRUPTED)
