"""What a preview says of a stack on GKE Autopilot: pods that it refuses or raises, what they cost, quotas."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.gcp.review import quotas
from slipway.infra.clouds.gcp.review.charges import DeclaredPod, charges, declared_pods
from slipway.infra.clouds.gcp.review.policies import POLICIES
from slipway.infra.review.contract import Violation
from slipway.infra.review.stack import KUBERNETES_PROVIDER, Stack
from tests.support.clouds.autopilot import CLUSTER, evaluated
from tests.support.reviewing import declared, stack_of

BY_ID = {policy.id: policy for policy in POLICIES}
REFUSES, RAISES = BY_ID["autopilot-refuses-pod"], BY_ID["autopilot-raises-requests"]

GKE = declared("gcp:container/cluster:Cluster", "batch", {"location": "us-central1", "enableAutopilot": True})
PROVIDER = declared(KUBERNETES_PROVIDER, "batch", property_dependencies={"kubeconfig": frozenset({GKE.urn})})


def container(**more: Any) -> dict[str, Any]:
    return {"name": "it", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}, **more}


def stack_with(
    pod: Mapping[str, Any], annotations: Mapping[str, str] | None = None, kind: str = "batch/v1:Job"
) -> Stack:
    spec = {"template": {"spec": {"containers": [container()], **pod}}}
    job = declared(
        f"kubernetes:{kind}",
        "job",
        {"spec": spec, "metadata": {"annotations": dict(annotations or {})}},
        provider=PROVIDER.urn,
    )
    return stack_of(GKE, PROVIDER, job, configuration={"slipway:clusters": {"batch": CLUSTER}})


def refused(pod: Mapping[str, Any]) -> list[Violation]:
    return list(REFUSES.check(stack_with(pod)))


def gpus(number: int) -> list[dict[str, Any]]:
    return [container(resources={"requests": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": str(number)}})]


T4 = {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}
TOLERATED = [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}]

WRONG: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "host network": ({"hostNetwork": True}, "`hostNetwork`"),
    "folder of the node": ({"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}, "`data`"),
    "privileged": ({"containers": [container(securityContext={"privileged": True})]}, "privileged"),
    "pool": ({"nodeSelector": {"cloud.google.com/gke-nodepool": "a"}}, "gives no meaning"),
    "no kind of GPU": ({"containers": gpus(1)}, "GPUs of no kind"),
    "beside GPUs": ({"nodeSelector": T4, "tolerations": TOLERATED}, "asks for no GPU"),
    "size": (
        {"containers": [container(resources={"requests": {"cpu": "31", "memory": "62Gi"}})]},
        "asks for 31000m of CPU, what a cloud adds to it included; in pool `cpu` the most is 30000m",
    ),
}


@pytest.mark.parametrize(("pod", "reason"), WRONG.values(), ids=list(WRONG))
def test_what_autopilot_refuses_is_said_before(pod: Mapping[str, Any], reason: str) -> None:
    [violation] = refused(pod)
    assert reason in violation.reason
    assert "Autopilot refuses the pod" in violation.reason
    assert violation.fix


RIGHT: Mapping[str, Mapping[str, Any]] = {
    "general-purpose": {},
    "spot": {"nodeSelector": {"cloud.google.com/gke-spot": "true"}},
    "gpu": {"nodeSelector": T4, "tolerations": TOLERATED, "containers": gpus(1)},
    "scratch": {"volumes": [{"name": "a", "emptyDir": {}}]},
}


@pytest.mark.parametrize("pod", RIGHT.values(), ids=list(RIGHT))
def test_what_it_takes_is_not_spoken_of(pod: Mapping[str, Any]) -> None:
    assert refused(pod) == []


def test_a_cluster_with_node_pools_refuses_none_of_it() -> None:
    standard = declared("gcp:container/cluster:Cluster", "batch", {"location": "us-central1"})
    stack = stack_with({"hostNetwork": True})
    resources = {**stack.resources, standard.urn: standard}
    assert list(REFUSES.check(Stack("test", resources, configuration=stack.configuration))) == []


def test_a_pod_that_asks_for_more_than_its_step_is_told_with_its_price() -> None:
    wanted = '{"cpu": "300m", "memory": "2Gi"}'
    [violation] = RAISES.check(stack_with({}, {"slipway/asked": wanted}))
    assert "cpu 300m → 1" in violation.reason
    assert "memory" not in violation.reason.partition(": ")[2]
    # 1 vCPU and 2 GiB.
    assert f"${0.0445 + 2 * 0.0049225:.3f} an hour" in violation.reason
    assert list(RAISES.check(stack_with({}))) == []


@pytest.fixture(scope="module")
def stack() -> Stack:
    return evaluated()


def by_name(stack: Stack) -> dict[str, DeclaredPod]:
    return {pod.resource.name: pod for pod in declared_pods(stack)}


def test_all_that_slipway_declares_is_such_that_autopilot_takes_it(stack: Stack) -> None:
    assert len(by_name(stack)) > len({"prepare", "train", "predict"})
    assert all(pod.way for pod in declared_pods(stack))
    assert list(REFUSES.check(stack)) == []


def test_only_the_users_steps_are_told_to_ask_for_more(stack: Stack) -> None:
    [violation] = RAISES.check(stack)
    assert "prepare" in violation.resource
    assert "cpu 300m → " in violation.reason


def test_there_are_no_nodes_but_pods_to_pay_for(stack: Stack) -> None:
    billed = charges(stack)
    assert not stack.of_type("gcp:container/nodePool:NodePool")
    jobs = [resource for resource in billed if "batch/v1:Job" in resource.urn]
    assert {job.idle for job in jobs} == {0}
    whats = "\n".join(job.what for job in jobs)
    assert "general-purpose pod of" in whats
    assert ", Spot" in whats
    assert "n1-standard-4 for one pod, Spot" in whats
    assert "1 nvidia-tesla-t4, Spot" in whats


@pytest.mark.slow
def test_its_pools_are_those_that_its_jobs_run_on(stack: Stack) -> None:
    pool_ = {pool.name: pool for pool in stack.pools}
    assert pool_.keys() == CLUSTER["pools"].keys()
    assert all(pool.bills_pods for pool in pool_.values())
    assert {name for name, pool in pool_.items() if pool.spot} == {"spot", "t4"}
    assert {pool.max_nodes for pool in pool_.values()} == {1, 10}


def test_quotas_are_those_of_the_largest_pods(stack: Stack) -> None:
    result = {(quota.metric, quota.where): quota.needed for quota in quotas(stack)}
    assert result["PREEMPTIBLE_NVIDIA_T4_GPUS", "us-central1"] == 1
    assert result["GPUS_ALL_REGIONS", "all regions"] == 1
    assert ("SSD_TOTAL_GB", "us-central1") not in result
