"""Disks of Elastic Block Store, for volumes that one pod has to itself."""

import pulumi
import pulumi_kubernetes as k8s

from infra.clouds.aws.cluster import EksCluster

NAME = "slipway-gp3"
"""Name of the StorageClass: an EKS cluster has none that its driver serves."""


def disk_class(name: str, cluster: EksCluster) -> k8s.storage.v1.StorageClass:
    """The class of encrypted gp3 disks, each in the zone of the node that its pod runs on first.

    Parameters: docs/parameters.md of kubernetes-sigs/aws-ebs-csi-driver, seen November 2026.
    """
    return k8s.storage.v1.StorageClass(
        f"{name}-disks",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=NAME),
        provisioner="ebs.csi.aws.com",
        parameters={"type": "gp3", "encrypted": "true"},
        reclaim_policy="Delete",
        volume_binding_mode="WaitForFirstConsumer",
        allow_volume_expansion=True,
        # The driver outlives the class, and so every disk that it has to delete.
        opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=[*cluster.disks]),
    )
