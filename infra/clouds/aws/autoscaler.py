"""The Cluster Autoscaler: adds nodes to a cluster's groups when pods wait, and takes idle ones away.

Chosen over Karpenter because it scales the node groups that are declared here, so that what a preview shows is
what there can be. Karpenter would add a queue for interruptions with its rules, and two custom resources per pool,
and would still need a node group to run on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.charts import charts
from infra.clouds.aws.addons import SYSTEM
from infra.clouds.aws.cluster import EksCluster
from infra.clouds.aws.iam_policies import Statement, allow
from infra.clouds.aws.names import node_group_name
from infra.clouds.aws.nodes import POOL_LABEL
from infra.clouds.aws.pools import interconnect, labels, scales, taints
from infra.clouds.aws.roles import PodIdentityArgs, pod_identity
from infra.clouds.aws.settings import AwsCluster, AwsPool
from infra.objects.helm import image, source
from infra.platform import GPU_RESOURCE

CHART = "cluster-autoscaler"

SERVICE_ACCOUNT = "cluster-autoscaler"
"""Of its pods; its other objects have the same name."""

TAG = "k8s.io/cluster-autoscaler"
"""What the autoscaler's tags begin with. EKS itself marks a managed group as ``enabled`` and as the cluster's."""

TEMPLATE = f"{TAG}/node-template"
"""Tags that tell the autoscaler what a node of an empty group will be like.

It asks EKS for labels and taints too, but no more once the group has had a node. Source of both:
cluster-autoscaler/cloudprovider/aws/README.md of kubernetes/autoscaler, 2026-08-22.
"""


@dataclass(frozen=True)
class AutoscalerArgs:
    """The cluster with its settings; ``account`` is the account's id."""

    settings: AwsCluster
    cluster: EksCluster
    account: pulumi.Output[str]


def autoscaler(name: str, args: AutoscalerArgs) -> list[pulumi.Resource]:
    """Declares it with its identity and the groups' tags; nothing where no pool scales.

    Returns what to wait for before the first pod that needs a new node.
    """
    scaled = {key: pool for key, pool in args.settings.pools.items() if scales(pool)}
    if not scaled:
        return []
    cluster, region = args.cluster, args.settings.region
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
        PodIdentityArgs(
            cluster=cluster.cluster,
            cluster_name=cluster.eks_name,
            region=region,
            namespace=SYSTEM,
            service_account=SERVICE_ACCOUNT,
            tags=args.settings.tags,
            statements=_statements(args),
        ),
        below,
    )
    return [_release(name, args, [*tags, *identity.ready, *cluster.ready])]


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


def _statements(args: AutoscalerArgs) -> list[Statement]:
    """Look at everything, change the size of this cluster's groups. Source: the README named at `TEMPLATE`."""
    region, name = args.settings.region, args.cluster.eks_name
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
            [pulumi.Output.concat(f"arn:aws:eks:{region}:", args.account, f":nodegroup/{name}/*")],
        ),
        allow(
            ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            [pulumi.Output.concat(f"arn:aws:autoscaling:{region}:", args.account, ":autoScalingGroup:*")],
            {"StringEquals": {f"aws:ResourceTag/{TAG}/{name}": "owned"}},
        ),
    ]


def _release(name: str, args: AutoscalerArgs, after: Sequence[pulumi.Resource]) -> k8s.helm.v3.Release:
    chart = charts()[CHART]
    own = args.settings.charts.cluster_autoscaler
    # The autoscaler runs the scheduler's own code, so its minor version is to be the cluster's.
    values: dict[str, Any] = {
        "fullnameOverride": SERVICE_ACCOUNT,
        "awsRegion": args.settings.region,
        "autoDiscovery": {"clusterName": args.cluster.eks_name},
        "image": image(chart.images.get(args.settings.kubernetes_version, chart.image)),
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
        },
    }
    return k8s.helm.v3.Release(
        f"{name}-autoscaler",
        name=SERVICE_ACCOUNT,
        **source(chart, own.chart, own.version),
        namespace=SYSTEM,
        values=values,
        opts=pulumi.ResourceOptions(parent=args.cluster, provider=args.cluster.provider, depends_on=after),
    )
