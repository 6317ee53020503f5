"""The AWS Load Balancer Controller, which makes load balancers of Ingress objects, for apps that people reach.

It is declared where an app has an `ingress`, and with it comes its IngressClass `alb`. Source of its names and
values: helm/ of github.com/kubernetes-sigs/aws-load-balancer-controller at v3.5.0, read on 2026-11-22.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.charts import charts
from infra.clouds.aws.addons import SYSTEM
from infra.clouds.aws.cluster import EksCluster
from infra.clouds.aws.iam_policies import Condition, Statement, allow
from infra.clouds.aws.ingress import SERVICE_ACCOUNT, asks, load_balancer
from infra.clouds.aws.network import Network, subnet_blocks
from infra.clouds.aws.roles import PodIdentityArgs, pod_identity
from infra.clouds.aws.settings import AwsCluster
from infra.objects.helm import image, source
from infra.platform import Entrance
from infra.schema.request import Exposed

CHART = "aws-load-balancer-controller"

READINESS = "elbv2.k8s.aws/pod-readiness-gate-inject"
"""The label of namespaces whose new pods are ready only once they are healthy targets: a rolling update else ends
old pods before the load balancer knows new ones (docs/deploy/pod_readiness_gate.md of its repository, November
2026)."""

CLUSTER_TAG = "elbv2.k8s.aws/cluster"
"""The tag, with the cluster's name, of every load balancer, listener, rule, target group and security group that
the controller makes (pkg/deploy/tracking/provider.go of its repository; listeners and rules while the feature gate
ListenerRulesTagging is on, which is the default)."""

ELB = "elasticloadbalancing.amazonaws.com"

READS = (
    "acm:DescribeCertificate",
    "acm:ListCertificates",
    "cognito-idp:DescribeUserPoolClient",
    "ec2:DescribeAccountAttributes",
    "ec2:DescribeAddresses",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCoipPools",
    "ec2:DescribeInstances",
    "ec2:DescribeInternetGateways",
    "ec2:DescribeIpamPools",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeTags",
    "ec2:DescribeVpcPeeringConnections",
    "ec2:DescribeVpcs",
    "ec2:GetCoipPoolUsage",
    "ec2:GetSecurityGroupsForVpc",
    "elasticloadbalancing:DescribeCapacityReservation",
    "elasticloadbalancing:DescribeListenerAttributes",
    "elasticloadbalancing:DescribeListenerCertificates",
    "elasticloadbalancing:DescribeListeners",
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeRules",
    "elasticloadbalancing:DescribeSSLPolicies",
    "elasticloadbalancing:DescribeTags",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetHealth",
    "elasticloadbalancing:DescribeTrustStores",
    "iam:GetServerCertificate",
    "iam:ListServerCertificates",
)

GROUP_RULES = ("ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress")

CREATIONS = ("CreateListener", "CreateLoadBalancer", "CreateRule", "CreateTargetGroup")

CHANGES = (
    "AddListenerCertificates",
    "DeleteListener",
    "DeleteLoadBalancer",
    "DeleteRule",
    "DeleteTargetGroup",
    "DeregisterTargets",
    "ModifyCapacityReservation",
    "ModifyIpPools",
    "ModifyListener",
    "ModifyListenerAttributes",
    "ModifyLoadBalancerAttributes",
    "ModifyRule",
    "ModifyTargetGroup",
    "ModifyTargetGroupAttributes",
    "RegisterTargets",
    "RemoveListenerCertificates",
    "SetIpAddressType",
    "SetRulePriorities",
    "SetSecurityGroups",
    "SetSubnets",
)


@dataclass(frozen=True)
class LoadBalancersArgs:
    """The cluster with its settings and its network; ``exposed`` are its apps that people reach."""

    settings: AwsCluster
    cluster: EksCluster
    network: Network
    exposed: Sequence[Exposed]


def load_balancers(name: str, args: LoadBalancersArgs) -> Entrance:
    """Declares the controller with its identity. Load balancers are in the public subnets, where no pod is."""
    cluster, settings = args.cluster, args.settings
    below = pulumi.ResourceOptions(parent=cluster)
    identity = pod_identity(
        f"{name}-load-balancers",
        PodIdentityArgs(
            cluster=cluster.cluster,
            cluster_name=cluster.eks_name,
            region=settings.region,
            namespace=SYSTEM,
            service_account=SERVICE_ACCOUNT,
            tags=settings.tags,
            statements=_statements(args),
        ),
        below,
    )
    release = _release(name, args, [*identity.ready, *cluster.ready, *args.network.ready])
    networks = subnet_blocks(settings.network.vpc_cidr, len(settings.zones)).public
    ingresses = {each.ingress.host: each.ingress for each in args.exposed}
    return Entrance(
        lambda door, opts: load_balancer(door, ingresses[door.host], opts),
        frozenset(host for host, each in ingresses.items() if asks(each.login)),
        networks,
        outside=True,
        marks={READINESS: "enabled"},
        ready=[release],
    )


def _statements(args: LoadBalancersArgs) -> list[Statement]:
    """Look at everything, make what gets the cluster's tag, and change what has it.

    The one resource without the tag that it may change is the security group of the cluster's nodes: which of its
    ports load balancers reach. Actions: docs/install/iam_policy.json of its repository at v3.5.0, less those for
    WAF and Shield, which the chart's values turn off; that policy lets it change listeners, rules and targets of
    every load balancer of the account. Conditions: the service authorization reference of Elastic Load Balancing
    V2, and AmazonEKSLoadBalancingPolicy, version 4, AWS's own for the same controller. All seen on 2026-11-23.
    """
    name, group, vpc = args.cluster.eks_name, args.cluster.security_group, args.network.vpc.arn
    made: Condition = {"StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": name}}
    own: Condition = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": name}}
    # A listener is made below a load balancer, a rule below a listener.
    below: Condition = {"StringEquals": {**made["StringEquals"], **own["StringEquals"]}}
    # The tag itself stays as it is.
    tags: Condition = {**own, "Null": {f"aws:RequestTag/{CLUSTER_TAG}": "true"}}
    groups = ["arn:aws:ec2:*:*:security-group/*"]
    return [
        allow(["iam:CreateServiceLinkedRole"], ["*"], {"StringEquals": {"iam:AWSServiceName": ELB}}),
        allow(READS, ["*"]),
        allow(["ec2:CreateSecurityGroup"], [vpc]),
        allow(["ec2:CreateSecurityGroup"], groups, made),
        allow(["ec2:CreateTags"], groups, _with_creation(made, "ec2", ["CreateSecurityGroup"])),
        allow(["ec2:CreateTags", "ec2:DeleteTags"], groups, tags),
        allow([*GROUP_RULES, "ec2:DeleteSecurityGroup"], groups, own),
        allow(GROUP_RULES, [pulumi.Output.format("arn:aws:ec2:*:*:security-group/{0}", group)]),
        allow(_elb("CreateLoadBalancer", "CreateTargetGroup"), ["*"], made),
        allow(_elb("CreateListener", "CreateRule"), ["*"], below),
        allow(_elb("AddTags"), ["*"], _with_creation(made, "elasticloadbalancing", CREATIONS)),
        allow(_elb("AddTags", "RemoveTags"), ["*"], tags),
        allow(_elb(*CHANGES), ["*"], own),
    ]


def _elb(*actions: str) -> list[str]:
    return [f"elasticloadbalancing:{action}" for action in actions]


def _with_creation(condition: Condition, service: str, actions: Sequence[str]) -> Condition:
    """``condition``, for tags that a resource gets while one of ``actions`` makes it."""
    return {"StringEquals": {**condition["StringEquals"], f"{service}:CreateAction": list(actions)}}


def _release(name: str, args: LoadBalancersArgs, after: Sequence[pulumi.Resource]) -> k8s.helm.v3.Release:
    chart = charts()[CHART]
    own = args.settings.charts.load_balancer_controller
    values = {
        "fullnameOverride": SERVICE_ACCOUNT,
        "clusterName": args.cluster.eks_name,
        "region": args.settings.region,
        # Without it the controller asks the nodes' metadata service, which its pods cannot reach.
        "vpcId": args.network.vpc.id,
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "image": image(chart.image),
        # An upgrade keeps the certificate of its webhooks, so that no Ingress is refused meanwhile.
        "keepTLSSecret": True,
        # Only Ingress objects: a Service of the type LoadBalancer has no login.
        "enableServiceMutatorWebhook": False,
        # It adds the readiness gate to pods of namespaces with the label: none of them hangs on this controller.
        "podMutatorWebhookConfig": {"failurePolicy": "Ignore"},
        "controllerConfig": {"featureGates": {"EnableServiceController": False}},
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}},
        "enableShield": False,
        "enableWaf": False,
        "enableWafv2": False,
    }
    return k8s.helm.v3.Release(
        f"{name}-load-balancers",
        name=SERVICE_ACCOUNT,
        **source(chart, own.chart, own.version),
        namespace=SYSTEM,
        values=values,
        opts=pulumi.ResourceOptions(parent=args.cluster, provider=args.cluster.provider, depends_on=after),
    )
