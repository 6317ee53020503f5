"""What has to be right before anything is declared on Google Cloud, beyond the shape of the settings."""

from collections.abc import Iterator, Mapping

import pulumi_gcp as gcp

from infra.gcp.names import BUCKET_LIMIT
from infra.settings import Problem, Settings, SettingsError
from infra.settings.existing import PvcStore
from infra.settings.gcp import GcpCluster, GcsStore

SOFT_DELETE_MINIMUM_DAYS = 7
"""Shortest soft delete retention of a bucket, other than none.

Source: https://cloud.google.com/storage/docs/soft-delete, 2026-11-20.
"""


def clusters(settings: Settings) -> Mapping[str, GcpCluster]:
    """The stack's clusters on Google Cloud by name."""
    return {name: cluster for name, cluster in settings.clusters.items() if isinstance(cluster, GcpCluster)}


def project() -> str:
    """The project that everything is created in; raises SettingsError where the stack has none."""
    found = gcp.config.project
    if not found:
        raise SettingsError([_no_project()])
    return found


def problems(settings: Settings) -> list[Problem]:
    """Everything that would make the declaration on Google Cloud fail; empty where nothing is declared there."""
    if not clusters(settings) and not isinstance(settings.store, GcsStore):
        return []
    return list(_problems(settings))


def _problems(settings: Settings) -> Iterator[Problem]:
    if not gcp.config.project:
        yield _no_project()
    for name, cluster in clusters(settings).items():
        if not cluster.control_plane.dns_endpoint and not cluster.control_plane.authorized_networks:
            yield Problem(
                f"slipway:clusters.{name}.control_plane",
                cluster.control_plane.model_dump(),
                "nobody could reach the cluster's API, this program included",
                "keep dns_endpoint, or name in authorized_networks the networks that may reach it",
            )
    if isinstance(settings.store, PvcStore):
        yield Problem(
            "slipway:store.kind",
            settings.store.kind,
            "clusters on Google Cloud share a bucket; a volume belongs to one zone of one cluster",
            "write kind: gcs",
        )
    else:
        yield from _store_problems(settings.store, settings.protect)


def _store_problems(store: GcsStore, protect: bool) -> Iterator[Problem]:
    if 0 < store.soft_delete_days < SOFT_DELETE_MINIMUM_DAYS:
        yield Problem(
            "slipway:store.soft_delete_days",
            store.soft_delete_days,
            f"Cloud Storage keeps deleted objects for at least {SOFT_DELETE_MINIMUM_DAYS} days, or not at all",
            f"write 0, or {SOFT_DELETE_MINIMUM_DAYS} to 90",
        )
    if protect and not store.versioning and not store.soft_delete_days:
        yield Problem(
            "slipway:store.versioning",
            store.versioning,
            "the stack is protected, and an object overwritten or deleted by mistake would be gone",
            "write versioning: true or soft_delete_days: 7",
        )
    if store.bucket is not None and not 3 <= len(store.bucket) <= BUCKET_LIMIT:
        yield Problem(
            "slipway:store.bucket",
            store.bucket,
            f"a bucket's name has 3 to {BUCKET_LIMIT} characters; this one has {len(store.bucket)}",
            "choose another, or leave the key out: <project>-slipway-<stack>",
        )


def _no_project() -> Problem:
    return Problem(
        "gcp:project",
        None,
        "the stack does not say which Google Cloud project to create things in",
        "pulumi config set gcp:project <your-project-id> -s <stack>",
    )
