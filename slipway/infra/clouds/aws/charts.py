"""What Helm installs in EKS clusters: the Cluster Autoscaler, and AWS's EFA plugin.

The Cluster Autoscaler is chosen over Karpenter because it scales the node groups that are declared here, so that
what a preview shows is what there can be. Karpenter would add a queue for interruptions with its rules, and two
custom resources per pool, and would still need a node group to run on. One more chart waits for disks' deletion.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from slipway.infra.charts import charts
from slipway.infra.clouds.aws.cluster import SYSTEM, EksCluster, system_identity
from slipway.infra.clouds.aws.nodes import POOL_LABEL, SCALE_DOWN_ARGUMENT
from slipway.infra.clouds.aws.pools import interconnect, labels, scales, taints
from slipway.infra.clouds.aws.roles import Statement, allow, node_group_name, pod_identity
from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool
from slipway.infra.objects import image, source
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.schema.names import fit
from slipway.infra.schema.quantities import seconds

AUTOSCALER_CHART = "cluster-autoscaler"

SERVICE_ACCOUNT = "cluster-autoscaler"
"""Of its pods; its other objects have the same name."""

TAG = "k8s.io/cluster-autoscaler"
"""What the autoscaler's tags begin with. EKS itself marks a managed group as ``enabled`` and as the cluster's."""

TEMPLATE = f"{TAG}/node-template"
"""Tags that tell the autoscaler what a node of an empty group will be like.

It asks EKS for labels and taints too, but no more once the group has had a node. Source of both:
cluster-autoscaler/cloudprovider/aws/README.md of kubernetes/autoscaler, 2026-08-22.
"""


def autoscaler(
    name: str, settings: AwsCluster, cluster: EksCluster, account: pulumi.Output[str]
) -> list[pulumi.Resource]:
    """Declares it with its identity and the groups' tags; nothing where no pool scales.

    Returns what to wait for before the first pod that needs a new node.
    """
    scaled = {key: pool for key, pool in settings.pools.items() if scales(pool)}
    if not scaled:
        return []
    region = settings.region
    below = pulumi.ResourceOptions(parent=cluster)
    tags: list[pulumi.Resource] = [
        aws.autoscaling.Tag(
            f"{name}-{key}-{tag.removeprefix(TEMPLATE + '/')}",
            region=region,
            autoscaling_group_name=cluster.pools[key].resources[0].autoscaling_groups[0].name,
            tag=aws.autoscaling.TagTagArgs(key=tag, value=value, propagate_at_launch=False),
            opts=below,
        )
        for key, pool in scaled.items()
        for tag, value in template_tags(key, pool).items()
    ]
    identity = pod_identity(
        f"{name}-autoscaler",
        system_identity(
            cluster.addons, SERVICE_ACCOUNT, statements=_statements(settings.region, cluster.eks_name, account)
        ),
        below,
    )
    return [_autoscaler_release(name, settings, cluster, [*tags, *identity.ready, *cluster.ready])]


def template_tags(name: str, pool: AwsPool) -> dict[str, str]:
    """What the autoscaler has to be told of the pool's nodes while there is none."""
    told = {f"{TEMPLATE}/label/{key}": value for key, value in labels(pool).items()}
    told[f"{TEMPLATE}/label/{POOL_LABEL}"] = node_group_name(name)
    for taint in taints(pool):
        told[f"{TEMPLATE}/taint/{taint.key}"] = f"{taint.value}:{taint.effect}"
    node = pool.node()
    if node is not None:
        # It knows a type's CPU, memory and GPUs, but not the disk, nor how many pods may share a GPU.
        told[f"{TEMPLATE}/resources/ephemeral-storage"] = f"{node.ephemeral_storage}Mi"
        if node.gpus:
            told[f"{TEMPLATE}/resources/{GPU_RESOURCE}"] = str(node.gpus)
    network = interconnect(pool)
    if network is not None and network.resource:
        told[f"{TEMPLATE}/resources/{network.resource}"] = str(network.count)
    return told


def _statements(region: str, name: str, account: pulumi.Output[str]) -> list[Statement]:
    """Look at everything, change the size of this cluster's groups. Source: the README named at `TEMPLATE`."""
    return [
        allow(
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
            ],
            # These have no resources to be limited to.
            ["*"],
        ),
        allow(
            ["eks:DescribeNodegroup"],
            [pulumi.Output.concat(f"arn:aws:eks:{region}:", account, f":nodegroup/{name}/*")],
        ),
        allow(
            ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            [pulumi.Output.concat(f"arn:aws:autoscaling:{region}:", account, ":autoScalingGroup:*")],
            {"StringEquals": {f"aws:ResourceTag/{TAG}/{name}": "owned"}},
        ),
    ]


def scale_down(settings: AwsCluster) -> dict[str, str]:
    """The arguments that decide when a node goes that no pod needs any more.

    The defaults keep it ten minutes after its last pod, ten minutes after the last node that came to any pool,
    and five minutes after a look that found a pod on it which cannot move, as are those of Jobs. A node that came
    for a pod is safe without the second: it is not unneeded while a pod that fits on it waits, and not ready until
    it has its GPUs (``ACCELERATOR_LABEL`` of `slipway.infra.clouds.aws.pools`). Source: cluster-autoscaler/FAQ.md
    and core/scaledown/ of kubernetes/autoscaler, tag cluster-autoscaler-1.34.5, read on 2026-11-26.
    """
    return {
        SCALE_DOWN_ARGUMENT: f"{seconds(settings.scale_down_unneeded_time)}s",
        "scale-down-delay-after-add": "0s",
        "unremovable-node-recheck-timeout": "10s",
    }


def _autoscaler_release(
    name: str, settings: AwsCluster, cluster: EksCluster, after: Sequence[pulumi.Resource]
) -> k8s.helm.v3.Release:
    chart = charts()[AUTOSCALER_CHART]
    # The autoscaler runs the scheduler's own code, so its minor version is to be the cluster's.
    values: dict[str, Any] = {
        "fullnameOverride": SERVICE_ACCOUNT,
        "awsRegion": settings.region,
        "autoDiscovery": {"clusterName": cluster.eks_name},
        "image": image(chart.images.get(settings.kubernetes_version, chart.image)),
        "rbac": {"serviceAccount": {"name": SERVICE_ACCOUNT}},
        "service": {"create": False},
        "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}},
        "containerSecurityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "fsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "extraArgs": {
            # The smallest group that fits: a pod that only needs CPU starts no GPU.
            "expander": "least-waste",
            **scale_down(settings),
        },
    }
    return k8s.helm.v3.Release(
        f"{name}-autoscaler",
        name=SERVICE_ACCOUNT,
        **source(chart),
        namespace=SYSTEM,
        values=values,
        opts=pulumi.ResourceOptions(parent=cluster, provider=cluster.provider, depends_on=after),
    )


EFA_CHART = "aws-efa-k8s-device-plugin"

RELEASE_NAME_LIMIT = 53
"""Longest name of a Helm release (helm.sh/helm/v3, pkg/chartutil/validate_name.go, 3.20)."""


def efa_plugins(name: str, settings: AwsCluster, cluster: EksCluster) -> list[pulumi.Resource]:
    """One release of the plugin for each pool with EFA: a pool has its own label and taints."""
    return [
        _efa_release(f"{name}-{key}-efa", key, pool, cluster) for key, pool in settings.pools.items() if pool.efa
    ]


def _efa_release(logical_name: str, key: str, pool: AwsPool, cluster: EksCluster) -> k8s.helm.v3.Release:
    return k8s.helm.v3.Release(
        logical_name,
        name=release_name(key),
        **source(charts()[EFA_CHART]),
        namespace=SYSTEM,
        values=values(key, pool),
        # A pool may have no node yet, and Helm's time-out would name none. Pods that ask for interfaces wait.
        skip_await=True,
        opts=pulumi.ResourceOptions(parent=cluster, provider=cluster.provider, depends_on=_after(cluster, key)),
    )


def release_name(pool: str) -> str:
    """Name of the Helm release for a pool, which is also its DaemonSet's."""
    return fit(f"efa-{pool}", RELEASE_NAME_LIMIT)


def values(key: str, pool: AwsPool) -> dict[str, Any]:
    """The chart's values for one pool (stable/aws-efa-k8s-device-plugin/values.yaml of aws/eks-charts).

    The chart adds that nodes are of an instance type with EFA.
    """
    return {
        "fullnameOverride": release_name(key),
        "nodeSelector": {POOL_LABEL: node_group_name(key)},
        "tolerations": [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in taints(pool)
        ],
    }


def _after(cluster: EksCluster, key: str) -> Sequence[pulumi.Resource]:
    return [*cluster.ready, cluster.pools[key]]


DISK_CLASS = "slipway-gp3"
"""Name of the StorageClass: an EKS cluster has none that its driver serves."""

DISK_CHART = "./infra/clouds/aws/data/disk-deletion"
"""The chart of `disk_deletion`, from the root of the project, where Pulumi runs: a path of one machine would
differ from that of the next."""

DISK_SCRIPT = Path(__file__).parent / "data" / "disk-deletion" / "wait.py"

DISK_RELEASE = "disk-deletion"
"""Name of the release, and of the objects that its deletion makes."""

DISK_LIMIT = 600
"""Seconds for the deletion of all disks: each is detached first, which takes up to a minute."""

DISK_START = 300
"""Seconds more for the pod that waits: its node may have to pull the image."""

_DISK_HOOK = {
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
        metadata=k8s.meta.v1.ObjectMetaArgs(name=DISK_CLASS),
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
        name=DISK_RELEASE,
        namespace=SYSTEM,
        chart=DISK_CHART,
        values={"objects": disk_objects(image)},
        timeout=DISK_LIMIT + DISK_START,
        opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=[made, *cluster.disks, *cluster.ready]),
    )


def disk_objects(image: str) -> list[Mapping[str, Any]]:
    """What Helm makes before it uninstalls the release: a Job that waits, with an account that lists volumes."""
    subject = {"kind": "ServiceAccount", "name": DISK_RELEASE, "namespace": SYSTEM}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": DISK_RELEASE}
    rule = {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["list"]}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _disk_metadata(0)},
        {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": _disk_metadata(0, namespaced=False),
            "rules": [rule],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": _disk_metadata(0, namespaced=False),
            "roleRef": role,
            "subjects": [subject],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _disk_metadata(1),
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": DISK_LIMIT + DISK_START,
                # A node that goes while it waits takes the pod along, not the Job.
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
                },
                "template": {"spec": _disk_pod(image)},
            },
        },
    ]


def _disk_pod(image: str) -> Mapping[str, Any]:
    return {
        "restartPolicy": "Never",
        "serviceAccountName": DISK_RELEASE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "wait",
                "image": image,
                "command": ["python3", "-c", DISK_SCRIPT.read_text(encoding="utf-8")],
                "args": ["--storage-class", DISK_CLASS, "--limit", str(DISK_LIMIT)],
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


def _disk_metadata(weight: int, *, namespaced: bool = True) -> Mapping[str, Any]:
    annotations = {**_DISK_HOOK, "helm.sh/hook-weight": str(weight)}
    return {"name": DISK_RELEASE, **({"namespace": SYSTEM} if namespaced else {}), "annotations": annotations}
