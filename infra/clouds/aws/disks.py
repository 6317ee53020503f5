"""Disks of Elastic Block Store, for volumes that one pod has to itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.clouds.aws.addons import SYSTEM
from infra.clouds.aws.cluster import EksCluster

NAME = "slipway-gp3"
"""Name of the StorageClass: an EKS cluster has none that its driver serves."""

DISK_CHART = "./infra/clouds/aws/data/disk-deletion"
"""The chart of `disk_deletion`, from the root of the project, where Pulumi runs: a path of one machine would
differ from that of the next."""

SCRIPT = Path(__file__).parent / "data" / "disk-deletion" / "wait.py"

RELEASE = "disk-deletion"
"""Name of the release, and of the objects that its deletion makes."""

LIMIT = 600
"""Seconds for the deletion of all disks: each is detached first, which takes up to a minute."""

START = 300
"""Seconds more for the pod that waits: its node may have to pull the image."""

_HOOK = {
    "helm.sh/hook": "pre-delete",
    # What failed stays, so that its log can be read, and goes before the next try.
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
}


def disk_class(name: str, cluster: EksCluster, image: str) -> list[pulumi.Resource]:
    """The class of encrypted gp3 disks, each in the zone of the node that its pod runs on first, and what waits
    for their deletion. Returns what to wait for before the first claim.

    ``image`` is one with Python. Parameters: docs/parameters.md of kubernetes-sigs/aws-ebs-csi-driver, seen
    November 2026.
    """
    made = k8s.storage.v1.StorageClass(
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
    return [made, disk_deletion(name, cluster, image, made)]


def disk_deletion(
    name: str, cluster: EksCluster, image: str, made: k8s.storage.v1.StorageClass
) -> k8s.helm.v3.Release:
    """The release between what uses disks and their driver, whose deletion waits until no disk is left.

    A disk is deleted after its claim, and whoever deletes the claim does not wait for that. Without this release
    the driver goes in the meantime, and the disks stay and are billed. It has no objects until Helm uninstalls it:
    then a Job, which runs before anything is deleted, and what that may read. Source:
    helm.sh/docs/topics/charts_hooks, 2026-11-24. Pulumi runs the hooks of a deletion, and waits for them
    (pulumi-kubernetes, provider/pkg/provider/helm_release.go; tried with 4.32.0 on 2026-11-24).
    """
    return k8s.helm.v3.Release(
        f"{name}-disk-deletion",
        name=RELEASE,
        namespace=SYSTEM,
        chart=DISK_CHART,
        values={"objects": objects(image)},
        timeout=LIMIT + START,
        opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=[made, *cluster.disks, *cluster.ready]),
    )


def objects(image: str) -> list[Mapping[str, Any]]:
    """What Helm makes before it uninstalls the release: a Job that waits, with an account that lists volumes."""
    subject = {"kind": "ServiceAccount", "name": RELEASE, "namespace": SYSTEM}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RELEASE}
    rule = {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["list"]}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(0)},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": _metadata(0, namespaced=False), "rules": [rule]},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": _metadata(0, namespaced=False),
            "roleRef": role,
            "subjects": [subject],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _metadata(1),
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": LIMIT + START,
                # A node that goes while it waits takes the pod along, not the Job.
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
                },
                "template": {"spec": _pod(image)},
            },
        },
    ]


def _pod(image: str) -> Mapping[str, Any]:
    return {
        "restartPolicy": "Never",
        "serviceAccountName": RELEASE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "wait",
                "image": image,
                "command": ["python3", "-c", SCRIPT.read_text(encoding="utf-8")],
                "args": ["--storage-class", NAME, "--limit", str(LIMIT)],
                "resources": {
                    "requests": {"cpu": "10m", "memory": "64Mi"},
                    "limits": {"memory": "64Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
    }


def _metadata(weight: int, *, namespaced: bool = True) -> Mapping[str, Any]:
    annotations = {**_HOOK, "helm.sh/hook-weight": str(weight)}
    return {"name": RELEASE, **({"namespace": SYSTEM} if namespaced else {}), "annotations": annotations}
