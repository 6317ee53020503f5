"""Who may connect to an app, and where it may connect to: as little as it says that it needs."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from infra.app import App
from infra.kubernetes.labels import APP, NAME, PART_OF, app_labels
from infra.kubernetes.network_policy import rule
from infra.platform import Egress

DNS = 53


def declare(
    name: str, app: App, namespace: str, *, egress: Sequence[Egress] | None, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares that only the apps that ask ``app`` may connect to it, and that it connects to those that it asks.

    Beside them it reaches the cluster's name servers; where it has the store mounted or installs packages,
    ``egress`` too, which is what steps may connect to. None stands for everything.
    """
    labels = app_labels(app.pipeline, app.name)
    return [
        k8s.networking.v1.NetworkPolicy(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(name=app.object_name, namespace=namespace, labels=labels),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
                policy_types=["Ingress", "Egress"],
                ingress=_ingress(app),
                egress=_egress(app, egress),
            ),
            opts=opts,
        )
    ]


def _ingress(app: App) -> list[k8s.networking.v1.NetworkPolicyIngressRuleArgs]:
    if not app.clients:
        return []
    clients = k8s.meta.v1.LabelSelectorArgs(
        match_labels={**PART_OF, NAME: app.pipeline},
        match_expressions=[
            k8s.meta.v1.LabelSelectorRequirementArgs(key=APP, operator="In", values=sorted(app.clients))
        ],
    )
    return [
        k8s.networking.v1.NetworkPolicyIngressRuleArgs(
            from_=[k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=clients)], ports=_ports(app)
        )
    ]


def _egress(app: App, egress: Sequence[Egress] | None) -> list[k8s.networking.v1.NetworkPolicyEgressRuleArgs]:
    asked = [
        k8s.networking.v1.NetworkPolicyEgressRuleArgs(
            to=[
                k8s.networking.v1.NetworkPolicyPeerArgs(
                    pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=app_labels(each.pipeline, each.name))
                )
            ],
            ports=_ports(each),
        )
        for each in app.connects.values()
    ]
    if not (app.uses_store or app.declared.requirements):
        return [*asked, *(rule(each) for each in app.platform.egress if each.namespace or DNS in each.ports)]
    if egress is None:
        return [*asked, k8s.networking.v1.NetworkPolicyEgressRuleArgs()]
    return [*asked, *map(rule, egress)]


def _ports(app: App) -> list[k8s.networking.v1.NetworkPolicyPortArgs]:
    return [k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=port) for port in app.all_ports.values()]
