"""Who may connect to the pods of a workspace, and where they may connect to.

A NetworkPolicy is enforced by the cluster's network plugin: Dataplane V2 on GKE, OVN-Kubernetes on OpenShift, the
VPC plugin on EKS because the stack tells it to; a cluster of your own may have one that ignores it. It names
addresses, not hosts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.gates import DEVICES_GATE
from infra.kubernetes.labels import APP, COMPONENT, NAME, PART_OF, SERVICE, service_labels, step_labels
from infra.kubernetes.node_group import group_name
from infra.placed import SCHEDULED_RUN, Service, Step
from infra.platform import Egress

PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
"""Addresses of networks of one's own (RFC 1918), of carriers (RFC 6598) and of single links (RFC 3927)."""

PUBLIC_HTTPS = Egress("0.0.0.0/0", (443,), excepted=PRIVATE)
"""What the package index, the data sets and the clouds' storage are reached by."""


@dataclass(frozen=True)
class NetworkPoliciesArgs:
    """``egress`` is where pods may connect to; None leaves that open.

    ``pods`` are labels of the pods that the policies hold for; None: all pods of the namespace. With ``services``
    there are pods among them that have policies of their own, with ``apps`` those of apps, with ``scheduled`` some
    that create Jobs.
    """

    namespace: str
    egress: Sequence[Egress] | None
    pods: Mapping[str, str] | None = None
    services: bool = False
    scheduled: bool = False
    apps: bool = False


def network_policies(name: str, args: NetworkPoliciesArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Declares that nothing may connect to a pod, and that pods may connect only to ``args.egress``."""
    policies: list[pulumi.Resource] = [
        k8s.networking.v1.NetworkPolicy(
            f"{name}-deny-ingress",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="deny-ingress", namespace=args.namespace, labels=PART_OF),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=args.pods), policy_types=["Ingress"]
            ),
            opts=opts,
        )
    ]
    if args.egress is not None:
        policies.append(
            k8s.networking.v1.NetworkPolicy(
                f"{name}-limit-egress",
                metadata=k8s.meta.v1.ObjectMetaArgs(name="limit-egress", namespace=args.namespace, labels=PART_OF),
                spec=k8s.networking.v1.NetworkPolicySpecArgs(
                    # The devices gate and scheduled runs talk to the Kubernetes API, which no policy can name: its
                    # address is the control plane's, and plugins disagree on whether a block of addresses can hold
                    # it.
                    pod_selector=k8s.meta.v1.LabelSelectorArgs(
                        match_labels=args.pods,
                        match_expressions=[
                            k8s.meta.v1.LabelSelectorRequirementArgs(
                                key=NAME,
                                operator="NotIn",
                                values=[DEVICES_GATE, *([SCHEDULED_RUN] if args.scheduled else [])],
                            ),
                            # Policies add up, and a service may connect to less than a step.
                            *([_no_service()] if args.services else []),
                            *([_no_app()] if args.apps else []),
                        ],
                    ),
                    policy_types=["Egress"],
                    egress=[rule(egress) for egress in args.egress],
                ),
                opts=opts,
            )
        )
    return policies


def service_policies(
    name: str, service: Service, namespace: str, *, limited: bool, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares that only its clients may connect to ``service``, and that it connects to nothing.

    ``limited`` says that pods may connect only to what a policy allows, so that one has to allow this.
    """
    labels = service_labels(service.pipeline, service.name)
    pods = k8s.meta.v1.LabelSelectorArgs(match_labels=labels)
    clients = k8s.meta.v1.LabelSelectorArgs(
        match_labels={**PART_OF, NAME: service.pipeline},
        match_expressions=[
            k8s.meta.v1.LabelSelectorRequirementArgs(key=COMPONENT, operator="In", values=sorted(service.clients)),
            _no_service(),
        ],
    )
    port = k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=service.port)
    policy = k8s.networking.v1.NetworkPolicy(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=service.object_name, namespace=namespace, labels=labels),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=pods,
            policy_types=["Ingress", "Egress"],
            ingress=[
                k8s.networking.v1.NetworkPolicyIngressRuleArgs(
                    from_=[k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=clients)], ports=[port]
                )
            ],
        ),
        opts=opts,
    )
    if not limited:
        # A policy for what the clients connect to would take everything else from them.
        return [policy]
    of_clients = k8s.networking.v1.NetworkPolicy(
        f"{name}-clients",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=f"{service.object_name}-clients", namespace=namespace, labels=labels
        ),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=clients,
            policy_types=["Egress"],
            egress=[
                k8s.networking.v1.NetworkPolicyEgressRuleArgs(
                    to=[k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=pods)], ports=[port]
                )
            ],
        ),
        opts=opts,
    )
    return [policy, of_clients]


def group_policy(
    name: str, step: Step, namespace: str, *, limited: bool, opts: pulumi.ResourceOptions
) -> k8s.networking.v1.NetworkPolicy:
    """Declares that the pods of ``step``, which runs on several nodes, may connect to one another at any port.

    NCCL listens on ports that the system chooses. ``limited`` says that pods may connect only to what a policy
    allows, so that one has to allow this; where they may connect to everything, a policy would take it from them.
    """
    pods = k8s.meta.v1.LabelSelectorArgs(
        match_labels=step_labels(step.pipeline, step.name), match_expressions=[_no_service()]
    )
    peers = [k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=pods)]
    out = [k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=peers)] if limited else None
    return k8s.networking.v1.NetworkPolicy(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=group_name(step), namespace=namespace, labels=step_labels(step.pipeline, step.name)
        ),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=pods,
            policy_types=["Ingress", "Egress"] if limited else ["Ingress"],
            ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=peers)],
            egress=out,
        ),
        opts=opts,
    )


def _no_service() -> k8s.meta.v1.LabelSelectorRequirementArgs:
    return k8s.meta.v1.LabelSelectorRequirementArgs(key=SERVICE, operator="DoesNotExist")


def _no_app() -> k8s.meta.v1.LabelSelectorRequirementArgs:
    return k8s.meta.v1.LabelSelectorRequirementArgs(key=APP, operator="DoesNotExist")


def rule(egress: Egress) -> k8s.networking.v1.NetworkPolicyEgressRuleArgs:
    """What lets pods connect to ``egress``."""
    if egress.namespace:
        peer = k8s.networking.v1.NetworkPolicyPeerArgs(
            namespace_selector=k8s.meta.v1.LabelSelectorArgs(
                match_labels={"kubernetes.io/metadata.name": egress.namespace}
            )
        )
    else:
        block = k8s.networking.v1.IPBlockArgs(cidr=egress.cidr, except_=list(egress.excepted) or None)
        peer = k8s.networking.v1.NetworkPolicyPeerArgs(ip_block=block)
    return k8s.networking.v1.NetworkPolicyEgressRuleArgs(
        to=[peer],
        ports=[
            k8s.networking.v1.NetworkPolicyPortArgs(protocol=protocol, port=port)
            for port in egress.ports
            for protocol in egress.protocols
        ],
    )
