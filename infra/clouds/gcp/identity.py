"""Who may do what: the nodes' service account, and the identity of the pods that use the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.names import SERVICE_ACCOUNT_LIMIT, resource_name
from infra.clouds.gcp.settings import Impersonation
from infra.schema.request import AppAccess

NODE_ROLES = (
    # Logs, metrics and autoscaling signals: the least that GKE wants of a node. Source, 2026-11-20:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
    "roles/container.defaultNodeServiceAccount",
    # Images from the project's own registry, and image streaming.
    "roles/artifactregistry.reader",
)

STORE_ROLE = "roles/storage.objectUser"
"""Read, write, list and delete objects; nothing on the bucket itself or its policy."""

READING_ROLE = "roles/storage.objectViewer"
"""Read and list objects. It is what GKE's mounts ask for that only read
(docs.cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup, seen November 2026)."""

LISTING_ROLE = "roles/storage.legacyBucketReader"
"""List the names of a bucket's objects, and read none of them.

Cloud Storage FUSE lists before it mounts, and a condition on objects' names never holds for listing, a
permission of the bucket (cloud.google.com/storage/docs/access-control/iam, 2026-11-22). A grant on a managed
folder would do without, but until August 2026 GKE's mounts asked for the whole bucket all the same
(github.com/GoogleCloudPlatform/gcsfuse, pull request 4980).
"""

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

    ``team`` is the name of the team whose service account it is, and of its folder in the bucket, which is then
    all that it may use; None for the stack's own, which may use the whole bucket. ``app`` is the app whose service
    account it is, which may read all that its stack may, and write its own folder, if it has one.
    ``after`` are the clusters: the project's Workload Identity pool comes with its first cluster, and a grant to a
    member of a pool that is not there yet is refused.
    """

    project: str
    namespace: str
    service_account: str
    impersonation: Impersonation | None
    bucket: gcp.storage.Bucket
    after: Sequence[pulumi.Resource]
    team: str | None = None
    app: AppAccess | None = None

    def named(self, *parts: str) -> str:
        """A name of a resource: ``<part>-<part>``, with the team's or the app's at its end."""
        of = self.app.name if self.app else self.team
        return "-".join([*parts, *([of] if of else [])])

    @property
    def account(self) -> str:
        """What the Google service account that the pods impersonate is for, as a part of names."""
        return "app" if self.app else "run"

    @property
    def title(self) -> str:
        """Whose that account is, for people."""
        if self.app:
            return f"App {self.app.name}"
        return f"Jobs of {self.team or f'{pulumi.get_project()} {pulumi.get_stack()}'}"


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
    """Lets only pods of the Kubernetes service account at the bucket.

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
        return WorkloadIdentity({}, _store_grants(args, principal))
    account = gcp.serviceaccount.Account(
        args.named("workload", *(["app"] if args.app else [])),
        account_id=resource_name(SERVICE_ACCOUNT_LIMIT, args.named(args.account)),
        project=args.project,
        display_name=args.title,
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )
    impersonations = [
        gcp.serviceaccount.IAMMember(
            args.named("workload", *(["app"] if args.app else []), project),
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=f"serviceAccount:{workload_pool(project)}[{args.namespace}/{args.service_account}]",
        )
        for project in dict.fromkeys((args.project, *args.impersonation.projects))
    ]
    return WorkloadIdentity(
        {IMPERSONATION_ANNOTATION: account.email}, [*impersonations, *_store_grants(args, account.member)]
    )


def _store_grants(args: WorkloadIdentityArgs, member: pulumi.Input[str]) -> list[pulumi.Resource]:
    names: list[pulumi.Resource] = []
    condition = None
    if args.team is not None:
        condition = _objects(args, args.team, f"slipway-{args.team}", f"the team {args.team}")
        names = [_grant(args, args.named("store-names"), LISTING_ROLE, member)]
    if args.app is None:
        return [_grant(args, args.named("store-user"), STORE_ROLE, member, condition), *names]
    reading = [_grant(args, args.named("store-reader"), READING_ROLE, member, condition), *names]
    if args.app.folder is None:
        return reading
    title, of = f"slipway-app-{args.app.name}", f"the app {args.app.name}"
    folder = f"{args.team}/{args.app.folder}" if args.team else args.app.folder
    writing = _objects(args, folder, title, of)
    return [*reading, _grant(args, args.named("store-writer"), STORE_ROLE, member, writing)]


def _grant(
    args: WorkloadIdentityArgs,
    name: str,
    role: str,
    member: pulumi.Input[str],
    condition: gcp.storage.BucketIAMMemberConditionArgs | None = None,
) -> pulumi.Resource:
    return gcp.storage.BucketIAMMember(
        name,
        bucket=args.bucket.name,
        role=role,
        member=member,
        condition=condition,
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )


def _objects(
    args: WorkloadIdentityArgs, folder: str, title: str, of: str
) -> gcp.storage.BucketIAMMemberConditionArgs:
    """Only the objects below ``folder``; a grant's condition never holds for listing."""
    objects = pulumi.Output.concat("projects/_/buckets/", args.bucket.name, f"/objects/{folder}/")
    return gcp.storage.BucketIAMMemberConditionArgs(
        title=title,
        description=f"Objects of {of}",
        expression=objects.apply(lambda start: f'resource.name.startsWith("{start}")'),
    )
