"""A finished run whose result the store has lost runs again, once, and no other run does."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.run import plan
from slipway.infra.pipelines.results import Curves, Number, Picture
from slipway.infra.platform import Platform
from tests.support.recording import record
from tests.support.stand_in import cpu_pool, platform, step

RUN = "digits/train/"


@pytest.fixture(name="repository")
def a_repository(tmp_path: Path) -> Path:
    module = tmp_path / "work" / "train.py"
    module.parent.mkdir()
    module.write_text("print('trained')\n", encoding="utf-8")
    return tmp_path


def recorded(repository: Path, files: Sequence[str] | None, **changes: Any) -> str | None:
    """The record that the Job's pod is to leave where the store has ``files``; ``RUN`` is the run's folder."""

    def program() -> str:
        here: Platform = platform(cpu_pool())
        path = plan(step(here, **changes), repository).path

        def files_below(folder: str) -> pulumi.Output[Sequence[str]]:
            assert files is not None
            every = [file.replace(RUN, f"{path}/") for file in files]
            return pulumi.Output.from_input([entry for entry in every if entry.startswith(f"{folder}/")])

        here = replace(here, store=replace(here.store, files=None if files is None else files_below))
        workspaces = {"here": Workspace("here", WorkspaceArgs(here, "slipway", "runner", protect=False))}
        declare([step(here, **changes)], workspaces, repository)
        return path

    recording = record(program, {}, preview=False)
    job = recording.one("kubernetes:batch/v1:Job")
    (container,) = job.inputs["spec"]["template"]["spec"]["containers"]
    (value,) = [
        variable.get("value") for variable in container["env"] if variable["name"] == "SLIPWAY_RECORD"
    ] or [None]
    return value and value.replace(recording.result, RUN.rstrip("/"))


RESULT = [f"{RUN}manifest.json", f"{RUN}metrics.json", f"{RUN}sheets/1.png"]

FIRST = f"/store/.runs/{RUN}1"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], "1"),
        (RESULT, "1"),
        ([f".runs/{RUN}1", *RESULT], "1"),
        ([f".runs/{RUN}1"], "2"),
        ([f".runs/{RUN}1", *RESULT[1:]], "2"),
        ([f".runs/{RUN}1", RESULT[0], RESULT[2]], "2"),
        ([f".runs/{RUN}1", *RESULT[:2]], "2"),
        ([f".runs/{RUN}1", f".runs/{RUN}2", *RESULT], "2"),
        ([f".runs/{RUN}9", f".runs/{RUN}10"], "11"),
        ([f".runs/{RUN}notes.txt"], "1"),
    ],
    ids=[
        "never ran",
        "ran before there were records",
        "finished",
        "all lost",
        "manifest lost",
        "a declared file lost",
        "a declared folder lost",
        "made again",
        "lost for the tenth time",
        "no record",
    ],
)
def test_a_run_is_due_again_where_its_result_is_gone(repository: Path, files: list[str], expected: str) -> None:
    results = [
        Number(name="accuracy", title="Accuracy", path="metrics.json"),
        Curves(name="training", title="Training", path="metrics.json", logs="logs"),
        Picture(name="sheets", title="Sheets", path="sheets"),
    ]
    assert recorded(repository, files, results=results) == f"/store/.runs/{RUN}{expected}"


def test_a_store_that_only_pods_can_read_is_not_asked(repository: Path) -> None:
    assert recorded(repository, None) == FIRST


def test_a_step_without_a_result_leaves_no_record(repository: Path) -> None:
    assert recorded(repository, None, arguments=["--store", "{store}"]) is None
