"""The store against the clusters that share it."""

import re
from collections.abc import Iterator

from infra.settings.checks.finding import Finding, Path, listed
from infra.settings.checks.gcp_nodes import REGION
from infra.settings.existing import PvcStore
from infra.settings.gcp import GcsStore
from infra.settings.reading import Draft, Reading

# https://cloud.google.com/storage/docs/buckets#naming, as documented in 2025.
BUCKET = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
# https://cloud.google.com/resource-manager/docs/creating-managing-projects, as documented in 2025.
PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
SOFT_DELETE_MINIMUM_DAYS = 7
"""https://cloud.google.com/storage/docs/soft-delete, as documented in 2025: seven to ninety days, or none."""
KIND = ("store", "kind")


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the store, by itself and with the clusters."""
    draft = reading.draft
    if isinstance(draft.store, GcsStore):
        yield from _bucket(draft.store)
        yield from _kept(draft.store, draft.protect)
        if draft.existing:
            yield Finding(
                KIND,
                "gcs",
                f"{listed(draft.existing, 'and')} was there before Slipway, which cannot know whether its pods "
                "can mount a bucket, and as whom",
                "write `kind: pvc`, or give that cluster a stack of its own",
                read=_clouds(draft),
            )
    elif isinstance(draft.store, PvcStore):
        yield from _claim(draft.store, draft)


def _bucket(store: GcsStore) -> Iterator[Finding]:
    if not REGION.fullmatch(store.location.lower()):
        yield Finding(
            ("store", "location"),
            store.location,
            "not a region; reading across regions is slow and billed",
            "write the region of the pool that trains, such as `us-central1`",
        )
    name = store.bucket
    if name is not None and (not BUCKET.fullmatch(name) or _reserved(name)):
        yield Finding(
            ("store", "bucket"),
            name,
            "not a bucket name: 3 to 63 lower-case letters, digits, `-` and `_`, a letter or digit at both ends, "
            "and nothing with `google`. Names with dots need a domain that you own",
            "choose another, such as `<project>-slipway`, or remove it for the default",
        )
    for index, project in enumerate(store.impersonation.projects if store.impersonation else ()):
        if not PROJECT.fullmatch(project):
            yield Finding(
                ("store", "impersonation", "projects", index),
                project,
                "not a project ID",
                "write the ID (6 to 30 lower-case letters, digits and hyphens), not the name or number",
            )


def _kept(store: GcsStore, protect: bool) -> Iterator[Finding]:
    """How long objects that were deleted or overwritten can be had back."""
    if 0 < store.soft_delete_days < SOFT_DELETE_MINIMUM_DAYS:
        yield Finding(
            ("store", "soft_delete_days"),
            store.soft_delete_days,
            f"Cloud Storage keeps deleted objects for at least {SOFT_DELETE_MINIMUM_DAYS} days, or not at all",
            f"write 0, or {SOFT_DELETE_MINIMUM_DAYS} to 90",
        )
    if protect and not store.versioning and not store.soft_delete_days:
        yield Finding(
            ("store", "versioning"),
            store.versioning,
            "the stack is protected, and an object overwritten or deleted by mistake would be gone",
            "write `versioning: true` or `soft_delete_days: 7`",
            read=(("protect",), ("store", "soft_delete_days")),
        )


def _reserved(name: str) -> bool:
    return name.startswith("goog") or "google" in name or "g00gle" in name


def _clouds(draft: Draft) -> tuple[Path, ...]:
    return tuple(("clusters", name, "cloud") for name in draft.clusters)


def _claim(store: PvcStore, draft: Draft) -> Iterator[Finding]:
    if draft.gcp:
        yield Finding(
            KIND,
            "pvc",
            f"{listed(draft.gcp, 'and')} on Google Cloud: there the store outlives clusters and is shared between "
            "regions, which a bucket does and a volume does not",
            "write `kind: gcs` and a `location`",
            read=_clouds(draft),
        )
    elif len(draft.existing) > 1:
        yield Finding(
            KIND,
            "pvc",
            f"a volume belongs to one cluster, and there are {listed(draft.existing, 'and')}",
            "keep one cluster in this stack",
            read=_clouds(draft),
        )
    if store.host_path is None:
        return
    if store.storage_class is not None:
        yield Finding(
            ("store", "host_path"),
            store.host_path,
            "a folder on the node has no StorageClass, and `storage_class` is set too",
            "remove one of them",
            read=(("store", "storage_class"),),
        )
    if not store.host_path.startswith("/") or store.host_path == "/":
        yield Finding(
            ("store", "host_path"),
            store.host_path,
            "not the absolute path of a folder",
            "write for example `/var/lib/slipway`",
        )
    mnist = draft.pipelines.mnist
    used = {step.pool for step in mnist.steps.values()} if mnist else set[str]()
    for name, cluster in draft.existing.items():
        for key, pool in cluster.pools.items():
            if pool.nodes > 1 and key in used:
                yield Finding(
                    ("store", "host_path"),
                    store.host_path,
                    f"a folder on one node is not on the others, and pool `{key}` of the steps has {pool.nodes}",
                    "use a StorageClass, or say that the pool has one node",
                    read=(("clusters", name, "pools", key, "nodes"),),
                )
