"""The store as a volume that the cluster's pods claim."""

import hashlib
from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.clouds.existing.settings import NfsStore, PvcStore, S3CompatibleStore
from slipway.infra.platform import Claim, Store
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest
from slipway.infra.schema.quantities import canonical

VOLUME = "store"
"""Name of the volume in pods, and the beginning of the names of its PersistentVolume and its claim."""

MountedStore = PvcStore | NfsStore | S3CompatibleStore
"""The stores that a cluster which is already there can mount."""

GROUP_ANNOTATION = "pv.beta.kubernetes.io/gid"
"""Of a PersistentVolume: the group that the kubelet adds to every pod that mounts it (kubernetes.io/docs/tasks/
configure-pod-container/configure-persistent-volume-storage, "Access control", seen November 2026)."""

GEESEFS_OPTIONS = (
    "--memory-limit 1000",
    # Pods run as another user than the mount, which knows neither owners nor modes.
    "--dir-mode 0777",
    "--file-mode 0666",
    # A closed file is in the bucket, and other nodes see it within a second, not a minute.
    "--fsync-on-close",
    "--stat-cache-ttl 1s",
)
"""Of GeeseFS, which the driver starts (github.com/yandex-cloud/geesefs, core/cfg/flags.go, June 2026)."""


def declare_store(
    name: str, store: MountedStore, namespace: str, opts: pulumi.ResourceOptions
) -> tuple[Store, Sequence[pulumi.Resource]]:
    """The store that ``namespace`` claims, and the volume that it needs, declared as ``name`` with ``opts``."""
    resources: list[pulumi.Resource] = []
    claim = claim_name(store, namespace)
    storage_class, volume_name = None, None
    if isinstance(store, PvcStore):
        storage_class = store.storage_class
    spec = _volume(store, namespace, claim)
    if spec is not None:
        # An empty class, unlike none, keeps the cluster's default class from making a volume of its own.
        storage_class = ""
        stem = f"{pulumi.get_project()}-{pulumi.get_stack()}"
        volume_name = f"{fit(stem, KUBERNETES_NAME_LIMIT - len(claim) - 1)}-{claim}"
        group = store.group if isinstance(store, NfsStore) else None
        metadata = k8s.meta.v1.ObjectMetaArgs(
            name=volume_name, annotations={GROUP_ANNOTATION: str(group)} if group is not None else None
        )
        resources.append(k8s.core.v1.PersistentVolume(name, metadata=metadata, spec=spec, opts=opts))
    return (
        Store(
            url=_url(store, namespace, claim),
            volume=k8s.core.v1.VolumeArgs(
                name=VOLUME,
                persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=claim),
            ),
            claim=Claim(
                name=claim,
                size=store.size,
                access_mode=_access_mode(store),
                storage_class=storage_class,
                volume_name=volume_name,
            ),
        ),
        resources,
    )


def folder_of(store: MountedStore, team: str) -> MountedStore:
    """The store of one team: a folder of ``store``, or a volume of its own where the cluster makes the volumes."""
    if isinstance(store, NfsStore):
        return store.model_copy(update={"path": f"{store.path.rstrip('/')}/{team}"})
    if isinstance(store, S3CompatibleStore):
        return store.model_copy(update={"prefix": f"{store.prefix}/{team}" if store.prefix else team})
    if store.host_path is not None:
        return store.model_copy(update={"host_path": f"{store.host_path.rstrip('/')}/{team}"})
    return store


def claim_name(store: MountedStore, namespace: str) -> str:
    """The name of the store's claim in ``namespace``."""
    return f"{VOLUME}-{_digest(store, namespace)}"


def _access_mode(store: MountedStore) -> str:
    return store.access_mode if isinstance(store, PvcStore) else "ReadWriteMany"


def _url(store: MountedStore, namespace: str, claim: str) -> str:
    if isinstance(store, NfsStore):
        return f"nfs://{store.server}{store.path}"
    if isinstance(store, S3CompatibleStore):
        return f"s3://{_folder(store)}"
    return f"pvc://{namespace}/{claim}"


def _digest(store: MountedStore, namespace: str) -> str:
    """Names the store: another server, folder or class is another claim, and another volume.

    A claim's source cannot change, and one that is replaced under its own name makes Pulumi's preview fail, and
    waits for its volume, which waits for it. Nor does a volume that was bound take a claim of another namespace. A
    claim that the cluster fills may grow.
    """
    if isinstance(store, PvcStore) and store.host_path is None:
        text = store.model_dump_json(exclude={"size"})
    else:
        text = f"{namespace} {store.model_dump_json()}"
    if isinstance(store, NfsStore):
        # A key of earlier, of which the names of volumes still hold the default: another name replaces a volume.
        text = f'{text[:-1]},"mount_options":[]}}'
    return short_digest(hashlib.sha256(text.encode()).hexdigest())


def _volume(store: MountedStore, namespace: str, claim: str) -> k8s.core.v1.PersistentVolumeSpecArgs | None:
    """The volume that is there before the claim; None where the cluster makes one. Its files outlive the stack."""
    host_path, nfs, csi = None, None, None
    if isinstance(store, NfsStore):
        # In a volume of its own: the *restricted* Pod Security Standard lets no pod name an NFS server.
        nfs = k8s.core.v1.NFSVolumeSourceArgs(server=store.server, path=store.path)
    elif isinstance(store, S3CompatibleStore):
        csi = _bucket(store)
    elif store.host_path is not None:
        # The kubelet creates a missing folder as root's and changes no owner on host paths, while pods run as
        # `slipway.infra.platform.POD_USER`. So the folder has to be theirs before (``chown 1000:1000``); the store
        # gate says so where it is not.
        host_path = k8s.core.v1.HostPathVolumeSourceArgs(path=store.host_path, type="DirectoryOrCreate")
    else:
        return None
    return k8s.core.v1.PersistentVolumeSpecArgs(
        capacity={"storage": canonical(store.size)},
        access_modes=[_access_mode(store)],
        persistent_volume_reclaim_policy="Retain",
        storage_class_name="",
        claim_ref=k8s.core.v1.ObjectReferenceArgs(
            api_version="v1", kind="PersistentVolumeClaim", namespace=namespace, name=claim
        ),
        host_path=host_path,
        nfs=nfs,
        csi=csi,
    )


def _bucket(store: S3CompatibleStore) -> k8s.core.v1.CSIPersistentVolumeSourceArgs:
    """As in the driver's example of a volume that is there before (deploy/kubernetes/examples/pvc-manual.yaml)."""
    secret = k8s.core.v1.SecretReferenceArgs(name=store.secret, namespace=store.secret_namespace)
    return k8s.core.v1.CSIPersistentVolumeSourceArgs(
        driver=store.driver,
        volume_handle=_folder(store),
        volume_attributes={
            "capacity": store.size,
            "mounter": "geesefs",
            # After the endpoint that the Secret names, so that this one counts.
            "options": " ".join([*GEESEFS_OPTIONS, f"--endpoint {store.endpoint}"]),
        },
        controller_publish_secret_ref=secret,
        node_stage_secret_ref=secret,
        node_publish_secret_ref=secret,
    )


def _folder(store: S3CompatibleStore) -> str:
    return f"{store.bucket}/{store.prefix}" if store.prefix else store.bucket
