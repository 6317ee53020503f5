"""The store on a cluster's own volumes."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from infra.existing.settings import PvcStore
from infra.names import KUBERNETES_NAME_LIMIT, fit
from infra.platform import Claim, Store

CLAIM = "store"
"""Name of the PersistentVolumeClaim, and of the volume in pods."""


def declare_store(
    name: str, store: PvcStore, namespace: str, opts: pulumi.ResourceOptions
) -> tuple[Store, Sequence[pulumi.Resource]]:
    """The store that ``namespace`` claims, and what else it needs, declared as ``name`` with ``opts``."""
    resources: list[pulumi.Resource] = []
    storage_class, volume_name = store.storage_class, None
    if store.host_path is not None:
        # An empty class, unlike none, keeps the cluster's default class from making a volume of its own.
        storage_class = ""
        volume_name = fit(f"{pulumi.get_project()}-{pulumi.get_stack()}-{CLAIM}", KUBERNETES_NAME_LIMIT)
        spec = _host_path_volume(store, store.host_path, namespace)
        metadata = k8s.meta.v1.ObjectMetaArgs(name=volume_name)
        resources.append(k8s.core.v1.PersistentVolume(name, metadata=metadata, spec=spec, opts=opts))
    return (
        Store(
            url=f"pvc://{namespace}/{CLAIM}",
            volume=k8s.core.v1.VolumeArgs(
                name=CLAIM,
                persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=CLAIM),
            ),
            claim=Claim(
                name=CLAIM,
                size=store.size,
                access_mode=store.access_mode,
                storage_class=storage_class,
                volume_name=volume_name,
            ),
        ),
        resources,
    )


def _host_path_volume(store: PvcStore, path: str, namespace: str) -> k8s.core.v1.PersistentVolumeSpecArgs:
    """A folder of the node as a volume; its files stay when the stack goes.

    The kubelet creates a missing folder as root's and changes no owner on host paths, while pods run as
    `infra.platform.POD_USER`. So the folder has to be theirs before (``chown 1000:1000``); the store gate says so
    where it is not.
    """
    return k8s.core.v1.PersistentVolumeSpecArgs(
        capacity={"storage": store.size},
        access_modes=[store.access_mode],
        persistent_volume_reclaim_policy="Retain",
        storage_class_name="",
        claim_ref=k8s.core.v1.ObjectReferenceArgs(
            api_version="v1", kind="PersistentVolumeClaim", namespace=namespace, name=CLAIM
        ),
        host_path=k8s.core.v1.HostPathVolumeSourceArgs(path=path, type="DirectoryOrCreate"),
    )
