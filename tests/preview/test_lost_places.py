"""A change of one stack that takes the nodes of another stack's Jobs is the first thing that a preview says."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from io import StringIO

import pytest
from rich.console import Console

from slipway.engine.evaluation.decoding import ClusterElsewhere, EvaluatedStack, FailedEvaluation
from slipway.evaluated.model import Preview, StackPreview
from slipway.evaluated.workloads import STATEFUL_SET
from slipway.infra.exits import Exit
from slipway.infra.platform import GPU_RESOURCE, Resources, Taint
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import JOB, KUBERNETES_PROVIDER, NodePool, Resource, Stack
from slipway.preview.build import Options, build, exit_code, lost_places
from slipway.preview.markdown import comment
from slipway.preview.revisions import Evaluations
from slipway.preview.terminal import show
from tests.support.reviewing import declared

URN = "urn:pulumi:platform::slipway::gcp:container/nodePool:NodePool::main-{}"
PROVIDER = declared(KUBERNETES_PROVIDER, "dev")
NO_POOL = {
    "key": "slipway:pipelines.mnist.steps.train.pool",
    "value": "gpu",
    "reason": "no cluster of the stack has a pool of that name",
    "fix": "write `cpu`",
}


def pool(name: str, cpu: int = 4000, gpus: int = 0, nodes: int = 1) -> NodePool:
    return NodePool(
        urn=URN.format(name),
        cluster="dev",
        name=name,
        labels={"pool": name},
        taints=[Taint("gpu", "present", "NoSchedule")] if gpus else [],
        allocatable=Resources(cpu=cpu, memory=8192, gpus=gpus),
        min_nodes=0,
        max_nodes=nodes,
        accelerator="t4" if gpus else None,
        stack="platform",
    )


CPU, GPU = pool("cpu"), pool("gpu", gpus=1)


def job(name: str, on: str, cpu: str = "2", pipeline: str = "mnist") -> Resource:
    gpus = {GPU_RESOURCE: "1"} if on == "gpu" else {}
    container = {"name": name, "image": "python:3", "resources": {"requests": {"cpu": cpu}, "limits": gpus}}
    tolerations = [{"key": "gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}]
    spec = {"nodeSelector": {"pool": on}, "containers": [container], "tolerations": tolerations if gpus else []}
    spec["serviceAccountName"] = "runner"
    labels = {"app.kubernetes.io/name": pipeline}
    metadata = {"name": f"{name}-0123456789", "namespace": "mnist", "labels": labels}
    return declared(JOB, name, {"metadata": metadata, "spec": {"template": {"spec": spec}}}, provider=PROVIDER.urn)


JOBS = [
    job("mnist-prepare", "cpu"),
    job("mnist-train", "gpu"),
    job("mnist-predict", "gpu"),
    job("store-gate-gpu", "gpu", pipeline="store-gate"),
]


def team(
    pools: Sequence[NodePool] | None, jobs: Sequence[Resource] | None = JOBS, removed: bool = False
) -> EvaluatedStack:
    """The stack of a team; without ``jobs`` it cannot be evaluated."""
    there = ClusterElsewhere("dev", "platform", "main", pools, removed=removed)
    if jobs is None:
        failed = FailedEvaluation("SettingsError", "1 problem", [NO_POOL])
        return EvaluatedStack("team", failure=failed, elsewhere=[there])
    resources = {each.urn: each for each in [PROVIDER, *jobs]}
    return EvaluatedStack("team", Stack("team", resources, pools=pools or ()), elsewhere=[there])


def previewed(after: EvaluatedStack, *, platform: bool = True) -> Preview:
    other = {"platform": EvaluatedStack("platform", Stack("platform", {}))}
    head = {"team": after, **(other if platform else {})}
    return build(Evaluations(head, {"team": team([CPU, GPU]), **other}), Options(date(2026, 11, 22), lambda _: {}))


def of(preview: Preview, name: str) -> StackPreview:
    return next(stack for stack in preview.stacks if stack.stack == name)


def lost(preview: Preview, name: str = "team") -> list[str]:
    return [finding.reason for finding in of(preview, name).findings if finding.policy == "lost-pool"]


def text(preview: Preview) -> str:
    console = Console(file=StringIO(), width=200, highlight=False)
    show(preview, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_pool_that_another_stack_deletes_is_told_first_with_the_jobs_that_lose_it() -> None:
    found = previewed(team([CPU], jobs=None))
    reason = (
        "mnist-train, mnist-predict of `team` lose their place: "
        "`platform` no longer has the pool `gpu` in its cluster `main`"
    )
    assert lost(found) == lost(found, "platform") == [reason]
    (finding,) = (each for each in of(found, "platform").findings if each.policy == "lost-pool")
    assert (finding.name, finding.harm, finding.severity) == ("main-gpu (NodePool)", True, Severity.ERROR)
    said = text(found)
    assert "platform, team: " + reason in said or "team, platform: " + reason in said
    # Then that the team's stack fails, as what it is: a consequence.
    assert said.index(reason) < said.index("cannot be evaluated") < said.index(NO_POOL["reason"])
    assert "which the change of platform causes" in said
    written = comment(found)
    assert written.index("no longer has the pool") < written.index("cannot be evaluated")
    assert exit_code(found, Severity.ERROR) == Exit.REFUSED


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(GPU, max_nodes=0), "it has no nodes and cannot grow"),
        (
            replace(GPU, allocatable=replace(GPU.allocatable, cpu=1000)),
            "Insufficient cpu (requested 2000m, allocatable 1000m)",
        ),
        (replace(GPU, allocatable=replace(GPU.allocatable, gpus=0)), f"Insufficient {GPU_RESOURCE}"),
    ],
    ids=["no node", "smaller nodes", "no GPUs"],
)
def test_a_pool_that_no_longer_takes_jobs_is_told_with_the_reason(now: NodePool, why: str) -> None:
    (reason,) = lost(previewed(team([CPU, now], jobs=None)))
    assert reason.startswith("mnist-train, mnist-predict of `team` lose their place: ")
    assert "the nodes of pool `gpu` of `platform` do not suffice: " in reason
    assert why in reason


def test_a_job_that_no_pool_takes_any_more_is_told_where_the_stack_can_be_evaluated() -> None:
    (reason,) = lost(previewed(team([CPU, replace(GPU, labels={"pool": "other"})])))
    assert "didn't match Pod's node affinity/selector" in reason


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (team([], jobs=None), "`platform` no longer has the cluster `main`"),
        (team(None, jobs=None, removed=True), "the file of `platform`, which has the cluster, is removed"),
    ],
    ids=["cluster", "stack"],
)
def test_a_cluster_that_goes_takes_the_place_of_all_jobs(after: EvaluatedStack, why: str) -> None:
    found = previewed(after, platform=not after.elsewhere[0].removed)
    reason = f"mnist-prepare, mnist-train, mnist-predict of `team` lose their place: {why}"
    assert lost(found) == lost(found, "platform") == [reason]


def test_a_team_that_another_stack_no_longer_names_loses_its_access() -> None:
    def named(stack: EvaluatedStack, *teams: tuple[str, str]) -> EvaluatedStack:
        return replace(stack, elsewhere=[replace(each, teams=teams) for each in stack.elsewhere])

    before = named(team([CPU, GPU]), ("mnist", "runner"), ("other", "runner"))
    after = named(team([CPU, GPU], jobs=None), ("other", "runner"))
    (lost,) = lost_places(before, after)
    assert lost.finding.name == "slipway:teams"
    assert lost.finding.reason == (
        "mnist-prepare, mnist-train, mnist-predict of `team` lose their place: `platform` no longer names a team "
        "with namespace `mnist` and service account `runner`, and takes its access to the store away"
    )
    assert lost_places(before, named(team([CPU, GPU], jobs=None), ("mnist", "runner"))) == []


@pytest.mark.parametrize(
    "after",
    [
        team([CPU, GPU]),
        team([replace(CPU, taints=[Taint("a", "b", "PreferNoSchedule")]), GPU]),
        team([CPU], [JOBS[0], job("mnist-train", "cpu")]),
        team([CPU, GPU], jobs=None),
        team(None, jobs=None),
    ],
    ids=["nothing", "a change", "steps that moved", "mistakes of its own", "mistakes of the other file"],
)
def test_jobs_that_keep_a_place_are_no_finding(after: EvaluatedStack) -> None:
    found = previewed(after)
    assert lost(found) == lost(found, "platform") == []
    assert all("causes" not in failure.message for failure in of(found, "team").failures)


def test_jobs_run_again_because_the_pool_of_another_stack_changes() -> None:
    metadata = {**JOBS[1].properties["metadata"], "name": "mnist-train-1111111111"}
    changed = replace(JOBS[1], properties={**JOBS[1].properties, "metadata": metadata})
    now = replace(GPU, allocatable=replace(GPU.allocatable, cpu=8000))
    changes = of(previewed(team([CPU, now], [JOBS[0], changed, *JOBS[2:]])), "team").changes
    assert changes is not None
    assert {run.name: run.because for run in changes.runs} == {"mnist-train": "the pool gpu of platform changes"}


def test_a_service_loses_its_place_like_a_job() -> None:
    queue = job("fraud-queue", "cpu")
    queue = replace(queue, type=STATEFUL_SET, urn=queue.urn.replace(JOB, STATEFUL_SET))
    before, after = team([CPU, GPU], [queue]), team([GPU], [queue])
    [lost] = lost_places(before, after)
    assert lost.finding.reason.startswith("fraud-queue of `team` loses its place")
    assert "no longer has the pool `cpu`" in lost.finding.reason
