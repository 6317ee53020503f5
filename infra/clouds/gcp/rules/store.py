"""The bucket, by itself and as the store of GKE clusters."""

import re
from collections.abc import Iterator

from infra.clouds.gcp.catalogue import regions
from infra.clouds.gcp.rules.names import PROJECT_FIX, is_project
from infra.clouds.gcp.settings import FilestoreStore, GcpCluster, GcsStore
from infra.schema.problems import Finding, did_you_mean, listed
from infra.schema.request import STORE_KIND, Request

# https://cloud.google.com/storage/docs/buckets#naming, as documented in 2025.
BUCKET = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
SOFT_DELETE_MINIMUM_DAYS = 7
"""https://cloud.google.com/storage/docs/soft-delete, as documented in 2025: seven to ninety days, or none."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about the bucket, and about another store for clusters on Google Cloud."""
    clusters = request.clusters_of(GcpCluster)
    if isinstance(request.store, GcsStore):
        yield from _bucket(request.store)
        yield from _kept(request.store, request.protect)
    elif request.store is not None and not isinstance(request.store, FilestoreStore) and clusters:
        yield Finding(
            STORE_KIND,
            request.store.kind,
            f"{listed(clusters, 'and')} on Google Cloud: there the store outlives clusters and is shared between "
            "regions, which a bucket does",
            "write `kind: gcs` and a `location`, or `kind: filestore` for a file system",
            read=request.cloud_places,
        )


def _bucket(store: GcsStore) -> Iterator[Finding]:
    if store.location.lower() not in regions():
        yield Finding(
            ("store", "location"),
            store.location,
            "not a region of the catalogue; reading across regions is slow and billed",
            did_you_mean(
                store.location,
                # `US` and `EU` are several regions, and no abbreviation of one.
                regions() if "-" in store.location else (),
                "write the region of the pool that trains, such as `us-central1`",
            ),
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
        if not is_project(project):
            yield Finding(
                ("store", "impersonation", "projects", index),
                project,
                "not a project ID",
                PROJECT_FIX,
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
