"""Two stacks of one checkout, one on the clusters of the other: evaluated, compared, and no secret shown."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from slipway.engine.evaluation.__main__ import evaluate_stack, other_stacks
from slipway.engine.evaluation.decoding import EvaluatedStack
from slipway.engine.evaluation.encoding import Secrets
from slipway.evaluated.model import Preview, StackPreview
from slipway.infra.review.stack import JOB, KUBERNETES_PROVIDER, NodePool, Secret
from slipway.preview.build import Options, build
from slipway.preview.revisions import Evaluations, evaluate_trees
from tests.support.checkout import linked_checkout
from tests.support.stack_values import GCP, GONE, changed

PLATFORM = changed(GCP, {"pipelines": GONE, "teams": {"team-a": {"namespace": "team-a"}}})
TEAM = {
    "namespace": "team-a",
    "clusters": {"main": {"stack": "acme/slipway/platform", "cluster": "dev"}},
    "pipelines": GCP["pipelines"],
}


def of(preview: Preview, name: str) -> StackPreview:
    return next(each for each in preview.stacks if each.stack == name)


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Evaluations:
    """Both stacks at the base, and after the platform gave a pool up that the team still names."""
    folder = tmp_path_factory.mktemp("trees")
    files = {"platform": PLATFORM, "team": TEAM}
    base = linked_checkout(folder / "base", files)
    now = changed(PLATFORM, {"clusters.dev.pools.predict": GONE})
    head = linked_checkout(folder / "head", {**files, "platform": now})
    return evaluate_trees(head, base)


def built(evaluations: Evaluations) -> Preview:
    return build(evaluations, Options(date(2026, 11, 22), lambda _: {}))


def stack(each: EvaluatedStack) -> Any:
    assert each.failure is None, each.failure
    assert each.stack is not None
    return each.stack


@pytest.mark.slow
def test_a_teams_stack_declares_no_cloud_and_has_the_pools_of_the_other_file(evaluations: Evaluations) -> None:
    platform, team = stack(evaluations.base["platform"]), stack(evaluations.base["team"])
    assert {resource.package for resource in team.resources.values()} <= {"pulumi", "kubernetes", "slipway"}
    there = {each.name: each for each in platform.pools}
    for pool in team.pools:
        assert isinstance(pool, NodePool)
        assert (pool.cluster, pool.stack, pool.urn) == ("main", "platform", there[pool.name].urn)
        assert pool.allocatable == there[pool.name].allocatable
    assert {each.name for each in team.pools} == set(there)
    jobs = {each.name for each in team.of_type(JOB)}
    assert {"mnist-prepare", "mnist-train", "mnist-predict"} <= jobs


@pytest.mark.slow
def test_the_kubeconfig_of_the_other_stack_stays_a_secret(evaluations: Evaluations) -> None:
    (provider,) = stack(evaluations.base["team"]).of_type(KUBERNETES_PROVIDER)
    assert isinstance(provider.properties["kubeconfig"], Secret)


@pytest.mark.slow
def test_nothing_that_is_printed_of_both_stacks_holds_a_kubeconfig(tmp_path: Path) -> None:
    tree, secrets = linked_checkout(tmp_path / "tree", {"platform": PLATFORM, "team": TEAM}), Secrets(b"key")
    printed = json.dumps(evaluate_stack("team", tree, secrets, print) | other_stacks("team", tree, secrets))
    assert "mnist-train" in printed
    assert "gcp:container/cluster:Cluster" in printed, "the other stack's resources are there, too"
    assert "gke-gcloud-auth-plugin" not in printed, "what only a kubeconfig has"


@pytest.mark.slow
def test_what_the_platform_deletes_is_told_with_the_steps_on_it(evaluations: Evaluations) -> None:
    preview = built(evaluations)
    (finding,) = (each for each in of(preview, "platform").findings if each.policy == "lost-pool")
    assert finding.reason.startswith("mnist-predict of `team` loses its place: ")
    assert "no longer has the pool `predict` in its cluster `dev`" in finding.reason
    assert finding in of(preview, "team").findings
    problems = [each for each in of(preview, "team").findings if each.policy == "settings"]
    assert [problem.resource for problem in problems] == ["slipway:pipelines.mnist.steps.predict.pool"]


@pytest.mark.slow
@pytest.mark.parametrize(("preemption", "said"), [("shares", True), ("never", False)])
def test_a_teams_job_beyond_its_share_is_told_in_the_teams_preview(
    tmp_path: Path, preemption: str, said: bool
) -> None:
    """Of two GPUs each team and the platform's own pipeline have less than the two that the Job asks for."""
    teams = {name: {"namespace": name} for name in ("team-a", "team-b")}
    kueue = {"preemption": preemption}
    train = {"clusters.dev.pools.train.nodes.total_max": 2, "pipelines.mnist.steps.train.nodes": 2}
    platform = changed(GCP, {**train, "teams": teams, "kueue": kueue, "pipelines.mnist.steps.train.nodes": 1})
    team = changed({**TEAM, "pipelines": GCP["pipelines"]}, {"pipelines.mnist.steps.train.nodes": 2})
    head = evaluate_trees(linked_checkout(tmp_path, {"platform": platform, "team": team}), None)
    found = of(built(head), "team").findings
    shares = {each.resource.rpartition("::")[2]: each for each in found if each.policy == "queue-share"}
    assert ("mnist-train" in shares) == said, [f"{each.policy}: {each.reason}" for each in found]
    if said:
        assert "2 nvidia.com/gpu in all (2 pods)" in shares["mnist-train"].reason
        assert "share of queue team-a is 1" in shares["mnist-train"].reason
        assert "mnist-prepare" not in shares
    else:
        assert not shares


@pytest.mark.slow
def test_nodes_are_billed_where_they_are_declared(evaluations: Evaluations) -> None:
    found = built(Evaluations(evaluations.base, {}))
    team, platform = of(found, "team").cost, of(found, "platform").cost
    assert team is not None
    assert platform is not None
    assert (team.lines, team.most_nodes, platform.most_nodes) == ([], 0, 4)
    assert team.run is not None
    assert team.run.dollars
    assert {step.stack for step in team.run.steps} == {"platform"}
