"""What people are told of Kueue in a cluster, and of Jobs that it holds back or has stopped."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipway.command.watch.observed import Observed
from slipway.command.watch.pod_states import recognise
from slipway.command.watch.states import Phase, Reason
from slipway.features.kueue.feature import KueueSettings
from slipway.features.kueue.live import hold
from slipway.infra.review.facts import State
from tests.command.doctor import test_clusters
from tests.command.doctor.test_clusters import Server, of_cluster
from tests.command.watch.cluster import before, condition, job, pod, unschedulable
from tests.command.watch.test_job_states import GANG, JOB, NODES, STEP, creations, look, runs

QUEUE = {"kueue.x-k8s.io/queue-name": "slipway"}
NO_FLAVOR = "couldn't assign flavors to pod set main: "


@pytest.mark.parametrize(
    ("words", "kind", "values"),
    [
        (f"{NO_FLAVOR}insufficient unused quota for nvidia.com/gpu in flavor train, 2 more needed",
         "quota", ["2 of nvidia.com/gpu", "train"]),
        (f"{NO_FLAVOR}insufficient quota for nvidia.com/gpu in flavor train, previously considered "
         "podsets requests (0) + current podset request (8) > maximum capacity (4)",
         "never", ["8 of nvidia.com/gpu", "4 of train"]),
        (f"{NO_FLAVOR}insufficient unused quota for cpu in flavor train, 5 more needed. Pending the "
         "preemption of 1 workload(s)", "quota", ["5 of cpu"]),
        (f"{NO_FLAVOR}resource memory unavailable in ClusterQueue", "resource", ["memory"]),
        ("LocalQueue slipway doesn't exist", "queue missing", []),
        ("ClusterQueue slipway is inactive", "queue stopped", []),
        ("Workload no longer fits after processing another workload", "turn", []),
    ],
)  # fmt: skip
def test_words_of_kueue_are_known_with_what_they_name(words: str, kind: str, values: list[str]) -> None:
    reason = recognise(words, "queue")
    assert (reason.kind, reason.words) == (kind, words)
    assert all(value in reason.says for value in values)


def workload(
    of: Mapping[str, Any], *conditions: Mapping[str, Any], priority: int = 0, age: float = 600, **status: Any
) -> dict[str, Any]:
    return {
        "kind": "Workload",
        "metadata": {
            "name": f"job-{of['metadata']['name']}",
            "uid": f"workload-{of['metadata']['uid']}",
            "creationTimestamp": before(age),
            "ownerReferences": [{"uid": of["metadata"]["uid"], "kind": "Job"}],
        },
        "spec": {"queueName": "slipway", "priority": priority, "active": True},
        "status": {"conditions": list(conditions), **status},
    }


def test_a_suspended_job_is_queued_and_has_no_deadline() -> None:
    suspended = job("mnist-train-1", suspend=True, labels=QUEUE)
    words = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor t, 1 more needed"
    waiting = workload(suspended, condition("QuotaReserved", "False", "Pending", words))
    state = look(STEP, suspended, beside={"workloads": [waiting]})
    assert (state.phase, state.deadline, state.began) == (Phase.QUEUED, None, None)
    assert (state.reason.kind, state.reason.words) == ("quota", words)


def evicted(of: Mapping[str, Any], reason: str, count: int) -> dict[str, Any]:
    """The Workload of a Job that Kueue has evicted so often."""
    statistics = {"evictions": [{"reason": reason, "underlyingCause": "", "count": count}]}
    return workload(of, condition("Evicted", reason=reason, message=reason), schedulingStats=statistics)


def test_evictions_by_kueue_count_once_for_all_pods_of_a_step() -> None:
    state = look(STEP, JOB, runs(), beside={"workloads": [evicted(JOB, "Preempted", 2)]})
    assert (state.retries, state.retried) == (2, "Preempted")
    evictions = [evicted(GANG, "PodsReadyTimeout", 1)]
    both = [runs(GANG, suffix, index=index) for index, suffix in enumerate("cd")]
    assert look(NODES, GANG, *both, events=creations("abcd"), beside={"workloads": evictions}).retries == 1
    # It waits in its queue, and nothing was started again yet.
    suspended = job("mnist-train-1", pods=2, suspend=True, labels=QUEUE)
    state = look(NODES, suspended, events=creations("ab"), beside={"workloads": evictions})
    assert (state.phase, state.retries) == (Phase.QUEUED, 0)


def test_a_job_that_kueue_let_in_for_another_pool_names_its_flavor() -> None:
    waiting = pod(JOB, "a", unschedulable("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity."))
    waiting["spec"]["nodeSelector"] = {"team": "train", "role": "cpu"}
    admission = {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "ml.cpu", "memory": "ml.cpu"}}]}
    admitted = workload(JOB, condition("Admitted"), admission=admission)
    admitted["spec"]["podSets"] = [{"template": {"spec": {"nodeSelector": {"team": "train"}}}}]
    state = look(STEP, JOB, waiting, beside={"workloads": [admitted]})
    assert (state.phase, state.reason.kind) == (Phase.WAITING, "flavor")
    assert "flavor ml.cpu" in state.reason.says
    assert "(role=cpu)" in state.reason.says


QUEUED = job("mnist-train-2", suspend=True, labels=QUEUE)


def held(*workloads: Mapping[str, Any]) -> Reason:
    state = hold(QUEUED, Observed(beside={"workloads": workloads}))
    assert state is not None
    return state.reason


def no_quota(message: str) -> dict[str, Any]:
    return condition("QuotaReserved", "False", "Pending", message)


def test_who_comes_first_in_the_queue_is_counted() -> None:
    words = "insufficient unused quota for cpu in flavor cpu, 1 more needed"
    waiting = workload(QUEUED, no_quota(words), age=100)
    others = [
        workload(job("older"), no_quota("…"), age=500),
        workload(job("important"), no_quota("…"), priority=1000, age=5),
        workload(job("admitted"), condition("QuotaReserved"), age=900),
    ]
    reason = held(waiting, *others)
    assert (reason.kind, reason.words) == ("quota", words)
    assert "2 of this namespace" in reason.says


def test_a_job_that_waits_for_its_nodes_together_has_its_quota() -> None:
    check = {"name": "flex-start", "state": "Pending", "message": "waiting for capacity"}
    waiting = workload(QUEUED, condition("QuotaReserved"), admissionChecks=[check])
    reason = held(waiting)
    assert (reason.kind, reason.words) == ("checks", "waiting for capacity")
    assert "flex-start" in reason.says


def test_a_job_that_kueue_has_not_seen_is_told_so() -> None:
    assert held().kind == "kueue"
    assert hold(job("other", suspend=True), Observed()) is None


server = test_clusters.server


def settings(installs: bool | None) -> Any:
    return SimpleNamespace(kueue=None if installs is None else KueueSettings(install=installs))


def test_kueue_is_there_where_it_has_to_be_and_not_twice(server: Server, tmp_path: Path) -> None:
    def kueue(installs: bool | None) -> list[tuple[State, str]]:
        states = of_cluster(tmp_path, settings(installs))
        return [(state, mend) for state, told in states.items() for said, mend in told if said.startswith("Kueue")]

    assert kueue(None) == []
    ((state, mend),) = kueue(False)
    assert state is State.WRONG
    assert mend.startswith("kubectl apply --server-side -f https://github.com/kubernetes-sigs/kueue/releases/")
    assert kueue(True) == [(State.FINE, "")]
    server.kueue = True
    assert kueue(False) == [(State.FINE, "")]
    assert kueue(True) == [(State.WRONG, "pulumi config set --path slipway:kueue.install false -s dev")]
    server.more["/apis/kueue.x-k8s.io/v1beta2/namespaces/mine/localqueues/default"] = {"kind": "LocalQueue"}
    assert (State.WRONG, "kubectl delete localqueue default -n mine") in kueue(False)


@pytest.mark.parametrize(("exists", "holds"), [(True, True), (False, True), (True, False)])
def test_a_queue_in_which_no_job_would_wait_is_told(
    server: Server, tmp_path: Path, exists: bool, holds: bool
) -> None:
    server.kueue, server.holds = True, holds
    if exists:
        server.more["/apis/kueue.x-k8s.io/v1beta2/namespaces/mine/localqueues/q"] = {"kind": "LocalQueue"}
    mends = [mend for _, mend in of_cluster(tmp_path, settings(False))[State.WRONG]]
    assert ("kubectl get localqueue -n mine" in mends) is not (exists and holds)
