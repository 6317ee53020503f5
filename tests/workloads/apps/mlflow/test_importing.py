"""Results in MLflow: each is a run once, whatever is interrupted, and with all that the store has of it."""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slipway.workloads.apps.mlflow.api import Mlflow, MlflowError
from slipway.workloads.apps.mlflow.database import SqliteFile
from slipway.workloads.apps.mlflow.importing import RESULT, Importer
from slipway.workloads.apps.mlflow.records import parameters, record
from slipway.workloads.runtime import history
from tests.support.stores import add_result

DECLARED = [
    {"kind": "number", "name": "accuracy", "path": "metrics.json", "select": "/accuracy"},
    {"kind": "number", "name": "absent", "path": "metrics.json", "select": "/absent"},
    {"kind": "curves", "name": "history", "path": "metrics.json", "select": "/history", "unit": "epoch"},
]
FILES = {"metrics.json": {"accuracy": 0.5, "history": [{"epoch": 1, "loss": 3}, {"epoch": 2, "loss": 2}]}}
COMMAND = [
    "python",
    "train.py",
    "x.y=2",
    "--data",
    "{prepare}/a",
    "--rate=0.1",
    "-e",
    "3",
    "--shift",
    "-1",
    "--mixed",
]
FIRST, SECOND = "shop/train/aaaaaaaaaa", "shop/train/bbbbbbbbbb-20261122-0300"
THIRD = "shop/train/ffffffffff"


class Kept(Mlflow):
    """Keeps runs in memory, and where they are in the table that MLflow has; refuses the call `trouble`."""

    def __init__(self, database: Path) -> None:
        super().__init__("http://127.0.0.1:0")
        self.kept: dict[str, dict[str, Any]] = {}
        self.trouble = ""
        self.database = database
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE runs (run_uuid TEXT, artifact_uri TEXT)")

    def experiment(self, name: str) -> str:
        return name

    def runs(self, experiment: str) -> Iterator[dict[str, Any]]:
        del experiment
        for name, run in self.kept.items():
            tags = [{"key": key, "value": value} for key, value in run["tags"].items()]
            yield {"info": {"run_id": name, "run_name": run["name"]}, "data": {"tags": tags}}

    def create(self, experiment: str, name: str, start: int, tags: Mapping[str, str]) -> str:
        del experiment, start
        run = f"run-{len(self.kept)}"
        self.kept[run] = {
            "name": name,
            "tags": dict(tags),
            "metrics": [],
            "parameters": {},
            "inputs": [],
            "end": None,
        }
        with sqlite3.connect(self.database) as connection:
            connection.execute("INSERT INTO runs VALUES (?, '')", (run,))
        self._end("create")
        return run

    def log(
        self,
        run: str,
        *,
        metrics: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.kept[run]["parameters"].update(parameters or {})
        self.kept[run]["metrics"] += [metric for metric in metrics if metric not in self.kept[run]["metrics"]]
        self._end("log")
        self.kept[run]["tags"].update(tags or {})

    def log_inputs(self, run: str, datasets: Sequence[Mapping[str, str]]) -> None:
        self.kept[run]["inputs"] = list(datasets)

    def finish(self, run: str, end: int, name: str = "") -> None:
        self._end("finish")
        self.kept[run]["name"] = name or self.kept[run]["name"]
        self.kept[run]["end"] = end

    def _end(self, call: str) -> None:
        if call == self.trouble:
            raise MlflowError("gone")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    raw = add_result(store, "shop/read/eeeeeeeeee", {"raw.json": [1]}, settings={"command": ["read", "--days=7"]})
    split = {"split": {"share": 0.2}}
    data = add_result(
        store, "shop/prepare/cccccccccc", {"data.json": [1]}, made=5, inputs={"read": raw}, settings=split
    )
    facts = {"commit": "abc", "changed": True, "stack": "dev", "pool": "t4", "began": 10, "ended": 46}
    settings = {"command": COMMAND}
    add_result(store, FIRST, FILES, made=50, inputs={"prepare": data}, settings=settings, facts=facts)
    add_result(store, SECOND, FILES, made=60, inputs={"prepare": data}, settings=settings)
    (store / "shop/train/dddddddddd").mkdir()
    return store


@pytest.fixture
def mlflow(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "mlflow.db")


def importer(mlflow: Kept, store: Path) -> Importer:
    return Importer(mlflow, SqliteFile(mlflow.database), store, "shop", {"train": DECLARED, "gone": []})


def test_each_result_is_one_run_whatever_starts_anew(mlflow: Kept, store: Path) -> None:
    first = importer(mlflow, store)
    assert (first.look(), first.look()) == (2, 0)
    assert importer(mlflow, store).look() == 0
    assert {run["tags"]["directory"] for run in mlflow.kept.values()} == {FIRST, SECOND}
    assert len(mlflow.kept) == 2
    with sqlite3.connect(mlflow.database) as connection:
        places = {place for (place,) in connection.execute("SELECT artifact_uri FROM runs")}
    assert places == {(store / FIRST).as_uri(), (store / SECOND).as_uri()}


@pytest.mark.parametrize("call", ["create", "log", "finish"])
def test_what_was_interrupted_is_completed_and_not_recorded_twice(mlflow: Kept, store: Path, call: str) -> None:
    mlflow.trouble = call
    interrupted = importer(mlflow, store)
    with pytest.raises(MlflowError):
        interrupted.look()
    mlflow.trouble = ""
    interrupted.forget()
    assert interrupted.look() == 2
    assert len(mlflow.kept) == 2
    for run in mlflow.kept.values():
        assert run["end"]
        curve = [metric["value"] for metric in run["metrics"] if metric["key"] == "history/loss"]
        assert curve == [3, 2]


def test_a_run_has_what_the_store_has_of_its_result(mlflow: Kept, store: Path) -> None:
    importer(mlflow, store).look()
    run = next(run for run in mlflow.kept.values() if run["tags"]["directory"] == FIRST)
    of_step = {"rate": "0.1", "e": "3", "shift": "-1", "mixed": "true", "x.y": "2"}
    # Those of the steps before it: the data decided, too.
    assert run["parameters"] == {**of_step, "prepare.split.share": "0.2", "read.days": "7"}
    last = {metric["key"]: (metric["value"], metric["step"]) for metric in run["metrics"]}
    assert last == {"cost/seconds": (36, 0), "accuracy": (0.5, 0), "history/loss": (2, 2)}
    wanted = {"mlflow.source.git.commit": "abc", "stack": "dev", "pool": "t4", "digest": "a" * 10}
    assert wanted.items() <= run["tags"].items()
    assert [dataset["name"] for dataset in run["inputs"]] == ["prepare"]
    by_clock = next(run for run in mlflow.kept.values() if run["tags"]["directory"] == SECOND)
    assert by_clock["tags"]["scheduled"] == "20261122-0300"
    assert "commit" not in by_clock["tags"]


def test_what_is_noted_later_is_added_and_another_time_is_not(mlflow: Kept, store: Path) -> None:
    importer(mlflow, store).look()
    add_result(store, SECOND, FILES, made=999, settings={"command": COMMAND})
    later = importer(mlflow, store)
    # Results that were published again with other content are others; those before stay.
    count = len(mlflow.kept)
    later.look()
    assert len({run["tags"][RESULT] for run in mlflow.kept.values()}) == len(mlflow.kept) >= count
    (store / ".history/shop/train").mkdir(parents=True, exist_ok=True)
    (store / ".history" / f"{FIRST}.json").write_text('{"commit": "def"}')
    assert importer(mlflow, store).look() == 1
    run = next(run for run in mlflow.kept.values() if run["tags"]["directory"] == FIRST)
    assert run["tags"]["commit"] == "def"
    assert run["name"] == "train aaaaaaaaaa def"


def test_a_name_that_somebody_gave_stays(mlflow: Kept, store: Path) -> None:
    importer(mlflow, store).look()
    (run,) = (run for run in mlflow.kept.values() if run["name"] == "train bbbbbbbbbb 20261122-0300")
    run["name"] = "the one in production"
    place = store / ".history" / f"{SECOND}.json"
    place.write_text('{"commit": "def"}')
    assert importer(mlflow, store).look() == 1
    assert (run["name"], run["tags"]["commit"]) == ("the one in production", "def")


def test_gpus_count_by_their_seconds_and_emulated_ones_do_not(store: Path) -> None:
    usage = store / ".usage" / SECOND
    usage.mkdir(parents=True)
    before = '{"seconds": 5, "gpus_asked": 2, "parts": {"gate": 2.5, "program": 2.5, "unheard of": 1}}'
    (usage / "0.json").write_text(f'{{"seconds": 10, "gpus_asked": 2, "before": [{before}]}}')
    (usage / "1.json").write_text(
        '{"seconds": 10, "gpus_asked": 2, "gpus_emulated": "cpu", "parts": {"program": 9, "inputs": 1}}'
    )
    result = history.result(store, SECOND)
    assert result is not None
    metrics = {metric["key"]: metric["value"] for metric in record(store, result, []).metrics}
    parts = {"cost/gate_seconds": 2.5, "cost/inputs_seconds": 1, "cost/program_seconds": 11.5}
    assert metrics == {"cost/seconds": 10, "cost/gpu_seconds": 30, "cost/node_seconds": 25, **parts}


def test_arguments_of_a_module_are_parameters_and_odd_numbers_are_written_as_mlflow_reads_them(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    settings = {"epochs": 3, "optimizer": {"name": "adam", "rate": 0.1}, "none": None}
    add_result(store, "shop/train/aaaaaaaaaa", {"m.json": [math.nan, -math.inf, True]}, settings=settings)
    result = history.result(store, "shop/train/aaaaaaaaaa")
    assert result is not None
    assert parameters(result) == {"epochs": "3", "optimizer.name": "adam", "optimizer.rate": "0.1"}
    declared = [
        {"kind": "number", "name": f"odd ({index})", "path": "m.json", "select": f"/{index}"} for index in range(3)
    ]
    metrics = {metric["key"]: metric["value"] for metric in record(store, result, declared).metrics}
    assert metrics == {"odd _0_": "NaN", "odd _1_": "-Infinity"}


def test_a_run_has_the_commit_that_declared_it_first(mlflow: Kept, store: Path) -> None:
    told: dict[str, dict[str, Any]] = {}

    def tell(commit: str, declared: Sequence[str]) -> None:
        told.clear()
        told.update(
            {path: {"stack": "prod", "commit": commit, "changed": False, "pool": "h100"} for path in declared}
        )

    def new() -> Importer:
        return Importer(mlflow, SqliteFile(mlflow.database), store, "shop", {"train": []}, lambda: told)

    def tags() -> dict[str, Any]:
        return {run["tags"]["directory"]: run["tags"] for run in mlflow.kept.values()}

    base = SECOND.removesuffix("-20261122-0300")
    tell("one", [FIRST, base])
    running = new()
    running.look()
    # What stands beside the result in the store is what it was made with.
    assert (tags()[FIRST]["commit"], tags()[FIRST]["pool"]) == ("abc", "t4")
    # A run by the clock has the digest of the declared one.
    by_clock = tags()[SECOND]
    assert (by_clock["commit"], by_clock["pool"], by_clock["stack"]) == ("one", "h100", "prod")
    tell("two", [base])
    new().look()
    assert tags()[SECOND]["commit"] == "one"
    # What is told while it runs holds for what ends then, be it of what was declared before.
    later, other = f"{base}-20261123-0300", "shop/train/ffffffffff"
    tell("three", [other])
    for path in (later, other):
        add_result(store, path, FILES, made=70, settings={"command": COMMAND})
    running.look()
    assert [tags()[path]["commit"] for path in (later, other)] == ["one", "three"]


def test_a_run_keeps_its_price_and_gets_one_that_was_not_known(mlflow: Kept, store: Path) -> None:
    usage = store / ".usage" / SECOND
    usage.mkdir(parents=True)
    (usage / "0.json").write_text('{"seconds": 1800, "gpus_asked": 1}')
    path = SECOND.rpartition("-2026")[0]

    def dollars(**facts: object) -> list[float]:
        declared = {path: {"stack": "dev", "pool": "t4", **facts}}
        of_stack = importer(mlflow, store)
        of_stack.read_declared = lambda: declared
        of_stack.look()
        (run,) = (run for run in mlflow.kept.values() if run["tags"]["directory"] == SECOND)
        return [metric["value"] for metric in run["metrics"] if metric["key"] == "cost/usd"]

    assert dollars() == []
    assert dollars(pool="h100", rate=9.0, prices="2026-11-01") == [], "it ran on another pool"
    assert dollars(rate=2.0, prices="2026-11-01") == [1.0]
    assert dollars(rate=3.0, prices="2026-12-01") == [1.0], "a later price list changes nothing"
    (run,) = (run for run in mlflow.kept.values() if run["tags"]["directory"] == SECOND)
    assert (run["tags"]["rate"], run["tags"]["prices"]) == ("2.0", "2026-11-01")


def test_two_steps_on_one_node_share_what_it_was_paid_for(mlflow: Kept, store: Path) -> None:
    def used(path: str, began: int, seconds: int) -> None:
        since = datetime.fromtimestamp(began, UTC).isoformat()
        record = {"boot": "a", "node_booted": 1000, "began": since, "seconds": seconds, "gpus_asked": 1}
        file = store / ".usage" / path / "0.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({**record, "parts": {"loading": 50, "program": seconds - 50}}))

    def shown(path: str) -> dict[str, float]:
        (run,) = (run for run in mlflow.kept.values() if run["tags"]["directory"] == path)
        # As MLflow itself: of a name the value with the newest time.
        newest = sorted(run["metrics"], key=lambda metric: (metric["timestamp"], metric["value"]))
        return {metric["key"].removeprefix("cost/"): metric["value"] for metric in newest}

    declared = {
        path: {"stack": "dev", "rate": 3.6, "prices": "2026-11-01", "kept": 60.0} for path in (FIRST, THIRD)
    }
    running = importer(mlflow, store)
    running.read_declared = lambda: declared
    used(FIRST, 1100, 950)
    running.look()
    alone = shown(FIRST)
    assert (alone["start_seconds"], alone["loading_seconds"], alone["kept_seconds"]) == (100, 50, 60)
    assert (alone["paid_seconds"], alone["paid_over_useful"], alone["paid_usd"]) == (1110, 1.2333, 1.11)

    add_result(store, THIRD, FILES, made=2200, settings={"command": COMMAND})
    used(THIRD, 2080, 150)
    assert [running.look(), running.look(), running.look()] == [1, 1, 0], "the first one is recorded anew"
    first, third = shown(FIRST), shown(THIRD)
    assert (first["start_seconds"], first["kept_seconds"], first["paid_seconds"]) == (100, 30, 1080)
    assert (third["start_seconds"], third["kept_seconds"], third["paid_seconds"]) == (0, 60, 210)
    assert importer(mlflow, store).look() == 0, "how long nodes are kept is noted with the runs"
