"""Keys of Cloud KMS for what the stack keeps: Secrets in a cluster's database, and objects in the bucket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.catalogue import region_of
from infra.clouds.gcp.names import KEY_RING_LIMIT, resource_name
from infra.clouds.gcp.settings import OWN, GcpCluster, GcsStore
from infra.schema.base import StoreSettings

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
                opts=pulumi.ResourceOptions.merge(kept, pulumi.ResourceOptions(depends_on=args.after)),
            )
            for region in sorted({key.region for key in args.keys.values()})
        }
        self.keys = {key: self._key(key, rings[each.region], each, kept) for key, each in args.keys.items()}
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
        if cluster.control_plane.secrets_key == OWN
    }
    if isinstance(store, GcsStore) and store.kms_key == OWN:
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
    """The keys of the bucket and of the clusters' Secrets by name, where they have any: the stack's own, which are
    declared here, and those of the user, which are left as they are."""
    chosen = {secrets_key(name): cluster.control_plane.secrets_key for name, cluster in clusters.items()}
    chosen[STORE_KEY] = store.kms_key if isinstance(store, GcsStore) else None
    named = {name: Key(key) for name, key in chosen.items() if key is not None and key != OWN}
    regions = declared_keys(clusters, store)
    if not regions:
        return named
    gke = _gke_agent(project, after) if regions.keys() - {STORE_KEY} else None
    keys = {
        name: KeyArgs(region, gke if gke is not None and name != STORE_KEY else _storage_agent(project, after))
        for name, region in regions.items()
    }
    return {**named, **Keys("keys", KeysArgs(project, keys, protect, after)).keys}


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
