"""Names and tags of resources on AWS: which characters they may have, and how long they may be.

Limits: EKS clusters 100 and node groups 63, IAM roles 64, buckets 63, launch templates 128, security groups and
placement groups 255, ECR repositories 256; from the ``name`` fields of their API references, 2026-11-20. An EFS
file system has its name, of 64 characters here, as a tag.
"""

from collections.abc import Mapping

import pulumi

from infra.schema.names import spell

CLUSTER_LIMIT = 100
NODE_GROUP_LIMIT = 63
ROLE_LIMIT = 64
BUCKET_LIMIT = 63
LAUNCH_TEMPLATE_LIMIT = 128
GROUP_LIMIT = 255
REPOSITORY_LIMIT = 256
FILE_SYSTEM_LIMIT = 64


def resource_name(limit: int, *parts: str) -> str:
    """``slipway-<stack>-<parts>`` in the characters that all of AWS allows, at most ``limit`` of them.

    Stacks of one account do not meet: the stack's name is part of every name that is unique in an account.
    """
    return spell(limit, pulumi.get_project(), pulumi.get_stack(), *parts)


def node_group_name(pool: str) -> str:
    """A node group's name in its cluster, and so the value of the label ``eks.amazonaws.com/nodegroup``."""
    return spell(NODE_GROUP_LIMIT, pool)


def bucket_name(chosen: str | None, account: pulumi.Input[str], region: str) -> pulumi.Output[str]:
    """The bucket's name: as chosen, or ``slipway-<stack>-<account>-<region>``, which no one else has."""
    if chosen:
        return pulumi.Output.from_input(chosen)
    stack = (pulumi.get_project(), pulumi.get_stack())
    return pulumi.Output.from_input(account).apply(lambda number: spell(BUCKET_LIMIT, *stack, number, region))


def log_bucket_name(account: pulumi.Input[str], region: str) -> pulumi.Output[str]:
    """The name of the bucket of access logs: ``slipway-<stack>-<account>-<region>-logs``."""
    stack = (pulumi.get_project(), pulumi.get_stack())
    return pulumi.Output.from_input(account).apply(
        lambda number: spell(BUCKET_LIMIT, *stack, number, region, "logs")
    )


def named(tags: Mapping[str, str], name: str) -> dict[str, str]:
    """``tags`` and the one that the console shows as a resource's name.

    So a resource always has one: a refresh would find that AWS knows of no empty set of tags.
    """
    return {**tags, "Name": name}
