"""What a stack file says of a cluster that is already there, and of a store that its pods mount as a volume."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import Field

from slipway.infra.accelerators import accelerators
from slipway.infra.platform import MigStrategy, Resources
from slipway.infra.schema.base import (
    Cpu,
    Int,
    Labels,
    Memory,
    Model,
    PoolSettings,
    Size,
    StoreSettings,
    TaintSettings,
    TimeSlicing,
)
from slipway.infra.schema.ingress import ReachableCluster
from slipway.infra.schema.names import NamespaceName, ObjectName
from slipway.infra.schema.paths import ExportedPath
from slipway.infra.schema.problems import Problem, did_you_mean, listed
from slipway.infra.schema.quantities import cpu_millicores, mebibytes
from slipway.infra.schema.renamed import CHART_KEYS, Removed, by_transformation
from slipway.infra.schema.request import NOTHING, Starter, Wish


class InterconnectSettings(Model):
    """The network between the nodes of a pool, as pods of a step with `nodes` use it."""

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("name", "bandwidth"), Removed("remove it: nothing measures the network any more")
    )

    resource: str | None = Field(
        default=None,
        description="Extended resource that a pod asks for to use it, as `kubectl describe node` shows it under "
        "Allocatable: `rdma/hca_shared_devices_a`. Default: none.",
    )
    count: Int = Field(default=1, ge=1, description="How many of the resource each pod asks for.")
    environment: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Environment variables that tell NCCL of it: `NCCL_IB_HCA`, `NCCL_SOCKET_IFNAME`.",
    )


class ExistingPool(PoolSettings):
    """Nodes of the cluster that a label selects, described as they are."""

    node_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "cpu": ("cpu",),
        "memory": ("memory",),
        "ephemeral_storage": ("ephemeral_storage",),
        "gpus": ("accelerator", "gpus", "gpu_sharing", "mig_strategy"),
    }

    selector: Labels = Field(description="Labels that the nodes have and no other node has.", min_length=1)
    taints: list[TaintSettings] = Field(default_factory=list, description="Taints that the nodes have.")
    cpu: Cpu = Field(description="Allocatable CPU of one node, as `kubectl describe node` shows it: `3920m`, `8`.")
    memory: Memory = Field(description="Allocatable memory of one node: `12Gi`.")
    ephemeral_storage: Size = Field(default="20Gi", description="Allocatable ephemeral storage of one node.")
    accelerator: str | None = Field(default=None, description="Accelerator type, for example `nvidia-tesla-t4`.")
    gpus: Int = Field(default=0, ge=0, description="`nvidia.com/gpu` that one node can allocate, unshared.")
    # https://kubernetes.io/docs/setup/best-practices/cluster-large/, Kubernetes 1.35: at most 5,000 nodes.
    nodes: Int = Field(default=1, ge=1, le=5_000, description="How many such nodes there are.")
    autoscaled: bool = Field(
        default=False,
        description="An autoscaler adds nodes when pods wait. Else `pulumi up` refuses a pool without a node.",
    )
    label_nodes: list[str] = Field(
        default_factory=list,
        description="Names of all nodes of the pool, to which the stack gives the labels of `selector` until it "
        "is destroyed. Default: they have them.",
    )
    taint_nodes: bool = Field(
        default=False,
        description="Gives the nodes in `label_nodes` the pool's `taints`, too. The cluster refuses nodes that "
        "someone else has tainted.",
    )
    gpu_sharing: TimeSlicing | None = Field(
        default=None, description="Share each GPU between pods; only with the stack's own device plugin."
    )
    mig_strategy: MigStrategy = Field(
        default="none",
        description="`single` where all GPUs are partitioned alike, and `gpus` counts partitions; only with the "
        "stack's own device plugin.",
    )
    runtime_class: ObjectName | None = Field(
        default=None,
        description="RuntimeClass by name, which all pods have that the stack puts on the pool: `nvidia` where "
        "NVIDIA's container toolkit is not the nodes' default runtime. Pods of Kueue have none.",
    )
    interconnect: InterconnectSettings | None = Field(
        default=None,
        description="The network between its nodes, for steps with `nodes`. Default: the cluster's own, of which "
        "nothing is known.",
    )

    def node(self) -> Resources:
        """What one node leaves to pods, as the file describes it."""
        return Resources(
            cpu=cpu_millicores(self.cpu),
            memory=mebibytes(self.memory),
            ephemeral_storage=mebibytes(self.ephemeral_storage),
            gpus=self.gpus * self.gpu_clients,
        )

    @property
    def shares_gpus(self) -> bool:
        """Whether it slices or partitions its GPUs, of which a pod can use only one share."""
        return self.gpu_sharing is not None or self.mig_strategy != "none"

    @property
    def gpu_clients(self) -> int:
        """Pods that share one GPU."""
        return self.gpu_sharing.clients if self.gpu_sharing else 1

    @property
    def most_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.label_nodes) or self.nodes


class DevicePluginSettings(Model):
    """NVIDIA's device plugin, declared by the stack."""

    removed: ClassVar[Mapping[str, Removed]] = CHART_KEYS

    declare: bool = Field(
        default=False,
        description="Declare the plugin on all nodes of GPU pools, but those where the GPU Operator runs its own. "
        "Default: the cluster has one.",
    )


class ExistingCluster(ReachableCluster):
    """A cluster by kubeconfig and context. Nothing of it is changed but the nodes that `label_nodes` names."""

    has_list_prices: ClassVar[bool] = False

    cloud: Literal["existing"] = Field(description="`existing`: any cluster that a kubeconfig reaches.")
    kubeconfig: str = Field(default="~/.kube/config", description="Path of the kubeconfig file.")
    context: str | None = Field(
        default=None, description="Context in the kubeconfig; default: its current context."
    )
    openshift: bool = Field(
        default=False,
        description="The cluster is OpenShift, which assigns the user and group of every pod from its namespace's "
        "range.",
    )
    access: Literal["cluster", "namespace"] = Field(
        default="cluster",
        description="What the kubeconfig's user may do. `namespace`: what the role `admin` of the namespace (on "
        "OpenShift, of the project) allows. The namespace must exist, with its quota; the stack "
        "declares nothing outside it.",
    )
    device_plugin: DevicePluginSettings = Field(
        default_factory=DevicePluginSettings, description="Who brings the device plugin to nodes with GPUs."
    )
    pools: dict[str, ExistingPool] = Field(min_length=1, description="Pools by name.")

    @property
    def builds_problem(self) -> str | None:
        """OpenShift's default security context constraints take neither the user nor the lack of profiles
        (docs.openshift.com, "Managing security context constraints", seen November 2026)."""
        if self.openshift:
            return "OpenShift's default constraints take no pod without a seccomp profile, as BuildKit's is"
        if self.access == "namespace":
            return "who has one namespace cannot make another one for them, with a weaker Pod Security Standard"
        return None

    @property
    def owns_namespace(self) -> bool:
        """Whether the stack creates the namespace, and deletes it."""
        return self.creates_namespace and self.access == "cluster"


class PvcStore(StoreSettings):
    """A PersistentVolumeClaim in the one cluster of the stack."""

    kind: Literal["pvc"] = Field(description="`pvc`: a PersistentVolumeClaim.")
    size: Size = Field(default="10Gi", description="Size asked for, as a Kubernetes quantity.")
    storage_class: ObjectName | None = Field(
        default=None, description="StorageClass by name; default: the cluster's default."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = Field(
        default="ReadWriteOnce", description="ReadWriteMany where pods on two nodes use the store at once."
    )
    host_path: str | None = Field(
        default=None, description="Folder on the node, for single-node clusters only; no StorageClass then."
    )


class NfsStore(StoreSettings):
    """A folder that an NFS server exports, Filestore's included. Several clusters can share it."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "mount_options": by_transformation("kubernetes.core.v1.PersistentVolume", "spec.mount_options")
    }

    kind: Literal["nfs"] = Field(description="`nfs`: a folder of an NFS server.")
    server: str = Field(description="Host name or address of the server, as the nodes reach it.")
    path: ExportedPath = Field(description="Exported folder, an absolute path: `/exports/slipway`.")
    size: Size = Field(default="10Gi", description="Size that the volume is given; NFS does not enforce it.")
    group: Int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="Group that owns the folder and may write in it; every pod that mounts the store joins it. "
        "Default: the folder is the pods' user's.",
    )


class S3CompatibleStore(StoreSettings):
    """A bucket of any server that speaks S3, mounted by a CSI driver. Several clusters can share it."""

    kind: Literal["s3_compatible"] = Field(description="`s3_compatible`: a bucket of a server that speaks S3.")
    endpoint: str = Field(description="URL of the server: `https://s3.example.com`.")
    bucket: str = Field(description="Name of a bucket that is there.")
    prefix: str = Field(default="", description="Folder in the bucket that becomes the store; default: all of it.")
    secret: ObjectName = Field(
        default="csi-s3-secret",
        description="Name of the Secret with the keys that the driver reads: `accessKeyID`, `secretAccessKey`, "
        "`endpoint`. You create it, so that no key gets into the stack's state.",
    )
    secret_namespace: NamespaceName = Field(default="kube-system", description="Namespace of that Secret.")
    driver: str = Field(
        default="ru.yandex.s3.csi",
        description="CSI driver that is installed on the cluster. It has to rename and append.",
    )
    size: Size = Field(default="10Gi", description="Size that the volume is given; no bucket enforces it.")


DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class S3Driver:
    """A CSI driver that mounts buckets: what it mounts them with, and what files of such a mount can do."""

    mount: str
    renames: bool
    appends: bool


@cache
def single_node_classes() -> Mapping[str, str]:
    """The StorageClasses whose file systems only one node can mount, each with the reason."""
    return {name: entry["why"] for entry in _load("storage_classes")["single_node"] for name in entry["classes"]}


def system_folder(path: str) -> str | None:
    """The system folder that the absolute ``path`` is or lies in, where no store may be; None for others."""
    folders = _system_folders()
    parts = PurePosixPath(path)
    inside = next((tree for tree in folders["trees"] if parts.is_relative_to(tree)), None)
    return inside or next((folder for folder in folders["parents"] if str(parts) == folder), None)


@cache
def _system_folders() -> Mapping[str, list[str]]:
    return _load("system_folders")


@cache
def s3_drivers() -> Mapping[str, S3Driver]:
    """CSI drivers for buckets, by name."""
    return {name: S3Driver(**entry) for name, entry in _load("s3_drivers").items()}


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


STARTER_TEMPLATE = Path(__file__).parent / "data" / "starter.yaml.j2"

STARTER_REPOSITORY = "registry.example.org/team/slipway"
"""For you to correct."""

STARTER_CPUS, STARTER_GIB, STARTER_STORAGE_GIB = 2, 4, 10
"""What a node of a small cluster, such as kind on a laptop, leaves to pods."""


def starter(wish: Wish) -> Starter | Sequence[Problem]:
    """One pool of all Linux nodes, and one of those with GPUs where an accelerator is named."""
    problems: list[Problem] = []
    if wish.region is not None:
        reason = "a cluster that is there is where it is"
        problems.append(Problem("REGION", wish.region, reason, "leave it out"))
    if wish.accelerator is not None and wish.accelerator not in accelerators():
        fix = did_you_mean(wish.accelerator, accelerators(), f"write {listed(accelerators())}")
        problems.append(Problem("GPU", wish.accelerator, "no GPU of the catalogue", fix))
    if problems:
        return problems
    on_cpu = [wish.cpu_steps]
    if wish.gpu_steps is not None and wish.accelerator is None:
        on_cpu.append(wish.gpu_steps)
    values = {
        "cpu": _starter_node(on_cpu, wish.apps),
        "accelerator": wish.accelerator,
        "gpus": max(1, wish.gpu_steps.gpus) if wish.gpu_steps else 1,
        "gpu": _starter_node([wish.gpu_steps or wish.cpu_steps]),
    }
    before = (
        "the name of the cluster's context, and what its nodes leave to pods (kubectl describe node), in the file",
    )
    return Starter(STARTER_TEMPLATE, values, before, wish.accelerator is not None, STARTER_REPOSITORY)


def _starter_node(steps: Sequence[Resources], staying: Resources = NOTHING) -> dict[str, str]:
    """The least that a node has to leave to pods, in the words of a stack file, one step at a time."""
    cpu = max(step.cpu for step in steps) + staying.cpu
    gib = math.ceil((max(step.memory for step in steps) + staying.memory) / 1024)
    storage = math.ceil((max(step.ephemeral_storage for step in steps) + staying.ephemeral_storage) / 1024)
    return {
        "cpu": str(max(STARTER_CPUS, math.ceil(cpu / 1000))),
        "memory": f"{max(STARTER_GIB, gib)}Gi",
        "ephemeral_storage": f"{max(STARTER_STORAGE_GIB, storage)}Gi",
    }
