"""What a stack file says of a cluster that is already there, and of a store on its volumes."""

from typing import ClassVar, Literal

from pydantic import Field

from infra.platform import Resources
from infra.settings.base import ClusterSettings, Cpu, Labels, PoolSettings, Size, StoreSettings, TaintSettings
from infra.settings.quantity import cpu_millicores, mebibytes


class ExistingPool(PoolSettings):
    """Nodes of the cluster that a label selects, described as they are."""

    node_keys: ClassVar[tuple[str, ...]] = ("accelerator", "gpus", "cpu", "memory", "ephemeral_storage")

    selector: Labels = Field(description="Labels that the nodes have and no other node has.", min_length=1)
    taints: list[TaintSettings] = Field(default_factory=list, description="Taints that the nodes have.")
    cpu: Cpu = Field(description="Allocatable CPU of one node, as `kubectl describe node` shows it: `3920m`, `8`.")
    memory: Size = Field(description="Allocatable memory of one node: `12Gi`.")
    ephemeral_storage: Size = Field(default="20Gi", description="Allocatable ephemeral storage of one node.")
    accelerator: str | None = Field(default=None, description="Accelerator type, for example `nvidia-tesla-t4`.")
    gpus: int = Field(default=0, ge=0, description="`nvidia.com/gpu` that one node can allocate.")
    nodes: int = Field(default=1, ge=1, description="How many such nodes there are.")

    def node(self) -> Resources:
        """What one node leaves to pods, as the file describes it."""
        return Resources(
            cpu=cpu_millicores(self.cpu),
            memory=mebibytes(self.memory),
            ephemeral_storage=mebibytes(self.ephemeral_storage),
            gpus=self.gpus,
        )

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return self.accelerator is not None or bool(self.gpus)


class ExistingCluster(ClusterSettings):
    """A cluster by kubeconfig and context. Nothing of the cluster itself is created or changed."""

    cloud: Literal["existing"] = Field(description="`existing`: any cluster that a kubeconfig reaches.")
    kubeconfig: str = Field(default="~/.kube/config", description="Path of the kubeconfig file.")
    context: str | None = Field(default=None, description="Context in it; default: its current context.")
    pools: dict[str, ExistingPool] = Field(min_length=1, description="Pools by name.")


class PvcStore(StoreSettings):
    """A PersistentVolumeClaim in the one cluster of the stack."""

    kind: Literal["pvc"] = Field(description="`pvc`: a PersistentVolumeClaim.")
    size: Size = Field(default="10Gi", description="Size asked for, as a Kubernetes quantity.")
    storage_class: str | None = Field(
        default=None, description="StorageClass by name; default: the cluster's default."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = Field(
        default="ReadWriteOnce", description="ReadWriteMany where pods on two nodes use the store at once."
    )
    host_path: str | None = Field(
        default=None, description="Folder on the node, for single-node clusters only; no StorageClass then."
    )
