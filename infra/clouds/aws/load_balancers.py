"""The AWS Load Balancer Controller, which makes load balancers of Ingress objects, for apps that people reach.

It is declared where an app has an `ingress`, and with it comes its IngressClass `alb`. Source of its names, values
and rights: helm/ and docs/install/iam_policy.json of github.com/kubernetes-sigs/aws-load-balancer-controller at
v3.5.0, read on 2026-11-22.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from infra.charts import charts
from infra.clouds.aws.addons import SYSTEM
from infra.clouds.aws.cluster import EksCluster
from infra.clouds.aws.iam_policies import Statement
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

RIGHTS = Path(__file__).parent / "data" / "load-balancer-controller.json"


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
            statements=rights(),
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


def rights() -> list[Statement]:
    """What it may do: the policy that its project publishes, word for word.

    What it makes has a tag with the cluster's name, and it changes nothing without that tag, except the rules of
    security groups: it may change those of any group, to open it to its load balancers.
    """
    return json.loads(RIGHTS.read_text(encoding="utf-8"))["Statement"]


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
