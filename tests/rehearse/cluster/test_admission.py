"""A namespace refuses the pods that the API server would refuse there."""

import contextlib
import copy
from pathlib import Path
from typing import Any

import pulumi_kubernetes as k8s
import pytest

from slipway.infra.platform import Resources
from slipway.infra.review.stack import Resource
from slipway.rehearse.cluster.cluster_objects import Namespace, Objects, RefusedError
from slipway.rehearse.cluster.pods import pod_spec
from slipway.rehearse.cluster.quotas import Quotas, quota_violations
from tests.rehearse.toy import Toys, rehearse

GOOD: dict[str, Any] = {
    "restartPolicy": "Never",
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "containers": [
        {
            "name": "main",
            "image": "toy",
            "command": ["true"],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        }
    ],
}


@pytest.mark.parametrize(
    ("hard", "says"),
    [
        ({"requests.cpu": "1"}, []),
        ({"requests.cpu": "500m"}, ["exceeded, requested: requests.cpu=1000m, limited: requests.cpu=500m"]),
        (
            {"requests.memory": "512Mi"},
            ["exceeded, requested: requests.memory=1024Mi, limited: requests.memory=512Mi"],
        ),
        ({"requests.nvidia.com/gpu": "0"}, []),
        ({"count/jobs.batch": "0"}, []),
    ],
)
def test_a_pod_that_exceeds_a_quota_is_refused(hard: dict[str, str], says: list[str]) -> None:
    pod = pod_spec({"spec": GOOD})
    assert quota_violations(hard, pod, pod.requests) == says


def test_a_quota_makes_requests_mandatory() -> None:
    spec = copy.deepcopy(GOOD)
    del spec["containers"][0]["resources"]
    pod = pod_spec({"spec": spec})
    assert quota_violations({"requests.cpu": "4"}, pod, Resources(0, 0)) == ["must specify requests.cpu for: main"]


def test_a_pod_that_its_namespace_forbids_fails_the_rehearsal(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys(labels={"pod-security.kubernetes.io/enforce": "restricted"})
        toys.job("careless", "print('never')")

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert 'violates PodSecurity "restricted": allowPrivilegeEscalation != false (container "main"' in printed


def test_a_quota_of_the_namespace_counts(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        quota = toys.declare(k8s.core.v1.ResourceQuota, "small", spec={"hard": {"requests.cpu": "50m"}})
        toys.job("greedy", "print('never')", cpu="100m", after=[quota])

    _, printed = rehearse(program, tmp_path)
    assert "quota small: exceeded, requested: requests.cpu=100m, limited: requests.cpu=50m" in printed


def test_a_job_waits_for_room_in_a_quota_and_room_that_is_free_before_its_next_try_stays_unused() -> None:
    hard = {"requests.nvidia.com/gpu": "2"}
    quota = {"metadata": {"name": "gpus", "namespace": "default"}, "spec": {"hard": hard}}
    objects = Objects()
    token = "kubernetes:core/v1:ResourceQuota"
    objects.add(Resource("urn:q", token, "gpus", {}, inputs=quota, provider="urn::here"))
    namespace, one = Namespace(objects, "here", "default"), Resources(100, 100, gpus=1)
    quotas, waited, said = Quotas(), list[float](), list[str]()
    first = contextlib.ExitStack()
    first.enter_context(quotas.hold(namespace, one, waited.append, said.append))
    first.enter_context(quotas.hold(namespace, one, waited.append, said.append))
    assert (waited, said) == ([], [])

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 8:
            first.close()

    # A Job that wants more than there is takes all of it, as its pods one after the other would.
    with quotas.hold(namespace, Resources(300, 300, gpus=6), wait, said.append):
        assert waited == [1, 2, 4, 8, 16, 32, 60, 60]
        assert "requests.nvidia.com/gpu=6, used: requests.nvidia.com/gpu=2" in said[0]
        assert len(said) == 1


def test_a_namespace_that_was_there_before_takes_objects_and_no_other_cluster_has_it() -> None:
    def config_map(cluster: str, namespace: str = "digits") -> Resource:
        inputs = {"metadata": {"name": "x", "namespace": namespace}}
        token = "kubernetes:core/v1:ConfigMap"
        return Resource("urn:x", token, "x", {}, inputs=inputs, provider=f"urn::{cluster}")

    objects = Objects()
    objects.stands("here", "digits")
    objects.admit(config_map("here"))
    with pytest.raises(RefusedError, match='namespaces "digits" not found'):
        objects.admit(config_map("there"))
    # Every cluster has this one.
    objects.admit(config_map("there", "kube-system"))


@pytest.mark.parametrize(
    ("name", "template", "refused"),
    [
        ("a.b", GOOD, ""),
        ("A", GOOD, "metadata.name"),
        ("fits", {**GOOD, "restartPolicy": "Always"}, "spec.template.spec.restartPolicy"),
        ("fits", {**GOOD, "containers": []}, "spec.template.spec.containers"),
    ],
)
def test_a_job_that_a_program_declares_is_judged_as_an_api_server_judges_it(
    name: str, template: dict[str, Any], refused: str
) -> None:
    # API server 1.37.2 takes the first and refuses the others.
    inputs = {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": {"spec": template}}}
    token = "kubernetes:batch/v1:Job"
    job = Resource("urn:x", token, "x", inputs, inputs=inputs, provider="urn::here", place="__main__.py:12")
    if not refused:
        Objects().admit(job)
        return
    with pytest.raises(RefusedError, match=f"^{refused}"):
        Objects().admit(job)
