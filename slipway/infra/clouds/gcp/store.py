"""The bucket as pods see it: mounted by Cloud Storage FUSE, and read back by the program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from slipway.infra.clouds.gcp.catalogue import DRIVER, MOUNTS_BUCKETS
from slipway.infra.clouds.gcp.identity import Key
from slipway.infra.clouds.gcp.network import INSTANCE_LIMIT, bucket_name, resource_name
from slipway.infra.clouds.gcp.settings import GCS_FUSE_INPUT as INPUT
from slipway.infra.clouds.gcp.settings import GCS_FUSE_SIDECAR as SIDECAR
from slipway.infra.clouds.gcp.settings import FilestoreStore, GcsStore
from slipway.infra.objects import file_system_store, file_system_volume
from slipway.infra.platform import POD_USER, Data, Resources, Store
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT
from slipway.infra.schema.quantities import mebibytes

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


INPUT_OPTIONS = ",".join(
    [
        "implicit-dirs",
        f"uid={POD_USER}",
        f"gid={POD_USER}",
        "file-mode=0440",
        "dir-mode=0550",
        # What a digest is pinned of does not change while a step reads it: each object is asked for once.
        "metadata-cache:ttl-secs:-1",
    ]
)
"""Options of gcsfuse for data that pods only read."""


CACHE_VOLUME = "gke-gcsfuse-cache"
"""The pod's volume in which gcsfuse keeps files, where there is one of that name (pkg/webhook/sidecar_spec.go in
GoogleCloudPlatform/gcs-fuse-csi-driver, 2026-08-21). It has to belong to the pod's `fsGroup`."""


def cache_options(mib: int) -> list[str]:
    """Options of gcsfuse that keep ``mib`` MiB of files, those longest unread going first.

    A file is fetched whole, in parallel, once any byte of it is read: programs read records from the middle of
    files, too. With parallel downloads models load up to nine times as fast (README.md of
    GoogleCloudPlatform/gcsfuse, seen November 2026).
    """
    return [
        f"file-cache:max-size-mb:{mib}",
        "file-cache:enable-parallel-downloads:true",
        # By default parts have 200 MB, so that a smaller file has one.
        "file-cache:download-chunk-size-mb:32",
        "file-cache:cache-file-for-range-read:true",
    ]


def input_volume(data: Data, kept: int = 0) -> k8s.core.v1.VolumeArgs:
    """A folder of a further bucket, or the whole of it, as pods that only read it mount it.

    ``kept`` MiB of it stay on the node's disk.
    """
    folder = [f"only-dir={data.folder}"] if data.folder else []
    options = ",".join([INPUT_OPTIONS, *(cache_options(kept) if kept else []), *folder])
    return k8s.core.v1.VolumeArgs(
        name=data.volume,
        csi=k8s.core.v1.CSIVolumeSourceArgs(
            driver=DRIVER,
            read_only=True,
            volume_attributes={"bucketName": data.bucket, "mountOptions": options},
        ),
    )


def beside(inputs: int, store: Store) -> Store:
    """``store`` as a pod has it that mounts so many inputs, too: the sidecar runs a process for each."""
    sidecar = replace(SIDECAR, cpu=SIDECAR.cpu + inputs * INPUT.cpu, memory=SIDECAR.memory + inputs * INPUT.memory)
    changed = replace(store, sidecar=sidecar, pod_annotations=annotations(sidecar))
    return without_cpu_limit(changed) if store.pod_annotations.get(CPU_LIMIT) == NO_LIMIT else changed


CPU_LIMIT, NO_LIMIT = "gke-gcsfuse/cpu-limit", "0"
"""The annotation with the sidecar's CPU limit, and the value that takes it away, but not on Autopilot.

Source: docs/troubleshooting.md in GoogleCloudPlatform/gcs-fuse-csi-driver, 2026-08-21.
"""


def without_cpu_limit(store: Store) -> Store:
    """``store`` with a sidecar that may use the CPU that is left on its node, as the containers of steps may.

    A quarter of a CPU, its default, has to decrypt all that a step reads.
    """
    if CPU_LIMIT not in store.pod_annotations:
        return store
    return replace(store, pod_annotations={**store.pod_annotations, CPU_LIMIT: NO_LIMIT})


def annotations(sidecar: Resources) -> Mapping[str, str]:
    """Makes GKE's webhook add the sidecar, with these resources."""
    amounts = {
        "cpu": f"{sidecar.cpu}m",
        "memory": f"{sidecar.memory}Mi",
        "ephemeral-storage": f"{sidecar.ephemeral_storage}Mi",
    }
    return {
        MOUNTS_BUCKETS: "true",
        **{f"gke-gcsfuse/{name}-{kind}": amounts[name] for name in amounts for kind in ("request", "limit")},
    }


@dataclass(frozen=True)
class StoreFolder:
    """A ``folder`` of a bucket, or the whole of it where that is empty; ``created`` is the bucket that the stack
    declares, and empty where the bucket is there already."""

    bucket: pulumi.Input[str]
    folder: str = ""
    created: Sequence[gcp.storage.Bucket] = ()

    def below(self, folder: str) -> "StoreFolder":
        """A folder of this one."""
        return replace(self, folder=f"{self.folder}/{folder}" if self.folder else folder)


def gcs_store(folder: StoreFolder) -> Store:
    """The store that pods mount: of a bucket's folder they see nothing else."""
    return _mount_store(folder.bucket, folder.folder, folder.created)


def readable(store: Store, arguments: Mapping[str, str]) -> Store:
    """``store``, which another stack has, with what reads it; ``arguments`` are its `Store.reader` there."""
    bucket, folder = arguments["bucket"], arguments["folder"]
    return _with_reading(store, bucket, folder, [])


def _mount_store(bucket: pulumi.Input[str], folder: str, after: Sequence[pulumi.Resource]) -> Store:
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
        pod_annotations=annotations(SIDECAR),
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

    def list_objects(prefix: pulumi.Input[str], after: Sequence[pulumi.Resource]) -> pulumi.Output[Sequence[str]]:
        listing = gcp.storage.get_bucket_objects_output(
            bucket=bucket,
            prefix=pulumi.Output.concat(root, prefix) if root else prefix,
            opts=pulumi.InvokeOutputOptions(depends_on=after),
        )
        return listing.bucket_objects.apply(lambda objects: [entry.name.removeprefix(root) for entry in objects])

    def read(path: pulumi.Input[str], after: pulumi.Resource) -> pulumi.Output[str | None]:
        def content(pair: tuple[str, Sequence[str]]) -> pulumi.Output[str | None]:
            # Asking for the content of an object that is gone would fail the whole program.
            wanted, names = pair
            if wanted not in names:
                return pulumi.Output.from_input(None)
            return gcp.storage.get_bucket_object_content_output(bucket=bucket, name=f"{root}{wanted}").content

        return pulumi.Output.all(path, list_objects(path, [after])).apply(lambda pair: content((pair[0], pair[1])))

    def files(below: str) -> pulumi.Output[Sequence[str]]:
        return list_objects(f"{below}/", created)

    def browse(path: pulumi.Input[str]) -> pulumi.Output[str]:
        return pulumi.Output.concat("https://console.cloud.google.com/storage/browser/", bucket, f"/{root}", path)

    return replace(store, read=read, files=files, browse=browse)


TEMPORARY_SUFFIX = ".slipway-partial"
"""How the names of files end that a step writes beside their target before it renames them.

A killed step leaves them behind.
"""

DAY = 86_400


@dataclass(frozen=True)
class StoreBucketArgs:
    """``key`` encrypts new objects. With ``protect`` neither Pulumi nor a destroy deletes the bucket; ``after`` is
    what has to be there first."""

    project: str
    store: GcsStore
    key: Key | None
    protect: bool
    after: Sequence[pulumi.Resource]


def store_bucket(name: str, args: StoreBucketArgs) -> gcp.storage.Bucket:
    """A regional bucket with uniform access and public access prevention."""
    return gcp.storage.Bucket(
        name,
        name=bucket_name(args.project, args.store.bucket),
        project=args.project,
        location=args.store.location.upper(),
        storage_class="STANDARD",
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        versioning=gcp.storage.BucketVersioningArgs(enabled=args.store.versioning),
        soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
            retention_duration_seconds=args.store.soft_delete_days * DAY
        ),
        lifecycle_rules=_lifecycle(args.store),
        encryption=gcp.storage.BucketEncryptionArgs(default_kms_key_name=args.key.name) if args.key else None,
        force_destroy=not args.protect,
        opts=pulumi.ResourceOptions(
            protect=args.protect, depends_on=[*args.after, *(args.key.ready if args.key else ())]
        ),
    )


def access_logs(project: str, after: Sequence[pulumi.Resource]) -> None:
    """Logs who reads and writes objects: the audit logs that Google recommends over a bucket's usage logs, whose
    delivery it does not promise (https://docs.cloud.google.com/storage/docs/access-logs, 2026-11-22).

    A project has one such configuration for Cloud Storage. It stays when the stack is destroyed: another stack, or
    whoever else reads these logs, would lose them.
    """
    gcp.projects.IAMAuditConfig(
        "store",
        project=project,
        service="storage.googleapis.com",
        audit_log_configs=[
            gcp.projects.IAMAuditConfigAuditLogConfigArgs(log_type=kind) for kind in ("DATA_READ", "DATA_WRITE")
        ],
        opts=pulumi.ResourceOptions(depends_on=after, retain_on_delete=True),
    )


TEMPORARY_DAYS = 7
"""After so many days what steps leave behind that were killed is deleted."""


def _lifecycle(store: GcsStore) -> list[gcp.storage.BucketLifecycleRuleArgs]:
    return [
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(
                age=TEMPORARY_DAYS, matches_suffixes=[TEMPORARY_SUFFIX]
            ),
        ),
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="AbortIncompleteMultipartUpload"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=TEMPORARY_DAYS),
        ),
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(
                days_since_noncurrent_time=store.old_version_days, with_state="ARCHIVED"
            ),
        ),
    ]


FILESTORE_DRIVER = "filestore.csi.storage.gke.io"

SHARE = "store"
"""Name of the one file share of the instance: 16 characters at most (`FileShareConfig.name` of Filestore's REST
reference, seen November 2026)."""


@dataclass(frozen=True)
class FilestoreArgs:
    """``nodes`` are the address ranges (CIDR) of the nodes that mount the instance; ``after`` is what has to be
    there first. With ``protect`` neither Pulumi nor Google deletes the instance."""

    project: str
    store: FilestoreStore
    network: gcp.compute.Network
    nodes: Sequence[str]
    protect: bool
    after: Sequence[pulumi.Resource]


def filestore_instance(name: str, args: FilestoreArgs) -> gcp.filestore.Instance:
    """The instance, with one file share, in the stack's network.

    The stack creates it, and not the CSI driver from a StorageClass: such an instance goes with its claim only
    while the cluster is there to delete it, and stays, and is billed, where the cluster goes first.
    """
    return gcp.filestore.Instance(
        name,
        name=resource_name(INSTANCE_LIMIT, name),
        project=args.project,
        location=args.store.location,
        tier=args.store.tier,
        file_shares=gcp.filestore.InstanceFileSharesArgs(
            name=SHARE,
            capacity_gb=mebibytes(args.store.size) // 1024,
            nfs_export_options=[_export(args.nodes)],
        ),
        networks=[
            gcp.filestore.InstanceNetworkArgs(
                network=args.network.name, modes=["MODE_IPV4"], connect_mode="DIRECT_PEERING"
            )
        ],
        deletion_protection_enabled=args.protect,
        opts=pulumi.ResourceOptions(
            protect=args.protect,
            depends_on=args.after,
            # The name is taken until the old one is gone.
            delete_before_replace=True,
            custom_timeouts=pulumi.CustomTimeouts(create="40m", update="40m", delete="40m"),
        ),
    )


def _export(nodes: Sequence[str]) -> gcp.filestore.InstanceFileSharesNfsExportOptionArgs:
    """To the nodes only, which mount the share for pods. Without a rule, every address of the network mounts it,
    pods included, as whichever user it says it is.

    Root is not squashed: the kubelet, which gives the share to the pods' group, is root on the nodes.
    Source: https://cloud.google.com/filestore/docs/access-control, read on 2026-11-24.
    """
    return gcp.filestore.InstanceFileSharesNfsExportOptionArgs(
        ip_ranges=sorted(nodes), access_mode="READ_WRITE", squash_mode="NO_ROOT_SQUASH"
    )


def filestore_volume(
    name: str, args: FilestoreArgs, instance: gcp.filestore.Instance, namespace: str, provider: k8s.Provider
) -> k8s.core.v1.PersistentVolume:
    """The volume with which one cluster mounts the instance, for the claim of ``namespace``.

    The share belongs to root. The kubelet gives it to the group of the first pod that mounts it
    (kubernetes-sigs/gcp-filestore-csi-driver#103 lets it, in every access mode).
    """
    return k8s.core.v1.PersistentVolume(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=resource_name(KUBERNETES_NAME_LIMIT, "store")),
        spec=file_system_volume(
            args.store.size,
            namespace,
            csi=k8s.core.v1.CSIPersistentVolumeSourceArgs(
                driver=FILESTORE_DRIVER,
                volume_handle=pulumi.Output.concat(
                    "modeInstance/", args.store.location, "/", instance.name, "/", SHARE
                ),
                volume_attributes={
                    "ip": instance.networks.apply(lambda networks: (networks[0].ip_addresses or [""])[0]),
                    "volume": SHARE,
                },
            ),
        ),
        opts=pulumi.ResourceOptions(
            provider=provider,
            # A volume's source cannot change, and its name is taken until the old one is gone.
            delete_before_replace=True,
            # Once bound, it takes no claim of another namespace.
            replace_on_changes=["spec.claimRef"],
        ),
    )


def filestore_store(
    args: FilestoreArgs, instance: gcp.filestore.Instance, volume: k8s.core.v1.PersistentVolume
) -> Store:
    """The store as the pods of the cluster have it that has ``volume``."""
    return file_system_store(
        pulumi.Output.concat("filestore://", instance.name, "/", SHARE), args.store.size, volume, [instance]
    )
