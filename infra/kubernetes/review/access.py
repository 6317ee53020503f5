"""Who is let in by the RBAC of a cluster: people, groups, and pods of namespaces that the stack has nothing in."""

from collections.abc import Iterator, Sequence

from infra.review.facts import Grant
from infra.review.properties import at, mappings, text
from infra.review.stack import Resource, Stack

RBAC = "kubernetes:rbac.authorization.k8s.io/v1:"
BINDINGS = (f"{RBAC}RoleBinding", f"{RBAC}ClusterRoleBinding")

SYSTEM = "kube-system"


def grants(stack: Stack) -> Sequence[Grant]:
    """The subjects of all bindings."""
    inside = {SYSTEM, *(text(at(each.properties, "metadata", "namespace")) for each in stack.resources.values())}
    return [grant for binding in stack.of_type(*BINDINGS) for grant in _subjects(stack, binding, inside)]


def _subjects(stack: Stack, binding: Resource, inside: set[str]) -> Iterator[Grant]:
    namespace = text(at(binding.properties, "metadata", "namespace"))
    role = at(binding.properties, "roleRef")
    where = f"in {namespace} of" if namespace else "in all of"
    may = f"use the {text(at(role, 'kind'))} {text(at(role, 'name'))} {where} {stack.cluster_of(binding)}"
    for subject in mappings(binding.properties.get("subjects")):
        kind, name = text(subject.get("kind")), text(subject.get("name"))
        if kind in {"User", "Group"} and name:
            yield Grant(binding.urn, f"the {kind.lower()} {name}", may)
        elif kind == "ServiceAccount" and text(subject.get("namespace")) not in inside:
            yield Grant(binding.urn, f"pods of {text(subject.get('namespace'))}/{name}", may)
