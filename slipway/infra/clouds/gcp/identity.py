"""Who may do what: the nodes' service account, and the identity of the pods that use the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pulumi
import pulumi_gcp as gcp

from slipway.infra.clouds.gcp.catalogue import region_of
from slipway.infra.clouds.gcp.network import KEY_RING_LIMIT, SERVICE_ACCOUNT_LIMIT, resource_name
from slipway.infra.clouds.gcp.settings import GcpCluster, GcsStore, Impersonation
from slipway.infra.objects import wait_for
from slipway.infra.platform import Data
from slipway.infra.schema.base import StoreSettings
from slipway.infra.schema.names import fit
from slipway.infra.schema.request import AppAccess

NODE_ROLES = (
    # Logs, metrics and autoscaling signals: the least that GKE wants of a node. Source, 2026-11-20:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
    "roles/container.defaultNodeServiceAccount",
    # Images from the project's own registry.
    "roles/artifactregistry.reader",
)

STREAMING_ROLE = "roles/serviceusage.serviceUsageConsumer"
"""What a node with a service account of its own needs for image streaming; without it nothing is streamed, and
pods were seen that did not start.

Sources, 2026-11-26: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/image-streaming;
https://github.com/terraform-google-modules/terraform-google-kubernetes-engine/issues/2251
"""

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
    ``member`` is what IAM calls the pods; None where they need no rights.
    """

    annotations: Mapping[str, pulumi.Input[str]]
    grants: Sequence[pulumi.Resource]
    member: pulumi.Output[str] | None = None


@dataclass(frozen=True)
class WorkloadIdentityArgs:
    """Which Kubernetes service account may use which bucket, and how.

    ``bucket`` is the bucket's name, and ``number`` the number of ``project``. ``folder`` is the folder of the
    bucket that is the stack's store, empty where it is the whole bucket.
    ``team`` is the name of the team whose service account it is, and of its folder in the bucket, which is then
    all that it may use; None for the stack's own, which may use the whole store. ``app`` is the app whose service
    account it is, which may read all that its stack may, and write its own folder, if it has one.
    ``after`` are the clusters: the project's Workload Identity pool comes with its first cluster, and a grant to a
    member of a pool that is not there yet is refused. ``inputs`` are the folders of further buckets that pods of
    the stack's own service account read.
    """

    project: str
    namespace: str
    service_account: str
    impersonation: Impersonation | None
    bucket: pulumi.Input[str]
    number: pulumi.Output[str]
    after: Sequence[pulumi.Resource]
    folder: str = ""
    team: str | None = None
    app: AppAccess | None = None
    inputs: Sequence[Data] = ()

    @property
    def root(self) -> str:
        """The folder of the bucket that is the store of these pods; empty where it is the whole bucket."""
        return "/".join(part for part in (self.folder, self.team) if part)

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


def node_identity(project: str, after: Sequence[pulumi.Resource], *, image_streaming: bool) -> NodeIdentity:
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
        for role in (*NODE_ROLES, *([STREAMING_ROLE] if image_streaming else []))
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
            args.number,
            f"/locations/global/workloadIdentityPools/{workload_pool(args.project)}",
            f"/subject/ns/{args.namespace}/sa/{args.service_account}",
        )
        return WorkloadIdentity({}, [*_store_grants(args, principal), *_input_grants(args, principal)], principal)
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
        {IMPERSONATION_ANNOTATION: account.email},
        [*impersonations, *_store_grants(args, account.member), *_input_grants(args, account.member)],
        account.member,
    )


def _store_grants(args: WorkloadIdentityArgs, member: pulumi.Input[str]) -> list[pulumi.Resource]:
    names: list[pulumi.Resource] = []
    condition = None
    if args.root:
        title, of = (f"slipway-{args.team}", f"the team {args.team}") if args.team else ("slipway", "the store")
        condition = _objects(args, args.root, title, of)
        names = [_grant(args, args.named("store-names"), LISTING_ROLE, member)]
    if args.app is None:
        return [_grant(args, args.named("store-user"), STORE_ROLE, member, condition), *names]
    reading = [_grant(args, args.named("store-reader"), READING_ROLE, member, condition), *names]
    if args.app.folder is None:
        return reading
    title, of = f"slipway-app-{args.app.name}", f"the app {args.app.name}"
    folder = f"{args.root}/{args.app.folder}" if args.root else args.app.folder
    writing = _objects(args, folder, title, of)
    return [*reading, _grant(args, args.named("store-writer"), STORE_ROLE, member, writing)]


TITLE_LIMIT = 100
"""Longest title of a condition (cloud.google.com/iam/docs/conditions-overview, seen November 2026)."""


def _input_grants(args: WorkloadIdentityArgs, member: pulumi.Input[str]) -> list[pulumi.Resource]:
    """One grant for each folder that is read, and one for each bucket whose names have to be listed.

    A bucket has a member once for a role and a condition, however many resources declare it: two of them would
    take each other's access away when one goes.
    """
    folders: dict[str, set[str]] = {}
    for data in args.inputs:
        if data.grants:
            folders.setdefault(data.bucket, set()).add(data.folder)
    grants: list[pulumi.Resource] = []
    for bucket, below in sorted(folders.items()):
        of_bucket = replace(args, bucket=bucket)
        if "" in below:
            grants.append(_grant(of_bucket, f"input-{bucket}", READING_ROLE, member))
            continue
        # On its own bucket, a store that is a folder has it already.
        if not (args.root and args.bucket == bucket):
            grants.append(_grant(of_bucket, f"inputs-{bucket}", LISTING_ROLE, member))
        for folder in sorted(below):
            title = fit(f"slipway-input-{folder.replace('/', '-')}", TITLE_LIMIT)
            condition = _objects(of_bucket, folder, title, "an input")
            grants.append(_grant(of_bucket, f"input-{bucket}/{folder}", READING_ROLE, member, condition))
    return grants


def _grant(
    args: WorkloadIdentityArgs,
    name: str,
    role: str,
    member: pulumi.Input[str],
    condition: gcp.storage.BucketIAMMemberConditionArgs | None = None,
) -> pulumi.Resource:
    return gcp.storage.BucketIAMMember(
        name,
        bucket=args.bucket,
        role=role,
        member=member,
        condition=condition,
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )


def _objects(
    args: WorkloadIdentityArgs, folder: str, title: str, of: str
) -> gcp.storage.BucketIAMMemberConditionArgs:
    """Only the objects below ``folder``; a grant's condition never holds for listing."""
    objects = pulumi.Output.concat("projects/_/buckets/", args.bucket, f"/objects/{folder}/")
    return gcp.storage.BucketIAMMemberConditionArgs(
        title=title,
        description=f"Objects of {of}",
        expression=objects.apply(lambda start: f'resource.name.startsWith("{start}")'),
    )


ROLE = "roles/cloudkms.cryptoKeyEncrypterDecrypter"

STORE_KEY = "store"
"""Name of the bucket's key."""

ROTATION = f"{90 * 86_400}s"
"""How often a key gets a new version. Earlier versions stay, since what they encrypted needs them."""


@dataclass(frozen=True)
class KeyArgs:
    """A key in ``region``, which the service agent ``agent`` (a member in IAM's form) may use."""

    region: str
    agent: pulumi.Input[str]


@dataclass(frozen=True)
class KeysArgs:
    """``keys`` by name; ``after`` is what has to be there first."""

    project: str
    keys: Mapping[str, KeyArgs]
    protect: bool
    after: Sequence[pulumi.Resource]


@dataclass(frozen=True)
class Key:
    """A key by its full name, and what has to be there before anything is encrypted with it."""

    name: pulumi.Input[str]
    ready: Sequence[pulumi.Resource] = field(default_factory=list[pulumi.Resource])


class Keys(pulumi.ComponentResource):
    """The stack's own ``keys`` by name, in one key ring per region.

    A destroyed key would make everything unreadable that it encrypted: objects of a bucket that were not written
    again since, or that soft delete still keeps. So Pulumi only forgets keys and key rings, and never destroys
    them. Google Cloud deletes neither key rings nor keys and gives their names to no others, so each has a random
    part in its name: a key that was taken out of the stack file, or a stack that was destroyed, comes back with a
    new one. Source:
    https://docs.cloud.google.com/kms/docs/destroy-restore and
    https://registry.terraform.io/providers/hashicorp/google/latest/docs/resources/kms_key_ring, 2026-11-22.
    """

    keys: Mapping[str, Key]

    def __init__(self, name: str, args: KeysArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:gcp:Keys", name, None, opts)
        kept = pulumi.ResourceOptions(parent=self, protect=args.protect, retain_on_delete=True)
        rings = {
            region: gcp.kms.KeyRing(
                # Without a name of its own it is called this, with a random end.
                resource_name(KEY_RING_LIMIT, region),
                project=args.project,
                location=region,
                opts=wait_for(kept, *args.after),
            )
            for region in sorted({key.region for key in args.keys.values()})
        }
        self.keys = {
            key: self._key(key, rings[key_args.region], key_args, kept) for key, key_args in args.keys.items()
        }
        self.register_outputs({})

    def _key(self, name: str, ring: gcp.kms.KeyRing, args: KeyArgs, kept: pulumi.ResourceOptions) -> Key:
        key = gcp.kms.CryptoKey(
            name,
            key_ring=ring.id,
            purpose="ENCRYPT_DECRYPT",
            rotation_period=ROTATION,
            # Keys that were created under a name without a random part keep it.
            opts=pulumi.ResourceOptions.merge(kept, pulumi.ResourceOptions(ignore_changes=["name"])),
        )
        grant = gcp.kms.CryptoKeyIAMMember(
            name,
            crypto_key_id=key.id,
            role=ROLE,
            member=args.agent,
            # What was encrypted with the key is still read through it when the stack is gone.
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        return Key(key.id, [grant])


def secrets_key(cluster: str) -> str:
    """Name of the key of a cluster's Secrets."""
    return f"secrets-{cluster}"


def declared_keys(clusters: Mapping[str, GcpCluster], store: StoreSettings) -> Mapping[str, str]:
    """The region of each key that the stack creates, by the key's name."""
    regions = {
        secrets_key(name): region_of(cluster.location)
        for name, cluster in clusters.items()
        if cluster.control_plane.secrets_key
    }
    if isinstance(store, GcsStore) and store.kms_key:
        return {STORE_KEY: store.location.lower(), **regions}
    return regions


def encryption_keys(
    project: str,
    clusters: Mapping[str, GcpCluster],
    store: StoreSettings,
    *,
    protect: bool,
    after: Sequence[pulumi.Resource],
) -> Mapping[str, Key]:
    """Declares the keys of the bucket and of the clusters' Secrets, where they have any; returns them by name."""
    regions = declared_keys(clusters, store)
    if not regions:
        return {}
    gke = _gke_agent(project, after) if regions.keys() - {STORE_KEY} else None
    keys = {
        name: KeyArgs(region, gke if gke is not None and name != STORE_KEY else _storage_agent(project, after))
        for name, region in regions.items()
    }
    return Keys("keys", KeysArgs(project, keys, protect, after)).keys


def project_number(project: str, after: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
    """The number of ``project``, which its service agent of Cloud Storage has in its name:
    `service-<number>@gs-project-accounts.iam.gserviceaccount.com`.

    Looking the project up would need the Cloud Billing API too.
    """
    return _storage_agent(project, after).apply(lambda member: member.partition("service-")[2].partition("@")[0])


def _storage_agent(project: str, after: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
    """The member that Cloud Storage uses keys as. Asking for it creates it.

    Source: https://docs.cloud.google.com/storage/docs/projects#service-agents, 2026-11-22.
    """
    return gcp.storage.get_project_service_account_output(
        project=project, opts=pulumi.InvokeOutputOptions(depends_on=list(after))
    ).member


def _gke_agent(project: str, after: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
    """The member that GKE uses keys as; created here where the project never had a cluster."""
    return gcp.projects.ServiceIdentity(
        "gke-agent",
        project=project,
        service="container.googleapis.com",
        opts=pulumi.ResourceOptions(depends_on=after),
    ).member
