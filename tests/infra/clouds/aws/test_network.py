"""The VPC of an EKS cluster: its subnets, its ways out, and who gets in."""

import ipaddress
import json
from typing import Any

import pytest

from slipway.infra.clouds.aws.network import subnet_blocks
from tests.support.clouds.aws import changed, declare
from tests.support.recording import Recording

SUBNET = "aws:ec2/subnet:Subnet"
ROUTE = "aws:ec2/route:Route"
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
