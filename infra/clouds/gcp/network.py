"""The stack's VPC: one subnet per cluster, and one NAT per region so that private nodes can pull images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.catalogue import region_of
from infra.clouds.gcp.names import NETWORK_LIMIT, resource_name
from infra.clouds.gcp.settings import GcpCluster

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
