"""What a stack file says of clusters, node groups and the store on Amazon Web Services; and what a new one has."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from slipway.infra.accelerators import accelerators
from slipway.infra.clouds.aws.catalogue import (
    InstanceType,
    NodeShape,
    allocatable,
    hosts_control_plane,
    instance_type,
    instance_types,
    records,
    region_of,
    regions,
)
from slipway.infra.platform import Resources, Sale
from slipway.infra.schema.base import (
    Cidr,
    CreatedCluster,
    Duration,
    Int,
    Labels,
    Model,
    PoolSettings,
    StoreSettings,
    TaintSettings,
    TimeSlicing,
)
from slipway.infra.schema.ingress import ReachableCluster
from slipway.infra.schema.problems import Problem, did_you_mean, listed, nearest
from slipway.infra.schema.renamed import Removed, by_transformation
from slipway.infra.schema.request import Starter, Wish, has_room

ControlPlaneLog = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]


class Nodes(Model):
    """How many nodes a pool has over all its zones. Either a fixed ``count``, or limits for the autoscaler."""

    other_names: ClassVar[Mapping[str, str]] = {"total_min": "min", "total_max": "max"}

    count: Int | None = Field(default=None, ge=0, le=450, description="Fixed number of nodes.")
    min: Int | None = Field(default=None, ge=0, description="Fewest nodes.")
    max: Int | None = Field(default=None, ge=0, le=450, description="Most nodes.")


class AwsPool(PoolSettings):
    """A managed node group of EKS."""

    other_names: ClassVar[Mapping[str, str]] = {
        "machine_type": "instance_type",
        "reservation": "capacity_reservation",
        "resource_labels": "tags",
    }
    removed: ClassVar[Mapping[str, Removed]] = {
        "ami_type": by_transformation("aws.eks.NodeGroup", "ami_type"),
        **dict.fromkeys(("accelerator", "gpus"), Removed("remove it: the instance type brings its GPUs")),
        "disk_type": by_transformation("aws.ec2.LaunchTemplate", "block_device_mappings[0].ebs.volume_type"),
    }

    node_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "cpu": ("instance_type",),
        "memory": ("instance_type",),
        "ephemeral_storage": ("instance_type", "disk_size_gb", "instance_store"),
        "gpus": ("instance_type", "gpu_sharing"),
    }

    instance_type: str = Field(description="EC2 instance type, for example `g4dn.xlarge`. It brings the GPUs.")
    gpu_sharing: TimeSlicing | None = Field(default=None, description="Share each GPU between pods.")
    nodes: Nodes = Field(default_factory=Nodes, description="How many nodes; default: one, fixed.")
    zones: list[str] | None = Field(
        default=None, description="Zones of the pool, of those of the cluster; default: all of them."
    )
    spot: bool = Field(default=False, description="Spot instances: cheap, may be taken back at any time.")
    capacity_block: str | None = Field(
        default=None,
        description="A Capacity Block for ML by its id, `cr-…`, bought for a time and a zone. Name its zone under "
        "`zones`.",
    )
    capacity_reservation: str | None = Field(
        default=None,
        description="An On-Demand Capacity Reservation by its id, `cr-…`. Name its zone under `zones`.",
    )
    kubernetes_version: str | None = Field(
        default=None,
        description="Kubernetes version of the nodes; default: the cluster's. An earlier one keeps the nodes, and "
        "what runs on them, while the control plane goes on to its next version.",
    )
    efa: bool = Field(
        default=False,
        description="An EFA interface on every network card, for the pods of steps with `nodes`, and nodes close "
        "together. One zone only.",
    )
    disk_size_gb: Int = Field(default=100, ge=20, le=16384, description="Size of the root disk in GiB.")
    instance_store: bool = Field(
        default=False,
        description="The NVMe disks that the instance type comes with, as one, hold images, scratch space and "
        "caches of pods in place of the root disk. They are part of its price. Changed, it replaces the nodes.",
    )
    labels: Labels = Field(default_factory=dict, description="Kubernetes labels of the nodes.")
    tags: Labels = Field(default_factory=dict, description="AWS tags of the node group and its instances.")
    taints: list[TaintSettings] = Field(
        default_factory=list,
        description="Taints beside `nvidia.com/gpu=present:NoSchedule`, which every GPU pool has.",
    )

    def node(self) -> Resources | None:
        """What one node leaves to pods; None where the catalogue does not have its instance type."""
        return allocatable(self.node_shape) if self.machine else None

    @property
    def node_shape(self) -> NodeShape:
        """What decides how much one of its nodes leaves to pods."""
        clients = self.gpu_sharing.clients if self.gpu_sharing else 1
        return NodeShape(self.instance_type, self.disk_size_gb, clients, self.instance_store)

    @property
    def machine(self) -> InstanceType | None:
        """What the catalogue knows of its instance type; None where it has none of that name."""
        return instance_type(self.instance_type)

    @property
    def gpu_type(self) -> str | None:
        """The accelerator that its instance type comes with, or the type that a misspelt one most likely means."""
        near = self.machine or instance_type(nearest(self.instance_type, instance_types()) or "")
        return near.accelerator if near else None

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return self.gpu_type is not None

    @property
    def sale(self) -> Sale:
        """How its nodes are bought."""
        return "spot" if self.spot else "queued" if self.capacity_block else "on-demand"

    @property
    def shares_gpus(self) -> bool:
        """Whether it slices its GPUs."""
        return self.gpu_sharing is not None

    @property
    def most_nodes(self) -> int:
        """The most nodes it can have, over all its zones."""
        return next((number for number in (self.nodes.max, self.nodes.count) if number is not None), 1)

    @property
    def least_nodes(self) -> int:
        """The nodes it has at all times, over all its zones."""
        if self.nodes.max is not None:
            return self.nodes.min or 0
        return 1 if self.nodes.count is None else self.nodes.count


class ControlPlane(Model):
    """From where the cluster's API can be reached, what it logs, and the key of its secrets.

    Nodes and whatever else is in the VPC always reach it through its private endpoint.
    """

    removed: ClassVar[Mapping[str, Removed]] = {
        "log_days": by_transformation("aws.cloudwatch.LogGroup", "retention_in_days")
    }

    public_endpoint: bool = Field(
        default=True,
        description="An endpoint on the Internet, open to `authorized_networks` only. Without it `pulumi up` and "
        "kubectl run in the VPC or a network joined to it.",
    )
    authorized_networks: dict[str, Cidr] = Field(
        default_factory=dict, description="Name to CIDR block of each network that may reach the public endpoint."
    )
    logs: list[ControlPlaneLog] = Field(
        default_factory=lambda: ["api", "audit", "authenticator"],
        description="What the control plane logs to CloudWatch.",
    )
    secrets_key: str | None = Field(
        default=None,
        description="ARN of the KMS key that encrypts Kubernetes Secrets; default: one that the stack creates in "
        "any case. A change is refused: EKS keeps the key.",
    )


class Network(Model):
    """The VPC of a cluster: a public and a private subnet in each of its zones."""

    vpc_cidr: Cidr = Field(
        default="10.0.0.0/16",
        description="Addresses of the VPC. Nodes and pods both take theirs from it. EKS refuses others once the "
        "cluster exists.",
    )
    services_cidr: Cidr = Field(default="172.20.0.0/16", description="Addresses of the Services.")
    nat: Literal["one", "per-zone"] = Field(
        default="one",
        description="`one` NAT gateway for all zones, or one in each zone, so that no zone depends on another.",
    )


class AwsCluster(ReachableCluster, CreatedCluster):
    """An EKS cluster with a VPC of its own."""

    other_names: ClassVar[Mapping[str, str]] = {"location": "region"}
    removed: ClassVar[Mapping[str, Removed]] = {
        "flow_log_days": by_transformation("aws.cloudwatch.LogGroup", "retention_in_days"),
        "support": by_transformation("aws.eks.Cluster", "upgrade_policy.support_type"),
        "tags": by_transformation("aws.eks.Cluster", "tags"),
        "registry": Removed("remove it: an ECR repository without images costs nothing"),
        "charts": by_transformation("kubernetes.helm.v3.Release", "chart"),
    }

    cloud: Literal["aws"] = Field(description="`aws`: a cluster that Slipway creates on EKS.")
    region: str = Field(description="Region of the cluster and the store: `us-east-1`.")
    zones: list[str] = Field(
        description="Two or three availability zones of the VPC, by id (`use1-az1`, the same in every account) or "
        "name (`us-east-1a`). EKS refuses others once the cluster exists."
    )
    kubernetes_version: str = Field(default="1.36", description="Kubernetes version of control plane and nodes.")
    control_plane: ControlPlane = Field(default_factory=ControlPlane, description="Who reaches its API.")
    admins: list[str] = Field(
        default_factory=list,
        description="ARNs of IAM roles and users that administer the cluster. Not whoever creates it: EKS refuses "
        "a second entry.",
    )
    network: Network = Field(default_factory=Network, description="Its VPC.")
    flow_logs: bool = Field(
        default=False, description="Log all connections of the VPC to CloudWatch, which bills by volume."
    )
    scale_down_unneeded_time: Duration = Field(
        default="1m",
        description="How long the Cluster Autoscaler keeps a node that no pod needs, in pools with `max`. "
        "It is billed for that time. A change updates the autoscaler alone.",
    )
    pools: dict[str, AwsPool] = Field(min_length=1, description="Node pools by name; at least one without GPUs.")

    @property
    def has_registry(self) -> bool:
        return True


class S3Store(StoreSettings):
    """An S3 bucket in the cluster's region, mounted in pods with Amazon S3 Files."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "temporary_days": by_transformation("aws.s3.BucketLifecycleConfiguration", "rules"),
        "cache_days": by_transformation("aws.s3.FilesSynchronizationConfiguration", "expiration_data_rules"),
        "access_log_days": by_transformation("aws.s3.BucketLifecycleConfiguration", "rules"),
        "mount": Removed("remove it: the bucket is mounted with S3 Files, or write `kind: efs`"),
        "versioning": Removed("remove it: versions are kept, which S3 Files needs, for `old_version_days`"),
    }

    kind: Literal["s3"] = Field(description="`s3`: an S3 bucket.")
    bucket: str | None = Field(
        default=None, description="Bucket name; default: `slipway-<stack>-<account>-<region>`."
    )
    old_version_days: Int = Field(default=30, ge=1, description="Days after which old versions are deleted.")
    kms_key: str | None = Field(
        default=None, description="ARN of the KMS key that encrypts the bucket; default: S3's own keys."
    )
    access_logs: bool = Field(
        default=False, description="Log each access to the bucket, in a bucket of its own that the stack creates."
    )


class ExistingS3Store(StoreSettings):
    """A folder of an S3 bucket that is there already, mounted in pods with Amazon S3 Files. The stack neither
    creates nor deletes the bucket, nor changes its settings: its own roles get rights on the folder."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "cache_days": by_transformation("aws.s3.FilesSynchronizationConfiguration", "expiration_data_rules")
    }

    kind: Literal["existing-s3"] = Field(description="`existing-s3`: an S3 bucket that you have.")
    bucket: str = Field(
        description="Its name, without `s3://`. It is in the stack's account and the cluster's region, and keeps "
        "versions, which S3 Files needs."
    )
    folder: str = Field(
        description="The folder that pods may read and write: `vision/slipway`. The store is `store` in it. Two "
        "stacks need two."
    )
    kms_key: str | None = Field(
        default=None, description="ARN of the KMS key that encrypts the bucket; default: S3's own keys."
    )


class EfsStore(StoreSettings):
    """An EFS file system in the cluster's VPC: plain NFS, without a bucket behind it."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "throughput": by_transformation("aws.efs.FileSystem", "throughput_mode"),
        "infrequent_access_days": by_transformation("aws.efs.FileSystem", "lifecycle_policies"),
    }

    kind: Literal["efs"] = Field(description="`efs`: an Elastic File System.")
    backup: bool = Field(default=False, description="Daily backups, kept for 35 days by AWS Backup.")
    kms_key: str | None = Field(
        default=None, description="ARN of the KMS key that encrypts it; default: AWS's own key for EFS."
    )


STARTER_TEMPLATE = Path(__file__).parent / "data" / "starter.yaml.j2"
STARTER_REGION = "us-east-1"
STARTER_ACCELERATOR = "nvidia-tesla-t4"
STARTER_FAMILY = "m7i"
STARTER_VCPUS = 4
"""What the cluster's own pods leave of fewer is too little for most steps."""
LEAST_ZONES, MOST_ZONES = 2, 3
"""EKS places a control plane in at least two zones, and the VPC is laid out for three."""


@dataclass(frozen=True)
class Choice:
    """An instance type in a region, as Spot or on demand. ``zones`` is empty where those are not recorded."""

    machine: InstanceType
    spot: bool
    zones: Sequence[str]


def starter(wish: Wish) -> Starter | Sequence[Problem]:
    """One cluster in one region, with the smallest instance types on which the steps have room."""
    name = wish.accelerator or (STARTER_ACCELERATOR if wish.gpu_steps else None)
    machines = _starter_machines(name, wish.gpu_steps or wish.cpu_steps) if name else ()
    region = wish.region or _starter_region(machines)
    choice = next(_choices(machines, region), None) if region in regions() else None
    if problems := [*_starter_problems(name, region, choice, wish)]:
        return problems
    zones = _starter_zones(region, choice)
    values = {
        "region": region,
        "zones": zones,
        "cpu": _starter_cpu(wish.cpu_steps),
        "gpu": choice,
        "gpu_zones": [zone for zone in zones if zone in choice.zones] if choice and choice.zones else zones,
    }
    before = (
        f"pulumi config set aws:region {region} -s {{stack}}",
        "pulumi config set --path 'slipway:clusters.main.control_plane.authorized_networks.here' "
        "<your address>/32 -s {stack}",
    )
    return Starter(STARTER_TEMPLATE, values, before, choice is not None)


def _starter_machines(name: str, step: Resources) -> Sequence[InstanceType]:
    """The instance types with the GPU that have room for the step, smallest first; all where none has."""
    machines = sorted(
        (machine for machine in instance_types().values() if machine.accelerator == name),
        key=lambda machine: (machine.gpus, machine.vcpus, machine.memory),
    )
    return [machine for machine in machines if _has_room(machine, step)] or machines


def _has_room(machine: InstanceType, step: Resources) -> bool:
    return has_room(AwsPool(instance_type=machine.name).node(), step, S3Store.sidecar)


def _choices(machines: Sequence[InstanceType], region: str) -> Iterator[Choice]:
    """How these can be bought in the region: as Spot, then on demand."""
    hosts = [zone for zone in regions()[region] if hosts_control_plane(zone)]
    for spot in (True, False):
        for machine in machines:
            known = bool(machine.zones) and records(region)
            offered = machine.spot_zones if spot else machine.zones
            zones = [zone for zone in hosts if zone in offered]
            sold = ("spot" if spot else "on_demand") in machine.sold
            if sold and (zones or not known) and (not machine.open_regions or region in machine.open_regions):
                yield Choice(machine, spot, zones)


def _starter_region(machines: Sequence[InstanceType]) -> str:
    """The first choice where it sells the smallest type as Spot, else the first region that sells any so."""
    for machine in machines:
        for region in (STARTER_REGION, *(name for name in regions() if records(name))):
            if any(choice.spot for choice in _choices([machine], region)):
                return region
    return STARTER_REGION


def _starter_problems(name: str | None, region: str, choice: Choice | None, wish: Wish) -> Iterator[Problem]:
    known = list(
        dict.fromkeys(machine.accelerator for machine in instance_types().values() if machine.accelerator)
    )
    if name and name not in known:
        reason = "no instance type of AWS has it" if name in accelerators() else "no GPU of the catalogue"
        yield Problem("GPU", name, reason, did_you_mean(name, known, f"write {listed(known)}"))
    if region not in regions():
        zone = region_of(region)
        reason = "a zone, and the stack has a region" if zone else "no region with EKS, as of the catalogue"
        fix = f"write `{zone}`" if zone else did_you_mean(region, regions(), f"write `{STARTER_REGION}`")
        yield Problem("REGION", region, reason, fix)
    elif name in known and choice is None:
        step = wish.gpu_steps or wish.cpu_steps
        having = [
            place
            for place in regions()
            if records(place) and next(_choices(_starter_machines(name, step), place), None)
        ]
        others = [other for other in known if next(_choices(_starter_machines(other, step), region), None)]
        yield Problem(
            "GPU",
            wish.accelerator,
            f"AWS sells no `{name}` in `{region}` as Spot or on demand, as of the catalogue",
            f"take a region that has it: {', '.join(having)}"
            f"{f'; or a GPU that is there: {listed(others)}' if others else ''}",
        )


def _starter_zones(region: str, choice: Choice | None) -> Sequence[str]:
    """Zones for the cluster: those that have the GPU, and others where these are too few."""
    hosts = [zone for zone in regions()[region] if hosts_control_plane(zone)]
    offered = choice.zones if choice else ()
    others = [zone for zone in hosts if zone not in offered]
    return sorted([*offered, *others][: max(LEAST_ZONES, min(len(offered), MOST_ZONES))])


def _starter_cpu(step: Resources) -> InstanceType:
    """The smallest type that has room for the step, or else the largest, which the settings then refuse."""
    machines = [machine for name, machine in instance_types().items() if name.partition(".")[0] == STARTER_FAMILY]
    ordered = sorted(
        (machine for machine in machines if machine.vcpus >= STARTER_VCPUS), key=lambda machine: machine.vcpus
    )
    return next((machine for machine in ordered if _has_room(machine, step)), ordered[-1])
