"""The disk of a node that keeps what a step reads: copies that the step's runner makes, and what a mount keeps."""

from collections.abc import Iterator

import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.run import Run
from slipway.infra.placed import FOLDERS, Step
from slipway.infra.schema.quantities import size_quantity

VOLUME, PLACE = "cache", "/cache"
"""The volume with the copies, and where a pod has it."""

BLOCKS = 64
"""MiB of its own that a volume has beside what is kept in it: for folders and file systems."""

BYTES = 0.75
"""The part of a bucket's disk that its mount may fill: a file of 16 KB takes up to a fifth more.

Cloud Storage FUSE counts the bytes of files (internal/cache/data/file_info.go of GoogleCloudPlatform/gcsfuse,
v3.2.8), the kubelet their blocks, and it ends a pod that has more in a volume than its limit.
"""


def flags(run: Run) -> list[str]:
    """What the runner has to know of the copies."""
    step = run.step
    copies, _ = shares(step)
    if not copies:
        return []
    folders = [name for name, data in step.data.items() if data.in_store]
    data = [word for name in folders for word in ("--data", f"{name}={FOLDERS}/{name}")]
    return ["--cache", PLACE, "--cache-mib", str(copies), *data]


def volumes(step: Step) -> Iterator[k8s.core.v1.VolumeArgs]:
    """The volumes that keep what the step reads, with limits."""
    copies, bucket = shares(step)
    if copies:
        yield _empty(VOLUME, copies)
    if bucket:
        yield _empty(step.platform.bucket_cache, int(bucket / BYTES) * step.buckets)


def mounts(step: Step) -> Iterator[k8s.core.v1.VolumeMountArgs]:
    """Where the step's program has the copies. What a mount keeps it keeps for itself."""
    if shares(step)[0]:
        yield k8s.core.v1.VolumeMountArgs(name=VOLUME, mount_path=PLACE)


def shares(step: Step) -> tuple[int, int]:
    """MiB of the step's cache for copies, and for the files of each bucket that it mounts; parts are equal."""
    copied = bool(step.inputs.keys() - step.packages) or any(data.in_store for data in step.data.values())
    buckets = step.buckets if step.platform.bucket_cache else 0
    parts = copied + buckets
    if not step.cache or not parts:
        return 0, 0
    part = max(0, step.cache // parts - BLOCKS)
    return (part if copied else 0), (int(part * BYTES) if buckets else 0)


def _empty(name: str, kept: int) -> k8s.core.v1.VolumeArgs:
    limit = size_quantity(kept + BLOCKS)
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=limit))
