"""The stack's VPC: one subnet per cluster, and one NAT per region so that private nodes can pull images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from slipway.infra.clouds.gcp.catalogue import region_of
from slipway.infra.clouds.gcp.settings import GcpCluster
from slipway.infra.schema.names import spell

# Limits of names: Compute Engine 63 (RFC 1035), GKE clusters and node pools 40, service account ids 6 to 30,
# buckets 3 to 63, Filestore instances 63, key rings 63 with the random end that Pulumi gives them; from the
# ``name`` fields of their REST references, 2026-11-20.
NETWORK_LIMIT = 63
CLUSTER_LIMIT = 40
POOL_LIMIT = 40
SERVICE_ACCOUNT_LIMIT = 30
BUCKET_LIMIT = 63
INSTANCE_LIMIT = 63
KEY_RING_LIMIT = 63 - len("-0123abc")


def resource_name(limit: int, *parts: str) -> str:
    """``slipway-<stack>-<parts>`` in the characters that Google Cloud allows, at most ``limit`` of them.

    Stacks of one project do not meet: the stack's name is part of every name that is unique in a project.
    """
    return spell(limit, pulumi.get_project(), pulumi.get_stack(), *parts)


def pool_name(pool: str) -> str:
    """A node pool's name in its cluster, and so the value of the label ``cloud.google.com/gke-nodepool``."""
    return spell(POOL_LIMIT, pool)


def bucket_name(project: str, chosen: str | None) -> str:
    """The bucket's name: as chosen, or ``<project>-slipway-<stack>``. Bucket names are unique in the world."""
    return chosen or spell(BUCKET_LIMIT, project, pulumi.get_project(), pulumi.get_stack())


SERVICES = (
    "artifactregistry.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "storage.googleapis.com",
)

IMAGE_STREAMING_SERVICE = "containerfilesystem.googleapis.com"
"""What image streaming reads images through.

Source: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming, 2026-11-20.
"""


KEYS_SERVICE = "cloudkms.googleapis.com"

FILESTORE_SERVICE = "file.googleapis.com"


def enable_services(
    project: str, *, image_streaming: bool, keys: bool, filestore: bool = False
) -> Sequence[gcp.projects.Service]:
    """Switches on the APIs. They stay on when the stack is destroyed: others in the project may use them."""
    names = [*SERVICES]
    if image_streaming:
        names.append(IMAGE_STREAMING_SERVICE)
    if keys:
        names.append(KEYS_SERVICE)
    if filestore:
        names.append(FILESTORE_SERVICE)
    return [
        gcp.projects.Service(
            name.partition(".")[0],
            project=project,
            service=name,
            disable_on_destroy=False,
            opts=pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create="20m")),
        )
        for name in names
    ]


PODS_RANGE = "pods"
SERVICES_RANGE = "services"


@dataclass(frozen=True)
class NetworkArgs:
    """``clusters`` by name, each with its address ranges; ``after`` is what has to be there first."""

    project: str
    clusters: Mapping[str, GcpCluster]
    after: Sequence[pulumi.Resource]


class Network(pulumi.ComponentResource):
    """The VPC. ``subnets`` are by cluster, ``nats`` by region."""

    network: gcp.compute.Network
    subnets: Mapping[str, gcp.compute.Subnetwork]
    nats: Mapping[str, gcp.compute.RouterNat]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:gcp:Network", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.network = gcp.compute.Network(
            name,
            name=resource_name(NETWORK_LIMIT),
            project=args.project,
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.after),
        )
        self.subnets = {
            cluster: gcp.compute.Subnetwork(
                f"{name}-{cluster}",
                name=resource_name(NETWORK_LIMIT, cluster),
                project=args.project,
                region=region_of(settings.location),
                network=self.network.id,
                ip_cidr_range=settings.network.nodes_cidr,
                secondary_ip_ranges=[
                    gcp.compute.SubnetworkSecondaryIpRangeArgs(
                        range_name=PODS_RANGE, ip_cidr_range=settings.network.pods_cidr
                    ),
                    gcp.compute.SubnetworkSecondaryIpRangeArgs(
                        range_name=SERVICES_RANGE, ip_cidr_range=settings.network.services_cidr
                    ),
                ],
                private_ip_google_access=True,
                log_config=_flow_logs() if settings.flow_logs else None,
                opts=child,
            )
            for cluster, settings in args.clusters.items()
        }
        self.nats = {
            region: self._nat(name, args.project, region)
            for region in sorted({region_of(settings.location) for settings in args.clusters.values()})
        }
        self.register_outputs({"network": self.network.id})

    def _nat(self, name: str, project: str, region: str) -> gcp.compute.RouterNat:
        router = gcp.compute.Router(
            f"{name}-{region}",
            name=resource_name(NETWORK_LIMIT, region),
            project=project,
            region=region,
            network=self.network.id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return gcp.compute.RouterNat(
            f"{name}-{region}",
            name=resource_name(NETWORK_LIMIT, region),
            project=project,
            region=region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _flow_logs() -> gcp.compute.SubnetworkLogConfigArgs:
    return gcp.compute.SubnetworkLogConfigArgs(
        aggregation_interval="INTERVAL_1_MIN", flow_sampling=0.5, metadata="INCLUDE_ALL_METADATA"
    )
