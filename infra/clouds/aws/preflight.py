"""What has to be right before anything is declared on AWS, beyond the shape of the settings."""

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.rules.clusters import no_region, only_examples
from infra.clouds.aws.settings import AwsCluster
from infra.schema.problems import Problem
from infra.schema.request import Request


def account_id() -> pulumi.Output[str]:
    """The account that the credentials belong to."""
    return aws.get_caller_identity_output().account_id


def problems(_: Request | None = None) -> list[Problem]:
    """What a stack with clusters on AWS lacks beside its settings.

    Every regional resource says its region itself. The provider still wants one of its own, for IAM and STS.
    """
    if aws.config.region:
        return []
    return [no_region(pulumi.get_stack())]


def warn_of_example_networks(name: str, cluster: AwsCluster) -> None:
    """Warns where only example networks may reach the API of the cluster ``name``.

    No error: rehearsals and previews do not need to reach it.
    """
    if networks := only_examples(cluster):
        pulumi.log.warn(
            f"slipway:clusters.{name}.control_plane.authorized_networks: {', '.join(networks)} is "
            "set aside for examples, so nobody reaches the cluster's API, and `pulumi up` fails once there is a "
            "cluster. Put your own network in its place: https://checkip.amazonaws.com shows your address."
        )
