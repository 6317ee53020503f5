"""Where a step stands, from its Job and pods: never running while its program does not run."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.tools.watch.cluster import (
    TAKEN,
    before,
    condition,
    ended,
    event,
    job,
    pod,
    running,
    taken,
    unschedulable,
    workload,
)
from tools.watch.job_states import Snapshot, pod_of, step_state
from tools.watch.observed import Event, Observed, event_of
from tools.watch.plan import Expected
from tools.watch.states import Phase, StepState

SECTION = "slipway:pipelines.mnist.steps.train"
STEP = Expected(
    "mnist-train", "mnist-train-1", "mnist", "train", "dev", "slipway", "train", pods=1, gpus=1, section=SECTION
)
NODES = Expected("mnist-train", "mnist-train-1", "mnist", "train", "dev", "slipway", "train", pods=2, gpus=2)
ITEMS = Expected("mnist-days", "mnist-days-1", "mnist", "days", "dev", "slipway", "cpu", pods=3, items=True)
FULL = unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")

LOST = {"waiting": {"reason": "ContainerCreating"}}


def look(
    step: Expected,
    made: Mapping[str, Any],
    *pods: Mapping[str, Any],
    events: Sequence[Any] = (),
    workloads: Sequence[Any] = (),
    gone_nodes: Sequence[str] = (),
    before: StepState | None = None,
) -> StepState:
    by_uid: dict[str, list[Event]] = {}
    for item in map(event_of, events):
        by_uid.setdefault(item.uid, []).append(item)
    observed = Observed(events=dict(by_uid), workloads=workloads, gone_nodes=frozenset(gone_nodes))
    return step_state(step, Snapshot(made, pods, observed, before=before))


def test_a_step_without_a_job_is_not_created() -> None:
    state = step_state(STEP, Snapshot())
    assert state.phase is Phase.ABSENT
    assert state.says.startswith("not created: nothing is in its way")


def test_a_pod_whose_container_runs_runs() -> None:
    made = job("mnist-train-1")
    state = look(STEP, made, pod(made, phase="Running", node="n1", state=running(), gpus=1))
    assert (state.phase, state.running, state.gpus) == (Phase.RUNNING, 1, 1)
    assert state.deadline


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({"node": "n1", "state": LOST}, Phase.STARTING),
        ({"node": "n1", "phase": "Running", "state": LOST}, Phase.STARTING),
        ({"node": "n1", "phase": "Running", "state": ended(0)}, Phase.ENDING),
        ({"node": "n1", "phase": "Running", "state": {"waiting": {"reason": "ErrImagePull"}}}, Phase.PULLING),
        ({"node": "n1"}, Phase.STARTING),
        ({}, Phase.WAITING),
    ],
)
def test_a_pod_whose_container_does_not_run_does_not_run(changes: dict[str, Any], phase: Phase) -> None:
    made = job("mnist-train-1")
    assert look(STEP, made, pod(made, **changes)).phase is phase


def test_a_pod_whose_node_is_silent_is_lost_and_not_running() -> None:
    made = job("mnist-train-1")
    there = pod(made, "a", condition("Ready", "False", at=45), phase="Running", node="n1", state=running())
    silent = event(there, "NodeNotReady", "Node is not ready", by="node-controller")
    state = look(STEP, made, there, events=[silent])
    assert state.phase is Phase.LOST
    assert state.reason.says == "nothing is heard from its node n1"


def test_a_pod_that_is_evicted_is_being_stopped() -> None:
    made = job("mnist-train-1")
    going = pod(made, "a", TAKEN, phase="Running", node="n1", state=running())
    going["metadata"]["deletionTimestamp"] = before(-20)
    state = look(STEP, made, going)
    assert state.phase is Phase.ENDING
    assert "Spot node" in state.reason.says


def test_a_pod_that_was_taken_away_is_started_again() -> None:
    made = job("mnist-train-1")
    old = pod(made, "a", TAKEN, phase="Failed", node="n1", state=ended(143))
    state = look(STEP, made, old)
    # The next one is not there yet.
    assert (state.phase, state.retries) == (Phase.RETRYING, 0)
    assert state.reason.says.startswith("its node was shut down; a Spot node")
    new = pod(made, "b", FULL, age=20)
    state = look(STEP, made, old, new)
    assert (state.phase, state.retries) == (Phase.WAITING, 1)
    state = look(STEP, made, old, pod(made, "b", phase="Running", node="n2", state=running(10), age=20))
    assert (state.phase, state.retries) == (Phase.RUNNING, 1)


def test_a_pod_that_failed_by_itself_is_not_said_to_be_started_again() -> None:
    made = job("mnist-train-1")
    made["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onExitCodes": {"values": [137, 143]}}]}
    state = look(STEP, made, pod(made, phase="Failed", node="n1", state=ended(4, "error: no data (exit code 4)")))
    assert (state.phase, state.retries) == (Phase.ENDING, 0)
    assert state.says == "ends: error: no data (exit code 4)"
    killed = look(STEP, made, pod(made, phase="Failed", node="n1", state=ended(137)))
    assert (killed.phase, killed.retries) == (Phase.RETRYING, 0)


def test_retries_are_counted_by_events_where_the_pods_are_gone() -> None:
    made = job("mnist-train-1")
    there = pod(made, "c", phase="Running", node="n1", state=running())
    created = [event(made, "SuccessfulCreate", f"Created pod: mnist-train-1-{each}", 100) for each in "abc"]
    for number, each in enumerate(created):
        each["metadata"]["name"] = f"e{number}"
    assert look(STEP, made, there, events=created).retries == 2


def test_a_failed_step_has_its_programs_last_words_and_exit_code() -> None:
    made = job("mnist-train-1", condition("Failed", reason="BackoffLimitExceeded"))
    words = "Epoch 12/12 - loss 2.1\nerror: test accuracy 0.1 is below 0.9 (exit code 3)\n"
    state = look(STEP, made, pod(made, phase="Failed", node="n1", state=ended(3, words)))
    assert state.says == "failed: error: test accuracy 0.1 is below 0.9 (exit code 3)"
    plain = look(STEP, made, pod(made, phase="Failed", node="n1", state=ended(7, "Segmentation")))
    assert plain.says == "failed: exit code 7: Segmentation"


def test_a_step_that_is_killed_for_want_of_memory_is_told_so() -> None:
    made = job("mnist-train-1", condition("Failed", reason="BackoffLimitExceeded"))
    state = look(STEP, made, pod(made, phase="Failed", node="n1", state=ended(137, reason="OOMKilled")))
    assert state.says == "failed: killed for want of memory: its limit is 8Gi"
    assert f"raise `{SECTION}.memory`" in state.reason.fix


def test_a_step_that_ran_past_its_limit_says_what_it_was_doing() -> None:
    made = job("mnist-train-1")
    waiting = look(STEP, made, pod(made, "a", FULL))
    late = job("mnist-train-1", condition("Failed", reason="DeadlineExceeded"), limit=600)
    state = look(STEP, late, before=waiting)
    assert state.says == (
        "failed: ended by its time limit of 10 min; before that it waits for a node: one node is without "
        "a free GPU"
    )
    assert state.reason.fix == waiting.reason.fix
    assert look(STEP, late, before=state).says == state.says


def test_of_several_pods_the_cause_speaks_and_not_its_neighbours() -> None:
    made = job("mnist-train-1", condition("Failed", reason="BackoffLimitExceeded"), pods=2)
    cause = pod(
        made, "a", phase="Failed", node="n1", index=1, state=ended(4, "error: no data (exit code 4)", at=20)
    )
    other = pod(made, "b", phase="Failed", node="n2", index=0, state=ended(15, "stopped: pod 1 failed", at=40))
    assert look(NODES, made, cause, other).says == "failed: pod 1: error: no data (exit code 4)"


def test_pods_of_several_nodes_do_not_run_until_all_do() -> None:
    made = job("mnist-train-1", pods=2)
    one = pod(made, "a", phase="Running", node="n1", index=0, state=running(), gpus=2)
    full = unschedulable("0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match pod "
                         "anti-affinity rules.")  # fmt: skip
    state = look(NODES, made, one, pod(made, "b", full, index=1, gpus=2))
    assert (state.phase, state.running, state.wanted, state.gpus) == (Phase.WAITING, 1, 2, 2)
    assert state.reason.says.startswith("1 of 2 pods, the other waits for it: one node is without a free GPU")
    assert look(NODES, made, one).phase is Phase.CREATING
    both = look(NODES, made, one, pod(made, "b", phase="Running", node="n2", index=1, state=running(), gpus=2))
    assert (both.phase, both.running, both.gpus) == (Phase.RUNNING, 2, 4)


def test_a_lost_pod_of_several_is_told_while_the_others_wait() -> None:
    made = job("mnist-train-1", pods=2)
    one = pod(made, "a", phase="Running", node="n1", index=0, state=running())
    old = pod(made, "b", TAKEN, phase="Failed", node="n2", index=1, state=ended(143))
    state = look(NODES, made, one, old)
    assert (state.phase, state.retries) == (Phase.RETRYING, 0)
    new = pod(made, "c", FULL, index=1, age=10)
    assert look(NODES, made, one, old, new).retries == 1


def test_workers_on_items_run_as_soon_as_one_does() -> None:
    made = job("mnist-days-1", step="mnist.days", pods=3)
    one = pod(made, "a", phase="Running", node="n1", index=0, state=running())
    others = [pod(made, each, FULL, index=number) for number, each in enumerate("bc", 1)]
    state = look(ITEMS, made, one, *others)
    assert (state.phase, state.running) == (Phase.RUNNING, 1)
    assert state.remark == "2 of 3 workers not yet: waits for a node, one node is without a free GPU"


def test_a_suspended_job_is_queued_and_has_no_deadline() -> None:
    made = job("mnist-train-1", suspend=True, labels={"kueue.x-k8s.io/queue-name": "slipway"})
    words = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor t, 1 more needed"
    own = workload(made, condition("QuotaReserved", "False", "Pending", words))
    state = look(STEP, made, workloads=[own])
    assert (state.phase, state.deadline, state.began) == (Phase.QUEUED, None, None)
    assert state.says == "queued: others use the quota: 1 of cpu are missing on t"


def test_a_preempted_job_counts_kueues_evictions() -> None:
    made = job("mnist-train-1")
    own = workload(
        made,
        condition("Evicted", reason="Preempted", message="Preempted to accommodate a workload"),
        schedulingStats={"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
    )
    state = look(STEP, made, pod(made, phase="Running", node="n1", state=running()), workloads=[own])
    assert (state.retries, state.retried) == (2, "Preempted to accommodate a workload")


def test_an_eviction_of_all_pods_by_kueue_is_one_start_again() -> None:
    made = job("mnist-train-1", pods=2)
    stats = {"evictions": [{"reason": "PodsReadyTimeout", "underlyingCause": "", "count": 1}]}
    own = workload(made, condition("Evicted", reason="PodsReadyTimeout", message="timeout"), schedulingStats=stats)
    created = [event(made, "SuccessfulCreate", f"Created pod: mnist-train-1-{each}", 100) for each in "abcd"]
    for number, each in enumerate(created):
        each["metadata"]["name"] = f"e{number}"
    there = [
        pod(made, name, phase="Running", node="n1", index=index, state=running())
        for index, name in enumerate("cd")
    ]
    assert look(NODES, made, *there, events=created, workloads=[own]).retries == 1
    # It waits in its queue, and nothing was started again yet.
    suspended = job("mnist-train-1", pods=2, suspend=True, labels={"kueue.x-k8s.io/queue-name": "slipway"})
    state = look(NODES, suspended, events=created[:2], workloads=[own])
    assert (state.phase, state.retries) == (Phase.QUEUED, 0)


@pytest.mark.parametrize(
    ("message", "says", "fix"),
    [
        (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 9Gi, available: 8Gi. ",
            "disk space",
            "ephemeral_storage",
        ),
        ("The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. ", "memory", "memory"),
        ("The node was low on resource: pids. ", "pids", "kubectl describe node"),
    ],
)
def test_an_eviction_by_a_node_that_runs_short_is_no_spot_node(message: str, says: str, fix: str) -> None:
    made = job("mnist-train-1")
    old = pod(made, "a", taken(message), phase="Failed", node="n1", reason="Evicted", message=message)
    state = look(STEP, made, old)
    assert state.phase is Phase.RETRYING
    assert f"its node evicted it for want of {says}" in state.reason.says
    assert "Spot" not in state.reason.says
    assert "Spot" not in look(STEP, made, old, pod(made, "b", FULL, age=9)).retried
    if fix in {"memory", "ephemeral_storage"}:
        assert f"`{fix}`" in state.reason.fix


def test_an_eviction_for_a_limit_of_its_own_fails_the_step() -> None:
    made = job("mnist-train-1", condition("Failed", reason="BackoffLimitExceeded"))
    words = "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "
    state = look(STEP, made, pod(made, phase="Failed", node="n1", reason="Evicted", message=words))
    assert (state.phase, state.retries) == (Phase.FAILED, 0)
    assert "limit of 2Gi" in state.reason.says
    assert f"`{SECTION}.ephemeral_storage`" in state.reason.fix


@pytest.mark.parametrize(("asked", "kind"), [("3", "never"), ("1", "namespace quota")])
def test_a_pod_that_the_quota_can_never_hold_is_not_told_to_wait(asked: str, kind: str) -> None:
    made = job("mnist-train-1")
    words = (
        f'Error creating: pods "x" is forbidden: exceeded quota: pools, requested: '
        f"requests.nvidia.com/gpu={asked},requests.memory=1Gi, "
        "used: requests.nvidia.com/gpu=2,requests.memory=1Gi, limited: "
        "requests.nvidia.com/gpu=2,requests.memory=1536Mi"
    )
    state = look(STEP, made, events=[event(made, "FailedCreate", words)])
    assert state.reason.kind == kind
    assert ("wait until" in state.reason.fix) == (kind != "never")
    assert ("requests.nvidia.com/gpu than" in state.reason.says) == (kind == "never")


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_on_a_node_that_is_gone_is_lost(phase: str) -> None:
    made = job("mnist-train-1")
    there = pod(made, phase=phase, node="n1", state=running() if phase == "Running" else LOST)
    state = look(STEP, made, there, gone_nodes=["n1"])
    assert (state.phase, state.running) == (Phase.LOST, 0)
    assert look(STEP, made, there, gone_nodes=["n2"]).phase is not Phase.LOST


def test_after_its_time_limit_a_step_is_not_said_to_go_on() -> None:
    made = job("mnist-train-1", limit=600, age=620)
    stopped = pod(
        made, phase="Failed", node="n1", state=ended(143, "error: stopped by SIGTERM: the same command goes on")
    )
    before_ = look(STEP, made, stopped)
    assert (before_.phase, before_.reason.says) == (Phase.ENDING, "its time limit is over")
    late = job("mnist-train-1", condition("Failed", reason="DeadlineExceeded"), limit=600, age=620)
    state = look(STEP, late, stopped, before=before_)
    assert state.says == "failed: ended by its time limit of 10 min"
    assert f"`{SECTION}.time_limit`" in state.reason.fix
    assert "checkpoint" in state.reason.fix


def test_a_job_that_kueue_let_in_for_another_pool_names_its_flavor() -> None:
    made = job("mnist-train-1")
    words = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    there = pod(made, "a", unschedulable(words))
    there["spec"]["nodeSelector"] = {"team": "train", "role": "cpu"}
    admission = {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "ml.cpu", "memory": "ml.cpu"}}]}
    own = workload(made, condition("Admitted"), admission=admission)
    own["spec"]["podSets"] = [{"template": {"spec": {"nodeSelector": {"team": "train"}}}}]
    state = look(STEP, made, there, workloads=[own])
    assert (state.phase, state.reason.kind) == (Phase.WAITING, "flavor")
    assert "flavor ml.cpu" in state.reason.says
    assert "role=cpu" in state.reason.says


def test_a_job_whose_pod_is_refused_says_why() -> None:
    made = job("mnist-train-1")
    words = 'Error creating: pods "x" is forbidden: exceeded quota: pools, requested: a=1, used: a=1, limited: a=1'
    state = look(STEP, made, events=[event(made, "FailedCreate", words)])
    assert state.phase is Phase.CREATING
    assert "quota pools refuses its pod" in state.reason.says


def test_a_step_that_is_done_is_done_whatever_its_pods_say() -> None:
    made = job("mnist-train-1", condition("Complete"))
    state = look(STEP, made, pod(made, phase="Succeeded", node="n1", state=ended(0)))
    assert (state.phase, state.gpus) == (Phase.DONE, 0)
    assert state.ended


def test_the_program_is_found_beside_a_sidecar_of_the_cloud() -> None:
    made = job("mnist-train-1")
    there = pod(made, phase="Running", node="n1", state=running())
    sidecar = {"name": "gke-gcsfuse-sidecar", "state": running()}
    there["spec"]["containers"].insert(0, {"name": "gke-gcsfuse-sidecar"})
    there["status"]["containerStatuses"] = [sidecar, {"name": "train", "state": LOST}]
    state = pod_of(there, STEP, Snapshot(made))
    assert (state.container, state.phase) == ("train", Phase.STARTING)
