"""What a preview says of a stack whose cluster bills pods in place of nodes."""

import pytest

from slipway.evaluated.cost import cost
from slipway.evaluated.model import Cost, StepCost
from slipway.evaluated.schedule import JobDuration
from slipway.infra.clouds.gcp.review.policies import POLICIES
from slipway.infra.review.stack import JOB, Resource, Stack
from slipway.infra.review.tables import hourly
from tests.support.clouds.autopilot import evaluated
from tests.support.costing import TODAY

REFUSES, _ = POLICIES


@pytest.fixture(scope="module")
def stack() -> Stack:
    return evaluated()


@pytest.fixture(scope="module")
def found(stack: Stack) -> Cost:
    return cost(stack, today=TODAY, measured={"mnist-predict": JobDuration(600, "measured")})


def steps(found: Cost) -> dict[str, StepCost]:
    assert found.run
    return {step.job: step for step in found.run.steps}


def test_a_job_costs_what_its_pod_asks_for_while_it_is_there(stack: Stack, found: Cost) -> None:
    [predict] = [each for each in stack.of_type(JOB) if each.name == "mnist-predict"]
    rates = [hourly(charge.price) for charge in stack.charges if charge.urn == predict.urn and charge.price]
    # 2 vCPU and 8 GiB, and the sidecar of the bucket's mount.
    by_hour = 2.25 * 0.0445 + 8.5 * 0.0049225
    assert sum(rate for rate in rates if rate) == pytest.approx(by_hour, rel=0.01)
    step = steps(found)["mnist-predict"]
    assert step.by_pod
    assert not step.paid_anyway
    assert step.dollars == pytest.approx(by_hour * step.seconds / 3600, rel=0.01)


def test_a_run_is_the_sum_of_its_jobs_and_no_idle_nodes(found: Cost) -> None:
    assert found.run
    assert found.run.dollars == pytest.approx(sum(step.dollars or 0 for step in found.run.steps))
    assert found.run.paid_anyway == 0
    assert found.least_nodes == 0
    assert found.kept == []
    assert any("premium" in each for each in found.run.unknown)


def test_what_is_paid_without_jobs_is_the_cluster_and_its_network(found: Cost) -> None:
    assert {line.resource for line in found.lines if line.idle} <= {"batch", "network-us-central1", "store"}


def test_what_needs_more_scratch_space_than_pods_beside_a_mount_have_is_sent_elsewhere(found: Cost) -> None:
    assert steps(found)["cuda-libraries"].pool == "n2"


def stays(job: Resource) -> bool:
    said = job.properties["spec"]["template"]["metadata"].get("annotations", {})
    return "cluster-autoscaler.kubernetes.io/safe-to-evict" in said


def test_pods_ask_to_stay_but_for_those_on_spot(stack: Stack) -> None:
    kept = {job.name for job in stack.of_type(JOB) if stays(job)}
    assert kept >= {"mnist-predict", "cuda-libraries"}
    assert not kept & {"mnist-prepare", "mnist-train"}


FRAUD = {
    "pipelines.fraud": {
        "services": {"queue": {"pool": "cpu"}},
        "steps": {"prepare": {"pool": "cpu"}, "days": {"pool": "spot"}, "evaluate": {"pool": "cpu"}},
    }
}


@pytest.mark.slow
def test_a_service_is_paid_for_as_its_pod_and_keeps_no_node() -> None:
    stack = evaluated(FRAUD)
    found = cost(stack, today=TODAY)
    assert found.kept == []
    [queue] = [line for line in found.lines if line.resource == "fraud-queue" and "pod of" in line.what]
    assert queue.idle == queue.hourly
    # The least of a pod that asks to stay is half a vCPU.
    assert queue.what == "general-purpose pod of 0.5 vCPU, 0.5 GiB, on demand"
    assert list(REFUSES.check(stack)) == []
