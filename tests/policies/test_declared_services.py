"""What a preview says of a service as the program declares it, and of changes of it."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from slipway.engine.evaluate import evaluate
from slipway.evaluated.model import Finding, JobRun, Outcome
from slipway.evaluated.operations import compare_resources
from slipway.infra.clouds.registry import reviews
from slipway.infra.kubernetes import service as module
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.pipelines.valkey import with_password
from slipway.infra.platform import Egress, Resources
from slipway.infra.review.contract import Review, reviewed
from slipway.infra.review.stack import NodePool, Stack
from slipway.policies.changes import Change
from slipway.policies.check import check, check_change
from slipway.preview.differences import compare
from tests.infra.kubernetes.services import FILES, days, queue
from tests.support.stand_in import cpu_pool, platform
from tests.support.tree import write_tree

TODAY = date(2026, 11, 22)
IMAGE = "example/python@sha256:" + "2" * 64

Declared = Callable[..., Stack]


@pytest.fixture
def declared(tmp_path: Path) -> Declared:
    root = write_tree(tmp_path, FILES)

    def declared(workers: int = 3, egress: tuple[Egress, ...] | None = (), **changes: Any) -> Stack:
        """The stack with a queue, with changes, and the step that works on its items."""

        def program() -> None:
            here = platform(cpu_pool())
            workspace = Workspace("here", WorkspaceArgs(here, "slipway", "runner", False, egress, services=1))
            step = days(here, root, queue(here, **changes), workers=workers, image=IMAGE)
            declare([step], {"here": workspace}, root)

        found = evaluate(program, project="slipway", stack="test", config={}, emulators=[], preview=True)
        pool = cpu_pool()
        nodes = NodePool("", "here", "cpu", pool.selector, (), pool.allocatable, 0, pool.max_nodes)
        resources = {urn: each for urn, each in found.resources.items() if each.name != "slipway-test"}
        stack = Stack("test", resources, steps={step.job: step for step in found.steps})
        return reviewed(stack, [*reviews(), Review(pools=lambda _: [nodes])])

    return declared


def changed(before: Stack, after: Stack) -> tuple[list[Finding], dict[str, JobRun]]:
    update = compare_resources(before, after)
    findings, _ = check_change(Change(before, after, update), {}, TODAY)
    return findings, {run.name: run for run in compare(before, after, update).runs}


@pytest.mark.parametrize("egress", [(), None])
def test_it_keeps_every_policy(declared: Declared, egress: Any) -> None:
    arguments = [*with_password("QUEUE_PASSWORD"), "--port", "{port}", "--dir", "{data}"]
    findings, _ = check(declared(egress=egress, arguments=arguments), {}, TODAY)
    # The stand-in's other step has an image that is named by a tag.
    assert {finding.policy for finding in findings} <= {"unpinned-image"}


def test_the_same_service_again_is_no_change(declared: Declared) -> None:
    assert changed(declared(), declared()) == ([], {})


@pytest.mark.parametrize("changes", [{"image": IMAGE}, {"resources": Resources(500, 2048, 512)}])
def test_another_image_or_more_memory_starts_its_pod_anew_and_no_job(
    declared: Declared, changes: dict[str, Any]
) -> None:
    [finding], runs = changed(declared(), declared(**changes))
    assert (finding.policy, finding.name, runs) == ("ends-running-pods", "digits-queue (StatefulSet)", {})


@pytest.mark.parametrize("changes", [{"storage": 512}, {"storage": 2048}, {"name": "other"}])
def test_another_volume_or_name_makes_the_queue_anew(declared: Declared, changes: dict[str, Any]) -> None:
    findings, _ = changed(declared(), declared(**changes))
    assert [finding.policy for finding in findings] == ["deletes-queue"]
    assert "digits-days can go on once it is there again" in findings[0].reason


def test_another_password_starts_its_pod_anew(declared: Declared, monkeypatch: pytest.MonkeyPatch) -> None:
    before = declared()
    monkeypatch.setattr(module, "PASSWORD_LENGTH", 40)
    [finding], runs = changed(before, declared())
    assert (finding.policy, runs) == ("ends-running-pods", {})
    assert "slipway/password" in finding.reason


def test_more_workers_find_the_results_of_fewer(declared: Declared) -> None:
    findings, runs = changed(declared(workers=3), declared(workers=2))
    assert findings == []
    assert (runs["digits-days"].outcome, runs["digits-days"].because) == (
        Outcome.RESUMES,
        "the number of its workers changed from 3 to 2",
    )
