"""Searches by Optuna: what decides which parameters a trial has, and workers that are killed at random."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from slipway.features.items.pod.item_worker import ITEMS_FAILED
from slipway.features.search.pod.reports import FILE, Printed, Reports
from slipway.features.search.pod.study import Plan, Trial, suggest
from slipway.runtime.exits import USAGE, StepError
from slipway.runtime.store import check
from tests.features.items.workers import ended, wait_until
from tests.support.servers.valkey import PASSWORD, ValkeyServer
from tests.support.steps import only_error, start

PROGRAM = """
import json, math, os, pathlib, sys, time
rate, units, output = float(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
folder = pathlib.Path(os.environ.get("SLIPWAY_CHECKPOINT", output))
steps = folder / "steps"
begun = int(steps.read_text()) if steps.exists() else 0
with open(os.environ["SEEN"], "a") as seen:
    seen.write(f"{rate} {units} {begun}\\n")
for step in range(begun, 3):
    time.sleep(float(os.environ.get("PAUSE", "0")))
    with open(output / "progress.jsonl", "a") as progress:
        value = (step + 1) / 10 - abs(math.log10(rate) + 3) / 10
        progress.write(json.dumps({"step": step, "accuracy": value}) + "\\n")
    print(f"\\repoch {step}: accuracy {value!r}", end="" if step == 2 else "\\n")
    (folder / "steps.new").write_text(str(step + 1))
    (folder / "steps.new").replace(steps)
accuracy = 1 - abs(math.log10(rate) + 3) / 10 - abs(units - 128) / 2000
if units == int(os.environ.get("WRONG", "0")):
    accuracy = "none"
(output / "metrics.json").write_text(json.dumps({"accuracy": accuracy}))
"""

PLAN: dict[str, Any] = {
    "parameters": {"rate": {"low": 1e-5, "high": 0.1, "log": True, "type": "number"}, "units": [64, 128, 256]},
    "trials": 40,
    "at_once": 4,
    "by": "metrics.json#/accuracy",
    "of": "max",
    "method": "tpe",
    "seed": 1,
}


PRINTED_STEPS = r"printed:epoch (?P<step>\d+): accuracy (?P<value>[-\d.e]+)"


class Search:
    """A step that searches, and its workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "code"
        self.code.mkdir()
        (self.code / "program.py").write_text(PROGRAM)

    def start(self, run: str, *flags: object, plan: dict[str, Any], **variables: str) -> subprocess.Popen[str]:
        """Start a worker on the run of that name."""
        return start(
            "slipway.features.search.pod.worker",
            "--search", json.dumps(plan), "--output", self.output(run), "--lease", 3,
            "--step", "churn.tune", "--code", self.code, "--result", "accuracy=metrics.json#/accuracy", *flags,
            "--", sys.executable, "-S", "program.py", "{rate}", "{units}", "{output}",
            **{"SEEN": str(self.folder / "seen"), "JOB_UID": "round", "QUEUE_PASSWORD": PASSWORD, **variables},
        )  # fmt: skip

    def run(self, run: str, plan: dict[str, Any], *flags: object, code: int = 0, **variables: str) -> str:
        """Run a single worker to its end."""
        return ended(self.start(run, *flags, plan={**plan, "at_once": 1}, **variables), code)

    def output(self, run: str) -> Path:
        return self.folder / "store" / run

    def rows(self, run: str) -> list[dict[str, Any]]:
        return json.loads((self.output(run) / "search" / "trials.json").read_text())

    def best(self, run: str) -> tuple[dict[str, Any], float]:
        trial = json.loads((self.output(run) / "trial.json").read_text())
        return trial["parameters"], trial["value"]

    @property
    def programs(self) -> list[str]:
        return (self.folder / "seen").read_text().splitlines()


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return Search(tmp_path)


def load(path: Path) -> optuna.Study:
    """The study of a run, as Optuna's own tools open it."""
    return optuna.load_study(study_name="search", storage=JournalStorage(JournalFileBackend(str(path))))


def parameters(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row["parameters"] for row in rows]


CHECKPOINTS = ("--checkpoints", '{"grace": 20}')


@pytest.mark.long
@pytest.mark.parametrize(
    ("stop", "checkpoints", "pause"),
    [("", (), "0.15"), ("median", (), "0.15"), ("median", CHECKPOINTS, "0.7")],
)
def test_twenty_killed_workers_lose_no_trial_double_none_and_change_no_parameter(
    stop: str, checkpoints: tuple[str, ...], pause: str, search: Search, valkey_server: ValkeyServer
) -> None:
    plan = {**PLAN, "stop": stop, "reports": "progress.jsonl#/accuracy" if stop else ""}
    queue = ("--queue", valkey_server.address, "--queue-password", "QUEUE_PASSWORD", "--workers", 4)
    flags = (*queue, "--attempts", 20, *checkpoints)

    def begin(run: str, index: int) -> subprocess.Popen[str]:
        return search.start(run, *flags, plan=plan, JOB_COMPLETION_INDEX=str(index), PAUSE=pause)

    for worker in [begin("first/calm", index) for index in range(4)]:
        ended(worker)
    assert len(search.programs) == 40
    assert all(program.endswith(" 0") for program in search.programs)

    chance = random.Random(7)
    workers = [begin("second/killed", index) for index in range(4)]
    kills = 0
    folder = search.output("second/killed") / "search"
    deadline = time.monotonic() + 240
    while kills < 20:
        assert time.monotonic() < deadline
        done = len(list(folder.glob("*/result.json"))) if folder.is_dir() else 0
        assert done < 40, "the search was over before all workers were killed"
        if done < kills * 1.8:
            time.sleep(0.02)
            continue
        index = chance.randrange(4)
        if workers[index].poll() is None:
            workers[index].kill()
            kills += 1
        workers[index].communicate()
        workers[index] = begin("second/killed", index)
    for worker in workers:
        ended(worker)

    calm, killed = search.rows("first/calm"), search.rows("second/killed")
    assert [row["state"] for row in killed] == [row["state"] for row in calm]
    assert {row["state"] for row in killed} == ({"complete", "pruned"} if stop else {"complete"})
    assert Counter(row["trial"] for row in killed).most_common(1)[0][1] == 1
    assert parameters(killed) == parameters(calm)
    assert search.best("second/killed") == search.best("first/calm")
    check(search.output("second/killed"))
    assert not list(folder.rglob("checkpoints*"))
    study = load(search.output("second/killed") / "search" / "study.log")
    assert len(study.trials) == 40
    assert (
        study.best_value
        == search.best("second/killed")[1]
        == max(row["value"] for row in calm if row["state"] == "complete")
    )


@pytest.mark.slow
def test_a_trial_goes_on_from_its_own_checkpoint_and_none_is_left_of_those_that_ended(search: Search) -> None:
    plan = {**PLAN, "parameters": {"rate": [0.001], "units": [128, 64, 256]}, "method": "grid", "trials": 3}
    plan |= {"at_once": 1, "stop": "median", "reports": "progress.jsonl#/accuracy"}
    flags = (*CHECKPOINTS, "--attempts", 2, "--allow-failed", 1)
    # Copies are looked for twice a second, and go with their trial: it lasts long enough for one to be seen.
    killed = search.start("tune/a", *flags, plan=plan, PAUSE="3")
    folder = search.output("tune/a") / "search"
    wait_until(lambda: list(folder.glob("trial-0000/checkpoints*/*/0/manifest.json")))
    killed.kill()
    killed.communicate()
    (folder / "trial-0001" / "checkpoints.slipway-partial" / "left").mkdir(parents=True)
    search.run("tune/a", plan, *flags, WRONG="64")
    assert [row["state"] for row in search.rows("tune/a")] == ["complete", "failed", "complete"]
    begun = [program.split() for program in search.programs]
    assert [units for _, units, _ in begun] == ["128", "128", "64", "64", "256"]
    assert [int(step) > 0 for _, _, step in begun] == [False, True, False, False, False]
    assert not list(folder.rglob("checkpoints*"))


@pytest.mark.slow
def test_more_trials_run_only_those_that_are_new(search: Search) -> None:
    search.run("tune/six", {**PLAN, "trials": 6})
    search.run("tune/nine", {**PLAN, "trials": 9})
    assert len(search.programs) == 9
    assert parameters(search.rows("tune/nine"))[:6] == parameters(search.rows("tune/six"))
    assert "Nothing to do" in search.run("tune/nine", {**PLAN, "trials": 9})


@pytest.mark.slow
def test_a_trial_without_a_number_is_set_aside_and_the_best_is_one_of_the_others(search: Search) -> None:
    plan = {**PLAN, "parameters": {"rate": [0.001, 0.01], "units": [128, 64]}, "method": "grid", "trials": 4}
    flags = ("--attempts", 1)
    output = search.run("tune/a", plan, *flags, code=ITEMS_FAILED, WRONG="64")
    assert "is not a number" in only_error(output)
    search.run("tune/a", plan, *flags, "--allow-failed", 2, WRONG="64")
    assert [row["state"] for row in search.rows("tune/a")] == ["complete", "failed", "complete", "failed"]
    assert search.best("tune/a") == ({"rate": 0.001, "units": 128}, 1.0)
    states = [trial.state.name for trial in load(search.output("tune/a") / "search" / "study.log").trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "FAIL"]


@pytest.mark.long
@pytest.mark.parametrize("stop", ["median", "hyperband"])
def test_trials_are_stopped_by_what_they_report_and_not_by_when_that_is_read(stop: str, search: Search) -> None:
    plan = {**PLAN, "trials": 12, "stop": stop, "reports": "progress.jsonl#/accuracy"}
    search.run("first/quick", plan)
    search.run("second/slow", {**plan, "trials": 12}, PAUSE="0.4")
    rows = search.rows("first/quick")
    states = [row["state"] for row in rows]
    assert {*states} == {"complete", "pruned"}
    search.run("third/printed", {**plan, "reports": PRINTED_STEPS})
    assert [row["state"] for row in search.rows("third/printed")] == [row["state"] for row in rows]
    assert parameters(search.rows("third/printed")) == parameters(rows)
    others = search.rows("second/slow")
    assert [row["state"] for row in others] == states
    assert parameters(others) == parameters(rows)
    complete = [row["value"] for row in rows if row["state"] == "complete"]
    assert search.best("first/quick") == search.best("second/slow")
    assert search.best("first/quick")[1] == max(complete)
    study = load(search.output("second/slow") / "search" / "study.log")
    assert [trial.state.name.lower() for trial in study.trials] == states
    assert all(trial.intermediate_values for trial in study.trials)


def read(directory: Path) -> dict[int, float]:
    reports = Reports(directory, "printed:", SimpleNamespace(stops=lambda *_: False))
    reports.read()
    return reports.seen


BOTH = r"epoch (?P<step>\S+): .*accuracy (?P<value>\S+)"
APART = r"Epoch (?P<step>\d+)/|val_accuracy: (?P<value>[\d.]+)"
ALONE = r"loss=(?P<value>\S+)"


@pytest.mark.parametrize(
    ("pattern", "output", "values", "words"),
    [
        (BOTH, "\n─ 10 %\repoch 1: loss 2 accuracy 0.7\nepoch 4: accuracy 1e-3", {1: 0.7, 4: 0.001}, []),
        (BOTH, "epoch 2: accuracy nan\nepoch 3: accuracy 0,5\n", {}, ["nan", "step 2", "1 more"]),
        (BOTH, "epoch 1.5: accuracy 1\n", {}, ["1.5"]),
        (BOTH, "accuracy 1\n", {}, ["printed"]),
        (ALONE, "loss=3\nloss 2\nloss=nan\nloss=1\n", {0: 3.0, 2: 1.0}, ["nan"]),
        (ALONE, f"{'-' * 2000}loss=1\nloss=2\n", {0: 2.0}, []),
        (
            APART,
            "Epoch 1/2\n 1/9\r9/9 - val_accuracy: 0.5\nEpoch 2/2\nval_accuracy: 0.75\n",
            {1: 0.5, 2: 0.75},
            [],
        ),
        (APART, "val_accuracy: 0.5\n", {}, ["0.5"]),
    ],
)
def test_what_a_program_prints_of_its_steps_is_kept_as_reports(
    pattern: str, output: str, values: dict[int, float], words: list[str], tmp_path: Path
) -> None:
    """In pieces that end anywhere, and beside other lines; of what is skipped there is a word."""
    printed = Printed(tmp_path, f"printed:{pattern}")
    for byte in output.encode():
        printed(bytes([byte]))
    printed.end(whole=True)
    assert read(tmp_path) == values
    assert not [word for word in words if word not in printed.remark]
    assert bool(printed.remark) == bool(words)


def test_half_a_line_of_a_program_that_was_killed_is_no_report(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"step": 0, "value": 0.5}\n{"st')
    for output in (b"epoch 1: accuracy 0.9", b"epoch 0: accuracy 0.1\nepoch 1: accuracy 0.97\n"):
        printed = Printed(tmp_path, f"printed:{BOTH}")
        printed(output)
        printed.end(whole=False)
    assert read(tmp_path) == {0: 0.5, 1: 0.97}


def test_a_file_that_cannot_be_written_ends_no_program_and_is_said_at_its_end(tmp_path: Path) -> None:
    printed = Printed(tmp_path / "later", f"printed:{ALONE}")
    printed(b"loss=1\n")
    with pytest.raises(StepError):
        printed.end(whole=True)
    (tmp_path / "later").mkdir()
    printed(b"loss=2\n")
    printed.end(whole=True)
    assert read(tmp_path / "later") == {0: 1.0, 1: 2.0}


@pytest.mark.slow
def test_several_workers_need_a_queue(search: Search) -> None:
    output = ended(search.start("tune/a", "--workers", 2, plan=PLAN), USAGE)
    assert "--queue" in output


def test_results_of_trials_that_run_meanwhile_decide_nothing() -> None:
    plan = Plan(**PLAN)
    first = [
        Trial({"rate": 10 ** -(1 + number % 4), "units": 64}, "complete", number / 20) for number in range(17)
    ]
    running = [Trial({"rate": 0.02, "units": 128}), Trial({"rate": 0.03, "units": 256})]
    chosen = suggest(plan, [*first, *running])
    assert suggest(plan, [*first, *running]) == chosen
    assert suggest(Plan(**{**PLAN, "seed": 2}), [*first, *running]) != chosen
    assert suggest(plan, [*first[:-1], Trial(first[-1].parameters, "failed"), *running]) != chosen


def test_a_grid_is_tried_in_the_order_of_its_values() -> None:
    plan = Plan(
        **{
            **PLAN,
            "method": "grid",
            "parameters": {
                "units": [64, 128],
                "depth": {"low": 1, "high": 5, "step": 2, "type": "integer"},
            },
        }
    )
    chosen: list[Trial] = []
    for _ in range(6):
        chosen.append(Trial(suggest(plan, chosen), "complete", 1.0))
    values = [tuple(trial.parameters.values()) for trial in chosen]
    assert values == [(64, 1), (64, 3), (64, 5), (128, 1), (128, 3), (128, 5)]
