"""What a cloud adds to a pod on its way in, and the scheduler then counts."""

from infra.platform import Resources
from infra.settings import cpu_millicores, mebibytes
from stacks.rehearsal.pods import PodSpec

GCSFUSE = "gke-gcsfuse"
GCSFUSE_DEFAULTS = {"cpu-request": "250m", "memory-request": "256Mi", "ephemeral-storage-request": "5Gi"}
"""Of the Cloud Storage FUSE sidecar, where annotations say nothing else
(cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar, seen November 2026)."""


def injected(pod: PodSpec) -> Resources:
    """What is added to the requests of ``pod``: Cloud Storage FUSE's sidecar, which its annotations ask for.

    It starts before the init containers and stays, so it adds to the largest of them, too.
    """
    if pod.annotations.get(f"{GCSFUSE}/volumes") != "true":
        return Resources(cpu=0, memory=0)
    asked = {key: pod.annotations.get(f"{GCSFUSE}/{key}", default) for key, default in GCSFUSE_DEFAULTS.items()}
    return Resources(
        cpu=cpu_millicores(asked["cpu-request"]),
        memory=mebibytes(asked["memory-request"]),
        ephemeral_storage=mebibytes(asked["ephemeral-storage-request"]),
    )
