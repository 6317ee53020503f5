"""What has to be right before anything is declared on AWS, beyond the shape of the settings."""

import ipaddress

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.settings import AwsCluster
from infra.schema.problems import Problem
from infra.schema.request import Request

EXAMPLES = [ipaddress.IPv4Network(block) for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]
"""Networks that are reserved for documentation: RFC 5737, January 2010."""


def account_id() -> pulumi.Output[str]:
    """The account that the credentials belong to."""
    return aws.get_caller_identity_output().account_id


def problems(_: Request | None = None) -> list[Problem]:
    """What a stack with clusters on AWS lacks beside its settings.

    Every regional resource says its region itself. The provider still wants one of its own, for IAM and STS.
    """
    if aws.config.region:
        return []
    return [
        Problem(
            "aws:region",
            None,
            "the AWS provider does not start without a region",
            f"pulumi config set aws:region <the cluster's region> -s {pulumi.get_stack()}",
        )
    ]


def warn_of_example_networks(name: str, cluster: AwsCluster) -> None:
    """Warns where only example networks may reach the API of the cluster ``name``.

    No error: rehearsals and previews do not need to reach it.
    """
    networks = cluster.control_plane.authorized_networks.values()
    blocks = [ipaddress.IPv4Network(network) for network in networks]
    if blocks and all(any(block.subnet_of(example) for example in EXAMPLES) for block in blocks):
        pulumi.log.warn(
            f"slipway:clusters.{name}.control_plane.authorized_networks: {', '.join(sorted(set(networks)))} is "
            "set aside for examples, so nobody reaches the cluster's API, and `pulumi up` fails once there is a "
            "cluster. Put your own network in its place: https://checkip.amazonaws.com shows your address."
        )
