"""Why a pod has no node, no image or no quota, from the words that clusters really use.

The words are from public reports of the autoscalers of GKE, EKS and AKS, of the scheduler, of containerd and of
Kueue, collected in November 2026.
"""

from typing import Any

import pytest

from tests.tools.watch.cluster import before, condition, event, job, pod, unschedulable, workload
from tools.watch.observed import event_of
from tools.watch.pod_states import Around, explained, pod_state, scheduling, table
from tools.watch.queue_states import why_suspended, workload_of
from tools.watch.states import Phase, PodState

JOB = job("mnist-train-1")
FULL = (
    "0/9 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 Insufficient cpu, "
    "3 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/9 "
    "nodes are "
    "available: 9 Preemption is not helpful for scheduling."
)
GKE_STATUS = """time: "2026-11-22 11:58:19 +0000 UTC"
autoscalerStatus: "Running"
nodeGroups:
  -
    name: "https://www.googleapis.com/compute/v1/projects/p/zones/a/instanceGroups/gke-dev-train-grp"
    health:
      status: "Healthy"
    scaleUp:
      status: "Backoff"
      backoffInfo:
        errorCode: "QUOTA_EXCEEDED"
        errorMessage: "Instance 'gke-dev-train-40ce0341-t28s' creation failed: \
Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 1.0 in region us-central1."
  -
    name: "https://www.googleapis.com/compute/v1/projects/p/zones/a/instanceGroups/gke-dev-predict-grp"
    scaleUp:
      status: "Backoff"
      backoffInfo:
        errorCode: "RESOURCE_POOL_EXHAUSTED"
        errorMessage: "The zone does not have enough resources available to fulfill the request."
"""


def waits(*events: dict[str, Any], message: str = FULL, pool: str = "train", status: str = "") -> PodState:
    made = pod(JOB, "a", unschedulable(message))
    return pod_state(made, Around([event_of(each) for each in events], pool, status))


def said(reason: str, message: str, at: float = 30, by: str = "cluster-autoscaler") -> dict[str, Any]:
    return event(pod(JOB), reason, message, at, by)


def scale_up(at: float = 300) -> dict[str, Any]:
    group = "https://www.googleapis.com/compute/v1/projects/p/zones/a/instanceGroups/gke-dev-train-grp"
    return said("TriggeredScaleUp", f"pod triggered scale-up: [{{{group} 0->1 (max: 2)}}]", at)


def failed(why: str, at: float = 30) -> dict[str, Any]:
    return said(
        "FailedScaleUp",
        f"Node scale up in zones us-central1-a associated with this pod failed: {why}. Pod is at risk of "
        "not being "
        "scheduled.",
        at,
    )


@pytest.mark.parametrize(
    ("words", "kind", "part"),
    [
        ("GCE out of resources", "stockout", "Google has none of this machine left"),
        ("GCE quota exceeded", "quota", "the project's quota for this machine is used up"),
        ("IP space exhausted", "addresses", "no addresses left"),
        ("Reservation capacity exceeded: projects/p/reservations/r", "reservation", "reservation"),
        ('Some nodes in node group ["ng1"] failed to appear in time', "timeout", "did not come in time"),
        ("Service Account was deleted", "service account", "service account was deleted"),
        ("Unsupported Compact Placement Config: n1", "placement", "close to each other"),
        ("Internal error", "internal", "gives no reason"),
    ],
)
def test_a_node_that_gke_could_not_make_is_told_with_its_cause(words: str, kind: str, part: str) -> None:
    state = waits(scale_up(), failed(words))
    assert state.phase is Phase.WAITING
    assert state.reason.kind == kind
    assert part in state.reason.says
    assert words in state.reason.words
    assert state.reason.fix


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("InsufficientInstanceCapacity: We currently do not have sufficient g4dn.xlarge capacity", "stockout"),
        ("Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity", "stockout"),
        ("VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 0", "quota"),
        ("MaxSpotInstanceCountExceeded - Max spot instance count exceeded", "quota"),
        ("AWS cannot provision any more instances for this node group", "no capacity"),
        ("InsufficientFreeAddressesInSubnet - There are not enough free addresses in subnet", "addresses"),
        ("UnauthorizedOperation: You are not authorized to perform this operation", "permission"),
        ("Instance creation failed: ZONE_RESOURCE_POOL_EXHAUSTED", "stockout"),
        ("GCE_QUOTA_EXCEEDED", "quota"),
    ],
)
def test_causes_of_both_clouds_are_known(words: str, kind: str) -> None:
    found = explained(words, table("scale_up"))
    assert found
    assert found.kind == kind


def test_a_node_that_is_being_made_is_no_problem() -> None:
    state = waits(scale_up(20), failed("GCE out of resources", 200))
    assert state.reason.says == "a node is being made for it in gke-dev-train-grp, which then has 1 of at most 2"
    assert not state.reason.fix


def test_a_node_that_karpenter_makes_is_no_problem() -> None:
    state = waits(said("Nominated", "Pod should schedule on: nodeclaim/gpu-ljvhl", by="eks-auto-mode/compute"))
    assert state.reason.says == "a node is being made for it (gpu-ljvhl)"


@pytest.mark.parametrize(
    ("parts", "kind", "part"),
    [
        (
            "1 max node group size reached, 3 node(s) didn't match Pod's node affinity/selector",
            "pool full",
            "as many",
        ),
        ("2 max node group size reached", "pool full", "as many"),
        ("1 max cluster cpu limit reached", "cluster limit", "may not have more cpu"),
        (
            "3 node(s) didn't match Pod's node affinity/selector",
            "selector",
            "no pool that can grow has the labels",
        ),
        ("1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity", "gpus", "no new node would"),
        ("1 not ready for scale-up", "pool not ready", "not ready"),
    ],
)
def test_a_pool_that_does_not_grow_is_told_with_its_cause(parts: str, kind: str, part: str) -> None:
    state = waits(said("NotTriggerScaleUp", f"pod didn't trigger scale-up: {parts}"))
    assert state.reason.kind == kind
    assert part in state.reason.says


def test_an_autoscaler_without_words_leaves_those_of_the_scheduler() -> None:
    state = waits(said("NotTriggerScaleUp", "pod didn't trigger scale-up:"))
    assert "3 nodes are without a free GPU" in state.reason.says


def test_the_cause_of_a_backoff_is_read_from_the_pools_own_group() -> None:
    refused = said("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up")
    state = waits(refused, status=GKE_STATUS)
    assert state.reason.says == "the project's quota NVIDIA_T4_GPUS is used up: 1.0 in us-central1"
    assert waits(refused, status=GKE_STATUS, pool="predict").reason.kind == "stockout"
    assert waits(refused).reason.kind == "backoff"


def test_a_failure_stays_the_cause_while_the_autoscaler_is_in_backoff() -> None:
    refused = said("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up", 10)
    assert waits(scale_up(), failed("GCE out of resources", 100), refused).reason.kind == "stockout"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}.",
            "one node is kept for other pods by the taint nvidia.com/gpu: present",
        ),
        ("0/10 nodes are available: 8 node(s) had untolerated taint(s), 2 Insufficient memory",
         "8 nodes are kept for other pods by taints; 2 nodes are without enough free memory"),
        (
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) "
            "didn't match pod "
            "anti-affinity rules. preemption: 0/3 nodes are available: 1 Preemption is not helpful for "
            "scheduling, 2 "
            "No preemption victims found for incoming pod.",
            "2 nodes are already with a pod of this step, which takes one node each",
        ),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
         "2 nodes are in another zone than the store's volume"),
        ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
         "the store's volume is not there yet"),
        ('0/1 nodes are available: persistentvolumeclaim "store" not found.', "the store's volume is not "
         "there yet"),
        ("0/2 nodes are available: 2 node(s) were unschedulable.", "2 nodes are cordoned"),
        ("0/2 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 1 "
         "Too many pods",
         "one node is not ready; one node is with as many pods as a node may have"),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
         "no node of the pool train is there"),
        ("no nodes available to schedule pods", "the cluster has no node yet"),
        ("0/1 nodes are available: 1 something that nobody knows.", "something that nobody knows"),
    ],
)  # fmt: skip
def test_the_schedulers_words_become_one_clause(message: str, says: str) -> None:
    assert scheduling(message, "train").says == says


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('failed to resolve reference "ghcr.io/x/y:1": failed to do request: Head "https://ghcr.io/v2/": '
         "dial tcp: lookup ghcr.io: Try again", "image network"),
        ("pull access denied, repository does not exist or may require authorization: server message: "
         "insufficient_scope: authorization failed", "image login"),
        ("rpc error: code = NotFound desc = failed to pull and unpack image: not found", "image not found"),
        ("failed to pull and unpack image: no match for platform in manifest: not found", "image platform"),
        ("x509: certificate signed by unknown authority", "image certificate"),
        ("429 Too Many Requests - toomanyrequests: You have reached your pull rate limit", "image rate"),
        ("net/http: TLS handshake timeout", "image network"),
        ("write /var/lib/containerd/x: no space left on device", "disk"),
        ('Failed to apply default image tag "UPPER": couldn\'t parse image name', "image name"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_be_pulled_is_told_with_its_cause(words: str, kind: str) -> None:
    made = pod(
        JOB, "a", node="n1", state={"waiting": {"reason": "ImagePullBackOff", "message": f"Back-off: {words}"}}
    )
    state = pod_state(made, Around())
    assert state.phase is Phase.PULLING
    assert state.reason.kind == kind
    assert state.reason.fix
    assert explained(words, table("images"))


def test_a_back_off_without_words_takes_those_of_the_event() -> None:
    made = pod(
        JOB,
        node="n1",
        state={"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example/image:1"'}},
    )
    words = event(made, "Failed", 'Failed to pull image "example/image:1": manifest unknown')
    state = pod_state(made, Around([event_of(words)]))
    assert state.reason.says == "the registry has no example/image:1"


def test_an_image_that_is_being_pulled_is_told_with_the_time_of_its_beginning() -> None:
    made = pod(JOB, node="n1", state={"waiting": {"reason": "ContainerCreating"}})
    begun = event_of(event(made, "Pulling", 'Pulling image "example/image:1"', 90))
    state = pod_state(made, Around([begun]))
    assert (state.phase, state.reason.says) == (Phase.PULLING, "example/image:1")
    assert state.since
    assert f"{state.since:%Y-%m-%dT%H:%M:%SZ}" == before(90)
    pulled = event_of(event(made, "Pulled", 'Successfully pulled image "example/image:1" in 58.9s', 10))
    assert pod_state(made, Around([begun, pulled])).phase is Phase.STARTING


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node', "volume"),
        ('MountVolume.SetUp failed for volume "s" : secret "mnist-secrets" not found', "secret"),
        ('MountVolume.SetUp failed for volume "bundle" : configmap "b-1" not found', "config"),
        ("driver name gcsfuse.csi.storage.gke.io not found in the list of registered CSI drivers", "driver"),
        ("gcsfuse: PermissionDenied: storage.objects.list", "bucket"),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_told_with_its_cause(words: str, kind: str) -> None:
    made = pod(JOB, node="n1", state={"waiting": {"reason": "ContainerCreating"}})
    state = pod_state(made, Around([event_of(event(made, "FailedMount", words))]))
    assert state.phase is Phase.STARTING
    assert state.reason.kind == kind
    assert explained(words, table("volumes"))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ('Error creating: pods "x" is forbidden: exceeded quota: pools, requested: requests.cpu=4, used: '
         "requests.cpu=2, limited: requests.cpu=4", "asks for requests.cpu=4, requests.cpu=2 are in use"),
        ('Error creating: pods "x" is forbidden: violates PodSecurity "restricted:v1.34": runAsNonRoot != true',
         "Pod Security restricted:v1.34"),
        ('Error creating: pods "x" is forbidden: error looking up service account s/runner: '
         'serviceaccount "runner" not found', "service account runner is not there"),
    ],
)  # fmt: skip
def test_a_pod_that_is_refused_is_told_with_its_cause(words: str, part: str) -> None:
    found = explained(words, table("creation"))
    assert found
    assert part in found.says


def test_what_keeps_a_pod_from_the_other_nodes_is_what_is_to_be_mended() -> None:
    words = (
        "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 node(s) were unschedulable."
    )
    assert scheduling(words).fix.startswith("`kubectl uncordon`")


QUEUED = job("mnist-train-2", suspend=True, labels={"kueue.x-k8s.io/queue-name": "slipway"})


def no_quota(message: str, reason: str = "Pending") -> dict[str, Any]:
    return condition("QuotaReserved", "False", reason, message)


@pytest.mark.parametrize(
    ("message", "kind", "part"),
    [
        ("couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
         "flavor train, 2 more "
         "needed", "quota", "2 of nvidia.com/gpu are missing on train"),
        ("couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor "
         "train, previously "
         "considered podsets requests (0) + current podset request (8) > maximum capacity (4)", "never",
         "asks for 8 of nvidia.com/gpu, and the queue can never give more than 4 of train"),
        ("couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor train, 5 "
         "more needed. "
         "Pending the preemption of 1 workload(s)", "quota", "5 of cpu"),
        ("couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue",
         "resource", "no quota"),
        ("LocalQueue slipway doesn't exist", "queue missing", "not there"),
        ("ClusterQueue slipway is inactive", "queue stopped", "stopped"),
        ("Workload no longer fits after processing another workload", "turn", "took the place first"),
    ],
)  # fmt: skip
def test_kueues_words_become_one_clause(message: str, kind: str, part: str) -> None:
    made = workload(QUEUED, no_quota(message))
    found = why_suspended(QUEUED, made, [made], [])
    assert (found.kind, found.words) == (kind, message)
    assert part in found.says


def test_who_comes_first_in_the_queue_is_counted() -> None:
    own = workload(QUEUED, no_quota("insufficient unused quota for cpu in flavor cpu, 1 more needed"), age=100)
    older = workload(job("older"), no_quota("…"), age=500)
    important = workload(job("important"), no_quota("…"), priority=1000, age=5)
    admitted = workload(job("admitted"), condition("QuotaReserved"), age=900)
    found = why_suspended(QUEUED, own, [own, older, important, admitted], [])
    assert found.says.endswith("2 of this namespace come before it")


def test_a_job_that_waits_for_its_nodes_together_has_its_quota() -> None:
    made = workload(
        QUEUED,
        condition("QuotaReserved"),
        admissionChecks=[{"name": "flex-start", "state": "Pending", "message": "waiting for capacity"}],
    )
    says = why_suspended(QUEUED, made, [made], []).says
    assert says == "it has its quota, and waits for all its nodes together (flex-start): waiting for capacity"


def test_a_job_that_kueue_has_not_seen_is_told_so() -> None:
    assert workload_of(QUEUED, []) is None
    assert why_suspended(QUEUED, None, [], []).says == "Kueue has not taken it up"
    assert why_suspended(job("other", suspend=True), None, [], []).kind == "suspended"
