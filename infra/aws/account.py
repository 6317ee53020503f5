"""What has to be right before anything is declared on AWS, beyond the shape of the settings."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from infra.aws.settings import AwsCluster
from infra.settings.errors import Problem
from infra.settings.model import Settings


def clusters(settings: Settings) -> Mapping[str, AwsCluster]:
    """The stack's clusters on AWS by name."""
    return {name: cluster for name, cluster in settings.clusters.items() if isinstance(cluster, AwsCluster)}


def account_id() -> pulumi.Output[str]:
    """The account that the credentials belong to."""
    return aws.get_caller_identity_output().account_id


def problems() -> list[Problem]:
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
