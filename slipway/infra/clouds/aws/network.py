"""A cluster's VPC: public subnets for the ways out, private ones for nodes, pods and the store's mount targets."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pulumi
import pulumi_aws as aws

from slipway.infra.clouds.aws.bucket import no_public_access, tls_only
from slipway.infra.clouds.aws.catalogue import is_zone_id
from slipway.infra.clouds.aws.roles import (
    RoleArgs,
    allow,
    document,
    log_bucket_name,
    named,
    resource_name,
    role,
    trust,
)
from slipway.infra.clouds.aws.settings import AwsCluster

ANYWHERE = "0.0.0.0/0"
"""Where NAT and Internet gateways lead. Nothing here is opened to it from outside."""

NAME_LIMIT = 255
"""Of a tag's value."""

LOG_DAYS = 30
"""Days after which CloudWatch deletes logs, and S3 those of accesses."""

LOAD_BALANCERS = {"public": "kubernetes.io/role/elb", "private": "kubernetes.io/role/internal-elb"}
"""The tags by which load balancer controllers find the subnets of each kind.

Source: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, 2026-11-20.
"""


@dataclass(frozen=True)
class NetworkArgs:
    """``cluster`` says region, zones and address ranges; ``cluster_name`` is the EKS cluster's."""

    cluster: AwsCluster
    cluster_name: str


@dataclass(frozen=True)
class Blocks:
    """The address blocks of a VPC's subnets, in the order of its zones."""

    private: Sequence[str]
    public: Sequence[str]


def _named(*parts: str) -> dict[str, str]:
    return named(resource_name(NAME_LIMIT, *parts))


class Network(pulumi.ComponentResource):
    """The VPC. Subnets are by zone; ``ready`` is what a node needs to reach anything outside."""

    vpc: aws.ec2.Vpc
    private: Mapping[str, aws.ec2.Subnet]
    public: Mapping[str, aws.ec2.Subnet]
    nats: Mapping[str, aws.ec2.NatGateway]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:aws:Network", name, None, opts)
        cluster = args.cluster
        self._name = name
        self._region = cluster.region
        self._child = pulumi.ResourceOptions(parent=self)
        self.vpc = aws.ec2.Vpc(
            name,
            region=cluster.region,
            cidr_block=cluster.network.vpc_cidr,
            # Both for the names of the cluster's private endpoint and of mount targets.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=_named(),
            opts=self._child,
        )
        aws.ec2.DefaultSecurityGroup(
            name,
            region=cluster.region,
            vpc_id=self.vpc.id,
            # No rules: what names no group of its own reaches nothing.
            ingress=[],
            egress=[],
            tags=_named("default"),
            opts=self._child,
        )
        blocks = subnet_blocks(cluster.network.vpc_cidr, len(cluster.zones))
        self.private = self._subnets("private", cluster.zones, blocks.private, args.cluster_name)
        self.public = self._subnets("public", cluster.zones, blocks.public, args.cluster_name)
        out = self._way_out()
        self.nats = self._nats(cluster.zones if cluster.network.nat == "per-zone" else cluster.zones[:1], out)
        tables, routes = self._private_routes(cluster.zones)
        endpoint = aws.ec2.VpcEndpoint(
            f"{name}-s3",
            region=cluster.region,
            vpc_id=self.vpc.id,
            # Free, unlike the same bytes through a NAT gateway: images of ECR and whatever reads the bucket.
            service_name=f"com.amazonaws.{cluster.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables],
            tags=_named("s3"),
            opts=self._child,
        )
        self.ready = [*out, *routes, endpoint]
        self.register_outputs({"vpc": self.vpc.id})

    def _subnets(
        self, kind: str, zones: Sequence[str], blocks: Sequence[str], cluster_name: str
    ) -> dict[str, aws.ec2.Subnet]:
        return {
            zone: aws.ec2.Subnet(
                f"{self._name}-{kind}-{zone}",
                region=self._region,
                vpc_id=self.vpc.id,
                # A zone's id is the same in every account; its name is not.
                availability_zone=None if is_zone_id(zone) else zone,
                availability_zone_id=zone if is_zone_id(zone) else None,
                cidr_block=block,
                # Only NAT gateways are in public subnets, and they bring their own addresses.
                map_public_ip_on_launch=False,
                tags={
                    **_named(kind, zone),
                    LOAD_BALANCERS[kind]: "1",
                    f"kubernetes.io/cluster/{cluster_name}": "shared",
                },
                opts=self._child,
            )
            for zone, block in zip(zones, blocks, strict=True)
        }

    def _way_out(self) -> list[pulumi.Resource]:
        """The Internet gateway, and the public subnets' routes to it."""
        gateway = aws.ec2.InternetGateway(
            self._name, region=self._region, vpc_id=self.vpc.id, tags=_named(), opts=self._child
        )
        table, made = self._table(
            "public", {f"{self._name}-public-{zone}": net for zone, net in self.public.items()}
        )
        route = aws.ec2.Route(
            f"{self._name}-public",
            region=self._region,
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway.id,
            opts=self._child,
        )
        return [gateway, route, *made]

    def _nats(self, zones: Sequence[str], out: Sequence[pulumi.Resource]) -> dict[str, aws.ec2.NatGateway]:
        made: dict[str, aws.ec2.NatGateway] = {}
        for zone in zones:
            address = aws.ec2.Eip(
                f"{self._name}-{zone}",
                region=self._region,
                domain="vpc",
                tags=_named(zone),
                opts=self._child,
            )
            made[zone] = aws.ec2.NatGateway(
                f"{self._name}-{zone}",
                region=self._region,
                subnet_id=self.public[zone].id,
                allocation_id=address.id,
                tags=_named(zone),
                # Its address cannot be taken from it while the Internet gateway is gone: it goes first.
                opts=pulumi.ResourceOptions(parent=self, depends_on=out),
            )
        return made

    def _private_routes(self, zones: Sequence[str]) -> tuple[list[aws.ec2.RouteTable], list[pulumi.Resource]]:
        """One table per zone, to its own NAT gateway or to the one there is."""
        tables: list[aws.ec2.RouteTable] = []
        made: list[pulumi.Resource] = []
        for zone in zones:
            nat = self.nats.get(zone) or next(iter(self.nats.values()))
            table, associations = self._table(zone, {f"{self._name}-private-{zone}": self.private[zone]})
            route = aws.ec2.Route(
                f"{self._name}-{zone}",
                region=self._region,
                route_table_id=table.id,
                destination_cidr_block=ANYWHERE,
                nat_gateway_id=nat.id,
                opts=self._child,
            )
            tables.append(table)
            made.extend([route, *associations])
        return tables, made

    def _table(
        self, name: str, subnets: Mapping[str, aws.ec2.Subnet]
    ) -> tuple[aws.ec2.RouteTable, list[pulumi.Resource]]:
        table = aws.ec2.RouteTable(
            f"{self._name}-{name}",
            region=self._region,
            vpc_id=self.vpc.id,
            tags=_named(name),
            opts=self._child,
        )
        associations: list[pulumi.Resource] = [
            aws.ec2.RouteTableAssociation(
                key, region=self._region, route_table_id=table.id, subnet_id=subnet.id, opts=self._child
            )
            for key, subnet in subnets.items()
        ]
        return table, associations


def subnet_blocks(vpc_cidr: str, zones: int) -> Blocks:
    """A quarter of the VPC for each zone's private subnet, and a sixteenth for each public one.

    There are three zones at most. Pods have addresses of the private subnets; a public one holds a NAT gateway.
    The zones of a cluster that exists stay as they are: EKS takes no others.
    """
    quarters = list(ipaddress.ip_network(vpc_cidr).subnets(prefixlen_diff=2))
    sixteenths = quarters[3].subnets(prefixlen_diff=2)
    return Blocks(
        private=[str(block) for block in quarters[:zones]],
        public=[str(block) for block in islice(sixteenths, zones)],
    )


LOG_GROUP_LIMIT = 512
"""https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html, 2026-11-22."""

DELIVERY = "logging.s3.amazonaws.com"
"""Who writes S3's access logs."""


@dataclass(frozen=True)
class AccessLogsArgs:
    """The bucket whose accesses are logged.

    With ``protect`` neither Pulumi nor a destroy deletes them.
    """

    bucket: aws.s3.Bucket
    cluster: AwsCluster
    account: pulumi.Output[str]
    protect: bool


@dataclass(frozen=True)
class FlowLogsArgs:
    """The VPC whose connections are logged. With ``protect`` Pulumi does not delete the logs."""

    vpc: aws.ec2.Vpc
    cluster: AwsCluster
    account: pulumi.Output[str]
    protect: bool


def flow_logs(name: str, args: FlowLogsArgs, parent: pulumi.Resource) -> None:
    """Logs all connections of the VPC to a log group of CloudWatch, which goes with the stack.

    Source of the role's rights: https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html,
    2026-11-22.
    """
    cluster, account = args.cluster, args.account
    region = cluster.region
    child = pulumi.ResourceOptions(parent=parent)
    called = resource_name(LOG_GROUP_LIMIT, name, "flow-logs")
    group = aws.cloudwatch.LogGroup(
        f"{name}-flow-logs",
        region=region,
        name=called,
        retention_in_days=LOG_DAYS,
        tags=named(called),
        opts=pulumi.ResourceOptions(parent=parent, protect=args.protect),
    )
    writer = role(
        f"{name}-flow-logs",
        RoleArgs(
            description="Flow logs of the VPC",
            trust=trust(
                "vpc-flow-logs.amazonaws.com",
                {
                    "StringEquals": {"aws:SourceAccount": account},
                    "ArnLike": {
                        "aws:SourceArn": pulumi.Output.concat(f"arn:aws:ec2:{region}:", account, ":vpc-flow-log/*")
                    },
                },
            ),
            statements=[
                allow(
                    ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                    [group.arn, pulumi.Output.concat(group.arn, ":*")],
                ),
                allow(
                    ["logs:DescribeLogGroups"], [pulumi.Output.concat(f"arn:aws:logs:{region}:", account, ":*")]
                ),
            ],
        ),
        child,
    )
    aws.ec2.FlowLog(
        f"{name}-flow-logs",
        region=region,
        vpc_id=args.vpc.id,
        traffic_type="ALL",
        iam_role_arn=writer.role.arn,
        log_destination_type="cloud-watch-logs",
        log_destination=group.arn,
        max_aggregation_interval=600,
        tags=named(called),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=writer.grants),
    )


def access_logs(name: str, args: AccessLogsArgs) -> None:
    """Logs each access to the bucket to a bucket of its own, from which S3 deletes them after some days.

    It is encrypted with S3's own keys, which is all that the delivery of access logs takes. Source:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-server-access-logging.html, 2026-11-22.
    """
    region = args.cluster.region
    logs = aws.s3.Bucket(
        f"{name}-logs",
        region=region,
        bucket=log_bucket_name(args.account, region),
        force_destroy=not args.protect,
        tags=named(f"{name}-logs"),
        opts=pulumi.ResourceOptions(protect=args.protect),
    )
    private, _ = no_public_access(f"{name}-logs", logs, region)
    aws.s3.BucketLifecycleConfiguration(
        f"{name}-logs",
        region=region,
        bucket=logs.bucket,
        rules=[
            aws.s3.BucketLifecycleConfigurationRuleArgs(
                id="old-logs",
                status="Enabled",
                filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
                expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=LOG_DAYS),
                abort_incomplete_multipart_upload=(
                    aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                        days_after_initiation=1
                    )
                ),
            )
        ],
        opts=pulumi.ResourceOptions(parent=logs),
    )
    delivered = {
        **allow(
            ["s3:PutObject"],
            [pulumi.Output.concat(logs.arn, "/*")],
            {
                "ArnLike": {"aws:SourceArn": args.bucket.arn},
                "StringEquals": {"aws:SourceAccount": args.account},
            },
        ),
        "Principal": {"Service": DELIVERY},
    }
    policy = aws.s3.BucketPolicy(
        f"{name}-logs",
        region=region,
        bucket=logs.bucket,
        policy=document(delivered, tls_only(logs)),
        # Both change who may do what to the bucket, and S3 refuses two such changes at once.
        opts=pulumi.ResourceOptions(parent=logs, depends_on=[private]),
    )
    aws.s3.BucketLogging(
        name,
        region=region,
        bucket=args.bucket.bucket,
        target_bucket=logs.bucket,
        target_prefix=f"{name}/",
        opts=pulumi.ResourceOptions(parent=args.bucket, depends_on=[policy]),
    )
