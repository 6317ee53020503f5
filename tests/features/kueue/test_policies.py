"""Quotas of Kueue's queues, and the order of the Jobs that wait for them."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

import pytest

from slipway.engine.provider_outputs import kind_of
from slipway.evaluated.model import Finding
from slipway.evaluated.operations import compare_resources
from slipway.evaluated.scheduling import amount, pod_amounts, quantity_text
from slipway.features.kueue.feature import API, KINDS
from slipway.features.kueue.policies import RELEASE, QueuedJob, Queues, queued_job, queues_of
from slipway.infra.kubernetes.labels import QUEUE_LABEL
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Stack, leaves
from slipway.policies.changes import Change
from slipway.policies.check import check_change
from tests.support.previewing import previewed
from tests.support.reviewing import declared

T4, L4 = {"pool": "t4"}, {"pool": "l4"}
GPU = "nvidia.com/gpu"


def quota(flavor: str, **amounts: Any) -> dict[str, Any]:
    """Quotas by resource, ``gpu`` for that of GPUs; a mapping has both amounts."""
    named = {"gpu": GPU, "cpu": "cpu", "pods": "pods"}
    resources = [
        {"name": named[key], **(value if isinstance(value, Mapping) else {"nominalQuota": str(value)})}
        for key, value in amounts.items()
    ]
    return {"name": flavor, "resources": resources}


def cluster_queue(*flavors: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    covered = [resource["name"] for resource in flavors[0]["resources"]]
    groups = [{"coveredResources": covered, "flavors": list(flavors)}]
    return {"spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec}}


def queues(*, flavors: Mapping[str, Any] | None = None, **named: Mapping[str, Any]) -> Queues:
    """ClusterQueues by name; each has a LocalQueue of its name in the namespace `ml`."""
    objects: dict[str, Mapping[str, Any]] = {
        "ResourceFlavor": flavors or {"t4": {"spec": {"nodeLabels": T4}}, "l4": {"spec": {"nodeLabels": L4}}},
        "ClusterQueue": named,
        "WorkloadPriorityClass": {"low": {"value": 100}, "high": {"value": 300}},
    }
    local = [("ml", name, {"spec": {"clusterQueue": name}}) for name in named]
    return queues_of(lambda kind: list(objects.get(kind, {}).items()), local)


def job(name: str, gpus: int = 1, *, queue: str = "own", **changes: Any) -> QueuedJob:
    return replace(QueuedJob(name, "ml", queue, 1, {GPU: gpus}), **changes)


def test_a_taint_of_a_flavor_has_to_be_tolerated() -> None:
    taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    tainted = queues(flavors={"t4": {"spec": {"nodeTaints": [taint]}}}, own=cluster_queue(quota("t4", gpu=2)))
    assert "untolerated taint" in tainted.never(job("train"))
    spec = {"tolerations": [{"key": GPU, "operator": "Exists"}]}
    tolerating = queued_job("train", "ml", {QUEUE_LABEL: "own"}, pods=1, spec=spec)
    assert tolerating is not None
    assert tainted.never(tolerating) == ""


@pytest.mark.parametrize(
    ("waiting", "parts"),
    [
        (job("train", amounts={GPU: 4}, pods=2), (f"4 {GPU} in all (2 pods)", "is 2")),
        (job("train", amounts={GPU: 1, "cpu": 9500}), ("9500m cpu in all", "is 8")),
        (job("train", amounts={"memory": 2**30}), ("memory unavailable",)),
        (job("train", selector={"pool": "h100"}), ("t4 doesn't match node affinity",)),
    ],
)
def test_what_no_quota_can_ever_admit_is_refused_with_the_figures(waiting: QueuedJob, parts: tuple[str]) -> None:
    few = queues(own=cluster_queue(quota("t4", gpu=2, cpu=8)))
    assert few.never(job("train", 2)) == ""
    assert all(part in few.never(waiting) for part in parts)


def test_one_flavor_has_to_have_all_that_a_job_asks_for() -> None:
    apart = queues(own=cluster_queue(quota("t4", gpu=4, cpu=1), quota("l4", gpu=0, cpu=8)))
    assert apart.never(job("train", amounts={GPU: 1, "cpu": 1000})) == ""
    assert apart.never(job("train", amounts={GPU: 1, "cpu": 2000})) != ""


def test_quota_that_others_of_a_cohort_do_not_use_is_borrowed() -> None:
    limited = {"nominalQuota": "2", "borrowingLimit": "1"}
    mine, lender = quota("t4", gpu=2), cluster_queue(quota("t4", gpu=2), cohortName="all")
    cases: list[tuple[Mapping[str, Any], int]] = [
        (cluster_queue(mine), 2),
        (cluster_queue(mine, cohortName="all"), 4),
        (cluster_queue(quota("t4", gpu=limited), cohortName="all"), 3),
    ]
    for borrower, most in cases:
        pair = queues(own=borrower, lender=lender)
        assert pair.never(job("train", most)) == ""
        assert f"is {most}" in pair.never(job("train", most + 1))


def test_more_than_the_own_share_is_never_taken_back() -> None:
    spec = {"cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"}}
    pair = queues(own=cluster_queue(quota("t4", gpu=2), **spec), lender=cluster_queue(quota("t4", gpu=2), **spec))
    assert pair.beyond_share(job("train", 2)) == ""
    assert "is 2" in pair.beyond_share(job("train", 3))
    assert pair.beyond_share(job("train", 5)) == "", "it is never admitted"


def test_each_pod_counts_where_a_queue_covers_pods() -> None:
    counted = queues(own=cluster_queue(quota("t4", pods=3, gpu=8)))
    assert counted.never(job("train", pods=3)) == ""
    assert "4 pods in all" in counted.never(job("train", pods=4))


ONE = quota("t4", gpu=1)


@pytest.mark.parametrize(
    ("queue", "labels", "part"),
    [
        (cluster_queue(ONE), {}, ""),
        (cluster_queue(ONE, namespaceSelector=None), {}, "namespace doesn't match"),
        (
            cluster_queue(ONE, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "ml"}}),
            {},
            "",
        ),
        (
            cluster_queue(ONE, namespaceSelector={"matchLabels": {"team": "vision"}}),
            {"team": "language"},
            "namespace doesn't match",
        ),
        (cluster_queue(ONE, stopPolicy="Hold"), {}, "stopPolicy"),
        (cluster_queue(quota("h100", gpu=1)), {}, "flavors do not exist: h100"),
        (
            cluster_queue(ONE, admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]}),
            {},
            "AdmissionChecks do not exist: nodes",
        ),
    ],
)
def test_what_keeps_all_jobs_of_a_queue_waiting_is_said(
    queue: Mapping[str, Any], labels: Mapping[str, str], part: str
) -> None:
    one = queues(own=queue)
    obstacle = one.obstacle(job("train"), labels)
    assert part in obstacle if part else obstacle == ""
    assert "LocalQueue none" in one.obstacle(job("train", queue="none"), labels)


def container(policy: str | None = None, **requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}, **({"restartPolicy": policy} if policy else {})}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (
            {"containers": [container(cpu="1"), container(cpu="500m", memory="1Gi")]},
            {"cpu": 1500, "memory": 2**30},
        ),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, {"cpu": 3000}),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("Always", cpu="1"), container(cpu="2")],
            },
            {"cpu": 3000},
        ),
        (
            {"containers": [{"resources": {"limits": {"vpc.amazonaws.com/efa": "4"}}}]},
            {"vpc.amazonaws.com/efa": 4},
        ),
    ],
)
def test_a_pod_asks_for_what_the_scheduler_would_count(spec: Mapping[str, Any], wanted: Mapping[str, int]) -> None:
    assert pod_amounts(spec) == wanted


@pytest.mark.parametrize(
    ("resource", "text"), [("cpu", "1500m"), ("cpu", "2"), ("memory", "3Gi"), ("memory", "1500Ki"), (GPU, "4")]
)
def test_amounts_are_shown_as_they_are_written(resource: str, text: str) -> None:
    assert quantity_text(resource, amount(resource, text)) == text


FIELDS = {
    "ResourceFlavor": "nodeLabels.* nodeTaints.key nodeTaints.value nodeTaints.effect",
    "ClusterQueue": "cohortName fairSharing.weight namespaceSelector.matchLabels.* "
    "queueingStrategy=BestEffortFIFO preemption.withinClusterQueue=Never|LowerPriority "
    "preemption.reclaimWithinCohort=Never|LowerPriority|Any "
    "resourceGroups.coveredResources resourceGroups.flavors.name resourceGroups.flavors.resources.name "
    "resourceGroups.flavors.resources.nominalQuota admissionChecksStrategy.admissionChecks.name "
    "admissionChecksStrategy.admissionChecks.onFlavors",
    "LocalQueue": "clusterQueue",
    "AdmissionCheck": "controllerName parameters.apiGroup parameters.kind parameters.name",
    "ProvisioningRequestConfig": "provisioningClassName managedResources retryStrategy.backoffLimitCount",
    "WorkloadPriorityClass": "",
}
"""The fields of each kind's spec that a stack may have, and the values of some: those of them that Kueue's API has
(apis/kueue/v1beta2 of github.com/kubernetes-sigs/kueue at commit ff69552, 22 August 2026)."""

FLEX: Mapping[str, Any] = {
    "clusters.dev.pools.predict.spot": False,
    "clusters.dev.pools.predict.flex_start": True,
    "clusters.dev.pools.predict.queued_provisioning": True,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [("gcp-dev", {}), ("gcp-dev", FLEX), ("gcp-platform", {"kueue": {"preemption": "shares"}})],
)
def test_declared_objects_have_the_fields_of_kueues_api(name: str, changes: Mapping[str, Any]) -> None:
    stack = previewed(name, {"kueue": {}, **changes})
    objects = [resource for resource in stack.resources.values() if "kueue" in resource.type]
    kinds = {kind_of(resource.type) for resource in objects}
    assert {"ClusterQueue", "ResourceFlavor", "WorkloadPriorityClass"} <= kinds
    assert ("AdmissionCheck" in kinds) is (changes is FLEX)
    for resource in objects:
        kind = kind_of(resource.type) or ""
        assert (kind in KINDS, resource.properties["apiVersion"]) == (True, API)
        known = {field.partition("=")[0]: field.partition("=")[2] for field in FIELDS[kind].split()}
        for place, value in leaves(resource.properties.get("spec", {})):
            path = re.sub(r"\[\d+\]", "", place)
            field = next((field for field in known if fnmatchcase(path, field)), None)
            assert field is not None, (kind, path)
            assert not known[field] or value in known[field].split("|"), (kind, path, value)


def found(before: Stack, after: Stack) -> list[Finding]:
    change = Change(before, after, compare_resources(before, after))
    return check_change(change, {}, date(2026, 11, 22))[0]


def test_kueue_takes_the_queues_of_all_with_it() -> None:
    release = declared(RELEASE, "here-kueue-release", {"name": "kueue", "chart": "/charts/kueue.tgz"})
    other = declared(RELEASE, "here-plugin", {"name": "device-plugin"})
    before = Stack("test", {resource.urn: resource for resource in (release, other)})
    [finding] = found(before, Stack("test", {}))
    assert (finding.policy, finding.severity, finding.harm) == ("deletes-queue-api", Severity.WARNING, True)
    assert "everybody's queues on that cluster: the stack no longer has it" in finding.reason
