"""Filestore as the store: an NFS server that the nodes of several clusters mount at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from infra.clouds.gcp.names import INSTANCE_LIMIT, resource_name
from infra.clouds.gcp.settings import FilestoreStore
from infra.platform import Claim, Store
from infra.schema.names import KUBERNETES_NAME_LIMIT
from infra.schema.quantities import mebibytes

DRIVER = "filestore.csi.storage.gke.io"

SHARE = "store"
"""Name of the one file share of the instance: 16 characters at most (`FileShareConfig.name` of Filestore's REST
reference, seen November 2026)."""

CLAIM = "store"


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
        metadata=k8s.meta.v1.ObjectMetaArgs(name=_volume_name()),
        spec=k8s.core.v1.PersistentVolumeSpecArgs(
            capacity={"storage": args.store.size},
            access_modes=["ReadWriteMany"],
            volume_mode="Filesystem",
            persistent_volume_reclaim_policy="Retain",
            storage_class_name="",
            claim_ref=k8s.core.v1.ObjectReferenceArgs(
                api_version="v1", kind="PersistentVolumeClaim", namespace=namespace, name=CLAIM
            ),
            csi=k8s.core.v1.CSIPersistentVolumeSourceArgs(
                driver=DRIVER,
                volume_handle=pulumi.Output.concat(
                    "modeInstance/", args.store.location, "/", instance.name, "/", SHARE
                ),
                volume_attributes={
                    "ip": instance.networks.apply(lambda found: (found[0].ip_addresses or [""])[0]),
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
    return Store(
        url=pulumi.Output.concat("filestore://", instance.name, "/", SHARE),
        volume=k8s.core.v1.VolumeArgs(
            name=CLAIM,
            persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=CLAIM),
        ),
        claim=Claim(
            name=CLAIM,
            size=args.store.size,
            access_mode="ReadWriteMany",
            # None at all, unlike the cluster's default: the claim is for this volume.
            storage_class="",
            # Not the name itself: the claim is deleted before the volume, which waits for it.
            volume_name=volume.metadata.name.apply(str),
        ),
        replaced_with=[instance, volume],
    )


def _volume_name() -> str:
    return resource_name(KUBERNETES_NAME_LIMIT, "store")
