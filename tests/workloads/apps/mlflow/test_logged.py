"""What programs log by MLflow's client: one run of each result, however often its step was interrupted."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.workloads.apps.mlflow.database import SqliteFile
from slipway.workloads.apps.mlflow.importing import Importer
from slipway.workloads.apps.mlflow.logged import PARENT
from tests.support.stores import add_result
from tests.workloads.apps.mlflow.test_importing import DECLARED, FILES, Kept

RESULT = "shop/train/aaaaaaaaaa"
RUNNING, FINISHED = 1, 3


class Program:
    """Writes runs as MLflow's client does (MLflow 3.17), in the order of their start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "staged" / RESULT / "mlruns/0"
        self.count = 0
        self.folder.mkdir(parents=True)
        (self.folder / "meta.yaml").write_text("experiment_id: '0'\nname: Default\n")

    def run(
        self,
        *,
        name: str = "worried-slug-668",
        status: int = FINISHED,
        curve: Mapping[int, float] | None = None,
        parameters: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        self.count += 1
        run = f"{self.count:032x}"
        about = {"run_name": name, "status": status, "start_time": 1000 * self.count, "lifecycle_stage": "active"}
        points = "".join(f"{1000 * self.count + step} {value} {step}\n" for step, value in (curve or {}).items())
        files = {
            "meta.yaml": json.dumps({**about, "end_time": 1000 * self.count + 9 if status == FINISHED else None}),
            "artifacts/model.txt": "model",
            **({"metrics/val/loss": points} if points else {}),
            **{f"params/{parameter}": value for parameter, value in (parameters or {}).items()},
            **{f"tags/{tag}": value for tag, value in (tags or {}).items()},
            **(more or {}),
        }
        for file, text in files.items():
            place = self.folder / run / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return run


def recorded(folder: Path, declared: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    store = folder / "store"
    add_result(store, RESULT, FILES, made=50, settings={"command": ["train", "--rate=0.1"]})
    mlflow = Kept(folder / "mlflow.db")
    Importer(mlflow, SqliteFile(mlflow.database), store, "shop", {"train": declared}).look()
    assert Importer(mlflow, SqliteFile(mlflow.database), store, "shop", {"train": declared}).look() == 0
    return list(mlflow.kept.values())


def curve(run: Mapping[str, Any], name: str = "val/loss") -> list[tuple[int, float]]:
    return [(metric["step"], metric["value"]) for metric in run["metrics"] if metric["key"] == name]


def test_what_a_program_logs_is_in_the_run_of_its_result(tmp_path: Path) -> None:
    more = {"metrics/accuracy": "1000 0.25 0\n1001 0.5 1\n", "metrics/odd": "1000 nan 0\n1001 1"}
    tags = {"team": "red", "mlflow.user": "root", "mlflow.note.content": "Try."}
    Program(tmp_path).run(curve={0: 3.0, 1: 2.0}, parameters={"depth": "3", "rate": "1"}, tags=tags, more=more)
    (run,) = recorded(tmp_path, DECLARED)
    # The command line decided the result, whatever its program calls so.
    assert run["parameters"] == {"depth": "3", "rate": "0.1"}
    assert curve(run) == [(0, 3.0), (1, 2.0)]
    assert curve(run, "odd") == [(0, "NaN")]
    # The declared number stays what it is.
    assert curve(run, "accuracy") == [(0, 0.5)]
    assert curve(run, "mlflow/accuracy") == [(0, 0.25), (1, 0.5)]
    assert {"team": "red", "mlflow.note.content": "Try.", "step": "train"}.items() <= run["tags"].items()
    assert "mlflow.user" not in run["tags"]


def test_attempts_that_were_interrupted_are_one_run_with_one_curve(tmp_path: Path) -> None:
    program = Program(tmp_path)
    killed = program.run(status=RUNNING, curve={0: 9.0, 1: 8.0, 2: 7.0}, parameters={"initial_epoch": "0"})
    program.run(name="of-what-was-killed-1", tags={PARENT: killed})
    # Killed behind the end of its run, and before that of the step.
    program.run(name="able-ant-1", curve={2: 6.0, 3: 5.0}, parameters={"initial_epoch": "2"})
    program.run(name="able-ant-2", curve={3: 4.0}, parameters={"initial_epoch": "3"})
    (run,) = recorded(tmp_path)
    assert curve(run) == [(0, 9.0), (1, 8.0), (2, 6.0), (3, 4.0)]
    assert run["parameters"]["initial_epoch"] == "3"


def test_several_runs_of_a_program_are_nested_and_none_is_doubled(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.run(name="small", curve={0: 9.0})
    program.run(name="large", status=RUNNING, curve={0: 8.0})
    program.run(name="small", curve={0: 1.0})
    large = program.run(name="large", curve={0: 2.0})
    program.run(name="fold", parameters={"fold": "1"}, tags={PARENT: large})
    whole, small, big, fold = recorded(tmp_path)
    assert curve(whole) == []
    assert whole["tags"]["step"] == "train"
    assert [(run["name"], curve(run)) for run in (small, big)] == [("small", [(0, 1.0)]), ("large", [(0, 2.0)])]
    assert PARENT not in whole["tags"]
    assert [run["tags"][PARENT] for run in (small, big, fold)] == ["run-0", "run-0", "run-2"]
    assert fold["parameters"] == {"fold": "1"}


def test_runs_without_a_name_are_told_apart_by_their_parameters(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for name, rate in (("able-ant-1", "1"), ("able-ant-2", "2"), ("able-ant-3", "1")):
        program.run(name=name, parameters={"alpha": rate}, curve={0: float(rate)})
    program.run(name="cut-short-1", status=RUNNING, more={"meta.yaml": ""})
    whole, *nested = recorded(tmp_path)
    assert whole["metrics"] == []
    assert sorted(run["parameters"]["alpha"] for run in nested) == ["1", "2"]
