"""A GKE cluster: its control plane, its node pools in order where it has any, and the provider that reaches it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from slipway.infra.clouds.gcp.identity import Key, workload_pool
from slipway.infra.clouds.gcp.network import CLUSTER_LIMIT, PODS_RANGE, SERVICES_RANGE, pool_name, resource_name
from slipway.infra.clouds.gcp.nodes import CLASS_LABEL
from slipway.infra.clouds.gcp.pools import CLOUD_PLATFORM_SCOPE, class_labels, node_pool
from slipway.infra.clouds.gcp.settings import ControlPlane, GcpCluster
from slipway.infra.objects import cluster_provider, kubeconfig_text
from slipway.infra.schema.quantities import seconds

AUTH_PLUGIN = "gke-gcloud-auth-plugin"

INSTALL_HINT = (
    f"Install {AUTH_PLUGIN}, which kubectl and Pulumi use to sign in to GKE: "
    "https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl#install_plugin"
)


def context_name(project: str, location: str, cluster: str) -> str:
    """The context's name, as ``gcloud container clusters get-credentials`` makes it."""
    return f"gke_{project}_{location}_{cluster}"


def dns_endpoint(cluster: gcp.container.Cluster) -> pulumi.Output[str]:
    """The host name of the cluster's API: unlike the name of a cluster, no two clusters ever have the same."""
    # The link is there to wait for: the endpoints' own settings are known before the cluster has a host name.
    return pulumi.Output.all(
        cluster.self_link, cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint
    ).apply(lambda both: both[1])


def kubeconfig(cluster: gcp.container.Cluster, context: str, use_dns_endpoint: bool) -> pulumi.Output[str]:
    """A kubeconfig as a secret output.

    With the DNS endpoint the server's certificate is signed by a public authority, so it names none of its own.
    """
    if use_dns_endpoint:
        api = dns_endpoint(cluster).apply(lambda host: {"server": f"https://{host}"})
    else:
        api = pulumi.Output.all(cluster.endpoint, cluster.master_auth.cluster_ca_certificate).apply(
            lambda reached: {"server": f"https://{reached[0]}", "certificate-authority-data": reached[1]}
        )
    program = {"command": AUTH_PLUGIN, "installHint": INSTALL_HINT, "provideClusterInfo": True}
    return pulumi.Output.secret(api.apply(lambda reached: kubeconfig_text(context, reached, program)))


@dataclass(frozen=True)
class GkeClusterArgs:
    """``service_account`` is the nodes' e-mail address, ``secrets_key`` the key of Kubernetes Secrets; ``after``
    is what has to be there first. With ``filestore`` its nodes can mount Filestore.
    """

    project: str
    cluster: GcpCluster
    network: gcp.compute.Network
    subnet: gcp.compute.Subnetwork
    service_account: pulumi.Input[str]
    secrets_key: Key | None
    protect: bool
    after: Sequence[pulumi.Resource]
    has_secrets: bool = False
    filestore: bool = False


class GkeCluster(pulumi.ComponentResource):
    """The cluster ``cluster`` (named ``gke_name`` in Google Cloud), its ``pools`` by name and its ``provider``."""

    gke_name: str
    context: str
    cluster: gcp.container.Cluster
    pools: Mapping[str, gcp.container.NodePool]
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider

    def __init__(self, name: str, args: GkeClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:gcp:GkeCluster", name, None, opts)
        self.gke_name = resource_name(CLUSTER_LIMIT, name)
        self.context = context_name(args.project, args.cluster.location, self.gke_name)
        self.cluster = self._control_plane(name, args)
        self.pools = self._pools(name, args)
        self.kubeconfig = kubeconfig(self.cluster, self.context, args.cluster.control_plane.dns_endpoint)
        self.provider = cluster_provider(
            name,
            self.kubeconfig,
            self,
            has_secrets=args.has_secrets,
            # Otherwise another endpoint of the same cluster would replace the provider and all that is on it.
            cluster_identifier=dns_endpoint(self.cluster),
        )
        self.register_outputs({"name": self.cluster.name})

    def _pools(self, name: str, args: GkeClusterArgs) -> Mapping[str, gcp.container.NodePool]:
        """CPU pools first: system pods need a node without the GPU taint, and GKE taints GPU pools only then."""
        pools = {} if args.cluster.autopilot else args.cluster.pools
        made: dict[str, gcp.container.NodePool] = {}
        for pool in sorted(pools, key=lambda other: pools[other].accelerator is not None):
            made[pool] = node_pool(
                f"{name}-{pool}",
                pool_name(pool),
                args.cluster,
                pools[pool],
                gke=self.cluster,
                service_account=args.service_account,
                protect=args.protect,
                parent=self,
                after=[made[other] for other in made if pools[pool].accelerator and not pools[other].accelerator],
            )
        return made

    def _control_plane(self, name: str, args: GkeClusterArgs) -> gcp.container.Cluster:
        cluster = args.cluster
        of_mode = _autopilot(args) if cluster.autopilot else _standard(args)
        return gcp.container.Cluster(
            name,
            name=self.gke_name,
            project=args.project,
            location=cluster.location,
            node_locations=_other_zones(cluster),
            deletion_protection=args.protect,
            resource_labels={},
            release_channel=gcp.container.ClusterReleaseChannelArgs(channel="REGULAR"),
            maintenance_policy=gcp.container.ClusterMaintenancePolicyArgs(
                recurring_window=gcp.container.ClusterMaintenancePolicyRecurringWindowArgs(
                    # Weekends by UTC. GKE wants 48 hours or more in any 32 days.
                    start_time="2026-01-03T02:00:00Z",
                    end_time="2026-01-03T10:00:00Z",
                    recurrence="FREQ=WEEKLY;BYDAY=SA,SU",
                )
            ),
            networking_mode="VPC_NATIVE",
            network=args.network.id,
            subnetwork=args.subnet.id,
            ip_allocation_policy=gcp.container.ClusterIpAllocationPolicyArgs(
                cluster_secondary_range_name=PODS_RANGE, services_secondary_range_name=SERVICES_RANGE
            ),
            datapath_provider="ADVANCED_DATAPATH",
            private_cluster_config=_private_nodes(cluster),
            control_plane_endpoints_config=_endpoints(cluster.control_plane),
            master_authorized_networks_config=_authorized_networks(cluster.control_plane),
            database_encryption=_secrets_encryption(args.secrets_key),
            **of_mode,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=args.protect,
                depends_on=[*args.after, *(args.secrets_key.ready if args.secrets_key else ())],
                ignore_changes=[
                    # Of the default pool, which is gone: GKE then shows another pool's machines in its place, and
                    # on Autopilot some of its own.
                    "initialNodeCount",
                    "nodeConfig",
                    # Cannot change on a cluster, and opening the IP endpoint later is no reason to replace it.
                    "privateClusterConfig.masterIpv4CidrBlock",
                ],
                # The name is taken until the old cluster is gone.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create="90m", update="90m", delete="90m"),
            ),
        )


def _standard(args: GkeClusterArgs) -> dict[str, Any]:
    """The arguments that only a cluster with node pools has."""
    return {
        # A cluster cannot be made without a pool; this one goes as soon as it is there.
        "remove_default_node_pool": True,
        "initial_node_count": 1,
        "node_config": _default_pool_config(args),
        "node_pool_defaults": gcp.container.ClusterNodePoolDefaultsArgs(
            node_config_defaults=gcp.container.ClusterNodePoolDefaultsNodeConfigDefaultsArgs(
                insecure_kubelet_readonly_port_enabled="FALSE"
            )
        ),
        "cluster_autoscaling": gcp.container.ClusterClusterAutoscalingArgs(
            # No pools but the declared ones; and idle GPU nodes go as early as GKE knows how to.
            enabled=False,
            autoscaling_profile="OPTIMIZE_UTILIZATION",
        ),
        "workload_identity_config": gcp.container.ClusterWorkloadIdentityConfigArgs(
            workload_pool=workload_pool(args.project)
        ),
        "addons_config": gcp.container.ClusterAddonsConfigArgs(
            gcs_fuse_csi_driver_config=gcp.container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(enabled=True),
            gcp_filestore_csi_driver_config=_filestore_driver() if args.filestore else None,
        ),
        "logging_config": gcp.container.ClusterLoggingConfigArgs(
            enable_components=["SYSTEM_COMPONENTS", "WORKLOADS"]
        ),
        "monitoring_config": gcp.container.ClusterMonitoringConfigArgs(
            enable_components=["SYSTEM_COMPONENTS", "DCGM"],
            managed_prometheus=gcp.container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
        ),
        "enable_shielded_nodes": True,
    }


def _autopilot(args: GkeClusterArgs) -> dict[str, Any]:
    """The arguments that only a cluster on Autopilot has. Others of `_standard` are on there, and cannot be
    changed.

    The provider refuses ``remove_default_node_pool``, ``enable_shielded_nodes`` and ``enabled`` of
    ``cluster_autoscaling`` beside it (`ConflictsWith` in google-beta/services/container/
    resource_container_cluster.go of terraform-provider-google-beta at commit 93c65b2d60fe, 2026-08-21), and would
    replace the cluster for a ``node_config`` (github.com/pulumi/pulumi-gcp/issues/2247, 2024-07-26).
    """
    return {
        "enable_autopilot": True,
        "cluster_autoscaling": gcp.container.ClusterClusterAutoscalingArgs(
            # The nodes' account is otherwise Compute Engine's default one, which may be gone or do too much.
            auto_provisioning_defaults=gcp.container.ClusterClusterAutoscalingAutoProvisioningDefaultsArgs(
                service_account=args.service_account, oauth_scopes=[CLOUD_PLATFORM_SCOPE]
            )
        ),
    }


def _filestore_driver() -> gcp.container.ClusterAddonsConfigGcpFilestoreCsiDriverConfigArgs:
    return gcp.container.ClusterAddonsConfigGcpFilestoreCsiDriverConfigArgs(enabled=True)


def _other_zones(cluster: GcpCluster) -> list[str] | None:
    """Node zones beside the one of a zonal cluster, which GKE wants left out."""
    if cluster.zones is None:
        return None
    return [zone for zone in cluster.zones if zone != cluster.location] or None


def _default_pool_config(args: GkeClusterArgs) -> gcp.container.ClusterNodeConfigArgs:
    """Small machines under the nodes' service account: many projects have no default one with any rights."""
    return gcp.container.ClusterNodeConfigArgs(
        machine_type="e2-medium",
        disk_type="pd-standard",
        disk_size_gb=30,
        service_account=args.service_account,
        oauth_scopes=[CLOUD_PLATFORM_SCOPE],
        shielded_instance_config=gcp.container.ClusterNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        workload_metadata_config=gcp.container.ClusterNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
    )


def _private_nodes(cluster: GcpCluster) -> gcp.container.ClusterPrivateClusterConfigArgs:
    """Nodes without external addresses. The control plane has an address range only with an IP endpoint."""
    with_ip = bool(cluster.control_plane.authorized_networks)
    return gcp.container.ClusterPrivateClusterConfigArgs(
        enable_private_nodes=True,
        # Without an IP endpoint GKE says True whatever it was told, and anything else would be a change at every
        # refresh (hashicorp/terraform-provider-google#27901, read on 2026-11-20).
        enable_private_endpoint=not with_ip,
        master_ipv4_cidr_block=cluster.network.control_plane_cidr if with_ip else None,
    )


def _endpoints(control_plane: ControlPlane) -> gcp.container.ClusterControlPlaneEndpointsConfigArgs:
    return gcp.container.ClusterControlPlaneEndpointsConfigArgs(
        dns_endpoint_config=gcp.container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
            # "External" is everything outside the VPC; IAM decides who of it gets in.
            allow_external_traffic=control_plane.dns_endpoint
        ),
        ip_endpoints_config=gcp.container.ClusterControlPlaneEndpointsConfigIpEndpointsConfigArgs(
            enabled=bool(control_plane.authorized_networks)
        ),
    )


def _secrets_encryption(key: Key | None) -> gcp.container.ClusterDatabaseEncryptionArgs | None:
    if key is None:
        return None
    return gcp.container.ClusterDatabaseEncryptionArgs(state="ENCRYPTED", key_name=key.name)


def _authorized_networks(
    control_plane: ControlPlane,
) -> gcp.container.ClusterMasterAuthorizedNetworksConfigArgs | None:
    if not control_plane.authorized_networks:
        return None
    return gcp.container.ClusterMasterAuthorizedNetworksConfigArgs(
        cidr_blocks=[
            gcp.container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(display_name=name, cidr_block=block)
            for name, block in control_plane.authorized_networks.items()
        ],
        # Otherwise every virtual machine of every Google Cloud customer could reach it.
        gcp_public_cidrs_access_enabled=False,
    )


# GKE's autoscaler has two profiles and no further setting; a ComputeClass has one. A pool that is declared belongs
# to the class that its label and its taint name, and both are updated in place. Pods of the class select it by its
# label alone: GKE advises against further selectors. Sources, all read on 2026-11-26:
# https://docs.cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes#manual-node-pools,
# https://docs.cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass,
# https://docs.cloud.google.com/kubernetes-engine/docs/how-to/update-existing-nodepools, and GKE's own autoscaler
# (https://github.com/GoogleCloudPlatform/cluster-autoscaler at 7d250507, 21 August 2026), which takes the delay of
# the class that the label of a pool names, from a minute to a day (pkg/computeclass/autoscaling_options.go). There
# a delay of the pool itself comes first, which no Pulumi provider has yet and GKE switches on by cluster version.
def class_spec(name: str, delay: str) -> dict[str, Any]:
    """What the class of the pool ``name`` says: its nodes are that pool's, idle ones go after ``delay``."""
    return {
        "priorities": [{"nodepools": [name]}],
        "nodePoolAutoCreation": {"enabled": False},
        "whenUnsatisfiable": "DoNotScaleUp",
        "autoscalingPolicy": {"consolidationDelayMinutes": seconds(delay) // 60},
    }


def compute_classes(name: str, settings: GcpCluster, cluster: GkeCluster) -> list[pulumi.Resource]:
    """Declares the class of each pool with ``consolidation_delay``. Pods of the pool wait for it."""
    return [
        k8s.apiextensions.CustomResource(
            f"{name}-{key}-compute-class",
            api_version="cloud.google.com/v1",
            kind="ComputeClass",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=class_labels(pool_name(key), pool)[CLASS_LABEL]),
            spec=class_spec(pool_name(key), pool.consolidation_delay),
            opts=pulumi.ResourceOptions(
                parent=cluster, provider=cluster.provider, depends_on=[cluster.pools[key]]
            ),
        )
        for key, pool in settings.pools.items()
        if pool.consolidation_delay
    ]
