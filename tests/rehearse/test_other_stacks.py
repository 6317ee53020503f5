"""A stack on the clusters of another is rehearsed with that one's file: its pools take the Jobs."""

from pathlib import Path

import pytest

from slipway.infra.clouds.other_stack.platforms import outputs_of
from slipway.infra.schema.problems import SettingsError
from slipway.rehearse.session import configure
from tests.rehearse.toy import CLUSTER, NAMESPACE, Toys
from tests.support.checkout import linked_checkout
from tests.support.rehearsing import record, rehearse_file
from tests.support.stack_values import changed

POOLS = {
    "cpu": {"selector": {"disk": "small"}, "cpu": "2", "memory": "4Gi"},
    "large": {"selector": {"disk": "large"}, "cpu": "4", "memory": "8Gi"},
}
CLUSTERS = {"there": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": POOLS}}
PLATFORM = {
    "clusters": CLUSTERS,
    "store": {"kind": "pvc", "access_mode": "ReadWriteMany"},
    "teams": {"toys": {"namespace": NAMESPACE}},
}
TEAM = {
    "namespace": NAMESPACE,
    "clusters": {CLUSTER: {"stack": "platform", "cluster": "there"}},
    "pipelines": {"mnist": {"steps": {step: {"pool": "cpu"} for step in ("prepare", "train", "predict")}}},
}


def two_jobs() -> None:
    """One Job on a pool of the other stack, and one that none of them can take."""
    pools = outputs_of("platform")["platform"]["clusters"]["there"]["pools"]
    toys = Toys()
    toys.job("fits", "print('here')", selector=pools["large"]["selector"], cpu="3")
    toys.job("large", "print('here')", selector=pools["cpu"]["selector"], cpu="3")


@pytest.mark.slow
def test_jobs_run_on_the_pools_that_the_other_file_declares(tmp_path: Path) -> None:
    root = linked_checkout(tmp_path, {"platform": PLATFORM, "team": TEAM})
    outcome, _ = rehearse_file(root / "out", None, two_jobs, stack="team", root=root)
    assert (record(outcome, "fits").pool, record(outcome, "fits").phase.good) == ("large", True)
    assert "Insufficient cpu" in record(outcome, "large").reason
    assert any("platform" in remark for remark in outcome.configuration.remarks)
    # Nothing of the other stack is created here.
    assert not any(resource.type.startswith("existing") for resource in outcome.evaluation.resources.values())


def test_what_is_wrong_with_the_other_file_is_a_problem_beside_the_stacks_own(tmp_path: Path) -> None:
    wrong = changed(PLATFORM, {"clusters.there.pools.cpu.cpu": "many"})
    root = linked_checkout(tmp_path, {"platform": wrong, "team": {**TEAM, "protect": "perhaps"}})
    with pytest.raises(SettingsError) as caught:
        configure("team", root)
    problems = {problem.key: problem.reason for problem in caught.value.problems}
    assert set(problems) == {f"slipway:clusters.{CLUSTER}.stack", "slipway:protect"}
    assert "`platform` has 1 problem of its own" in problems[f"slipway:clusters.{CLUSTER}.stack"]


def test_a_stack_that_has_clusters_for_others_alone_is_rehearsed_in_a_few_lines(tmp_path: Path) -> None:
    root = linked_checkout(tmp_path, {"platform": PLATFORM})
    _, printed = rehearse_file(root / "out", None, stack="platform", root=root)
    assert "The stack runs no Jobs." in printed
    assert "there: " in printed.partition("connect:")[2], "what people read of its outputs"
    assert "allocatable" not in printed, "what only the stacks of teams read"
    assert "allocatable" in (root / "out" / "outputs.json").read_text(encoding="utf-8")
