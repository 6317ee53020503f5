"""The sidecar that Cloud Storage FUSE adds to pods which ask for it by their annotations."""

from collections.abc import Mapping

from infra.platform import Resources
from infra.schema.quantities import cpu_millicores, mebibytes

PREFIX = "gke-gcsfuse"
DEFAULTS = {"cpu-request": "250m", "memory-request": "256Mi", "ephemeral-storage-request": "5Gi"}
"""Where annotations say nothing else
(cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar, seen November 2026)."""


def sidecar(annotations: Mapping[str, str]) -> Resources:
    """What it adds to the requests of a pod with these annotations; nothing where they do not ask for it."""
    if annotations.get(f"{PREFIX}/volumes") != "true":
        return Resources(cpu=0, memory=0)
    asked = {key: annotations.get(f"{PREFIX}/{key}", default) for key, default in DEFAULTS.items()}
    return Resources(
        cpu=cpu_millicores(asked["cpu-request"]),
        memory=mebibytes(asked["memory-request"]),
        ephemeral_storage=mebibytes(asked["ephemeral-storage-request"]),
    )
