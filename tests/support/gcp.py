"""Stacks on Google Cloud for tests: settings to vary, and what they declare."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from infra.clouds.gcp.emulator import Emulator as GcpEmulator
from infra.clouds.gcp.platforms import platforms
from infra.platform import Platform
from infra.settings.loading import load
from infra.settings.model import Settings
from tests.support.recording import Recording, record

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
    values = copy.deepcopy(BASE)
    change(values)
    return values


def with_pool(pool: Mapping[str, Any], **cluster: Any) -> Settings:
    """A small stack with one more pool, named ``extra``, in a cluster with these keys."""

    def change(values: dict[str, Any]) -> None:
        values["clusters"]["dev"].update(cluster)
        values["clusters"]["dev"]["pools"]["extra"] = dict(pool)

    return load(raw(change))


_DECLARED: dict[tuple[object, ...], Recording] = {}


def declare(
    settings: Settings,
    *,
    preview: bool = False,
    stack: str = "test",
    then: Callable[[Mapping[str, Platform]], object] | None = None,
    store: Mapping[str, str] | None = None,
    project: str = PROJECT,
) -> Recording:
    """Declares a stack on Google Cloud; ``then`` runs in the program with its platforms.

    The same stack is declared once in a test run: recordings are to be read only.
    """
    key = (settings.model_dump_json(), preview, stack, project)
    if then is not None or key not in _DECLARED:
        recording = _declared(settings, then or (lambda _: None), (preview, stack, project), store)
        if then is not None:
            return recording
        _DECLARED[key] = recording
    return _DECLARED[key]


def _declared(
    settings: Settings,
    then: Callable[[Mapping[str, Platform]], object],
    how: tuple[bool, str, str],
    store: Mapping[str, str] | None,
) -> Recording:
    preview, stack, project = how

    def program() -> Mapping[str, Platform]:
        found = platforms(settings.request)
        for name, platform in found.items():
            pulumi.export(f"{name}-kubeconfig", platform.kubeconfig)
            pulumi.export(f"{name}-connect", platform.connect)
            pulumi.export(f"{name}-kubectl", platform.kubectl)
            pulumi.export(f"{name}-annotations", dict(platform.service_account_annotations))
        then(found)
        return found

    return record(
        program,
        {"gcp:project": project},
        preview=preview,
        emulators=[GcpEmulator(settings.request)],
        store=store,
        stack_name=stack,
    )
