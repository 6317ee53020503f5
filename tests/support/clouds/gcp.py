"""Stacks on Google Cloud for tests: settings to vary, and what they declare."""

from collections.abc import Callable, Mapping
from typing import Any

from slipway.infra.clouds.gcp.emulator import Emulator as GcpEmulator
from slipway.infra.clouds.gcp.platforms import platforms
from slipway.infra.platform import Platform
from slipway.infra.settings.model import Settings
from tests.support.clouds.stacks import changed_copy, declare_once, with_extra_pool
from tests.support.recording import Recording

PROJECT = "a-project"

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
BUCKET = "gcp:storage/bucket:Bucket"

CPU_POOL = {"machine_type": "e2-standard-4", "nodes": {"total_min": 0, "total_max": 2}}
T4_POOL = {
    "machine_type": "n1-standard-4",
    "accelerator": "nvidia-tesla-t4",
    "gpus": 1,
    "spot": True,
    "nodes": {"total_min": 0, "total_max": 1},
}

BASE: dict[str, Any] = {
    "clusters": {"dev": {"cloud": "gcp", "location": "us-central1", "pools": {"cpu": CPU_POOL, "train": T4_POOL}}},
    "store": {"kind": "gcs", "location": "us-central1"},
}


def raw(change: Callable[[dict[str, Any]], object] = lambda _: None) -> dict[str, Any]:
    """The plain values of a small stack, changed in place by ``change``."""
    return changed_copy(BASE, change)


def with_pool(pool: Mapping[str, Any], **cluster: Any) -> Settings:
    """A small stack with one more pool, named ``extra``, in a cluster with these keys."""
    return with_extra_pool(BASE, pool, cluster)


def declare(
    settings: Settings,
    *,
    preview: bool = False,
    stack: str = "test",
    then: Callable[[Mapping[str, Platform]], object] | None = None,
    store: Mapping[str, str] | None = None,
    project: str = PROJECT,
) -> Recording:
    """Declares a stack on Google Cloud, once in a test run unless ``then`` runs in the program."""
    how: dict[str, Any] = {"preview": preview, "stack": stack, "then": then, "store": store}
    return declare_once(settings, platforms, GcpEmulator(settings.request), {"gcp:project": project}, **how)
