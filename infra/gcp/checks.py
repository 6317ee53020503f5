"""What has to be right before anything is declared on Google Cloud, beyond the shape of the settings."""

from collections.abc import Iterator, Mapping

import pulumi
import pulumi_gcp as gcp

from infra.settings import Problem, Settings, SettingsError
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
    if not isinstance(settings.store, GcsStore):
        return []
    return list(_problems(settings.store, settings.protect))


def _problems(store: GcsStore, protect: bool) -> Iterator[Problem]:
    if not gcp.config.project:
        yield _no_project()
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


def _no_project() -> Problem:
    return Problem(
        "gcp:project",
        None,
        "the stack does not say which Google Cloud project to create things in",
        f"pulumi config set gcp:project <your-project-id> -s {pulumi.get_stack()}",
    )
