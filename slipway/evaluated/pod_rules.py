"""What Kubernetes lets pods do: the *restricted* Pod Security Standard, NetworkPolicies; when the next pod comes.

The rules are those of kubernetes.io/docs/concepts/security/pod-security-standards, "Restricted" (November 2026).
A value that only an update knows breaks none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slipway.evaluated.scheduling import NAMESPACE_NAME, selector_picks
from slipway.evaluated.workloads import Workload
from slipway.infra.review.stack import (
    Properties,
    Stack,
    Unknown,
    at,
    is_true,
    known,
    mapping,
    mappings,
    strings,
    texts,
    whole,
)

VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""The types of volumes that a pod may have."""

CAPABILITIES = frozenset({"NET_BIND_SERVICE"})
"""The capabilities that a container may add."""


class Rule(StrEnum):
    """What a pod may break, as the API server calls it."""

    HOST_NAMESPACES = "host namespaces"
    PRIVILEGED = "privileged"
    ESCALATION = "allowPrivilegeEscalation != false"
    CAPABILITIES = "unrestricted capabilities"
    HOST_PORT = "hostPort"
    VOLUMES = "restricted volume types"
    NON_ROOT = "runAsNonRoot != true"
    USER = "runAsUser=0"
    SECCOMP = "seccompProfile"


@dataclass(frozen=True)
class Breach:
    """A rule that a pod breaks. ``detail`` says where and what to set.

    ``container`` is empty for what the pod itself breaks. ``value`` is the type of a volume or the capability that
    is forbidden.
    """

    rule: Rule
    detail: str
    container: str = ""
    value: str = ""


def breaches(spec: Properties) -> list[Breach]:
    """What a pod spec breaks; empty where the standard allows it."""
    violations = [
        Breach(Rule.HOST_NAMESPACES, f"{key}=true")
        for key in ("hostNetwork", "hostPID", "hostIPC")
        if is_true(spec.get(key))
    ]
    for volume in mappings(spec.get("volumes")):
        for kind in sorted(volume.keys() - {"name"} - VOLUMES):
            detail = f'volume "{volume.get("name")}" uses restricted volume type "{kind}"'
            violations.append(Breach(Rule.VOLUMES, detail, value=kind))
    for container in (*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))):
        violations += _container_breaches(container, spec)
    return violations


def words(violations: Iterable[Breach]) -> str:
    """The breaches by their rule: ``privileged (container "a" must not …), runAsNonRoot != true (…)``."""
    details: dict[Rule, list[str]] = {}
    for violation in violations:
        details.setdefault(violation.rule, []).append(violation.detail)
    return ", ".join(f"{rule} ({'; '.join(details[rule])})" for rule in Rule if rule in details)


def _container_breaches(container: Properties, pod: Properties) -> Iterator[Breach]:
    name = str(container.get("name"))

    def breach(rule: Rule, what: str, value: str = "", *, whole: bool = False) -> Breach:
        return Breach(rule, f'{"pod or " if whole else ""}container "{name}" must {what}', name, value)

    if is_true(at(container, "securityContext", "privileged")):
        yield breach(Rule.PRIVILEGED, "not set securityContext.privileged=true")
    for port in mappings(container.get("ports")):
        if number := port.get("hostPort"):
            yield Breach(Rule.HOST_PORT, f'container "{name}" uses hostPort {number}', name)
    escalation = at(container, "securityContext", "allowPrivilegeEscalation")
    if escalation is None or is_true(escalation):
        yield breach(Rule.ESCALATION, "set securityContext.allowPrivilegeEscalation=false")
    capabilities = at(container, "securityContext", "capabilities")
    if known(capabilities):
        if "ALL" not in texts(mapping(capabilities).get("drop")):
            yield breach(Rule.CAPABILITIES, 'set securityContext.capabilities.drop=["ALL"]')
        for added in sorted(set(texts(mapping(capabilities).get("add"))) - CAPABILITIES):
            what = f'not include "{added}" in securityContext.capabilities.add'
            yield breach(Rule.CAPABILITIES, what, added)
    non_root = effective(container, pod, "runAsNonRoot")
    if known(non_root) and not is_true(non_root):
        yield breach(Rule.NON_ROOT, "set securityContext.runAsNonRoot=true", whole=True)
    if str(effective(container, pod, "runAsUser")) == "0":
        yield breach(Rule.USER, "not set runAsUser=0")
    seccomp = effective(container, pod, "seccompProfile")
    if known(seccomp) and mapping(seccomp).get("type") not in {"RuntimeDefault", "Localhost"}:
        what = 'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield breach(Rule.SECCOMP, what, whole=True)


def effective(container: Properties, pod: Properties, key: str) -> object:
    """A key of the security context; what a container says goes before what its pod says."""
    value = at(container, "securityContext", key)
    return at(pod, "securityContext", key) if value is None else value


# Which connections between pods the NetworkPolicies of a stack allow.
#
# A rule with an unknown value or a block of addresses counts as one that allows the connection.


NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
INGRESS, EGRESS = "Ingress", "Egress"
_RULES = {INGRESS: ("ingress", "from"), EGRESS: ("egress", "to")}


def lets_all_in(stack: Stack, pod: Workload) -> bool:
    """Whether any pod of the cluster may connect to this one, on some port."""
    limiting = list(_find_selecting(stack, pod, INGRESS))
    if not limiting:
        return True
    rules = [rule for spec in limiting for rule in mappings(spec.get("ingress"))]
    return any(not rule.get("from") and known(rule) for rule in rules)


def refuses(stack: Stack, client: Workload, server: Workload, port: int | None) -> str:
    """Which side of a connection from ``client`` to ``port`` of ``server`` is not let through; "" if both are.

    The side is `INGRESS`, at the server, or `EGRESS`, at the client.
    """
    for side, pod, other in ((INGRESS, server, client), (EGRESS, client, server)):
        limiting = list(_find_selecting(stack, pod, side))
        rules, peers = _RULES[side]
        if limiting and not any(
            _covers(rule, peers, other, pod.namespace, port)
            for spec in limiting
            for rule in _rules_or_any(spec.get(rules))
        ):
            return side
    return ""


def _find_selecting(stack: Stack, pod: Workload, side: str) -> Iterator[Properties]:
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


BACKOFF, LONGEST_BACKOFF = 10.0, 600.0
"""Seconds before the pod after the first failure, and the most of them (`DefaultJobPodFailureBackOff` and
`MaxJobPodFailureBackOff` in pkg/controller/job/job_controller.go, Kubernetes 1.37.2)."""


def wait_after(failures: int, first: float = BACKOFF) -> float:
    """Seconds until the next pod after so many ``failures`` in a row, of which it waits ``first`` after one.

    Failures that a policy ignores count, too (pkg/controller/job/backoff_utils.go, Kubernetes 1.37.2).
    """
    return min(first * 2 ** max(failures - 1, 0), LONGEST_BACKOFF)
