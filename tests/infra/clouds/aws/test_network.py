"""The VPC of an EKS cluster: its subnets, its ways out, and who gets in."""

import ipaddress
import json
from typing import Any

import pytest

from slipway.infra.clouds.aws.network import subnet_blocks
from tests.support.clouds.aws import NODE_GROUP, changed, declare
from tests.support.recording import Recording

SUBNET = "aws:ec2/subnet:Subnet"
NAT = "aws:ec2/natGateway:NatGateway"
ROUTE = "aws:ec2/route:Route"
TABLE = "aws:ec2/routeTable:RouteTable"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"

THREE_ZONES = ["us-east-1a", "us-east-1b", "us-east-1d"]


def subnets(recording: Recording, kind: str) -> dict[str, dict[str, Any]]:
    """The subnets of a kind by zone."""
    result = [resource.inputs for resource in recording.of(SUBNET) if f"-{kind}-" in resource.name]
    return {finding.get("availabilityZone") or finding["availabilityZoneId"]: dict(finding) for finding in result}


def test_every_zone_has_a_public_and_a_private_subnet_and_none_overlap() -> None:
    recording = declare(changed(zones=THREE_ZONES, network={"vpc_cidr": "10.40.0.0/16"}))
    blocks = [
        ipaddress.ip_network(inputs["cidrBlock"])
        for kind in ("private", "public")
        for inputs in subnets(recording, kind).values()
    ]
    assert len(blocks) == 6
    vpc = ipaddress.ip_network("10.40.0.0/16")
    assert all(block.subnet_of(vpc) for block in blocks)
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)


def test_pods_get_a_quarter_of_the_vpc_per_zone() -> None:
    blocks = subnet_blocks("10.0.0.0/16", 3)
    assert blocks.private == ["10.0.0.0/18", "10.0.64.0/18", "10.0.128.0/18"]
    assert blocks.public == ["10.0.192.0/20", "10.0.208.0/20", "10.0.224.0/20"]


def test_a_zone_that_is_added_moves_no_other() -> None:
    two, three = subnet_blocks("10.0.0.0/16", 2), subnet_blocks("10.0.0.0/16", 3)
    assert three.private[:2] == two.private
    assert three.public[:2] == two.public


def test_load_balancers_find_their_subnets() -> None:
    recording = declare(changed())
    for kind, tag in (("public", "kubernetes.io/role/elb"), ("private", "kubernetes.io/role/internal-elb")):
        for inputs in subnets(recording, kind).values():
            assert inputs["tags"][tag] == "1"
            assert inputs["tags"]["kubernetes.io/cluster/slipway-test-dev"] == "shared"
            assert inputs["mapPublicIpOnLaunch"] is False


def test_zones_can_be_named_by_their_ids() -> None:
    recording = declare(changed(region="us-east-2", zones=["use2-az1", "use2-az2"]))
    private = [resource.inputs for resource in recording.of(SUBNET) if "-private-" in resource.name]
    assert [entry["availabilityZoneId"] for entry in private] == ["use2-az1", "use2-az2"]
    assert all("availabilityZone" not in entry for entry in private)


def nat_of(recording: Recording) -> dict[str, str]:
    """The zone of the NAT gateway that each zone's private subnet goes out through."""
    urns = {resource.urn: resource for resource in recording.resources}
    result: dict[str, str] = {}
    for association in recording.of(ASSOCIATION):
        if "-private-" not in association.name:
            continue
        (table,) = [urns[urn] for urn in association.dependencies if urns[urn].type == TABLE]
        (route,) = [resource for resource in recording.of(ROUTE) if table.urn in resource.dependencies]
        (nat,) = [urns[urn] for urn in route.dependencies if urns[urn].type == NAT]
        result[association.name.partition("-private-")[2]] = nat.name.removeprefix("dev-")
    return result


@pytest.mark.slow
def test_one_nat_serves_all_zones_or_each_has_its_own() -> None:
    one = declare(changed(zones=THREE_ZONES))
    entry = declare(changed(zones=THREE_ZONES, network={"nat": "per-zone"}))
    assert nat_of(one) == dict.fromkeys(THREE_ZONES, "us-east-1a")
    assert nat_of(entry) == {zone: zone for zone in THREE_ZONES}
    assert [len(recording.of("aws:ec2/eip:Eip")) for recording in (one, entry)] == [1, 3]


def test_s3_is_reached_without_nat_from_every_private_subnet() -> None:
    recording = declare(changed())
    endpoint = recording.one("aws:ec2/vpcEndpoint:VpcEndpoint").inputs
    assert endpoint["serviceName"] == "com.amazonaws.us-east-1.s3"
    assert endpoint["vpcEndpointType"] == "Gateway"
    assert len(endpoint["routeTableIds"]) == 2


def test_names_of_mount_targets_and_of_the_private_endpoint_resolve() -> None:
    vpc = declare(changed()).one("aws:ec2/vpc:Vpc").inputs
    assert vpc["enableDnsSupport"] is True
    assert vpc["enableDnsHostnames"] is True


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_nodes_find_a_way_out_when_they_start(preview: bool) -> None:
    recording = declare(changed(), preview=preview)
    for group in recording.of(NODE_GROUP):
        waited = recording.waits_for(group)
        for token in (NAT, ROUTE, ASSOCIATION, "aws:ec2/vpcEndpoint:VpcEndpoint"):
            assert {resource.urn for resource in recording.of(token)} <= waited


def test_nothing_lets_the_world_in() -> None:
    recording = declare(changed())
    ways_in = [
        resource.inputs
        for resource in recording.resources
        if resource.type.endswith(("IngressRule", "SecurityGroup")) or resource.type == "aws:eks/cluster:Cluster"
    ]
    assert ways_in
    assert "0.0.0.0/0" not in json.dumps(ways_in, default=str)
    default = recording.one("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup").inputs
    assert not default.get("ingress")
    assert not default.get("egress")


@pytest.mark.slow
def test_every_regional_resource_says_its_region() -> None:
    recording = declare(changed(region="us-east-2", zones=["us-east-2a", "us-east-2b"]))
    regional = [
        resource
        for resource in recording.resources
        if resource.type.startswith("aws:") and "aws:iam/" not in resource.type
    ]
    assert {resource.inputs.get("region") for resource in regional} == {"us-east-2"}


def test_a_name_is_on_everything_that_takes_tags() -> None:
    recording = declare(changed())
    untagged = {
        resource.type
        for resource in recording.resources
        if resource.type.startswith("aws:") and "Name" not in (resource.inputs.get("tags") or {})
    }
    # None of these has tags of its own.
    assert untagged == {
        "aws:autoscaling/tag:Tag",
        ROUTE,
        ASSOCIATION,
        "aws:iam/rolePolicy:RolePolicy",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "aws:ecr/lifecyclePolicy:LifecyclePolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "aws:s3/bucketVersioning:BucketVersioning",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "aws:s3/filesSynchronizationConfiguration:FilesSynchronizationConfiguration",
        "aws:s3/filesMountTarget:FilesMountTarget",
        "aws:s3/filesFileSystemPolicy:FilesFileSystemPolicy",
    }
