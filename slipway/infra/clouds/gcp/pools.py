"""Node pools: from a pool's settings to the arguments of ``gcp.container.NodePool``, key by key."""

import math
from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from slipway.infra.clouds.gcp.catalogue import REGION_ZONES, ephemeral_ssds, machine_type
from slipway.infra.clouds.gcp.nodes import CLASS_LABEL, QUEUED_TAINT
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool
from slipway.infra.platform import Interconnect, Taint
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.taints import CLOUD_EFFECTS, pool_taints

CLOUD_PLATFORM_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""Leaves it to IAM what a node may do; narrower scopes would only hide a missing role."""

NCCL_SOCKETS = {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "1"}
"""What NCCL chooses by itself on Google's interface, which in a pod it does not see: there it would send all that
goes to another node through one connection by one thread.

Source: ``ncclNetSocketGetNsockNthread`` in src/transport/net_socket.cc of NVIDIA/nccl, read in November 2026. It
looks at ``/sys/class/net/<interface>/device/vendor``, and a pod's interface has no device.
"""


def gpus_per_node(pool: GcpPool) -> int:
    """Physical GPUs of a node: as set, or as the machine type brings them; 0 for a CPU pool."""
    if pool.accelerator is None:
        return 0
    machine = machine_type(pool.machine_type)
    return pool.gpus or (machine.gpus if machine else 0)


QUEUED_PROVISIONING = "queued-provisioning.gke.io"
"""The class of ProvisioningRequests that pools with ``queued_provisioning`` answer
(https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest, read in November 2026)."""


def class_labels(name: str, pool: GcpPool) -> dict[str, str]:
    """The label, also the taint, of the pool that GKE calls ``name``: names its class; empty where it has none."""
    return {CLASS_LABEL: f"slipway-{name}"} if pool.consolidation_delay else {}


def taints(name: str, pool: GcpPool) -> list[Taint]:
    """All taints that the pool declares, which GKE calls ``name``."""
    of_class = [Taint(key, value, "NoSchedule") for key, value in class_labels(name, pool).items()]
    return [*pool_taints(pool.taints, gpus=pool.accelerator is not None), *of_class]


def tolerated(name: str, pool: GcpPool) -> list[Taint]:
    """All taints of the pool's nodes, those of GKE's own included."""
    return [*taints(name, pool), *([QUEUED_TAINT] if pool.queued_provisioning else [])]


def interconnect(pool: GcpPool) -> Interconnect | None:
    """What GPU nodes of the pool reach one another by; None for CPU pools."""
    return Interconnect(environment=NCCL_SOCKETS) if pool.accelerator else None


def autoscaling(pool: GcpPool) -> gcp.container.NodePoolAutoscalingArgs | None:
    """The autoscaler's limits, or None for a fixed number of nodes."""
    nodes = pool.nodes
    if not _autoscaling(pool):
        return None
    # ANY takes the zone that has capacity, where BALANCED would wait for it in every zone.
    policy = "ANY" if pool.accelerator or pool.spot else "BALANCED"
    if nodes.total_max is not None:
        return gcp.container.NodePoolAutoscalingArgs(
            total_min_node_count=nodes.total_min or 0,
            total_max_node_count=nodes.total_max,
            location_policy=policy,
        )
    return gcp.container.NodePoolAutoscalingArgs(
        min_node_count=nodes.min or 0, max_node_count=nodes.max, location_policy=policy
    )


def node_config(
    name: str, pool: GcpPool, service_account: pulumi.Input[str]
) -> gcp.container.NodePoolNodeConfigArgs:
    """The machines of the pool ``name``."""
    return gcp.container.NodePoolNodeConfigArgs(
        machine_type=pool.machine_type,
        guest_accelerators=_guest_accelerators(pool),
        spot=pool.spot,
        preemptible=False,
        flex_start=pool.flex_start or None,
        max_run_duration=f"{seconds(pool.max_run_duration)}s" if pool.max_run_duration else None,
        reservation_affinity=_reservation_affinity(pool),
        disk_type=pool.disk_type,
        disk_size_gb=pool.disk_size_gb,
        ephemeral_storage_local_ssd_config=_ephemeral_ssds(pool),
        image_type="COS_CONTAINERD",
        gcfs_config=gcp.container.NodePoolNodeConfigGcfsConfigArgs(enabled=pool.image_streaming),
        gvnic=gcp.container.NodePoolNodeConfigGvnicArgs(enabled=pool.gvnic),
        logging_variant="DEFAULT",
        labels={**pool.labels, **class_labels(name, pool)},
        resource_labels=pool.resource_labels,
        taints=[
            gcp.container.NodePoolNodeConfigTaintArgs(
                key=taint.key, value=taint.value, effect=CLOUD_EFFECTS[taint.effect]
            )
            for taint in taints(name, pool)
        ],
        service_account=service_account,
        oauth_scopes=[CLOUD_PLATFORM_SCOPE],
        workload_metadata_config=gcp.container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        kubelet_config=gcp.container.NodePoolNodeConfigKubeletConfigArgs(
            insecure_kubelet_readonly_port_enabled="FALSE"
        ),
        shielded_instance_config=gcp.container.NodePoolNodeConfigShieldedInstanceConfigArgs(
            enable_integrity_monitoring=True,
            # Secure Boot refuses the kernel modules of a GPU driver that is not signed.
            enable_secure_boot=pool.accelerator is None,
        ),
    )


def node_pool(
    logical_name: str,
    name: str,
    cluster: GcpCluster,
    pool: GcpPool,
    *,
    gke: gcp.container.Cluster,
    service_account: pulumi.Input[str],
    protect: bool,
    parent: pulumi.Resource,
    after: Sequence[pulumi.Resource],
) -> gcp.container.NodePool:
    """Declares the pool ``name`` of a cluster. ``after`` is what has to be there first."""
    scaled = autoscaling(pool)
    return gcp.container.NodePool(
        logical_name,
        name=name,
        cluster=gke.id,
        location=cluster.location,
        node_locations=cluster.zones_of(pool),
        initial_node_count=_initial_count(cluster, pool) if scaled else None,
        node_count=None if scaled else _fixed_count(pool),
        autoscaling=scaled,
        queued_provisioning=(
            gcp.container.NodePoolQueuedProvisioningArgs(enabled=True) if pool.queued_provisioning else None
        ),
        max_pods_per_node=pool.max_pods_per_node,
        network_config=gcp.container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
        placement_policy=(
            gcp.container.NodePoolPlacementPolicyArgs(type="COMPACT") if pool.placement == "compact" else None
        ),
        management=gcp.container.NodePoolManagementArgs(
            # GKE refuses automatic repair on flex-start nodes: a repaired node would have to queue again.
            auto_repair=not pool.flex_start,
            auto_upgrade=True,
        ),
        upgrade_settings=_upgrade_settings(pool),
        node_config=node_config(name, pool, service_account),
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=after,
            protect=protect,
            # What the autoscaler does to a pool is no drift, and a changed initial count would replace the pool.
            ignore_changes=["initialNodeCount", "nodeCount"] if scaled else ["initialNodeCount"],
            # A pool's name is taken until the old one is gone, and so are its GPUs.
            delete_before_replace=True,
            # A pool that finds no capacity would keep `up` waiting for the provider's two hours.
            custom_timeouts=pulumi.CustomTimeouts(create="45m", update="2h", delete="1h"),
        ),
    )


def _guest_accelerators(pool: GcpPool) -> list[gcp.container.NodePoolNodeConfigGuestAcceleratorArgs] | None:
    if pool.accelerator is None:
        return None
    sharing = pool.gpu_sharing
    return [
        gcp.container.NodePoolNodeConfigGuestAcceleratorArgs(
            type=pool.accelerator,
            count=gpus_per_node(pool),
            # Always said: what GKE does when it is left out has changed between versions.
            gpu_driver_installation_config=(
                gcp.container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs(
                    gpu_driver_version="LATEST"
                )
            ),
            gpu_partition_size=pool.gpu_partition,
            gpu_sharing_config=(
                gcp.container.NodePoolNodeConfigGuestAcceleratorGpuSharingConfigArgs(
                    gpu_sharing_strategy=sharing.strategy, max_shared_clients_per_gpu=sharing.clients
                )
                if sharing
                else None
            ),
        )
    ]


def _reservation_affinity(pool: GcpPool) -> gcp.container.NodePoolNodeConfigReservationAffinityArgs | None:
    if pool.reservation:
        return gcp.container.NodePoolNodeConfigReservationAffinityArgs(
            consume_reservation_type="SPECIFIC_RESERVATION",
            key="compute.googleapis.com/reservation-name",
            values=[pool.reservation],
        )
    if pool.flex_start:
        return gcp.container.NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return None


def _ephemeral_ssds(pool: GcpPool) -> gcp.container.NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs | None:
    # Bundled ones too: undeclared, the next refresh would see a change that replaces the pool.
    count = ephemeral_ssds(pool.node_shape)
    if not count:
        return None
    return gcp.container.NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs(local_ssd_count=count)


def _upgrade_settings(pool: GcpPool) -> gcp.container.NodePoolUpgradeSettingsArgs | None:
    if pool.flex_start:
        # GKE has its own strategy for short-lived nodes and takes no other.
        return None
    if pool.accelerator:
        # A surge would need a spare GPU, which quota or stock rarely has; then no upgrade would ever start.
        return gcp.container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=0, max_unavailable=1)
    return gcp.container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=1, max_unavailable=0)


def _autoscaling(pool: GcpPool) -> bool:
    return pool.nodes.total_max is not None or pool.nodes.max is not None


def _fixed_count(pool: GcpPool) -> int:
    return 1 if pool.nodes.count is None else pool.nodes.count


def _initial_count(cluster: GcpCluster, pool: GcpPool) -> int:
    """Nodes per zone that the pool starts with: at least its minimum, as far as its maximum allows.

    The autoscaler does not bring a pool up to its minimum: it waits until a pod needs a node. And GKE's own pods
    need one at all times, so a CPU pool begins with its minimum, rounded up to the zones; a GPU pool takes no such
    spare. Source: https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler ("waits to take
    effect until a new node is needed", "one or more nodes must always be available in the cluster to run system
    Pods"), as quoted in public repositories in 2026.
    """
    nodes = pool.nodes
    if not nodes.total_min:
        return nodes.min or 0
    spread = len(cluster.zones_of(pool) or range(REGION_ZONES))
    enough = math.ceil(nodes.total_min / spread)
    if pool.accelerator is None and enough * spread <= (nodes.total_max or 0):
        return enough
    return nodes.total_min // spread
