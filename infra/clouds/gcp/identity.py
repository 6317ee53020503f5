"""Who may do what: the nodes' service account, and the identity of the pods that use the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.names import SERVICE_ACCOUNT_LIMIT, resource_name
from infra.clouds.gcp.settings import Impersonation

NODE_ROLES = (
    # Logs, metrics and autoscaling signals: the least that GKE wants of a node. Source, 2026-11-20:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
    "roles/container.defaultNodeServiceAccount",
    # Images from the project's own registry, and image streaming.
    "roles/artifactregistry.reader",
)

STORE_ROLE = "roles/storage.objectUser"
"""Read, write, list and delete objects; nothing on the bucket itself or its policy."""

IMPERSONATION_ANNOTATION = "iam.gke.io/gcp-service-account"


@dataclass(frozen=True)
class NodeIdentity:
    """The nodes' service account, and the grants to wait for before a node starts."""

    email: pulumi.Output[str]
    grants: Sequence[pulumi.Resource]


@dataclass(frozen=True)
class WorkloadIdentity:
    """What lets pods of one Kubernetes service account at the bucket.

    ``annotations`` belong on that service account; ``grants`` are to be waited for before its first pod.
    """

    annotations: Mapping[str, pulumi.Input[str]]
    grants: Sequence[pulumi.Resource]


@dataclass(frozen=True)
class WorkloadIdentityArgs:
    """Which Kubernetes service account may use which bucket, and how.

    ``after`` are the clusters: the project's Workload Identity pool comes with its first cluster, and a grant to a
    member of a pool that is not there yet is refused.
    """

    project: str
    namespace: str
    service_account: str
    impersonation: Impersonation | None
    bucket: gcp.storage.Bucket
    after: Sequence[pulumi.Resource]


def node_identity(project: str, after: Sequence[pulumi.Resource]) -> NodeIdentity:
    """One service account for the nodes of all clusters, with no access to any bucket."""
    account = gcp.serviceaccount.Account(
        "nodes",
        account_id=resource_name(SERVICE_ACCOUNT_LIMIT, "nodes"),
        project=project,
        display_name=f"GKE nodes of {pulumi.get_project()} {pulumi.get_stack()}",
        opts=pulumi.ResourceOptions(depends_on=after),
    )
    grants = [
        gcp.projects.IAMMember(
            f"nodes-{role.removeprefix('roles/')}", project=project, role=role, member=account.member
        )
        for role in NODE_ROLES
    ]
    return NodeIdentity(account.email, grants)


def workload_pool(project: str) -> str:
    """The project's Workload Identity pool, which all its clusters share."""
    return f"{project}.svc.id.goog"


def workload_identity(args: WorkloadIdentityArgs) -> WorkloadIdentity:
    """Lets only pods of the Kubernetes service account read and write the bucket.

    The pods are let in as themselves, or as a Google service account that they impersonate. The same namespace and
    service account in two clusters of a project are one identity.
    """
    if args.impersonation is None:
        principal = pulumi.Output.concat(
            "principal://iam.googleapis.com/projects/",
            # The bucket says its project's number. Looking the project up would need the Cloud Billing API too.
            args.bucket.project_number.apply(lambda number: str(int(number))),
            f"/locations/global/workloadIdentityPools/{workload_pool(args.project)}",
            f"/subject/ns/{args.namespace}/sa/{args.service_account}",
        )
        return WorkloadIdentity({}, [_store_grant(args, principal)])
    account = gcp.serviceaccount.Account(
        "workload",
        account_id=resource_name(SERVICE_ACCOUNT_LIMIT, "run"),
        project=args.project,
        display_name=f"Jobs of {pulumi.get_project()} {pulumi.get_stack()}",
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )
    impersonations = [
        gcp.serviceaccount.IAMMember(
            f"workload-{project}",
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=f"serviceAccount:{workload_pool(project)}[{args.namespace}/{args.service_account}]",
        )
        for project in dict.fromkeys((args.project, *args.impersonation.projects))
    ]
    return WorkloadIdentity(
        {IMPERSONATION_ANNOTATION: account.email}, [*impersonations, _store_grant(args, account.member)]
    )


def _store_grant(args: WorkloadIdentityArgs, member: pulumi.Input[str]) -> gcp.storage.BucketIAMMember:
    return gcp.storage.BucketIAMMember(
        "store-user",
        bucket=args.bucket.name,
        role=STORE_ROLE,
        member=member,
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )
