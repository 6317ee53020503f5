"""What a stack file says of clusters, node pools and the bucket on Google Cloud; and what a new one has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from slipway.infra.accelerators import accelerators
from slipway.infra.clouds.gcp.autopilot import GENERAL_PURPOSE, MOST_PODS, Way, most
from slipway.infra.clouds.gcp.catalogue import (
    REGION_ZONES,
    NodeShape,
    Offer,
    allocatable,
    is_zone,
    machine_type,
    machine_types,
    machines_by_size,
    offers,
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
    Size,
    StoreSettings,
    TaintSettings,
    refuse,
)
from slipway.infra.schema.ingress import ReachableCluster
from slipway.infra.schema.problems import Problem, did_you_mean, listed
from slipway.infra.schema.renamed import Removed, by_transformation
from slipway.infra.schema.request import Starter, Wish, has_room

GCS_FUSE_SIDECAR = Resources(cpu=250, memory=512, ephemeral_storage=5 * 1024)
"""What the Cloud Storage FUSE sidecar asks for beside a pod's own containers.

The driver's defaults (flags of cmd/webhook/main.go in GoogleCloudPlatform/gcs-fuse-csi-driver, read on 2026-11-20)
but twice its memory: gcsfuse holds about 100 MiB for each file that is being written (docs/semantics.md in
GoogleCloudPlatform/gcsfuse, "Writes", read on 2026-11-20).
"""

GCS_FUSE_INPUT = Resources(cpu=0, memory=256)
"""What each further bucket that a pod reads adds to that: a process of its own, which writes nothing.

It is Google's default for all that a pod mounts.
"""


CLASS_KEYS = ("accelerator", "gpus", "compute_class", "machine_family")
"""Keys of a pool on Autopilot that decide how much a pod may ask for."""


def _own(value: str | None) -> str | None:
    if value in (None, "own"):
        return value
    arguments = "encryption` or `database_encryption"
    raise refuse(
        "a key of yours", by_transformation("gcp.storage.Bucket or gcp.container.Cluster", arguments).instead
    )


OwnKey = Annotated[str | None, AfterValidator(_own)]
"""`own`: a key that the stack creates."""


class Nodes(Model):
    """How many nodes a pool has. Either a fixed ``count``, or limits for the autoscaler.

    ``min``/``max`` count per zone; ``total_min``/``total_max`` over all zones of the pool. The two pairs exclude
    each other, as in GKE's API.
    """

    removed: ClassVar[Mapping[str, Removed]] = {
        "location_policy": by_transformation("gcp.container.NodePool", "autoscaling.location_policy")
    }

    count: Int | None = Field(default=None, ge=0, le=1000, description="Fixed number of nodes per zone.")
    min: Int | None = Field(default=None, ge=0, description="Fewest nodes per zone.")
    max: Int | None = Field(default=None, ge=0, le=1000, description="Most nodes per zone.")
    total_min: Int | None = Field(default=None, ge=0, description="Fewest nodes over all zones.")
    total_max: Int | None = Field(default=None, ge=0, le=1000, description="Most nodes over all zones.")


class GpuSharing(Model):
    """Several pods on one GPU, by time-slicing or MPS."""

    strategy: Literal["TIME_SHARING", "MPS"] = Field(
        default="TIME_SHARING", description="Take turns on the GPU, or run side by side through NVIDIA MPS."
    )
    clients: Int = Field(ge=2, le=48, description="Most pods that share one GPU.")


class GcpPool(PoolSettings):
    """A GKE node pool; on Autopilot, a way in which pods ask for nodes, which has few of the keys."""

    other_names: ClassVar[Mapping[str, str]] = {
        "instance_type": "machine_type",
        "capacity_reservation": "reservation",
        "tags": "resource_labels",
    }
    removed: ClassVar[Mapping[str, Removed]] = {
        key: by_transformation("gcp.container.NodePool", argument)
        for key, argument in (
            ("logging_variant", "node_config.logging_variant"),
            ("auto_repair", "management.auto_repair"),
            ("auto_upgrade", "management.auto_upgrade"),
            ("hold_upgrades", "maintenance_policies"),
            ("gpu_driver", "node_config.guest_accelerators[0].gpu_driver_installation_config"),
            ("image_type", "node_config.image_type"),
            ("local_ssd_block_count", "node_config.local_nvme_ssd_block_config"),
            ("service_account", "node_config.service_account"),
        )
    } | {
        "preemptible": Removed("remove it, or write `spot: true`: the newer form, which has no limit of 24 hours")
    }

    node_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "cpu": ("machine_type", "max_pods_per_node", *CLASS_KEYS),
        "memory": ("machine_type", *CLASS_KEYS),
        "ephemeral_storage": (
            "machine_type",
            "disk_size_gb",
            "local_ssd_count",
            *CLASS_KEYS,
        ),
        "gpus": ("machine_type", "accelerator", "gpus", "gpu_sharing", "gpu_partition"),
    }

    machine_type: str = Field(
        default="",
        description="Compute Engine machine type, for example `n1-standard-4`. Required, but not on Autopilot.",
    )
    compute_class: Literal["Balanced", "Scale-Out", "Performance"] | None = Field(
        default=None,
        description="Compute class of the pods, only on Autopilot; default: the general-purpose one, or that of "
        "the `accelerator`.",
    )
    machine_family: str | None = Field(
        default=None,
        description="Machine family of pods with `compute_class: Performance`, for example `n2`.",
    )
    most_pods: Int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Pods of the largest size at once, only on Autopilot: the namespace's quota. Default: 10, or "
        "1 with an `accelerator`.",
    )
    accelerator: str | None = Field(
        default=None, description="GKE accelerator type, for example `nvidia-tesla-t4`; none for a CPU pool."
    )
    gpus: Int | None = Field(
        default=None, ge=1, description="GPUs per node. Optional where the machine type comes with a fixed number."
    )
    gpu_sharing: GpuSharing | None = Field(default=None, description="Share each GPU between pods.")
    gpu_partition: str | None = Field(
        default=None,
        description="MIG partition size, for example `1g.10gb`, where the GPU has MIG (A100 and newer).",
    )
    nodes: Nodes = Field(default_factory=Nodes, description="How many nodes; default: one, fixed.")
    zones: list[str] | None = Field(default=None, description="Zones of the pool; default: the cluster's.")
    spot: bool = Field(default=False, description="Spot VMs: cheap, may be taken back at any time.")
    reservation: str | None = Field(
        default=None,
        description="Name of a Compute Engine reservation to consume. A reservation is in one zone: name it under "
        "`zones`.",
    )
    flex_start: bool = Field(default=False, description="Dynamic Workload Scheduler flex-start: queued capacity.")
    queued_provisioning: bool = Field(
        default=False,
        description="All nodes of a Job come together, or none does. With `flex_start` and `slipway:kueue`; pods "
        "of no queue get none. Changed, it replaces the pool.",
    )
    max_run_duration: Duration | None = Field(default=None, description="Nodes are deleted after this time.")
    disk_type: Literal["pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"] = Field(
        default="pd-balanced", description="Boot disk type; which ones there are depends on the machine type."
    )
    disk_size_gb: Int = Field(default=100, ge=10, le=65536, description="Boot disk size in GB.")
    local_ssd_count: Int = Field(
        default=0, ge=0, le=32, description="Local NVMe SSDs (375 GB each) for ephemeral storage."
    )
    image_streaming: bool = Field(
        default=True,
        description="Start containers before their whole image is there: of images in Artifact Registry, and of "
        "public ones of Docker Hub.",
    )
    gvnic: bool = Field(default=True, description="Google's virtual network interface.")
    placement: Literal["compact"] | None = Field(
        default=None,
        description="`compact`: nodes close together, for steps on several. One zone; not on N1, E2 and N4. "
        "Changed, it replaces the pool.",
    )
    max_pods_per_node: Int = Field(
        default=64,
        ge=8,
        le=256,
        description="Each node takes twice as many pod addresses, rounded up.",
    )
    consolidation_delay: Duration | None = Field(
        default=None,
        description="How long GKE keeps a node that no pod needs, and bills it: whole minutes, `1m` or more. "
        "Default: as its profile `OPTIMIZE_UTILIZATION` has it, of which Google publishes no number. Gives the "
        "pool a ComputeClass, with a label and a taint: its Jobs run again, and teams update their stacks.",
    )
    labels: Labels = Field(default_factory=dict, description="Kubernetes labels of the nodes.")
    resource_labels: Labels = Field(
        default_factory=dict, description="Google Cloud labels of the VMs, for billing."
    )
    taints: list[TaintSettings] = Field(
        default_factory=list,
        description="Taints beside `nvidia.com/gpu=present:NoSchedule`, which every GPU pool has.",
    )

    def node(self) -> Resources | None:
        """What one node leaves to pods; None where the catalogue does not have its machine type."""
        if machine_type(self.machine_type) is None:
            return None
        try:
            return allocatable(self.node_shape)
        except ValueError:
            # A partition that the catalogue does not have: reported on the pool, and the rest is still right.
            return replace(allocatable(replace(self.node_shape, gpu_partition=None)), gpus=0)

    @property
    def node_shape(self) -> NodeShape:
        """What decides how much one of its nodes leaves to pods."""
        return NodeShape(
            machine_type=self.machine_type,
            disk_size_gb=self.disk_size_gb,
            max_pods=self.max_pods_per_node,
            local_ssd_count=self.local_ssd_count,
            accelerator=self.accelerator,
            gpus=self.gpus,
            gpu_partition=self.gpu_partition,
            gpu_clients=self.gpu_sharing.clients if self.gpu_sharing else 1,
        )

    @property
    def sale(self) -> Sale:
        """How its nodes are bought."""
        if self.spot:
            return "spot"
        return "queued" if self.flex_start else "on-demand"

    @property
    def way(self) -> Way:
        """How pods ask for its nodes on Autopilot."""
        return Way(
            compute_class=self.compute_class or GENERAL_PURPOSE,
            spot=self.spot,
            machine_family=self.machine_family,
            accelerator=self.accelerator,
            gpus=(self.gpus or 1) if self.accelerator else 0,
            driver="latest",
        )

    @property
    def shares_gpus(self) -> bool:
        """Whether it slices or partitions its GPUs."""
        return self.gpu_sharing is not None or self.gpu_partition is not None

    @property
    def pods_at_once(self) -> int:
        """On Autopilot: how many pods of the largest size there may be."""
        return self.most_pods or (1 if self.accelerator else MOST_PODS)

    @property
    def most_nodes(self) -> int | None:
        """The fixed number of nodes per zone, where it has one."""
        return self.nodes.count


class ControlPlane(Model):
    """From where the cluster's API can be reached, and the key of its Secrets."""

    dns_endpoint: bool = Field(
        default=True, description="The DNS-based endpoint, guarded by IAM; needs no network to be opened."
    )
    authorized_networks: dict[str, Cidr] = Field(
        default_factory=dict, description="Name to CIDR block of each network that may reach the IP endpoint."
    )
    secrets_key: OwnKey = Field(
        default=None,
        description="Encrypt Kubernetes Secrets with a Cloud KMS key that the stack creates. GKE writes every "
        "Secret again in place. Removed, it keeps the old key.",
    )


class Network(Model):
    """Address ranges of a cluster's subnet; clusters of one stack may not overlap."""

    nodes_cidr: Cidr = Field(default="10.0.0.0/20", description="Addresses of the nodes.")
    pods_cidr: Cidr = Field(default="10.4.0.0/14", description="Addresses of the pods.")
    services_cidr: Cidr = Field(default="10.8.0.0/20", description="Addresses of the Services.")
    control_plane_cidr: Cidr = Field(default="172.16.0.0/28", description="A /28 for the control plane.")


class GcpCluster(ReachableCluster, CreatedCluster):
    """A GKE cluster with a network of its own."""

    other_names: ClassVar[Mapping[str, str]] = {"region": "location", "zone": "location"}
    removed: ClassVar[Mapping[str, Removed]] = {
        "maintenance": by_transformation("gcp.container.Cluster", "maintenance_policy"),
        "release_channel": by_transformation("gcp.container.Cluster", "release_channel"),
        "labels": by_transformation("gcp.container.Cluster", "resource_labels"),
    }

    collects_metrics: ClassVar[bool] = True

    cloud: Literal["gcp"] = Field(description="`gcp`: a cluster that Slipway creates on GKE.")
    mode: Literal["standard", "autopilot"] = Field(
        default="standard",
        description="`autopilot`: Google brings nodes as pods ask for them, and bills pods. `pools` are then ways "
        "to ask: compute classes, Spot, GPUs. A cluster cannot change its mode.",
    )
    location: str = Field(
        description="Region of a regional cluster, zone of a zonal one: `us-central1`, `us-central1-a`."
    )
    zones: list[str] | None = Field(
        default=None, description="Node zones; default: GKE's choice for the location."
    )
    control_plane: ControlPlane = Field(default_factory=ControlPlane, description="Who reaches its API.")
    network: Network = Field(default_factory=Network, description="Its address ranges.")
    flow_logs: bool = Field(
        default=False,
        description="Log half of the subnet's connections, once a minute each, to Cloud Logging, which bills by "
        "volume.",
    )
    pools: dict[str, GcpPool] = Field(min_length=1, description="Node pools by name; at least one without GPUs.")

    @property
    def has_registry(self) -> bool:
        return True

    @property
    def builds_problem(self) -> str | None:
        """Autopilot refuses what breaks the *baseline* Pod Security Standard
        (cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security, seen November 2026)."""
        return "Autopilot takes no pod without a seccomp profile, as BuildKit's is" if self.autopilot else None

    @property
    def autopilot(self) -> bool:
        """Whether Google brings its nodes."""
        return self.mode == "autopilot"

    def node_of(self, pool: PoolSettings) -> Resources | None:
        """What one node of ``pool`` leaves to pods, on Autopilot what one pod may ask for; None if not known."""
        if not self.autopilot or not isinstance(pool, GcpPool):
            return pool.node()
        return most(pool.way)

    def most_nodes_of(self, pool: PoolSettings) -> int | None:
        """The most nodes of ``pool`` over all its zones; on Autopilot, which brings one for each, its pods."""
        if not isinstance(pool, GcpPool):
            return pool.most_nodes
        if self.autopilot:
            return pool.pods_at_once
        if pool.nodes.total_max is not None:
            return pool.nodes.total_max
        in_each = next(number for number in (pool.nodes.max, pool.nodes.count, 1) if number is not None)
        return in_each * len(self.zones_of(pool) or range(REGION_ZONES))

    def nodes_key_of(self, pool: PoolSettings) -> str:  # noqa: ARG002
        """The key of a pool that says how many nodes it has."""
        return "most_pods" if self.autopilot else "nodes"

    def zones_of(self, pool: GcpPool) -> list[str] | None:
        """The zones of ``pool``, one of its own, or None where they are GKE's choice.

        GKE would choose for a GPU pool without asking where its accelerator is offered.
        """
        zones = [self.location] if is_zone(self.location) else []
        if pool.zones or self.zones:
            return pool.zones or sorted({*(self.zones or []), *zones})
        if zones:
            return zones
        offer = offers().get(pool.accelerator or "")
        offered = list(offer.zones_in(self.location)) if offer else []
        # With limits per zone, more zones than GKE would choose would be more nodes than anyone counted on.
        return (offered if pool.nodes.total_max is not None else offered[:REGION_ZONES]) or None


class Impersonation(Model):
    """The older way to give pods an identity: they impersonate a Google service account."""

    projects: list[str] = Field(
        default_factory=list, description="Other projects whose clusters' pods may use the same account."
    )


class GcsStore(StoreSettings):
    """A Cloud Storage bucket, mounted in pods with Cloud Storage FUSE."""

    other_names: ClassVar[Mapping[str, str]] = {"region": "location"}

    sidecar: ClassVar[Resources] = GCS_FUSE_SIDECAR
    beside: ClassVar[Resources] = GCS_FUSE_INPUT

    removed: ClassVar[Mapping[str, Removed]] = {
        "temporary_days": by_transformation("gcp.storage.Bucket", "lifecycle_rules")
    }

    kind: Literal["gcs"] = Field(description="`gcs`: a Cloud Storage bucket.")
    bucket: str | None = Field(default=None, description="Bucket name; default: `<project>-slipway-<stack>`.")
    location: str = Field(description="Region of the bucket; best that of the train pool.")
    versioning: bool = Field(default=False, description="Keep overwritten and deleted objects as old versions.")
    soft_delete_days: Int = Field(
        default=7, ge=0, le=90, description="Days a deleted object can be restored; 0 off."
    )
    old_version_days: Int = Field(default=30, ge=1, description="Days after which old versions are deleted.")
    kms_key: OwnKey = Field(
        default=None,
        description="Encrypt new objects with a Cloud KMS key that the stack creates. Default: Google's own keys.",
    )
    access_logs: bool = Field(
        default=False,
        description="Data Access audit logs of who reads and writes objects: switched on for Cloud Storage in the "
        "whole project, in place of what was set there; billed by volume; and left on when the stack "
        "is destroyed.",
    )
    impersonation: Impersonation | None = Field(
        default=None,
        description="Use service account impersonation instead of a direct workload identity binding.",
    )


class ExistingGcsStore(StoreSettings):
    """A folder of a Cloud Storage bucket that is there already, in any project, mounted in pods with Cloud Storage
    FUSE. The stack neither creates nor deletes the bucket, nor changes its settings: it adds grants of its own."""

    sidecar: ClassVar[Resources] = GCS_FUSE_SIDECAR
    beside: ClassVar[Resources] = GCS_FUSE_INPUT

    kind: Literal["existing-gcs"] = Field(description="`existing-gcs`: a Cloud Storage bucket that you have.")
    bucket: str = Field(description="Its name, without `gs://`. It may be another project's.")
    folder: str = Field(
        description="The folder that is the store, which pods may read and write: `vision/slipway`. Two stacks "
        "need two. `/` is the whole bucket."
    )
    impersonation: Impersonation | None = Field(
        default=None,
        description="Use service account impersonation instead of a direct workload identity binding.",
    )

    @property
    def root(self) -> str:
        """The folder, without slashes at its ends; empty for the whole bucket."""
        return self.folder.strip("/")


class FilestoreStore(StoreSettings):
    """A Filestore instance: an NFS server in the stack's network, which many nodes mount at once."""

    other_names: ClassVar[Mapping[str, str]] = {"region": "location", "zone": "location", "capacity": "size"}

    kind: Literal["filestore"] = Field(description="`filestore`: a Filestore instance.")
    tier: Literal["BASIC_HDD", "BASIC_SSD", "ZONAL", "REGIONAL", "ENTERPRISE"] = Field(
        default="BASIC_HDD",
        description="Service tier, as Google's API names it. It decides size, speed and price.",
    )
    location: str = Field(
        description="Its zone: `us-central1-a`; for the tiers REGIONAL and ENTERPRISE its region: `us-central1`."
    )
    size: Size = Field(
        default="1Ti",
        description="Capacity, which is billed whether it is used or not. Basic tiers can grow and never shrink.",
    )


STARTER_TEMPLATE = Path(__file__).parent / "data" / "starter.yaml.j2"
STARTER_REGION = "us-central1"
STARTER_ACCELERATOR = "nvidia-tesla-t4"
CPU_FAMILY, GPU_FAMILY = "e2", "n1"
"""Machine types of the pool without GPUs, and those that GPUs are attached to."""
STARTER_VCPUS = 4
"""What GKE's own pods leave of fewer is too little for most steps."""
STARTER_ZONES = 3


def starter(wish: Wish) -> Starter | Sequence[Problem]:
    """One cluster in one region, with the smallest machine types on which the steps have room."""
    name = wish.accelerator or (STARTER_ACCELERATOR if wish.gpu_steps else None)
    offer = offers().get(name or "", Offer())
    region = wish.region or _starter_region(offer)
    if problems := [*_starter_problems(name, offer, region, wish)]:
        return problems
    cpu = _smallest(_cpu_pools(), wish.cpu_steps)
    gpu = _smallest(_gpu_pools(name, offer), wish.gpu_steps or wish.cpu_steps) if name else None
    zones, gpu_zones = _starter_zones(region, offer)
    values = {
        "region": region,
        "zones": zones,
        "cpu": cpu,
        "gpu": gpu,
        "gpu_zones": gpu_zones,
        "machine": machine_types()[gpu.machine_type] if gpu else None,
    }
    return Starter(
        STARTER_TEMPLATE, values, ("pulumi config set gcp:project <your project> -s {stack}",), gpu is not None
    )


def _starter_region(offer: Offer) -> str:
    """The first choice where it has the GPU, else the first region that has it."""
    return STARTER_REGION if not offer.zones or offer.zones_in(STARTER_REGION) else region_of(min(offer.zones))


def _starter_problems(name: str | None, offer: Offer, region: str, wish: Wish) -> Iterator[Problem]:
    if name and name not in offers():
        reason = "Google Cloud does not offer it" if name in accelerators() else "no GPU of the catalogue"
        fix = did_you_mean(name, offers(), f"write {listed(offers())}")
        yield Problem("GPU", name, reason, fix)
    if region not in regions():
        zone = is_zone(region) and region_of(region) in regions()
        reason = (
            "a zone, and the stack has a region" if zone else "no region of Google Cloud's, as of the catalogue"
        )
        fix = (
            f"write `{region_of(region)}`"
            if zone
            else did_you_mean(region, regions(), f"write `{STARTER_REGION}`")
        )
        yield Problem("REGION", region, reason, fix)
    elif name and offer.zones and not offer.zones_in(region):
        others = [other for other, other_offer in offers().items() if other_offer.zones_in(region)]
        having = ", ".join(sorted({region_of(zone) for zone in offer.zones}))
        yield Problem(
            "GPU",
            wish.accelerator,
            f"`{name}` is not offered in `{region}`, as of the catalogue",
            f"take a region that has it: {having}"
            + (f"; or a GPU that is there: {listed(others)}" if others else ""),
        )


def _starter_zones(region: str, offer: Offer) -> tuple[Sequence[str], Sequence[str]]:
    """The zones of the cluster, and those of its pool with GPUs where these are not all; those with GPUs first."""
    offered = offer.zones_in(region)
    others = [zone for zone in regions()[region] if zone not in offered and len(zone.rpartition("-")[2]) == 1]
    zones = [*offered, *others][:STARTER_ZONES]
    having = [zone for zone in zones if zone in offered]
    return zones, having if len(having) < len(zones) else ()


def _cpu_pools() -> Iterator[GcpPool]:
    for machine in machines_by_size(CPU_FAMILY, STARTER_VCPUS):
        yield GcpPool(machine_type=machine.name)


def _gpu_pools(name: str, offer: Offer) -> Iterator[GcpPool]:
    if not offer.attach:
        for machine in sorted(machine_types().values(), key=lambda machine_: (machine_.gpus, machine_.vcpus)):
            if machine.accelerator == name and "spot" in machine.sold:
                yield GcpPool(machine_type=machine.name, accelerator=name, gpus=machine.gpus, spot=True)
    for count, limit in sorted(offer.attach.items()):
        for machine in machines_by_size(GPU_FAMILY, STARTER_VCPUS):
            if machine.vcpus <= limit.vcpus and machine.memory <= limit.gib * 1024:
                yield GcpPool(machine_type=machine.name, accelerator=name, gpus=count, spot=True)


def _smallest(pools: Iterable[GcpPool], step: Resources) -> GcpPool:
    """The first pool that has room for the step, or else the largest, which the settings then refuse."""
    choices = list(pools)
    return next((pool for pool in choices if has_room(pool.node(), step, GCS_FUSE_SIDECAR)), choices[-1])
