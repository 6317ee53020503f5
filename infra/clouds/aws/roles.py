"""IAM roles: of AWS services, and of pods through EKS Pod Identity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.iam_policies import Statement, document, trust
from infra.clouds.aws.names import ROLE_LIMIT, named, resource_name

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
    tags: Mapping[str, str]
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
    tags: Mapping[str, str]
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
        tags=named(args.tags, full_name),
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
            tags=args.tags,
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
        tags=named(args.tags, name),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=granted.grants)),
    )
    return PodIdentity(granted.role, [association, *granted.grants])
