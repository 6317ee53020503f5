"""The contract between a place to run (a cloud, or a cluster you have) and the pipelines that run there.

Each package that fulfils it (`slipway.infra.clouds.registry` lists them) returns one `Platform` per cluster.
Nothing that only one cloud has crosses it, so a pipeline never asks where it runs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    # Plain facts about nodes are needed where nothing is declared, and the SDKs take longer than all the rest.
    import pulumi
    import pulumi_kubernetes as k8s

Priority = Literal["low", "normal", "high"]
"""Of a step among those that wait for the same nodes."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

MigStrategy = Literal["none", "single"]

Sale = Literal["on-demand", "spot", "queued"]
"""How a pool's nodes are bought. On demand (or reserved, or one's own) they stay until they are given back. Of
`spot` they may be taken back at any time. `queued` ones (flex-start, a block of capacity) come some time."""

GPU_RESOURCE = "nvidia.com/gpu"
"""The extended resource the NVIDIA device plugin advertises."""

DECLARED_ALONE = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
"""The annotation of what Pulumi creates and does not wait for: the path is there at once. With `skipAwait` it
would not wait for the end of a Job that it replaces either, and take the one that is going for the new one
(provider/pkg/metadata/overrides.go, pulumi-kubernetes 4.32.0)."""

ASKED_ANNOTATION = "slipway/asked"
"""The annotation of a Job whose pod asks for more than its step does, since the cluster would raise it: JSON, what
the step asks for, as Kubernetes writes requests."""

POD_USER = 1000
"""User and group that every container runs as, and to whom a mounted store has to belong."""


@dataclass(frozen=True)
class Taint:
    """A node taint, with the effect in Kubernetes' spelling."""

    key: str
    value: str
    effect: TaintEffect


@dataclass(frozen=True)
class Resources:
    """Amounts of a node's or a container's resources.

    CPU in millicores, memory and ephemeral storage in MiB, GPUs in devices (or shares of one, where a pool
    slices or partitions its GPUs).
    """

    cpu: int
    memory: int
    ephemeral_storage: int = 0
    gpus: int = 0


AMOUNTS = ("cpu", "memory", "ephemeral_storage", "gpus")
"""The fields of `Resources`."""


def add(*amounts: Resources) -> Resources:
    """Their sum."""
    return _combine(sum, amounts)


def subtract(capacity: Resources, taken: Resources) -> Resources:
    """What ``taken`` leaves of ``capacity``."""
    return _combine(lambda both: both[0] - both[1], [capacity, taken])


def largest(*amounts: Resources) -> Resources:
    """The largest of each resource."""
    return _combine(max, amounts)


def _combine(combine: Callable[[list[int]], int], amounts: Sequence[Resources]) -> Resources:
    return Resources(**{name: combine([getattr(one, name) for one in amounts]) for name in AMOUNTS})


@dataclass(frozen=True)
class RequestRules:
    """What a cluster makes of a pod's requests on its way in, where it does not take them as they are.

    They are raised to ``least``, and CPU to a multiple of ``step`` millicores. ``ratio`` is the least and the most
    GiB of memory for each CPU: whichever of the two there is too little of is raised.
    """

    least: Resources
    ratio: tuple[float, float] | None = None
    step: int = 1

    def admitted(self, requests: Resources) -> Resources:
        """The requests that the cluster takes unchanged for a pod that asks for ``requests``: never less."""
        cpu, memory = max(requests.cpu, self.least.cpu), max(requests.memory, self.least.memory)
        low, high = [1.024 * gib for gib in self.ratio] if self.ratio else (0, math.inf)  # MiB for each millicore.
        cpu = math.ceil(max(cpu, memory / high) / self.step) * self.step
        scratch = max(requests.ephemeral_storage, self.least.ephemeral_storage)
        return replace(requests, cpu=cpu, memory=max(memory, math.ceil(cpu * low)), ephemeral_storage=scratch)


@dataclass(frozen=True)
class Interconnect:
    """The network by which the pods of one step reach one another that runs on several nodes of a pool.

    A pod that uses it asks for ``count`` of the extended ``resource`` (empty: for nothing) and has
    ``environment``, which tells NCCL of it.
    """

    resource: str = ""
    count: int = 0
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Rate:
    """What is paid for an hour, in US dollars at list prices. ``day`` is that of the oldest. With ``by_pod`` it is
    paid for a pod, and for no node."""

    dollars: float
    day: str
    by_pod: bool = False


def _unpriced(_: Resources) -> Rate | None:
    return None


NOTICE = 120
"""Seconds that a pod gets to end itself where its node is not taken back: those of a copy of 2 GiB at 20 MB/s."""


@dataclass(frozen=True)
class Pool:
    """A node pool as a pod sees it.

    ``selector`` are labels that every node of the pool has and no other node; ``allocatable`` is what one node
    leaves to pods after its system reservations; ``max_nodes`` is how many nodes it can grow to.
    ``shared_gpus`` says that the pool slices or partitions its GPUs, of which a pod can use only one.
    ``min_nodes`` are there at all times. Where the stack declares the device plugin, ``gpu_clients`` pods share
    each GPU by time-slicing, and ``mig_strategy`` is how it advertises GPUs that are partitioned. ``requests``
    are rules for what pods ask for, where the cluster has any. ``movable`` says that pods cannot ask to be left
    on their node. ``interconnect`` is what pods of one step use that run on several of its nodes, where that is
    known. ``provisioning`` is the class of `ProvisioningRequest` by which the cluster's autoscaler brings all
    nodes of a Job at once or none. ``sale`` says how its nodes are bought. ``notice`` are the seconds from
    SIGTERM to SIGKILL that a pod of it gets, whoever ends it, where it asks for as many. ``rate`` is the price of
    one node or, where pods are billed, of a pod that asks for so much; None where no source says it. An idle node
    stays for ``kept`` seconds; None: as long as autoscalers leave it by default. ``runtime_class`` names the
    RuntimeClass of every pod there; None: the nodes' default runtime starts them.
    """

    name: str
    cluster: str
    selector: Mapping[str, str]
    taints: Sequence[Taint]
    allocatable: Resources
    max_nodes: int
    accelerator: str | None = None
    resources: "Sequence[pulumi.Resource]" = ()
    shared_gpus: bool = False
    min_nodes: int = 0
    gpu_clients: int = 1
    mig_strategy: MigStrategy = "none"
    requests: RequestRules | None = None
    movable: bool = False
    interconnect: Interconnect | None = None
    provisioning: str = ""
    sale: Sale = "on-demand"
    notice: int = NOTICE
    kept: float | None = None
    runtime_class: str | None = None
    rate: "Callable[[Resources], Rate | None]" = field(default=_unpriced, repr=False, compare=False)

    def admitted(self, requests: Resources) -> Resources:
        """What a pod has to ask for that needs ``requests``, so that the cluster takes it unchanged."""
        return self.requests.admitted(requests) if self.requests else requests


@dataclass(frozen=True)
class Claim:
    """The PersistentVolumeClaim that a store needs in the namespace of its pods.

    ``storage_class`` None asks for the cluster's default; "" binds to ``volume_name`` without any class.
    ``size`` is a Kubernetes quantity such as ``10Gi``.
    """

    name: str
    size: str
    access_mode: str
    storage_class: str | None = None
    volume_name: "pulumi.Input[str] | None" = None


@dataclass(frozen=True)
class Store:
    """The one store that all clusters of a stack share.

    ``url`` names its root for people (``gs://…``, ``pvc://…``). ``volume`` is the pod volume that mounts it;
    ``pod_annotations`` are what the mount needs on the pod. ``sidecar`` is what the mount adds to a pod's
    requests. ``read`` returns the text of a store file once a resource is created, None where there is no such
    file; ``files`` returns the paths of the files below a folder as they are when the update begins. Both are None
    where the store can only be seen from inside the cluster. ``replaced_with`` are what holds the files and what
    pods mount them by: what mounts the store is replaced with them. Empty where another store has another claim.
    """

    url: "pulumi.Input[str]"
    volume: "k8s.core.v1.VolumeArgs"
    pod_annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    sidecar: Resources = field(default_factory=lambda: Resources(cpu=0, memory=0))
    claim: Claim | None = None
    read: "Callable[[pulumi.Input[str], pulumi.Resource], pulumi.Output[str | None]] | None" = None
    files: "Callable[[str], pulumi.Output[Sequence[str]]] | None" = None
    browse: "Callable[[pulumi.Input[str]], pulumi.Output[str]] | None" = None
    """The web address at which a person can look at a store path, where there is one."""
    reader: "Mapping[str, pulumi.Input[str]] | None" = None
    """What another stack needs to make ``read``, ``files`` and ``browse`` from; None where there are none."""
    replaced_with: "Sequence[pulumi.Resource]" = ()


@dataclass(frozen=True)
class Data:
    """Data that is there, which steps of a pipeline read as the input ``name`` and nothing of the stack writes.

    It is the ``folder``, empty for all, of a ``bucket`` of Cloud Storage (`gs`) or of S3 (`s3`), or one of the
    stack's own `store`, whose bucket is not named here. ``digest`` is the SHA-256 of its listing in hex, empty
    where the stack file has none. With ``grants`` the stack lets its Jobs read the folder; without, they may
    already.
    """

    name: str
    scheme: Literal["gs", "s3", "store"]
    bucket: str
    folder: str
    digest: str = ""
    grants: bool = True

    @property
    def in_store(self) -> bool:
        """Whether it is a folder of the stack's own store."""
        return self.scheme == "store"

    @property
    def volume(self) -> str:
        """The name of the volume that mounts it in pods, where it is in a bucket."""
        return f"input-{self.name}"

    @property
    def url(self) -> str:
        """Where it is, as a stack file names it."""
        root = "{store}" if self.in_store else f"{self.scheme}://{self.bucket}"
        return f"{root}/{self.folder}" if self.folder else root


@dataclass(frozen=True)
class QueueAccess:
    """What Kueue has for the Jobs of one namespace: a ClusterQueue, and a WorkloadPriorityClass by the `priority`
    of a step.
    """

    cluster_queue: str
    priorities: Mapping[Priority, str] = field(default_factory=dict["Priority", str])


@dataclass(frozen=True)
class TeamApp:
    """An app of another team's stack: whether it writes, and the annotations of its service account."""

    writes: bool = False
    annotations: "Mapping[str, pulumi.Input[str]]" = field(default_factory=dict[str, "pulumi.Input[str]"])


@dataclass(frozen=True)
class TeamAccess:
    """What another team's stack has of a cluster: a store whose root is the team's own folder, annotations for the
    service account of its Jobs, and its apps by service account."""

    store: Store
    service_account_annotations: "Mapping[str, pulumi.Input[str]]" = field(
        default_factory=dict[str, "pulumi.Input[str]"]
    )
    apps: Mapping[str, TeamApp] = field(default_factory=dict[str, TeamApp])


BUILDER = "images"
"""The Kubernetes service account of the pods that build images."""


@dataclass(frozen=True)
class Registry:
    """Where images are pushed to that the stack builds.

    ``repository`` and ``cache``, each ``<host>/<path>``, are for images and for what builds keep of one another.
    ``login`` is the module of the package that makes a login of the pod's identity, for which ``files`` ship
    too; ``file`` where a secret has one, and ``none`` where the registry wants none. ``annotations`` are for the
    service account that builds. ``digest`` is what a tag means once a resource is created. ``region`` is that of
    the registry, where its login depends on it.
    """

    repository: "pulumi.Input[str]"
    cache: "pulumi.Input[str]"
    login: str
    digest: "Callable[[str, pulumi.CustomResource], pulumi.Output[str]]"
    annotations: "Mapping[str, pulumi.Input[str]]" = field(default_factory=dict[str, "pulumi.Input[str]"])
    ready: "Sequence[pulumi.Resource]" = ()
    region: str = ""
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Egress:
    """Where pods may connect to: a block of addresses, less those in ``excepted``, or the pods of a namespace."""

    cidr: str
    ports: Sequence[int]
    protocols: Sequence[Literal["TCP", "UDP"]] = ("TCP",)
    excepted: Sequence[str] = ()
    namespace: str = ""


def dns_of(namespace: str, *ports: int) -> Egress:
    """The cluster's name servers, which are pods of ``namespace``."""
    return Egress("", ports, ("UDP", "TCP"), namespace=namespace)


@dataclass(frozen=True)
class IngressController:
    """What carries out the Ingress objects of a class, through which people outside a cluster reach its apps.

    It connects to pods from addresses in ``networks``, or as a pod of ``namespace``.
    """

    class_name: str
    namespace: str | None
    networks: Sequence[str]


@dataclass(frozen=True)
class DevicePlugin:
    """NVIDIA's device plugin, for a cluster that has none of its own.

    ``openshift`` adds the security context constraints and the SELinux type that OpenShift asks for.
    """

    openshift: bool = False


MetricsApi = Literal["monitoring.googleapis.com/v1", "monitoring.coreos.com/v1"]
"""The API of the objects that say what a collector reads: Google's PodMonitoring, or the Prometheus operator's
PodMonitor."""


@dataclass(frozen=True)
class Collector:
    """What reads metrics in a cluster: the pods with ``pod_labels`` in ``namespace``.

    ``monitor_labels`` are those without which it does not look at the objects of ``api``.
    """

    api: MetricsApi
    namespace: str
    pod_labels: Mapping[str, str]
    monitor_labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ClusterNetwork:
    """The network that the stack declares for a cluster.

    ``id`` is what the cloud's resources take for it: of a network of Compute Engine, or of a VPC. ``subnets`` are
    the ids of those that the nodes are in.
    """

    id: "pulumi.Output[str]"
    subnets: "Sequence[pulumi.Output[str]]"


@dataclass(frozen=True)
class Platform:
    """One cluster, ready for pipelines."""

    name: str
    """Its name in the stack file."""
    provider: "k8s.Provider"
    """The Kubernetes provider that every resource on the cluster names."""
    kubeconfig: "pulumi.Output[str]"
    """The text of a kubeconfig that reaches it, or the path of one."""
    pools: Mapping[str, Pool]
    """Its node pools, by their names in the stack file."""
    store: Store
    """The store of the stack, as the cluster's pods mount it."""
    service_account_annotations: "Mapping[str, pulumi.Input[str]]"
    """Those of the service account of Jobs, which lets them use the store."""
    ready: "Sequence[pulumi.Resource]"
    """What to wait for before the first pod: identity bindings, the device plugin."""
    connect: "pulumi.Input[str]"
    """The shell command that gives a person's kubectl access."""
    kubectl: "pulumi.Input[str]"
    """The prefix of commands that reach the cluster after `connect`."""
    device_plugin: DevicePlugin | None = None
    """The device plugin of NVIDIA that the stack declares; None: the cluster has one."""
    pod_user: int | None = POD_USER
    """User and group of its pods; None: the cluster assigns them."""
    egress: Sequence[Egress] = (dns_of("kube-system", 53),)
    """Where pods connect to beside HTTPS to public addresses: name servers, and what identities and mounts ask."""
    creates_namespace: bool = True
    """Whether the stack creates the namespace; False: it is there already."""
    whole_cluster: bool = True
    """Whether the stack may declare what is in no namespace; False: it has one namespace only."""
    context: str | None = None
    """The context of ``kubeconfig`` that reaches the cluster; None: its current one."""
    owned: bool = True
    """False where the cluster is another stack's, which declares all that is in no namespace."""
    teams: Mapping[str, TeamAccess] = field(default_factory=dict[str, TeamAccess])
    """What the teams have whose own stacks run Jobs here, by the team's name."""
    app_annotations: "Mapping[str, Mapping[str, pulumi.Input[str]]]" = field(
        default_factory=dict[str, "Mapping[str, pulumi.Input[str]]"]
    )
    """Those of the service accounts of apps, by the account's name; one that needs none is not there."""
    volume_class: "pulumi.Input[str] | None" = None
    """The StorageClass of volumes that one pod has to itself; None: the cluster's default."""
    queue: QueueAccess | None = None
    """What another stack, which has the cluster, declares of Kueue for this stack's Jobs."""
    collector: Collector | None = None
    """What the cloud itself reads metrics with; None: nothing does."""
    registry: Registry | None = None
    """The cloud's own registry, where the stack builds images for it."""
    ingress_controller: IngressController | None = None
    """What people outside reach its apps through; None: it has no Ingress controller."""
    input_volume: "Callable[[Data, int], k8s.core.v1.VolumeArgs] | None" = None
    """The volume, named `Data.volume`, that mounts data of a bucket read-only in a pod that has the store mounted,
    and keeps so many MiB of it on the node's disk. None: the cluster mounts no bucket but that of the store."""
    bucket_cache: str = ""
    """The name of the pod's volume in which these mounts keep what was read; empty where they keep nothing."""
    identity: "pulumi.Output[str] | None" = None
    """What the cloud calls the pods of Jobs where it gives them rights; None: it gives them none."""
    network: ClusterNetwork | None = None
    """Its network; None where the stack declares none for it."""
    store_beside: "Callable[[int], Store] | None" = None
    """The store as a pod has it that mounts so many of these volumes, too: with the annotations and sidecar that
    all of them need. None: the pod needs no more for them."""

    def store_with(self, inputs: int) -> Store:
        """The store as a pod has it that mounts so many buckets of inputs, too."""
        return self.store_beside(inputs) if inputs and self.store_beside else self.store

    @property
    def cheapest_pool(self) -> Pool:
        """The pool for pods that need next to nothing.

        One without GPUs where there is one, of them one that always has a node, of them the one with the least
        price of a node, and of equal ones the first by name.
        """

        def cost(pool: Pool) -> tuple[int, bool, float, str]:
            rate = pool.rate(pool.allocatable)
            return pool.allocatable.gpus, not pool.min_nodes, rate.dollars if rate else math.inf, pool.name

        return min(self.pools.values(), key=cost)

    @property
    def declares_cluster_objects(self) -> bool:
        """Whether the stack may declare what is in no namespace, such as an admission policy."""
        return self.owned and self.whole_cluster


@dataclass(frozen=True)
class Node:
    """The nodes that a declared resource brings, as the scheduler would see them: ``count`` alike."""

    cluster: str
    pool: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    allocatable: Resources
    count: int
    accelerator: str | None = None
