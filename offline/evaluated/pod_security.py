"""The *restricted* Pod Security Standard, in the words in which the API server refuses a pod.

The rules are those of kubernetes.io/docs/concepts/security/pod-security-standards, "Restricted" (November 2026).
A value that only an update knows breaks none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from infra.review.stack import Properties, at, is_true, known, mapping, mappings, texts

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
        violations += _of_container(container, spec)
    return violations


def words(violations: Iterable[Breach]) -> str:
    """The breaches by their rule: ``privileged (container "a" must not …), runAsNonRoot != true (…)``."""
    details: dict[Rule, list[str]] = {}
    for violation in violations:
        details.setdefault(violation.rule, []).append(violation.detail)
    return ", ".join(f"{rule} ({'; '.join(details[rule])})" for rule in Rule if rule in details)


def _of_container(container: Properties, pod: Properties) -> Iterator[Breach]:
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
