"""Where a step stands, from its Job and pods: never running while its program does not run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from slipway.command.watch.job_states import Snapshot, pod_of, step_state
from slipway.command.watch.observed import Event, Observed, event_of
from slipway.command.watch.plan import Expected
from slipway.command.watch.states import Phase, StepState
from tests.command.watch.cluster import (
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
)

JOB = job("mnist-train-1")
GANG = job("mnist-train-1", pods=2)
FAILED = job("mnist-train-1", condition("Failed", reason="BackoffLimitExceeded"))
QUEUE = {"kueue.x-k8s.io/queue-name": "slipway"}

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
    beside: Mapping[str, Sequence[Any]] | None = None,
    gone_nodes: Sequence[str] = (),
    before: StepState | None = None,
) -> StepState:
    by_uid: dict[str, list[Event]] = {}
    for item in map(event_of, events):
        by_uid.setdefault(item.uid, []).append(item)
    observed = Observed(events=dict(by_uid), beside=beside or {}, gone_nodes=frozenset(gone_nodes))
    return step_state(step, Snapshot(made, pods, observed, before=before))


def runs(of: Mapping[str, Any] = JOB, suffix: str = "a", node: str = "n1", **more: Any) -> dict[str, Any]:
    return pod(of, suffix, phase="Running", node=node, state=running(), **more)


def fails(code: int, message: str = "", of: Mapping[str, Any] = JOB, **more: Any) -> dict[str, Any]:
    reason = more.pop("why", "Error")
    return pod(of, more.pop("suffix", "a"), phase="Failed", node="n1", state=ended(code, message, reason), **more)


def taken_away(of: Mapping[str, Any] = JOB, suffix: str = "a", **more: Any) -> dict[str, Any]:
    return pod(of, suffix, TAKEN, phase="Failed", node="n1", state=ended(143), **more)


def creations(suffixes: str) -> list[dict[str, Any]]:
    events = [event(JOB, "SuccessfulCreate", f"Created pod: mnist-train-1-{suffix}", 100) for suffix in suffixes]
    return [{**item, "metadata": {"name": f"e{number}"}} for number, item in enumerate(events)]


def test_a_step_without_a_job_is_not_created() -> None:
    state = step_state(STEP, Snapshot())
    assert (state.phase, state.reason.kind) == (Phase.ABSENT, "up")


def test_a_pod_whose_container_runs_runs() -> None:
    state = look(STEP, JOB, runs(gpus=1))
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
    assert look(STEP, JOB, pod(JOB, **changes)).phase is phase


def test_a_pod_whose_node_is_silent_is_lost_and_not_running() -> None:
    silent = pod(JOB, "a", condition("Ready", "False", at=45), phase="Running", node="n1", state=running())
    state = look(STEP, JOB, silent, events=[event(silent, "NodeNotReady", "Node is not ready")])
    assert (state.phase, state.reason.kind, state.reason.words) == (Phase.LOST, "node lost", "Node is not ready")


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_on_a_node_that_is_gone_is_lost(phase: str) -> None:
    lost = pod(JOB, phase=phase, node="n1", state=running() if phase == "Running" else LOST)
    state = look(STEP, JOB, lost, gone_nodes=["n1"])
    assert (state.phase, state.running) == (Phase.LOST, 0)
    assert look(STEP, JOB, lost, gone_nodes=["n2"]).phase is not Phase.LOST


def test_a_pod_that_is_evicted_is_being_stopped() -> None:
    going = pod(JOB, "a", TAKEN, phase="Running", node="n1", state=running())
    going["metadata"]["deletionTimestamp"] = before(-20)
    state = look(STEP, JOB, going)
    assert state.phase is Phase.ENDING
    assert "Spot node" in state.reason.says


def test_a_pod_that_was_taken_away_is_started_again() -> None:
    state = look(STEP, JOB, taken_away())
    # The next one is not there yet.
    assert (state.phase, state.retries) == (Phase.RETRYING, 0)
    assert "Spot node" in state.reason.says
    state = look(STEP, JOB, taken_away(), pod(JOB, "b", FULL, age=20))
    assert (state.phase, state.retries) == (Phase.WAITING, 1)
    state = look(STEP, JOB, taken_away(), runs(JOB, "b", "n2", age=20))
    assert (state.phase, state.retries) == (Phase.RUNNING, 1)


def test_a_pod_that_failed_by_itself_is_not_said_to_be_started_again() -> None:
    rules = [{"action": "Ignore", "onExitCodes": {"values": [137, 143]}}]
    guarded = {**JOB, "spec": {**JOB["spec"], "podFailurePolicy": {"rules": rules}}}
    state = look(STEP, guarded, fails(4, "error: no data (exit code 4)"))
    assert (state.phase, state.retries) == (Phase.ENDING, 0)
    assert "no data (exit code 4)" in state.says
    state = look(STEP, guarded, fails(137))
    assert (state.phase, state.retries) == (Phase.RETRYING, 0)


def test_a_pod_that_its_node_refused_is_said_to_be_started_again() -> None:
    rejected = pod(JOB, phase="Failed", reason="UnexpectedAdmissionError", message="no devices")
    rule = {"action": "Ignore", "onPodConditions": [{"type": "PodScheduled", "status": "True"}]}
    for rules, phase in (([], Phase.ENDING), ([rule], Phase.RETRYING)):
        guarded = {**JOB, "spec": {**JOB["spec"], "podFailurePolicy": {"rules": rules}}}
        assert look(STEP, guarded, rejected).phase is phase


def test_retries_are_counted_by_events_where_the_pods_are_gone() -> None:
    assert look(STEP, JOB, runs(JOB, "c"), events=creations("abc")).retries == 2


def test_a_failed_step_has_its_programs_last_words_and_exit_code() -> None:
    words = "Epoch 12/12 - loss 2.1\nerror: test accuracy 0.1 is below 0.9 (exit code 3)\n"
    state = look(STEP, FAILED, fails(3, words))
    assert (state.phase, state.reason.says) == (Phase.FAILED, words.splitlines()[1].removeprefix("error: "))
    assert look(STEP, FAILED, fails(7, "Segmentation")).reason.says.endswith("Segmentation (exit code 7)")
    missing = look(STEP, FAILED, fails(1, "ModuleNotFoundError: No module named 'x'"))
    assert (missing.reason.kind, "module x" in missing.reason.says) == ("module", True)
    assert "mnist" in missing.reason.fix


@pytest.mark.parametrize(
    ("code", "words", "kind", "says"),
    [
        (
            21,
            "the nodes of this run cost $40.02, until they are gone, and `slipway:budget.run` is $40.00",
            "budget",
            "ended by the budget: $40.02 of $40.00",
        ),
        (22, "its GPU held 10 min idle, below 5 %, $3.10", "idle", "ended: GPUs idle for 10 min, $3.10"),
    ],
)
def test_a_step_that_a_limit_ended_is_named_with_the_money(code: int, words: str, kind: str, says: str) -> None:
    log = f"epoch 3\nerror: mnist.train was ended: {words}; what it saved is kept (exit code {code})"
    reason = look(STEP, FAILED, fails(code, log)).reason
    assert (reason.kind, reason.says) == (kind, says)
    assert reason.fix
    assert look(STEP, FAILED, fails(1, words)).reason.kind == "failed"


def test_a_step_that_is_killed_for_want_of_memory_is_told_so() -> None:
    state = look(STEP, FAILED, fails(137, why="OOMKilled"))
    assert (state.phase, state.reason.kind) == (Phase.FAILED, "memory")
    assert "8Gi" in state.reason.says
    assert f"`{SECTION}.memory`" in state.reason.fix


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (135, ""),
        (
            1,
            "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error. ",
        ),
        (1, "ERROR: This might be caused by insufficient shared memory"),
        (1, "RuntimeError: unable to write to file </torch_42_1_0>: No space left on device (28)"),
        (
            1,
            "Error while creating shared memory segment /dev/shm/nccl-VPyhzw (size 21823872), error: No space",
        ),
    ],
)
def test_a_step_whose_shared_memory_is_full_is_told_so(code: int, message: str) -> None:
    reason = look(STEP, FAILED, fails(code, f"{message}\nsecond line")).reason
    assert reason.kind == "shared memory"
    assert f"`{SECTION}.shm`" in reason.fix
    assert look(STEP, FAILED, fails(1, "OSError: [Errno 28] No space left on device")).reason.kind == "disk"


@pytest.mark.parametrize(
    ("level", "message", "told"),
    [
        ("s0:c27,c14", "PermissionError: [Errno 13] Permission denied: '/store/mnist/data'", True),
        ("s0:c27,c14", "mkdir: cannot create directory '/store': Permission denied", True),
        ("s0:c27,c14", "PermissionError: [Errno 13] Permission denied: '/stores/x'", False),
        ("s0:c27,c14", "/store/mnist/data: no such file", False),
        ("", "PermissionError: [Errno 13] Permission denied: '/store/mnist/data'", False),
    ],
)
def test_a_refused_path_of_a_volume_is_told_with_its_label_where_selinux_is(
    level: str, message: str, told: bool
) -> None:
    refused = fails(1, message)
    refused["spec"]["containers"][0]["volumeMounts"] = [{"name": "store", "mountPath": "/store"}]
    refused["spec"]["securityContext"] = {"seLinuxOptions": {"level": level}} if level else {}
    reason = look(STEP, FAILED, refused).reason
    assert message in reason.says
    fix = reason.fix if told else ""
    assert [value in fix for value in ("/store ", "s0:c27,c14", "container_file_t", "node/n1")] == [told] * 4
    assert told or "SELinux" not in reason.fix


@pytest.mark.parametrize(
    ("message", "fixed"),
    [
        ("OSError: [Errno 30] Read-only file system: '/bundle/model.txt'", True),
        ("PermissionError: [Errno 13] Permission denied: '/root/.cache'\nerror: train failed", True),
        ("PermissionError: [Errno 13] Permission denied: '/store/mnist'", False),
        ("OSError: [Errno 30] Read-only file system: 'model.txt'", True),
        ("PermissionError: [Errno 13] Permission denied: 'model.txt'", False),
        ("permission_error = 7", False),
    ],
)
def test_a_refused_write_is_told_with_the_keys_that_mend_it(message: str, fixed: bool) -> None:
    refused = fails(1, message)
    container = refused["spec"]["containers"][0]
    container["securityContext"] = {"readOnlyRootFilesystem": True}
    container["volumeMounts"] = [
        {"name": "store", "mountPath": "/store"},
        {"name": "code", "mountPath": "/bundle", "readOnly": True},
    ]
    fix = look(STEP, FAILED, refused).reason.fix
    assert [word in fix for word in ("`directory:", "`mounts:", "/store")] == [fixed] * 3


def test_a_step_that_ran_past_its_limit_says_what_it_was_doing() -> None:
    waiting = look(STEP, JOB, pod(JOB, "a", FULL))
    late = job("mnist-train-1", condition("Failed", reason="DeadlineExceeded"), limit=600)
    state = look(STEP, late, before=waiting)
    assert (state.phase, state.reason.kind) == (Phase.FAILED, "time limit")
    assert "10 min" in state.says
    assert waiting.says in state.says
    assert state.reason.fix == waiting.reason.fix
    assert look(STEP, late, before=state).says == state.says


def test_after_its_time_limit_a_step_is_not_said_to_go_on() -> None:
    old = job("mnist-train-1", limit=600, age=620)
    stopped = fails(143, "error: stopped by SIGTERM: the same command goes on")
    ending = look(STEP, old, stopped)
    assert ending.phase is Phase.ENDING
    assert "goes on" not in ending.says
    late = job("mnist-train-1", condition("Failed", reason="DeadlineExceeded"), limit=600, age=620)
    state = look(STEP, late, stopped, before=ending)
    assert state.reason.kind == "time limit"
    assert "before that" not in state.says
    assert f"`{SECTION}.time_limit`" in state.reason.fix
    assert "checkpoint" in state.reason.fix


def test_of_several_pods_the_cause_speaks_and_not_its_neighbours() -> None:
    gang = job("mnist-train-1", condition("Failed", reason="BackoffLimitExceeded"), pods=2)
    cause = pod(gang, "a", phase="Failed", node="n1", index=1, state=ended(4, "error: no data", at=20))
    other = pod(gang, "b", phase="Failed", node="n2", index=0, state=ended(15, "stopped: pod 1 failed", at=40))
    says = look(NODES, gang, cause, other).says
    assert "pod 1: error: no data (exit code 4)" in says
    assert "stopped" not in says


def test_pods_of_several_nodes_do_not_run_until_all_do() -> None:
    one = runs(GANG, index=0, gpus=2)
    full = unschedulable("0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match pod "
                         "anti-affinity rules.")  # fmt: skip
    state = look(NODES, GANG, one, pod(GANG, "b", full, index=1, gpus=2))
    assert (state.phase, state.running, state.wanted, state.gpus) == (Phase.WAITING, 1, 2, 2)
    assert (state.reason.kind, state.reason.says[:11]) == ("gpus", "1 of 2 pods")
    assert look(NODES, GANG, one).phase is Phase.CREATING
    both = look(NODES, GANG, one, runs(GANG, "b", "n2", index=1, gpus=2))
    assert (both.phase, both.running, both.gpus) == (Phase.RUNNING, 2, 4)


def test_a_lost_pod_of_several_is_told_while_the_others_wait() -> None:
    one, old = runs(GANG, index=0), taken_away(GANG, "b", index=1)
    state = look(NODES, GANG, one, old)
    assert (state.phase, state.retries) == (Phase.RETRYING, 0)
    assert look(NODES, GANG, one, old, pod(GANG, "c", FULL, index=1, age=10)).retries == 1


@pytest.mark.parametrize(("by_index", "waits"), [(None, "80 s"), (0, "10 s")])
def test_a_gang_that_was_lost_starts_again_when_the_controller_says(by_index: int | None, waits: str) -> None:
    # Each of four pods that are lost together doubles the wait, unless each index has its own.
    gang = {**GANG, "spec": {**GANG["spec"], "completions": 4, "parallelism": 4, "backoffLimitPerIndex": by_index}}
    lost = [taken_away(gang, name, index=index) for index, name in enumerate("abcd")]
    state = look(replace(NODES, pods=4), gang, *lost)
    assert state.phase is Phase.RETRYING
    assert f", {waits} after" in state.reason.says


def test_workers_on_items_run_as_soon_as_one_does() -> None:
    days = job("mnist-days-1", step="mnist.days", pods=3)
    others = [pod(days, suffix, FULL, index=number) for number, suffix in enumerate("bc", 1)]
    state = look(ITEMS, days, runs(days, index=0), *others)
    assert (state.phase, state.running) == (Phase.RUNNING, 1)
    assert "2 of 3 workers" in state.remark
    assert Phase.WAITING in state.remark


@pytest.mark.parametrize(
    ("message", "says", "fix"),
    [
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 9Gi, available: 8Gi. ",
         "disk", f"`{SECTION}.ephemeral_storage`"),
        ("The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. ",
         "memory", f"`{SECTION}.memory`"),
        ("The node was low on resource: pids. ", "pids", ""),
    ],
)  # fmt: skip
def test_an_eviction_by_a_node_that_runs_short_is_no_spot_node(message: str, says: str, fix: str) -> None:
    old = pod(JOB, "a", taken(message), phase="Failed", node="n1", reason="Evicted", message=message)
    state = look(STEP, JOB, old)
    assert state.phase is Phase.RETRYING
    assert says in state.reason.says
    assert "Spot" not in state.reason.says
    assert "Spot" not in look(STEP, JOB, old, pod(JOB, "b", FULL, age=9)).retried
    assert fix in state.reason.fix


def test_an_eviction_for_a_limit_of_its_own_fails_the_step() -> None:
    words = "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "
    state = look(STEP, FAILED, pod(FAILED, phase="Failed", node="n1", reason="Evicted", message=words))
    assert (state.phase, state.retries, state.reason.kind) == (Phase.FAILED, 0, "disk limit")
    assert "2Gi" in state.reason.says
    assert f"`{SECTION}.ephemeral_storage`" in state.reason.fix


@pytest.mark.parametrize(("wanted", "kind"), [("3", "never"), ("1", "namespace quota")])
def test_a_pod_that_the_quota_can_never_hold_is_not_told_to_wait(wanted: str, kind: str) -> None:
    words = (
        'Error creating: pods "x" is forbidden: exceeded quota: pools, requested: '
        f"requests.nvidia.com/gpu={wanted},requests.memory=1Gi, used: requests.nvidia.com/gpu=2,"
        "requests.memory=1Gi, limited: requests.nvidia.com/gpu=2,requests.memory=1536Mi"
    )
    state = look(STEP, JOB, events=[event(JOB, "FailedCreate", words)])
    assert (state.phase, state.reason.kind) == (Phase.CREATING, kind)
    assert "quota pools" in state.reason.says
    assert ("wait until" in state.reason.fix) == (kind != "never")
    assert ("requests.nvidia.com/gpu than" in state.reason.says) == (kind == "never")


def test_a_step_that_is_done_is_done_whatever_its_pods_say() -> None:
    done = job("mnist-train-1", condition("Complete"))
    state = look(STEP, done, pod(done, phase="Succeeded", node="n1", state=ended(0)))
    assert (state.phase, state.gpus) == (Phase.DONE, 0)
    assert state.ended


def test_the_program_is_found_beside_a_sidecar_of_the_cloud() -> None:
    starting, name = runs(), "gke-gcsfuse-sidecar"
    starting["spec"]["containers"].insert(0, {"name": name})
    statuses = [{"name": name, "state": running()}, {"name": "train", "state": LOST}]
    starting["status"]["containerStatuses"] = statuses
    state = pod_of(starting, STEP, Snapshot(JOB))
    assert (state.container, state.phase) == ("train", Phase.STARTING)


def beside(of: Mapping[str, Any], *statuses: Mapping[str, Any], native: bool = False) -> dict[str, Any]:
    """The pod ``of`` a step with sidecars of these statuses, as init containers where they are ``native``."""
    limits = {"resources": {"limits": {"memory": "256Mi"}}}
    for status in statuses:
        more = {"restartPolicy": "Always"} if native else {}
        of["spec"].setdefault("initContainers" if native else "containers", []).append(
            {"name": status["name"], **limits, **more}
        )
        of["status"].setdefault("initContainerStatuses" if native else "containerStatuses", []).append(status)
    return dict(of)


@pytest.mark.parametrize("native", [True, False])
def test_a_sidecar_is_told_from_the_program(native: bool) -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    state = {"state": running(), "lastState": killed} if native else {"state": killed}
    failed = beside(
        fails(1, "OSError: Transport endpoint is not connected"), {"name": "mount", **state}, native=native
    )
    reason = look(STEP, FAILED, failed).reason
    assert (reason.kind, "mount" in reason.says, "256Mi" in reason.says) == ("sidecar", True, True)
    assert SECTION not in reason.fix


def test_a_sidecar_that_goes_on_after_the_program_keeps_its_job() -> None:
    over = pod(JOB, phase="Running", node="n1", state=ended(0))
    state = look(STEP, JOB, beside(over, {"name": "istio-proxy", "state": running()}))
    assert (state.phase, state.reason.kind, "istio-proxy" in state.says) == (Phase.ENDING, "sidecar", True)
    failed = pod(FAILED, phase="Failed", node="n1", state=ended(0))
    state = look(STEP, FAILED, beside(failed, {"name": "agent", "state": ended(3, "no server")}))
    assert "container agent" in state.says
    assert "no server (exit code 3)" in state.says


def test_a_sidecar_that_ends_again_and_again_before_the_program_is_told() -> None:
    again = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
    starting = pod(JOB, node="n1", state={"waiting": {"reason": "PodInitializing"}})
    status = {"name": "mount", "state": again, "lastState": ended(1, "error: bucket not found")}
    state = look(STEP, JOB, beside(starting, status, native=True))
    assert state.phase is Phase.STARTING
    assert all(value in state.says for value in ("container mount", "bucket not found", "exit code 1"))


def test_a_job_that_waits_for_its_turn_is_not_queued() -> None:
    held = job("mnist-train-1")
    held["metadata"]["annotations"] = {"slipway/runs": "cluster-run"}
    held["spec"]["suspend"] = True
    state = look(STEP, held)
    assert (state.phase, state.reason.kind) == (Phase.HELD, "held")
    runner = job("mnist-train-1")
    runner["metadata"]["labels"]["app.kubernetes.io/name"] = "cluster-run"
    runner["spec"]["suspend"] = True
    assert look(STEP, runner).reason.kind == "stopped"
