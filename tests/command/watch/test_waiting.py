"""Why a pod has no node, no image or no quota, from the words that clusters really use.

The words are from public reports of the autoscalers of GKE, EKS and AKS, of the scheduler, of containerd and of
Kueue, collected in November 2026.
"""

from dataclasses import replace
from typing import Any

import pytest

from slipway.command.watch.observed import Observed, event_of
from slipway.command.watch.pod_states import Around, explain_scheduling, pod_state, recognise, waiting_claims
from slipway.command.watch.states import Nodes, Phase, PodState
from tests.command.watch.cluster import NOW, before, event, job, pod, unschedulable

JOB = job("mnist-train-1")
FULL = (
    "0/9 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 Insufficient cpu, "
    "3 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/9 nodes "
    "are available: 9 Preemption is not helpful for scheduling."
)
GROUPS = "https://www.googleapis.com/compute/v1/projects/p/zones/a/instanceGroups"
GKE_STATUS = f"""time: "2026-11-22 11:58:19 +0000 UTC"
autoscalerStatus: "Running"
nodeGroups:
  -
    name: "{GROUPS}/gke-dev-train-grp"
    health:
      status: "Healthy"
    scaleUp:
      status: "Backoff"
      backoffInfo:
        errorCode: "QUOTA_EXCEEDED"
        errorMessage: "Instance 'gke-dev-train-40ce0341-t28s' creation failed: \
Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 1.0 in region us-central1."
  -
    name: "{GROUPS}/gke-dev-predict-grp"
    scaleUp:
      status: "Backoff"
      backoffInfo:
        errorCode: "RESOURCE_POOL_EXHAUSTED"
        errorMessage: "The zone does not have enough resources available to fulfill the request."
"""
FORBIDDEN = 'Error creating: pods "x" is forbidden: '


TRAIN = Nodes("train", "Spot n1-standard-4 with 1 nvidia-tesla-t4", "us-central1-a, us-central1-c")


def waits(*events: dict[str, Any], message: str = FULL, nodes: Nodes = TRAIN, status: str = "") -> PodState:
    waiting = pod(JOB, "a", unschedulable(message))
    return pod_state(waiting, Around([event_of(item) for item in events], nodes, status, at=NOW))


def said(reason: str, message: str, at: float = 30, by: str = "cluster-autoscaler") -> dict[str, Any]:
    return event(pod(JOB), reason, message, at, by)


def scale_up(at: float = 300) -> dict[str, Any]:
    group = f"{GROUPS}/gke-dev-train-grp"
    return said("TriggeredScaleUp", f"pod triggered scale-up: [{{{group} 0->1 (max: 2)}}]", at)


def no_scale_up(why: str, at: float = 30) -> dict[str, Any]:
    return said("NotTriggerScaleUp", f"pod didn't trigger scale-up: {why}", at)


def failed(why: str, at: float = 30) -> dict[str, Any]:
    words = f"Node scale up in zones us-central1-a associated with this pod failed: {why}. Pod is at risk of …"
    return said("FailedScaleUp", words, at)


@pytest.mark.parametrize(
    ("name", "words", "kind", "values"),
    [
        ("scale_up", "GCE out of resources", "stockout", []),
        ("scale_up", "GCE quota exceeded", "quota", []),
        ("scale_up", "IP space exhausted", "addresses", []),
        ("scale_up", "Reservation capacity exceeded: projects/p/reservations/r", "reservation", []),
        ("scale_up", 'Some nodes in node group ["ng1"] failed to appear in time', "timeout", []),
        ("scale_up", "Service Account was deleted", "service account", []),
        ("scale_up", "Unsupported Compact Placement Config: n1", "placement", []),
        ("scale_up", "Internal error", "internal", []),
        ("scale_up", "InsufficientInstanceCapacity: We currently do not have sufficient capacity", "stockout", []),
        ("scale_up", "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill", "stockout", []),
        ("scale_up", "VcpuLimitExceeded - You have requested more than your current vCPU limit of 0", "quota", []),
        ("scale_up", "MaxSpotInstanceCountExceeded - Max spot instance count exceeded", "quota", []),
        ("scale_up", "AWS cannot provision any more instances for this node group", "no capacity", []),
        ("scale_up", "InsufficientFreeAddressesInSubnet - There are not enough addresses", "addresses", []),
        ("scale_up", "UnauthorizedOperation: You are not authorized to perform this", "permission", []),
        ("scale_up", "Instance creation failed: ZONE_RESOURCE_POOL_EXHAUSTED", "stockout", []),
        ("scale_up", "GCE_QUOTA_EXCEEDED", "quota", []),
        ("no_scale_up", "1 max cluster cpu limit reached", "cluster limit", ["cpu"]),
        ("images", 'failed to resolve reference "ghcr.io/x/y:1": failed to do request: Head '
         '"https://ghcr.io/v2/": dial tcp: lookup ghcr.io: Try again', "image network", []),
        ("images", "pull access denied, repository does not exist or may require authorization: server message: "
         "insufficient_scope: authorization failed", "image login", []),
        ("images", "rpc error: code = NotFound desc = failed to pull: not found", "image not found", []),
        ("images", "failed to pull and unpack image: no match for platform in manifest: not found",
         "image platform", []),
        ("images", "x509: certificate signed by unknown authority", "image certificate", []),
        ("images", "429 Too Many Requests - toomanyrequests: You have reached your pull rate limit",
         "image rate", []),
        ("images", "net/http: TLS handshake timeout", "image network", []),
        ("images", "write /var/lib/containerd/x: no space left on device", "disk", []),
        ("images", 'Failed to apply default image tag "UPPER": couldn\'t parse image name', "image name", []),
        ("volumes", 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node',
         "volume", []),
        ("volumes", 'MountVolume.SetUp failed for volume "s" : secret "mnist-secrets" not found',
         "secret", ["mnist-secrets"]),
        ("volumes", 'MountVolume.SetUp failed for volume "bundle" : configmap "b-1" not found',
         "config", ["b-1"]),
        ("volumes", "driver name gcsfuse.csi.storage.gke.io not found in the list of registered CSI drivers",
         "driver", ["gcsfuse.csi.storage.gke.io"]),
        ("volumes", "gcsfuse: PermissionDenied: storage.objects.list", "bucket", []),
        ("creation", f"{FORBIDDEN}exceeded quota: pools, requested: requests.cpu=4, used: requests.cpu=2, "
         "limited: requests.cpu=4", "namespace quota", ["requests.cpu=4", "requests.cpu=2"]),
        ("creation", f'{FORBIDDEN}violates PodSecurity "restricted:v1.34": runAsNonRoot != true',
         "pod security", ["restricted:v1.34"]),
        ("creation", f'{FORBIDDEN}pod rejected: RuntimeClass "nvidia" not found', "runtime class", ["nvidia"]),
        ("creation", f'{FORBIDDEN}error looking up service account s/runner: serviceaccount "runner" not found',
         "service account", ["runner"]),
    ],
)  # fmt: skip
def test_words_of_clusters_are_known_with_what_they_name(
    name: str, words: str, kind: str, values: list[str]
) -> None:
    reason = recognise(words, name)
    assert (reason.kind, reason.words) == (kind, words)
    assert all(value in reason.says for value in values)
    assert reason.fix or name not in {"scale_up", "images"}


def test_a_node_that_could_not_be_made_is_told_with_its_cause() -> None:
    state = waits(scale_up(), failed("GCE out of resources"))
    assert (state.phase, state.reason.kind) == (Phase.WAITING, "stockout")
    assert "GCE out of resources" in state.reason.words
    assert state.reason.fix


@pytest.mark.parametrize(
    ("words", "zones"),
    [
        ("GCE out of resources", "us-central1-a "),
        ("We currently do not have sufficient n1-standard-4 capacity in the Availability Zone you requested "
         "(us-west-2a)", "us-west-2a"),
        ("InsufficientInstanceCapacity", "us-central1-a"),
    ],
)  # fmt: skip
def test_a_stockout_is_one_sentence_with_pool_machine_zones_and_what_else_to_write(words: str, zones: str) -> None:
    nodes = replace(TRAIN, elsewhere="write further pools under `slipway:pipelines.mnist.steps.train.places`")
    reason = waits(scale_up(), failed(words), nodes=nodes).reason
    assert reason.kind == "stockout"
    named = ("pool train", "n1-standard-4", zones)
    assert all(value in reason.says for value in named)
    assert "slipway:pipelines.mnist.steps.train.places" in reason.fix


def test_what_the_autoscaler_says_of_a_group_counts_before_it_says_so_of_the_pod() -> None:
    # On EKS the pod is told of the request, and never of its failure.
    assert waits(scale_up(), status=GKE_STATUS).reason.kind == "quota"
    assert waits(scale_up(), status=GKE_STATUS.replace("Backoff", "InProgress")).reason.kind == "coming"


def test_a_pool_whose_name_begins_anothers_is_not_taken_for_it() -> None:
    names = ("gke-dev-t4-spot-0a1b2c3d-grp", "gke-dev-t4-9f8e7d6c-grp")
    status = GKE_STATUS.replace("gke-dev-train-grp", names[0]).replace("gke-dev-predict-grp", names[1])
    backoff = no_scale_up("1 in backoff after failed scale-up", 10)
    assert waits(backoff, status=status, nodes=Nodes("t4")).reason.kind == "stockout"
    assert waits(backoff, status=status, nodes=Nodes("t4-spot")).reason.kind == "quota"


def test_nodes_that_do_not_come_are_queued_for_or_late() -> None:
    assert waits(scale_up(1200)).reason.kind == "late"
    queued = waits(scale_up(60), nodes=replace(TRAIN, queued=True)).reason
    assert (queued.kind, "us-central1-a" in queued.says) == ("queued", True)


@pytest.mark.parametrize(
    ("events", "values"),
    [
        ([scale_up(20), failed("GCE out of resources", 200)],
         ["a node is", "gke-dev-train-grp", "1 of at most 2"]),
        ([said("Nominated", "Pod should schedule on: nodeclaim/gpu-ljvhl", by="eks-auto-mode/compute")],
         ["gpu-ljvhl"]),
    ],
    ids=["autoscaler", "karpenter"],
)  # fmt: skip
def test_a_node_that_is_being_made_is_no_problem(events: list[dict[str, Any]], values: list[str]) -> None:
    reason = waits(*events).reason
    assert (reason.kind, reason.fix) == ("coming", "")
    assert all(value in reason.says for value in values)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ("1 max node group size reached, 3 node(s) didn't match Pod's node affinity/selector", "pool full"),
        ("2 max node group size reached", "pool full"),
        ("1 max cluster cpu limit reached", "cluster limit"),
        ("3 node(s) didn't match Pod's node affinity/selector", "selector"),
        ("1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity", "too small"),
        # That a group is full is said of all pools, what a new node lacks of the pod's own alone.
        ("1 max node group size reached, 2 Insufficient cpu", "too small"),
        ("max total nodes in cluster reached", "cluster limit"),
        ("1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node affinity/selector", "taint"),
        ("1 node(s) had volume node affinity conflict", "volume"),
        ("1 not all pods would fit and scale-up is using all-or-nothing strategy", "together"),
        ("1 not ready for scale-up", "pool not ready"),
        ("1 in backoff after failed scale-up", "backoff"),
    ],
)
def test_a_pool_that_does_not_grow_is_told_with_its_cause(parts: str, kind: str) -> None:
    reason = waits(no_scale_up(parts)).reason
    assert reason.kind == kind
    assert ("another Job" in reason.fix) == (kind == "pool full")


def test_an_autoscaler_without_words_leaves_those_of_the_scheduler() -> None:
    alone = waits().reason
    assert waits(no_scale_up("")).reason.says == alone.says
    assert "3 nodes" in alone.says


def test_the_cause_of_a_backoff_is_read_from_the_pools_own_group() -> None:
    backoff = no_scale_up("1 in backoff after failed scale-up", 10)
    reason = waits(backoff, status=GKE_STATUS).reason
    assert reason.kind == "quota"
    assert "NVIDIA_T4_GPUS" in reason.says
    assert "1.0 in us-central1" in reason.says
    assert waits(backoff, status=GKE_STATUS, nodes=Nodes("predict")).reason.kind == "stockout"
    # A failure that was told before the backoff stays the cause.
    assert waits(scale_up(), failed("GCE out of resources", 100), backoff).reason.kind == "stockout"


@pytest.mark.parametrize(
    ("message", "kind", "values"),
    [
        ("0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}.",
         "taint", ["one node", "nvidia.com/gpu: present"]),
        ("0/10 nodes are available: 8 node(s) had untolerated taint(s), 2 Insufficient memory",
         "resources", ["8 nodes", "2 nodes", "memory"]),
        ("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match "
         "pod anti-affinity rules. preemption: 0/3 nodes are available: 1 Preemption is not helpful for "
         "scheduling, 2 No preemption victims found for incoming pod.", "anti-affinity", ["2 nodes"]),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", "volume", ["2 nodes", "zone"]),
        ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", "volume", []),
        ('0/1 nodes are available: persistentvolumeclaim "store" not found.', "volume", []),
        ("0/2 nodes are available: 2 node(s) were unschedulable.", "cordoned", ["2 nodes are cordoned"]),
        ("0/2 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 1 Too many "
         "pods", "pods", ["one node is not ready", "as many pods"]),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "selector", ["train"]),
        ("no nodes available to schedule pods", "no node", []),
        ("0/1 nodes are available: 1 something that nobody knows.", "", ["something that nobody knows"]),
    ],
)  # fmt: skip
def test_the_schedulers_words_become_one_clause(message: str, kind: str, values: list[str]) -> None:
    reason = explain_scheduling(message, Around(nodes=Nodes("train")))
    assert (reason.kind, reason.words) == (kind, message)
    assert all(value in reason.says for value in values)
    assert "reemption" not in reason.says


def test_what_keeps_a_pod_from_the_other_nodes_is_what_is_to_be_mended() -> None:
    words = (
        "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 node(s) were unschedulable."
    )
    assert "kubectl uncordon" in explain_scheduling(words, Around()).fix


UNHELPFUL = " preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("kind", "taints"),
    [
        ("cordoned", ["node.kubernetes.io/unschedulable: "]),
        ("pressure", [f"node.kubernetes.io/{what}-pressure: " for what in ("memory", "disk", "pid")]),
        ("not ready", ["node.kubernetes.io/not-ready: ", "node.kubernetes.io/unreachable: ",
                       "node.kubernetes.io/network-unavailable: ", "node.cilium.io/agent-not-ready: true",
                       "node.cloudprovider.kubernetes.io/uninitialized: true", "ebs.csi.aws.com/agent-not-ready: ",
                       "karpenter.sh/unregistered: ", "startup-taint.cluster-autoscaler.kubernetes.io/gpu: true",
                       "ignore-taint.cluster-autoscaler.kubernetes.io/x: ", "nvidia.com/gpu-driver-upgrade: ",
                       "readiness.k8s.io/gpu: pending", "node.cluster.x-k8s.io/uninitialized: "]),
        ("leaving", ["ToBeDeletedByClusterAutoscaler: 1732", "karpenter.sh/disrupted: ",
                     "karpenter.sh/disruption: disrupting", "node.kubernetes.io/out-of-service: nodeshutdown",
                     "node.cloudprovider.kubernetes.io/shutdown: ", "aws-node-termination-handler/spot-itn: 1",
                     "cloud.google.com/impending-node-termination: "]),
        ("control plane", ["node-role.kubernetes.io/control-plane: "]),
        ("taint", ["team: ml", "nvidia.com/gpu: present"]),
    ],
)  # fmt: skip
def test_taints_that_controllers_put_for_a_while_are_told_from_those_of_pools(
    kind: str, taints: list[str]
) -> None:
    for taint in taints:
        words = f"0/1 nodes are available: 1 node(s) had untolerated taint {{{taint}}}.{UNHELPFUL.format(1)}"
        reason = explain_scheduling(words, Around())
        key, _, value = taint.partition(": ")
        node = {"spec": {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}}
        # Since Kubernetes 1.36 the scheduler names no taint.
        unnamed = f"0/1 nodes are available: 1 node(s) had untolerated taint(s).{UNHELPFUL.format(1)}"
        by_node = pod_state(pod(JOB, "a", unschedulable(unnamed)), Around(own_nodes=[node])).reason
        assert (reason.kind, by_node.kind) == (kind, kind), taint
        assert reason.says == by_node.says
        assert reason.fix
        assert ("`taints` have it" in reason.fix) == (taint == "team: ml")


@pytest.mark.parametrize(
    ("own", "message", "kind"),
    [
        # Taints of other pools' nodes are meant, and no reason.
        ([[]], f"1 Insufficient cpu, 2 node(s) had untolerated taint(s).{UNHELPFUL.format(3)[:-20]}", "resources"),
        ([], f"3 node(s) had untolerated taint(s).{UNHELPFUL.format(3)}", "selector"),
        (None, f"2 node(s) had untolerated taint(s), 1 node(s) didn't match Pod's node affinity/selector."
         f"{UNHELPFUL.format(3)}", "selector"),
        # What preemption cannot help is too small when it is empty, too.
        (None, f"1 Insufficient memory, 2 node(s) didn't match Pod's node affinity/selector.{UNHELPFUL.format(3)}",
         "too small"),
        (None, f"1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector."
         f"{UNHELPFUL.format(3)}", "no gpu"),
        (None, "3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for "
         "incoming pod.", "resources"),
        (None, "1 Insufficient cpu, 2 node(s) had no available volume zone.", "resources"),
    ],
)  # fmt: skip
def test_what_is_said_of_nodes_of_other_pools_is_not_what_is_to_be_mended(
    own: list[Any] | None, message: str, kind: str
) -> None:
    nodes = None if own is None else [{"spec": {"taints": taints}} for taints in own]
    waiting = pod(JOB, "a", unschedulable(f"0/3 nodes are available: {message}"))
    reason = pod_state(waiting, Around(own_nodes=nodes, nodes=Nodes("train"))).reason
    assert reason.kind == kind
    assert ("another Job" in reason.fix) == (kind == "resources")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("no instance type has enough resources, requirements=a, resources=b", "too small"),
        ("no instance type which met the scheduling requirements and had enough resources, had a required "
         "offering", "no offering"),
        ("did not tolerate taint (taint=nvidia.com/gpu=present:NoSchedule)", "taint"),
        ("all available instance types exceed limits for nodepool (NodePool=gpu)", "limit"),
        ('incompatible requirements, label "pool" does not have known values', "selector"),
        ("failed to validate pvc, pvc with immediate volume binding mode must be bound", "volume"),
    ],
)  # fmt: skip
def test_what_karpenter_cannot_make_is_told_with_its_cause(message: str, kind: str) -> None:
    words = f'Failed to schedule pod, incompatible with nodepool "gpu", daemonset overhead={{}}, {message}'
    assert waits(said("FailedScheduling", words, by="karpenter")).reason.kind == kind
    launch = (
        "NodeClaim gpu-x7 nominated for this pod failed to launch: insufficient capacity, with fleet error(s), "
    )
    assert waits(said("InsufficientCapacityError", f"{launch}UnfulfillableCapacity: …")).reason.kind == "stockout"


CREATING = {"waiting": {"reason": "ContainerCreating"}}


def test_an_image_that_cannot_be_pulled_is_told_with_the_words_of_container_or_event() -> None:
    back_off = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example/image:1"'}
    waiting = pod(JOB, node="n1", state={"waiting": back_off})
    failure = event(waiting, "Failed", 'Failed to pull image "example/image:1": manifest unknown')
    by_event = pod_state(waiting, Around([event_of(failure)]))
    back_off["message"] += ": manifest unknown"
    for state in (by_event, pod_state(pod(JOB, node="n1", state={"waiting": back_off}), Around())):
        assert (state.phase, state.reason.kind) == (Phase.PULLING, "image not found")
        assert "example/image:1" in state.reason.says
        assert state.reason.fix


def test_an_image_that_is_being_pulled_is_told_with_the_time_of_its_beginning() -> None:
    starting = pod(JOB, node="n1", state=CREATING)
    pulling = event_of(event(starting, "Pulling", 'Pulling image "example/image:1"', 90))
    state = pod_state(starting, Around([pulling]))
    assert (state.phase, state.reason.says) == (Phase.PULLING, "example/image:1")
    assert state.since
    assert f"{state.since:%Y-%m-%dT%H:%M:%SZ}" == before(90)
    pulled = event_of(event(starting, "Pulled", 'Successfully pulled image "example/image:1" in 58.9s', 10))
    assert pod_state(starting, Around([pulling, pulled])).phase is Phase.STARTING


def test_a_volume_that_cannot_be_mounted_is_told_with_its_cause() -> None:
    starting = pod(JOB, node="n1", state=CREATING)
    words = 'MountVolume.SetUp failed for volume "s" : secret "mnist-secrets" not found'
    state = pod_state(starting, Around([event_of(event(starting, "FailedMount", words))]))
    assert (state.phase, state.reason.kind) == (Phase.STARTING, "secret")


def claim_of(reason: str, message: str, age: float = 600, **spec: str) -> dict[str, Any]:
    item = {"kind": "PersistentVolumeClaim", "spec": spec, "status": {"phase": "Pending"}}
    item["metadata"] = {"name": "store", "uid": "uid-store", "creationTimestamp": before(age)}
    events = {"uid-store": [event_of(event(item, reason, message))]} if reason else {}
    return waiting_claims(Observed(claims=[item], events=events, at=NOW))


@pytest.mark.parametrize(
    ("reason", "message", "kind", "key"),
    [
        ("FailedBinding", "no persistent volumes available for this claim and no storage class is set", "no class",
         "storage_class"),
        ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found', "no class", "storage_class"),
        ("ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner "
         "'ebs.csi.aws.com' or manually by the system administrator.", "provisioner", ""),
        ("ProvisioningFailed", "Volume capabilities not supported: MULTI_NODE_MULTI_WRITER", "access mode",
         "access_mode"),
        ("ProvisioningFailed", "rpc error: code = ResourceExhausted desc = insufficient capacity", "quota",
         "size"),
        ("ProvisioningFailed", "UnauthorizedOperation: you may not", "permission", ""),
        ("VolumeMismatch", 'Cannot bind to requested volume "pv-1": requested PV is too small', "volume", ""),
        ("", "", "no class", "storage_class"),
    ],
)  # fmt: skip
def test_a_claim_without_a_volume_is_told_with_its_cause_before_and_under_a_pod(
    reason: str, message: str, kind: str, key: str
) -> None:
    claims = claim_of(reason, message)
    assert (claims["store"].kind, "store" in claims["store"].says) == (kind, True)
    assert (f"slipway:store.{key}" in claims["store"].fix) == bool(key)
    waiting = pod(
        JOB, "a", unschedulable("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    )
    waiting["spec"]["volumes"] = [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}]
    assert pod_state(waiting, Around(claims=claims)).reason.says == claims["store"].says


def test_a_claim_that_waits_for_its_first_pod_or_is_new_is_no_problem() -> None:
    assert not claim_of("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    assert not claim_of("ExternalProvisioning", "Waiting for … by the external provisioner 'x' or", age=20)


@pytest.mark.parametrize(
    ("why", "words", "kind"),
    [
        ("CreateContainerConfigError", "couldn't find key TOKEN in Secret slipway/mnist-secrets", "secret"),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", "user"),
        ("RunContainerError", 'exec: "pyhton": executable file not found in $PATH: unknown', "program"),
        ("RunContainerError", "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1",
         "driver"),
        ("RunContainerError", "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0",
         "driver"),
        ("PostStartHookError", "something new", "container"),
    ],
)  # fmt: skip
def test_a_container_that_cannot_start_is_told_with_its_cause(why: str, words: str, kind: str) -> None:
    state = pod_state(pod(JOB, node="n1", state={"waiting": {"reason": why, "message": words}}), Around())
    assert (state.phase, state.reason.kind) == (Phase.STARTING, kind)
    assert state.reason.says


@pytest.mark.parametrize(
    ("reason", "message", "kind"),
    [
        ("FailedCreatePodSandBox", 'no runtime for "nvidia" is configured', "runtime"),
        ("FailedCreatePodSandBox", "add cmd: failed to assign an IP address to container", "addresses"),
        ("NetworkNotReady", "network is not ready: cni plugin not initialized", "network"),
        ("FailedMount", "unmounted volumes=[store]: timed out waiting for the condition", "mount"),
        ("FailedMount", "mount failed: exit status 32: access denied by server while mounting", "mount"),
        ("FailedPrepareDynamicResources", "DRA driver gpu.nvidia.com is not registered", "driver"),
    ],
)
def test_a_pod_that_is_not_made_ready_is_told_with_its_cause(reason: str, message: str, kind: str) -> None:
    starting = pod(JOB, node="n1", state=CREATING)
    state = pod_state(starting, Around([event_of(event(starting, reason, message))]))
    assert (state.phase, state.reason.kind) == (Phase.STARTING, kind)
    assert state.reason.fix


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to requested number of devices "
         "unavailable for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected"),
        ("OutOfnvidia.com/gpu", "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu"),
        ("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"),
        ("NodeShutdown", "Pod was rejected as the node is shutting down."),
    ],
)  # fmt: skip
def test_a_pod_that_its_node_rejected_says_that_its_program_never_ran(reason: str, message: str) -> None:
    state = pod_state(pod(JOB, phase="Failed", node="n1", reason=reason, message=message), Around())
    assert (state.phase, state.reason.kind) == (Phase.FAILED, "rejected")
    assert "pulumi up" in state.reason.fix
