"""Pods with access to their host, services open to the internet, and roles without limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.kubernetes.review.clients import SERVICE
from infra.review.networks import whole_internet
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import at, known, mapping, mappings, strings, texts, whole
from infra.review.stack import Resource, Stack
from offline.engine.pod_security import Breach, Rule, breaches, effective, words
from offline.policies.image_builds import built_image
from offline.policies.patches import as_patched
from offline.policies.workloads import Workload, workloads

RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
ROLES = (f"{RBAC}:ClusterRole", f"{RBAC}:Role")
BINDINGS = (f"{RBAC}:ClusterRoleBinding", f"{RBAC}:RoleBinding")

NAMESPACE = "kubernetes:core/v1:Namespace"

ENFORCED = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with the standard that its pods have to keep
(kubernetes.io/docs/concepts/security/pod-security-admission, November 2026)."""

EVERYBODY = frozenset({"system:anonymous", "system:authenticated", "system:unauthenticated"})
"""Users and groups that stand for anyone (kubernetes.io/docs/reference/access-authn-authz/rbac, November 2026)."""

ALMOST_PRIVILEGED = frozenset(
    {"ALL", "BPF", "DAC_READ_SEARCH", "NET_ADMIN", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}
)
"""Capabilities with which a container reaches the host (man7.org/linux/man-pages/man7/capabilities.7.html)."""


def _breaches(stack: Stack) -> Iterator[tuple[Workload, list[Breach]]]:
    """What the pods but those of NVIDIA's device plugin break of the restricted standard."""
    for workload in workloads(stack):
        if not workload.is_device_plugin:
            yield workload, breaches(workload.spec)


def _on_host(stack: Stack) -> Iterator[Violation]:
    for workload, found in _breaches(stack):
        if reaching := [each for each in found if _reaches_host(each)]:
            yield Violation(
                workload.resource.urn,
                f"{words(reaching)}: what breaks out of it has the node, and every pod on it",
                "leave it out; a CSI driver or a device plugin gives a pod what it needs of its node",
            )


def _reaches_host(breach: Breach) -> bool:
    if breach.rule is Rule.CAPABILITIES:
        return breach.value.upper().removeprefix("CAP_") in ALMOST_PRIVILEGED
    return breach.rule in {Rule.HOST_NAMESPACES, Rule.PRIVILEGED} or breach.value == "hostPath"


def _root(stack: Stack) -> Iterator[Violation]:
    for workload, found in _breaches(stack):
        users = {
            str(each.get("name")): effective(each, workload.spec, "runAsUser") for each in workload.containers
        }
        root = {name for name, user in users.items() if known(user) and whole(user) == 0}
        if open_ := [each for each in found if each.rule is Rule.NON_ROOT and each.container in root]:
            yield Violation(
                workload.resource.urn,
                f"it can run as root: {words(open_)}, and no runAsUser above 0 is set",
                "set securityContext.runAsNonRoot: true, and a runAsUser where the image names no number",
            )


def _escalating(stack: Stack) -> Iterator[Violation]:
    for workload, found in _breaches(stack):
        # What builds an image has a finding of its own.
        if built_image(workload.resource):
            continue
        if escalating := [each for each in found if each.rule is Rule.ESCALATION]:
            yield Violation(
                workload.resource.urn,
                f"it may gain more rights than it starts with, through setuid programs: {words(escalating)}",
                "set securityContext.allowPrivilegeEscalation: false on every container",
            )


def _refused(stack: Stack) -> Iterator[Violation]:
    enforcing = {
        (each.provider, at(each.properties, "metadata", "name"))
        for each in stack.of_type(NAMESPACE)
        if strings(at(each.properties, "metadata", "labels")).get(ENFORCED) == "restricted"
    }
    for workload in workloads(stack):
        found = breaches(workload.spec)
        if found and (workload.resource.provider, workload.namespace) in enforcing:
            yield Violation(
                workload.resource.urn,
                f"its namespace refuses its pods, which break the restricted standard: {words(found)}",
                "set what is missing; or place it in a namespace of its own with another standard",
            )


def _public(stack: Stack) -> Iterator[Violation]:
    for service in as_patched(stack, SERVICE):
        spec = mapping(service.properties.get("spec"))
        kind = spec.get("type")
        if kind == "LoadBalancer" and not _internal(service) and not _from_few(spec):
            reason = "a Service of type LoadBalancer has a public address, and anyone may connect to it"
        elif kind == "NodePort":
            reason = "a Service of type NodePort opens a port on every node of the cluster"
        elif texts(spec.get("externalIPs")):
            reason = "externalIPs take traffic for addresses that nobody checks (CVE-2020-8554)"
        else:
            continue
        yield Violation(
            service.urn,
            reason,
            "use ClusterIP and `kubectl port-forward`; or an internal load balancer, or loadBalancerSourceRanges",
        )


def _internal(service: Resource) -> bool:
    """Whether an annotation makes the load balancer an internal one; each cloud has its own, all alike.

    Also where only an update can tell.
    """
    annotations = at(service.properties, "metadata", "annotations")
    return not known(annotations) or any(
        "load-balancer" in key and (value.lower() == "internal" or (key.endswith("internal") and value == "true"))
        for key, value in strings(annotations).items()
    )


def _from_few(spec: Mapping[str, Any]) -> bool:
    ranges = spec.get("loadBalancerSourceRanges")
    return not known(ranges) or (bool(ranges) and not whole_internet(texts(ranges)))


def _wildcard(stack: Stack) -> Iterator[Violation]:
    for role in stack.of_type(*ROLES):
        for rule in mappings(role.properties.get("rules")):
            wild = [key for key in ("verbs", "resources", "nonResourceURLs") if "*" in texts(rule.get(key))]
            if wild:
                yield Violation(
                    role.urn,
                    f"a rule has `*` for {' and '.join(wild)}: it grants what nobody has thought of yet",
                    "list the verbs and resources that are needed",
                )
                break
    for binding in stack.of_type(*BINDINGS):
        role = mapping(binding.properties.get("roleRef"))
        named = {str(each.get("name")) for each in mappings(binding.properties.get("subjects"))}
        if role.get("name") == "cluster-admin":
            reason = "it grants cluster-admin, which may do everything"
        elif everybody := sorted(EVERYBODY & named):
            reason = f"it grants {role.get('name')} to {', '.join(everybody)}, which is anyone"
        else:
            continue
        yield Violation(binding.urn, reason, "bind a role with what is needed to the one account that needs it")


POLICIES = (
    Policy(
        "host-access",
        Severity.ERROR,
        "No pod but NVIDIA's device plugin is privileged, mounts the host's files or shares its namespaces.",
        _on_host,
        "Leave out privileged, hostPath, hostNetwork, hostPID, hostIPC and capabilities that reach the host.",
    ),
    Policy(
        "root-pod",
        Severity.ERROR,
        "No container but NVIDIA's device plugin can run as root.",
        _root,
        "Set runAsNonRoot: true.",
    ),
    Policy(
        "privilege-escalation",
        Severity.WARNING,
        "No container may gain more rights than it starts with.",
        _escalating,
        "Set allowPrivilegeEscalation: false.",
    ),
    Policy(
        "pod-refused",
        Severity.ERROR,
        "A namespace that enforces the restricted standard has only pods that keep it.",
        _refused,
        "Set what the finding names, or use another namespace.",
    ),
    Policy(
        "public-service",
        Severity.ERROR,
        "No Service is reachable from outside: LoadBalancer with a public address, NodePort, externalIPs.",
        _public,
        "Use ClusterIP, an internal load balancer, or loadBalancerSourceRanges.",
        harm=Harm.OPENING,
    ),
    Policy(
        "rbac-wildcard",
        Severity.ERROR,
        "No role has `*` for verbs or resources, and no binding grants cluster-admin or is for everyone.",
        _wildcard,
        "List what is needed, and bind it to the account that needs it.",
    ),
)
