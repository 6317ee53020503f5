"""IAM roles: of AWS services, and of pods through EKS Pod Identity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_aws as aws

from slipway.infra.objects import wait_for
from slipway.infra.schema.names import spell

Statement = Mapping[str, Any]
Condition = Mapping[str, Mapping[str, Any]]


def document(*statements: Statement) -> pulumi.Output[str]:
    """A policy of these statements. Source of the language's version: IAM's reference of policy elements."""
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)


def allow(
    actions: Sequence[str], resources: Sequence[pulumi.Input[str]], condition: Condition | None = None
) -> Statement:
    """Lets whoever has the policy do ``actions`` to ``resources``."""
    return _statement("Allow", {"Action": list(actions), "Resource": list(resources)}, condition)


def deny(
    actions: Sequence[str], resources: Sequence[pulumi.Input[str]], condition: Condition | None = None
) -> Statement:
    """Forbids everyone to do ``actions`` to ``resources``, in a resource's policy. It overrides any other."""
    return _statement("Deny", {"Principal": "*", "Action": list(actions), "Resource": list(resources)}, condition)


def trust(
    service: str, condition: Condition | None = None, actions: Sequence[str] = ("sts:AssumeRole",)
) -> Statement:
    """Lets an AWS service take on the role."""
    return _statement("Allow", {"Action": list(actions), "Principal": {"Service": service}}, condition)


def _statement(effect: str, parts: Mapping[str, Any], condition: Condition | None) -> Statement:
    return {"Effect": effect, **parts, **({"Condition": condition} if condition else {})}


# Limits of names: EKS clusters 100 and node groups 63, IAM roles 64, buckets 63, launch templates 128, security
# groups and placement groups 255, ECR repositories 256; from the ``name`` fields of their API references,
# 2026-11-20. An EFS file system has its name, of 64 characters here, as a tag.
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


def named(name: str) -> dict[str, str]:
    """The tag that the console shows as a resource's name: a refresh would find no empty set of tags."""
    return {"Name": name}


POD_IDENTITY_SERVICE = "pods.eks.amazonaws.com"


@dataclass(frozen=True)
class Granted:
    """A role, and its grants to wait for before anything takes it on."""

    role: aws.iam.Role
    grants: Sequence[pulumi.Resource]


@dataclass(frozen=True)
class RoleArgs:
    """``managed`` are policies of AWS's own by name, ``statements`` an inline policy."""

    description: str
    trust: Statement
    managed: Sequence[str] = ()
    statements: Sequence[Statement] = ()


@dataclass(frozen=True)
class PodIdentityArgs:
    """Which pods of ``cluster`` get the role: those of one service account.

    ``managed`` and ``statements`` are as in `RoleArgs`.
    """

    cluster: aws.eks.Cluster
    cluster_name: str
    region: str
    namespace: str
    service_account: str
    managed: Sequence[str] = ()
    statements: Sequence[Statement] = ()


@dataclass(frozen=True)
class PodIdentity:
    """``ready`` is to be waited for before the first pod: credentials are injected at admission, never later."""

    role: aws.iam.Role
    ready: Sequence[pulumi.Resource] = field(default_factory=list[pulumi.Resource])


def role(name: str, args: RoleArgs, opts: pulumi.ResourceOptions | None = None) -> Granted:
    """Declares a role with its policies, named after the stack and ``name``."""
    full_name = resource_name(ROLE_LIMIT, name)
    made = aws.iam.Role(
        name,
        name=full_name,
        description=args.description,
        assume_role_policy=document(args.trust),
        tags=named(full_name),
        opts=opts,
    )
    below = pulumi.ResourceOptions(parent=made)
    grants: list[pulumi.Resource] = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy.rpartition('/')[2]}",
            role=made.name,
            policy_arn=f"arn:aws:iam::aws:policy/{policy}",
            opts=below,
        )
        for policy in args.managed
    ]
    if args.statements:
        grants.append(role_policy(name, made, args.statements))
    return Granted(made, grants)


def role_policy(name: str, to: aws.iam.Role, statements: Sequence[Statement]) -> aws.iam.RolePolicy:
    """An inline policy: it goes with the role and is never attached to another."""
    return aws.iam.RolePolicy(
        name, name=name, role=to.name, policy=document(*statements), opts=pulumi.ResourceOptions(parent=to)
    )


def pod_identity(name: str, args: PodIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> PodIdentity:
    """Gives pods of one service account in one cluster a role, which nothing else can take on.

    Source of the session tags that its trust policy asks for:
    https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html, 2026-11-20.
    """
    pods = {
        "aws:RequestTag/eks-cluster-name": args.cluster_name,
        "aws:RequestTag/kubernetes-namespace": args.namespace,
        "aws:RequestTag/kubernetes-service-account": args.service_account,
    }
    granted = role(
        name,
        RoleArgs(
            description=f"Pods of {args.namespace}/{args.service_account} in {args.cluster_name}",
            trust=trust(POD_IDENTITY_SERVICE, {"StringEquals": pods}, ("sts:AssumeRole", "sts:TagSession")),
            managed=args.managed,
            statements=args.statements,
        ),
        opts,
    )
    association = aws.eks.PodIdentityAssociation(
        name,
        cluster_name=args.cluster.name,
        region=args.region,
        namespace=args.namespace,
        service_account=args.service_account,
        role_arn=granted.role.arn,
        tags=named(name),
        opts=wait_for(opts, *granted.grants),
    )
    return PodIdentity(granted.role, [association, *granted.grants])
