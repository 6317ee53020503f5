"""Who may connect to the pods of a workspace, and where they may connect to.

A NetworkPolicy is enforced by the cluster's network plugin: Dataplane V2 on GKE, OVN-Kubernetes on OpenShift, the
VPC plugin on EKS because the stack tells it to; a cluster of your own may have one that ignores it. It names
addresses, not hosts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.labels import APP, COMPONENT, NAME, PART_OF, SERVICE, service_labels
from slipway.infra.placed import SCHEDULED_RUN, Service
from slipway.infra.platform import Egress, Platform

PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
"""Addresses of networks of one's own (RFC 1918), of carriers (RFC 6598) and of single links (RFC 3927)."""

PUBLIC_HTTPS = Egress("0.0.0.0/0", (443,), excepted=PRIVATE)
"""What the package index, the data sets and the clouds' storage are reached by."""

DNS = 53


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


def network_policy(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    pods: k8s.meta.v1.LabelSelectorArgs,
    types: Sequence[Literal["Ingress", "Egress"]],
    opts: pulumi.ResourceOptions,
    *,
    ingress: Sequence[k8s.networking.v1.NetworkPolicyIngressRuleArgs] | None = None,
    egress: Sequence[k8s.networking.v1.NetworkPolicyEgressRuleArgs] | None = None,
) -> k8s.networking.v1.NetworkPolicy:
    """Declares a policy of ``types`` for ``pods``: whatever no rule allows is forbidden."""
    spec = k8s.networking.v1.NetworkPolicySpecArgs(
        pod_selector=pods,
        policy_types=list(types),
        ingress=None if ingress is None else list(ingress),
        egress=None if egress is None else list(egress),
    )
    return k8s.networking.v1.NetworkPolicy(name, metadata=metadata, spec=spec, opts=opts)


def allow_from(
    peers: Sequence[k8s.networking.v1.NetworkPolicyPeerArgs], *ports: int
) -> k8s.networking.v1.NetworkPolicyIngressRuleArgs:
    """Lets ``peers`` connect to ``ports``, by default to every port. Without peers it lets everybody in."""
    return k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=list(peers), ports=tcp(*ports))


def allow_to(
    peers: Sequence[k8s.networking.v1.NetworkPolicyPeerArgs], *ports: int
) -> k8s.networking.v1.NetworkPolicyEgressRuleArgs:
    """Lets pods connect to ``ports`` of ``peers``; to every port where none is named."""
    return k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=list(peers), ports=tcp(*ports))


def tcp(*ports: int) -> list[k8s.networking.v1.NetworkPolicyPortArgs] | None:
    """``ports`` of a rule; None, which stands for every port, where there are none."""
    return [k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=port) for port in ports] or None


def select(
    labels: Mapping[str, str] | None, *requirements: k8s.meta.v1.LabelSelectorRequirementArgs
) -> k8s.meta.v1.LabelSelectorArgs:
    """Selects the pods with ``labels`` that meet the ``requirements``."""
    return k8s.meta.v1.LabelSelectorArgs(match_labels=labels, match_expressions=list(requirements) or None)


def peer(pods: k8s.meta.v1.LabelSelectorArgs) -> k8s.networking.v1.NetworkPolicyPeerArgs:
    """Pods of the same namespace, as the other side of a connection."""
    return k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=pods)


def everywhere(
    name: str, metadata: k8s.meta.v1.ObjectMetaArgs, labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> k8s.networking.v1.NetworkPolicy:
    """Declares that pods with ``labels`` may connect to everything, whatever other policies limit: policies add
    up. Who talks to the Kubernetes API needs it, which no policy can name."""
    return network_policy(
        name,
        metadata,
        select(labels),
        ["Egress"],
        opts,
        egress=[k8s.networking.v1.NetworkPolicyEgressRuleArgs()],
    )


def network_policies(name: str, args: NetworkPoliciesArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Declares that nothing may connect to a pod, and that pods may connect only to ``args.egress``."""
    policies: list[pulumi.Resource] = [
        network_policy(
            f"{name}-deny-ingress",
            k8s.meta.v1.ObjectMetaArgs(name="deny-ingress", namespace=args.namespace, labels=PART_OF),
            select(args.pods),
            ["Ingress"],
            opts,
        )
    ]
    if args.egress is not None:
        # Scheduled runs talk to the Kubernetes API, which no policy can name: its address is the control plane's,
        # and plugins disagree on whether a block of addresses can hold it.
        calling = k8s.meta.v1.LabelSelectorRequirementArgs(key=NAME, operator="NotIn", values=[SCHEDULED_RUN])
        limited = select(
            args.pods,
            *([calling] if args.scheduled else []),
            # Policies add up, and a service may connect to less than a step.
            *([lacks(SERVICE)] if args.services else []),
            *([lacks(APP)] if args.apps else []),
        )
        metadata = k8s.meta.v1.ObjectMetaArgs(name="limit-egress", namespace=args.namespace, labels=PART_OF)
        rules = [rule(egress) for egress in args.egress]
        policies.append(network_policy(f"{name}-limit-egress", metadata, limited, ["Egress"], opts, egress=rules))
    return policies


def service_policies(
    name: str, service: Service, namespace: str, *, limited: bool, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares that only its clients may connect to ``service``, and that it connects to nothing.

    ``limited`` says that pods may connect only to what a policy allows, so that one has to allow this.
    """
    labels = service_labels(service.pipeline, service.name)
    pods = select(labels)
    clients = select(
        {**PART_OF, NAME: service.pipeline},
        k8s.meta.v1.LabelSelectorRequirementArgs(key=COMPONENT, operator="In", values=sorted(service.clients)),
        lacks(SERVICE),
    )
    metadata = k8s.meta.v1.ObjectMetaArgs(name=service.object_name, namespace=namespace, labels=labels)
    inwards = [allow_from([peer(clients)], service.port)]
    policy = network_policy(name, metadata, pods, ["Ingress", "Egress"], opts, ingress=inwards)
    if not limited:
        # A policy for what the clients connect to would take everything else from them.
        return [policy]
    of_clients = network_policy(
        f"{name}-clients",
        k8s.meta.v1.ObjectMetaArgs(name=f"{service.object_name}-clients", namespace=namespace, labels=labels),
        clients,
        ["Egress"],
        opts,
        egress=[allow_to([peer(pods)], service.port)],
    )
    return [policy, of_clients]


def lacks(label: str) -> k8s.meta.v1.LabelSelectorRequirementArgs:
    """What selects pods without ``label``."""
    return k8s.meta.v1.LabelSelectorRequirementArgs(key=label, operator="DoesNotExist")


def name_servers(platform: Platform) -> list[k8s.networking.v1.NetworkPolicyEgressRuleArgs]:
    """What lets pods connect to the cluster's name servers."""
    return [rule(egress) for egress in platform.egress if egress.namespace or DNS in egress.ports]


def rule(egress: Egress) -> k8s.networking.v1.NetworkPolicyEgressRuleArgs:
    """What lets pods connect to ``egress``."""
    if egress.namespace:
        namespace = select({"kubernetes.io/metadata.name": egress.namespace})
        target = k8s.networking.v1.NetworkPolicyPeerArgs(namespace_selector=namespace)
    else:
        block = k8s.networking.v1.IPBlockArgs(cidr=egress.cidr, except_=list(egress.excepted) or None)
        target = k8s.networking.v1.NetworkPolicyPeerArgs(ip_block=block)
    return k8s.networking.v1.NetworkPolicyEgressRuleArgs(
        to=[target],
        ports=[
            k8s.networking.v1.NetworkPolicyPortArgs(protocol=protocol, port=port)
            for port in egress.ports
            for protocol in egress.protocols
        ],
    )
