"""Kueue's flavors, quotas and order, as its code has them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from offline.evaluated.queue_objects import QueuedJob, queued_job, requests
from offline.evaluated.queues import AdmittedJob, Decision, Mode, Queues, decide, queues_of
from offline.evaluated.scheduling import amount, shown

T4, L4 = {"pool": "t4"}, {"pool": "l4"}
GPU = "nvidia.com/gpu"


def quota(flavor: str, **amounts: Any) -> dict[str, Any]:
    """Quotas by resource, ``gpu`` for that of GPUs; a mapping has all three amounts."""
    named = {"gpu": GPU, "cpu": "cpu", "pods": "pods"}
    resources = [
        {"name": named[key], **(each if isinstance(each, Mapping) else {"nominalQuota": str(each)})}
        for key, each in amounts.items()
    ]
    return {"name": flavor, "resources": resources}


def cluster_queue(*flavors: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    covered = [resource["name"] for resource in flavors[0]["resources"]] if flavors else []
    groups = [{"coveredResources": covered, "flavors": list(flavors)}] if flavors else []
    return {"spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec}}


def queues(
    *,
    flavors: Mapping[str, Any] | None = None,
    cohorts: Mapping[str, Any] | None = None,
    **named: Mapping[str, Any],
) -> Queues:
    """ClusterQueues by name; each has a LocalQueue of its name in the namespace `ml`."""
    objects: dict[str, Mapping[str, Any]] = {
        "ResourceFlavor": flavors or {"t4": {"spec": {"nodeLabels": T4}}, "l4": {"spec": {"nodeLabels": L4}}},
        "ClusterQueue": named,
        "Cohort": cohorts or {},
        "WorkloadPriorityClass": {"low": {"value": 100}, "high": {"value": 300}},
    }
    local = [("ml", name, {"spec": {"clusterQueue": name}}) for name in named]
    return queues_of(lambda kind: list(objects.get(kind, {}).items()), local)


def job(
    name: str, gpus: int = 1, *, order: int = 0, queue: str = "own", priority: int = 0, **changes: Any
) -> QueuedJob:
    return replace(QueuedJob(name, "ml", queue, 1, {GPU: gpus}, priority=priority, order=order), **changes)


def running(there: Queues, *jobs: QueuedJob) -> list[AdmittedJob]:
    found: list[AdmittedJob] = []
    for since, each in enumerate(jobs):
        used: dict[str, dict[tuple[str, str], int]] = {}
        for one in found:
            for key, value in one.assignment.usage.items():
                own = used.setdefault(one.assignment.queue, {})
                own[key] = own.get(key, 0) + value
        assignment = there.assign(each, used)
        assert assignment.mode is Mode.FIT
        found.append(AdmittedJob(each, assignment, since))
    return found


def names(found: Decision) -> list[str]:
    return [asked.name for asked, _ in found.admitted]


def test_a_job_has_quota_for_all_of_its_pods_or_for_none() -> None:
    there = queues(own=cluster_queue(quota("t4", gpu=3)))
    found = decide(there, [job("two", 2, order=0), job("more", 2, order=1)], [])
    assert names(found) == ["two"]
    assert found.reasons == {1: f"insufficient unused quota for {GPU} in flavor t4, 1 more needed"}


def test_priority_comes_before_age() -> None:
    there = queues(own=cluster_queue(quota("t4", gpu=2)))
    waiting = [job("old", order=0), job("new", order=1), job("urgent", order=2, priority=300)]
    assert names(decide(there, waiting, [])) == ["urgent", "old"]


def test_only_a_strict_queue_lets_nobody_overtake() -> None:
    big, small = job("big", 2, order=0), job("small", order=1)
    for strategy, admitted in (("BestEffortFIFO", ["small"]), ("StrictFIFO", list[str]())):
        there = queues(own=cluster_queue(quota("t4", gpu=2), queueingStrategy=strategy))
        found = decide(there, [big, small], running(there, job("there")))
        assert names(found) == admitted
    assert found.reasons[1] == "waits behind big (StrictFIFO)"


@pytest.mark.parametrize(
    ("change", "flavor"),
    [({}, "t4"), ({"selector": {"pool": "l4", "zone": "a"}}, "l4"), ({"amounts": {GPU: 4}}, "l4")],
)
def test_the_first_flavor_that_fits_is_taken(change: Mapping[str, Any], flavor: str) -> None:
    there = queues(own=cluster_queue(quota("t4", gpu=2), quota("l4", gpu=8)))
    assert there.assign(job("train", **change), {}).flavors == {GPU: flavor}


def test_a_taint_of_a_flavor_has_to_be_tolerated() -> None:
    taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    there = queues(flavors={"t4": {"spec": {"nodeTaints": [taint]}}}, own=cluster_queue(quota("t4", gpu=2)))
    found = there.assign(job("train"), {})
    assert (found.mode, found.reasons) == (Mode.NEVER, [f"untolerated taint {{{GPU}: present}} in flavor t4"])
    spec = {"tolerations": [{"key": GPU, "operator": "Exists"}]}
    asked = queued_job("train", "ml", {"kueue.x-k8s.io/queue-name": "own"}, pods=1, spec=spec, priorities={})
    assert asked is not None
    assert there.assign(asked, {}).mode is Mode.FIT


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            job("train", amounts={GPU: 4}, pods=2),
            f"it asks for 4 {GPU} in all (2 pods), and the quota of queue own is 2",
        ),
        (
            job("train", amounts={GPU: 1, "cpu": 9500}),
            "it asks for 9500m cpu in all, and the quota of queue own is 8",
        ),
        (
            job("train", amounts={"memory": 2**30}),
            "no quota of queue own is for its pods: resource memory unavailable in ClusterQueue",
        ),
        (
            job("train", selector={"pool": "h100"}),
            "no quota of queue own is for its pods: flavor t4 doesn't match node affinity",
        ),
        (job("train", 2), ""),
    ],
)
def test_what_no_quota_can_ever_admit_is_told_with_the_figures(asked: QueuedJob, says: str) -> None:
    there = queues(own=cluster_queue(quota("t4", gpu=2, cpu=8)))
    assert there.never(asked) == says


def test_quota_that_others_of_a_cohort_do_not_use_is_borrowed() -> None:
    limited = {"nominalQuota": "2", "borrowingLimit": "1"}
    kept = {"nominalQuota": "2", "lendingLimit": "1"}
    mine, other = quota("t4", gpu=2), cluster_queue(quota("t4", gpu=2), cohortName="all")
    cases: list[tuple[Mapping[str, Any], Mapping[str, Any], int]] = [
        (cluster_queue(mine), other, 2),
        (cluster_queue(mine, cohortName="all"), other, 4),
        (cluster_queue(quota("t4", gpu=limited), cohortName="all"), other, 3),
        (cluster_queue(mine, cohortName="all"), cluster_queue(quota("t4", gpu=kept), cohortName="all"), 3),
    ]
    for own, lender, most in cases:
        there = queues(own=own, lender=lender)
        assert there.never(job("train", most)) == ""
        assert f"the quota of queue own is {most}" in there.never(job("train", most + 1))
    there = queues(own=cluster_queue(mine, cohortName="all"), lender=other)
    used = running(there, job("theirs", 1, queue="lender"))
    found = decide(there, [job("train", 4)], used)
    assert found.reasons == {0: f"insufficient unused quota for {GPU} in flavor t4, 1 more needed"}
    assert names(decide(there, [job("train", 3)], used)) == ["train"]


def test_who_borrows_nothing_comes_before_who_borrows() -> None:
    spec = {"cohortName": "all"}
    there = queues(own=cluster_queue(quota("t4", gpu=1), **spec), lender=cluster_queue(quota("t4", gpu=2), **spec))
    waiting = [job("borrows", 2, order=0, priority=300), job("owns", 2, order=1, queue="lender")]
    assert names(decide(there, waiting, [])) == ["owns"]


def test_a_cohort_has_quota_of_its_own_and_cohorts_have_parents() -> None:
    spare = {"spec": {"resourceGroups": [{"coveredResources": [GPU], "flavors": [quota("t4", gpu=5)]}]}}
    there = queues(
        own=cluster_queue(quota("t4", gpu=1), cohortName="team"),
        cohorts={"team": {"spec": {"parentName": "root"}}, "root": spare},
    )
    assert there.never(job("train", 6)) == ""
    assert "is 6" in there.never(job("train", 7))


def preempting(count: int) -> Queues:
    return queues(own=cluster_queue(quota("t4", gpu=count), preemption={"withinClusterQueue": "LowerPriority"}))


def test_the_newest_of_the_lowest_priority_is_stopped_and_no_more_than_needed() -> None:
    there = preempting(4)
    used = running(there, job("a", order=0), job("b", order=1), job("c", order=2, priority=100), job("d", order=3))
    found = decide(there, [job("urgent", 2, order=9, priority=300)], used)
    assert [(gone.job.name, asked.name) for gone, asked in found.stopped] == [("d", "urgent"), ("b", "urgent")]
    assert "Pending the preemption of d, b" in found.reasons[9]


def test_nobody_is_stopped_in_vain_or_for_the_same_priority() -> None:
    there = preempting(3)
    used = running(there, job("a"), job("b", order=1, priority=300), job("c", order=2, priority=300))
    for waiting in (job("urgent", 2, order=9, priority=300), job("equal", order=9)):
        assert decide(there, [waiting], used).stopped == []


def test_what_is_freed_for_a_job_is_nobody_elses() -> None:
    there = preempting(2)
    stopping = [replace(each, stopping=True) for each in running(there, job("a", 2))]
    found = decide(there, [job("urgent", order=8, priority=300), job("small", order=9)], stopping)
    assert (names(found), found.stopped) == ([], [])


def test_each_pod_counts_where_a_queue_covers_pods() -> None:
    there = queues(own=cluster_queue(quota("t4", pods=3, gpu=8)))
    assert there.never(job("train", pods=3)) == ""
    assert there.never(job("train", pods=4)) == "it asks for 4 pods in all, and the quota of queue own is 3"


@pytest.mark.parametrize(
    ("queue", "labels", "says"),
    [
        (cluster_queue(quota("t4", gpu=1)), {}, ""),
        (cluster_queue(quota("t4", gpu=1), namespaceSelector=None), {}, "Workload namespace doesn't match"),
        (
            cluster_queue(
                quota("t4", gpu=1), namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "ml"}}
            ),
            {},
            "",
        ),
        (
            cluster_queue(quota("t4", gpu=1), namespaceSelector={"matchLabels": {"team": "vision"}}),
            {"team": "language"},
            "Workload namespace doesn't match",
        ),
        (cluster_queue(quota("t4", gpu=1), stopPolicy="Hold"), {}, "is stopped by its stopPolicy"),
        (cluster_queue(quota("h100", gpu=1)), {}, "own is inactive: flavors do not exist: h100"),
        (
            cluster_queue(quota("t4", gpu=1), admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]}),
            {},
            "own is inactive: AdmissionChecks do not exist: nodes",
        ),
    ],
)
def test_what_keeps_all_jobs_of_a_queue_waiting_is_told(
    queue: Mapping[str, Any], labels: Mapping[str, str], says: str
) -> None:
    there = queues(own=queue)
    found = there.obstacle(job("train"), labels)
    assert says in found if says else found == ""
    assert "LocalQueue none doesn't exist in ml" in there.obstacle(job("train", queue="none"), labels)


def container(policy: str | None = None, **requests_: str) -> dict[str, Any]:
    return {"resources": {"requests": requests_}, **({"restartPolicy": policy} if policy else {})}


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
    assert requests(spec) == wanted


@pytest.mark.parametrize(
    ("resource", "text"), [("cpu", "1500m"), ("cpu", "2"), ("memory", "3Gi"), ("memory", "1500Ki"), (GPU, "4")]
)
def test_amounts_are_shown_as_they_are_written(resource: str, text: str) -> None:
    assert shown(resource, amount(resource, text)) == text
