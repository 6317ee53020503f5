"""Which connections between pods the NetworkPolicies of a stack allow.

A rule with an unknown value or a block of addresses counts as one that allows the connection.
"""

from collections.abc import Iterator
from typing import Any

from infra.review.stack import Properties, Stack, Unknown, at, known, mapping, mappings, strings, texts, whole
from offline.evaluated.scheduling import selector_picks
from offline.evaluated.workloads import Workload

NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has with its name."""

INGRESS, EGRESS = "Ingress", "Egress"
_RULES = {INGRESS: ("ingress", "from"), EGRESS: ("egress", "to")}


def lets_all_in(stack: Stack, pod: Workload) -> bool:
    """Whether any pod of the cluster may connect to this one, on some port."""
    limiting = list(_selecting(stack, pod, INGRESS))
    if not limiting:
        return True
    rules = [rule for spec in limiting for rule in mappings(spec.get("ingress"))]
    return any(not rule.get("from") and known(rule) for rule in rules)


def refuses(stack: Stack, client: Workload, server: Workload, port: int | None) -> str:
    """Which side of a connection from ``client`` to ``port`` of ``server`` is not let through; "" if both are.

    The side is `INGRESS`, at the server, or `EGRESS`, at the client.
    """
    for side, pod, other in ((INGRESS, server, client), (EGRESS, client, server)):
        limiting = list(_selecting(stack, pod, side))
        rules, peers = _RULES[side]
        if limiting and not any(
            _covers(rule, peers, other, pod.namespace, port)
            for spec in limiting
            for rule in _rules_or_any(spec.get(rules))
        ):
            return side
    return ""


def _selecting(stack: Stack, pod: Workload, side: str) -> Iterator[Properties]:
    """The specs of the policies that limit this side of the pod's connections."""
    for policy in stack.of_type(NETWORK_POLICY):
        spec = mapping(policy.properties.get("spec"))
        types = texts(spec.get("policyTypes")) or [INGRESS, *([EGRESS] if spec.get("egress") else [])]
        if (
            policy.provider == pod.resource.provider
            and at(policy.properties, "metadata", "namespace") == pod.namespace
            and side in types
            and selector_picks(spec.get("podSelector"), pod.labels)
        ):
            yield spec


def _covers(rule: Any, peers: str, other: Workload, namespace: object, port: int | None) -> bool:
    if not known(rule):
        return True
    ports = mappings(mapping(rule).get("ports"))
    if port is not None and ports and not any(_is_port(allowed, port) for allowed in ports):
        return False
    those = mappings(mapping(rule).get(peers))
    return not those or any(_is_peer(peer, other, namespace) for peer in those)


def _is_port(ruled: Properties, port: int) -> bool:
    first = ruled.get("port")
    if ruled.get("protocol", "TCP") != "TCP":
        return False
    # A port by its name is one of the pod's.
    return first is None or not whole(first) or whole(first) <= port <= whole(ruled.get("endPort"), whole(first))


def _is_peer(peer: Properties, other: Workload, namespace: object) -> bool:
    if block := mapping(peer.get("ipBlock")):
        # A block with exceptions is the internet without private addresses, which those of pods are.
        return not block.get("except")
    if peer.get("podSelector") is not None and not selector_picks(peer.get("podSelector"), other.labels):
        return False
    spaces = peer.get("namespaceSelector")
    if spaces is None:
        return other.namespace == namespace
    name = strings(at(spaces, "matchLabels")).get(NAMESPACE_NAME)
    return name is None or not isinstance(other.namespace, str) or name == other.namespace


def _rules_or_any(rules: object) -> list[Any]:
    """The rules; one that lets all through where they are not known."""
    return [{}] if isinstance(rules, Unknown) else list(mappings(rules))
