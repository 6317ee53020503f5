"""What a preview says of a Job whose nodes change: why it runs again, and where."""

from pathlib import Path
from typing import Any

import pytest

from slipway.engine.monitor import Evaluation
from slipway.evaluated import phrasing
from slipway.evaluated.model import JobRun, Outcome
from slipway.features.nodes.feature import Nodes
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.placed import Command
from slipway.infra.platform import Resources
from slipway.preview.differences import compare
from tests.features.nodes.test_declared import FILES
from tests.preview.runs.test_reruns import stack
from tests.support.recording import record
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

GPU = {"pool": "gpu", "resources": Resources(cpu=1000, memory=2048, ephemeral_storage=512, gpus=1)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path, FILES)


def jobs(root: Path, nodes: Nodes | None, **changes: Any) -> Evaluation:
    """The step as the program declares it."""

    def program() -> None:
        on = platform()
        made = step(
            on,
            **{
                "name": "train",
                "module": None,
                "command": Command(root / "sums"),
                "arguments": ["python", "train.py", "--output", "{output}"],
                "environment": {"THREADS": "4"},
                **changes,
            },
            parts=[nodes] if nodes else [],
        )
        args = WorkspaceArgs(on, "slipway", "runner", protect=False, groups=1)
        declare([made], {on.name: Workspace(on.name, args)}, root)

    return record(program, {}, preview=False).evaluation


def compared(before: Evaluation, after: Evaluation) -> JobRun:
    sides = (stack(*side.resources.values(), steps=side.steps) for side in (before, after))
    return next(run for run in compare(*sides).runs if run.name == "digits-train")


@pytest.mark.parametrize("kind", [{}, GPU], ids=["cpu", "gpu"])
def test_another_number_of_nodes_is_another_result_and_the_only_reason(root: Path, kind: dict[str, Any]) -> None:
    counts = [None, Nodes(2), Nodes(4)]
    declared = [jobs(root, nodes, **kind) for nodes in counts]
    for before, after in ((0, 1), (1, 0), (1, 2), (2, 1)):
        change = compared(declared[before], declared[after])
        earlier, now = (nodes.pods if (nodes := counts[index]) else 1 for index in (before, after))
        assert change.outcome is Outcome.RUNS
        assert f"from {earlier} to {now}," in change.because
        assert change.nodes == now


def test_what_else_changed_is_still_said(root: Path) -> None:
    before = jobs(root, None)
    change = compared(before, jobs(root, Nodes(2), environment={"THREADS": "8"}))
    assert change.because.endswith("; its environment changed")
    other = compared(
        before, jobs(root, Nodes(2), arguments=["python", "train.py", "--fast", "--output", "{output}"])
    )
    assert other is not None
    assert other.because.endswith("; its arguments changed")


def test_how_long_they_wait_finds_the_result(root: Path) -> None:
    change = compared(jobs(root, Nodes(2)), jobs(root, Nodes(2, wait=60, port=3000)))
    assert change.outcome is Outcome.RESUMES
    assert change.because == (
        "how long its pods wait for one another changed from 600 s to 60 s; "
        "the port at which its pods meet changed from 2221 to 2999"
    )


def test_other_roles_are_another_result(root: Path) -> None:
    change = compared(jobs(root, Nodes(2)), jobs(root, Nodes(2, {"chief": 1, "worker": 1})))
    assert change.outcome is Outcome.RUNS
    assert change.because == (
        "the roles of its pods changed from workers alone to chief=1,worker=1, which gives another result"
    )


def test_a_preview_says_on_how_many_nodes_it_runs(root: Path) -> None:
    change = compared(Evaluation(), jobs(root, Nodes(2), **GPU))
    told = change.model_copy(update={"pool": "gpu", "known": True, "accelerator": "nvidia-tesla-t4"})
    assert phrasing.place(told) == "on 2 nodes of pool gpu, 1 nvidia-tesla-t4 each"
