"""The bucket as pods see it: mounted by Cloud Storage FUSE, and read back by the program."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from infra.clouds.gcp.settings import GCS_FUSE_SIDECAR as SIDECAR
from infra.platform import POD_USER, Store

DRIVER = "gcsfuse.csi.storage.gke.io"

MOUNT_OPTIONS = ",".join(
    [
        # Objects written by anything but the mount have no placeholder for their directory.
        "implicit-dirs",
        f"uid={POD_USER}",
        f"gid={POD_USER}",
        "file-mode=0660",
        "dir-mode=0770",
        # A step has to see what another has just written or renamed. The default is to remember for a minute, and
        # on machines such as a3-highgpu-8g for ever (gcsfuse, docs/semantics.md, "Stat caching", 2026-08-20).
        "metadata-cache:ttl-secs:0",
        "metadata-cache:negative-ttl-secs:0",
    ]
)
"""Options of gcsfuse. Its file cache stays off: it is on only where a volume gives it room."""

ANNOTATIONS = {
    "gke-gcsfuse/volumes": "true",
    "gke-gcsfuse/cpu-request": f"{SIDECAR.cpu}m",
    "gke-gcsfuse/cpu-limit": f"{SIDECAR.cpu}m",
    "gke-gcsfuse/memory-request": f"{SIDECAR.memory}Mi",
    "gke-gcsfuse/memory-limit": f"{SIDECAR.memory}Mi",
    "gke-gcsfuse/ephemeral-storage-request": f"{SIDECAR.ephemeral_storage}Mi",
    "gke-gcsfuse/ephemeral-storage-limit": f"{SIDECAR.ephemeral_storage}Mi",
}
"""Makes GKE's webhook add the sidecar, with these resources."""


def gcs_store(bucket: gcp.storage.Bucket) -> Store:
    """The store that all clusters of the stack mount."""
    return _mounted(bucket.name, "", [bucket])


def team_store(bucket: gcp.storage.Bucket, folder: str) -> Store:
    """The store of one team: a folder of the bucket, which is all that its pods mount."""
    return _mounted(bucket.name, folder, [bucket])


def readable(store: Store, arguments: Mapping[str, str]) -> Store:
    """``store``, which another stack has, with what reads it; ``arguments`` are its `Store.reader` there."""
    bucket, folder = arguments["bucket"], arguments["folder"]
    return _with_reading(store, bucket, folder, [])


def _mounted(bucket: pulumi.Input[str], folder: str, after: Sequence[pulumi.Resource]) -> Store:
    options = f"{MOUNT_OPTIONS},only-dir={folder}" if folder else MOUNT_OPTIONS
    store = Store(
        # Not the bucket's own `url`, which a preview does not know.
        url=pulumi.Output.concat("gs://", bucket, *([f"/{folder}"] if folder else [])),
        volume=k8s.core.v1.VolumeArgs(
            name="store",
            csi=k8s.core.v1.CSIVolumeSourceArgs(
                driver=DRIVER,
                volume_attributes={"bucketName": bucket, "mountOptions": options},
            ),
        ),
        pod_annotations=ANNOTATIONS,
        sidecar=SIDECAR,
        reader={"bucket": bucket, "folder": folder},
        # In another location it has the same name.
        replaced_with=after,
    )
    return _with_reading(store, bucket, folder, after)


def _with_reading(
    store: Store, bucket: pulumi.Input[str], folder: str, created: Sequence[pulumi.Resource]
) -> Store:
    """``store`` with what reads the files below ``folder`` of the bucket once ``created`` is there."""
    root = f"{folder}/" if folder else ""

    def listed(prefix: pulumi.Input[str], after: Sequence[pulumi.Resource]) -> pulumi.Output[Sequence[str]]:
        found = gcp.storage.get_bucket_objects_output(
            bucket=bucket,
            prefix=pulumi.Output.concat(root, prefix) if root else prefix,
            opts=pulumi.InvokeOutputOptions(depends_on=after),
        )
        return found.bucket_objects.apply(lambda objects: [each.name.removeprefix(root) for each in objects])

    def read(path: pulumi.Input[str], after: pulumi.Resource) -> pulumi.Output[str | None]:
        def content(found: tuple[str, Sequence[str]]) -> pulumi.Output[str | None]:
            # Asking for the content of an object that is gone would fail the whole program.
            wanted, names = found
            if wanted not in names:
                return pulumi.Output.from_input(None)
            return gcp.storage.get_bucket_object_content_output(bucket=bucket, name=f"{root}{wanted}").content

        return pulumi.Output.all(path, listed(path, [after])).apply(lambda found: content((found[0], found[1])))

    def files(below: str) -> pulumi.Output[Sequence[str]]:
        return listed(f"{below}/", created)

    def browse(path: pulumi.Input[str]) -> pulumi.Output[str]:
        return pulumi.Output.concat("https://console.cloud.google.com/storage/browser/", bucket, f"/{root}", path)

    return replace(store, read=read, files=files, browse=browse)
