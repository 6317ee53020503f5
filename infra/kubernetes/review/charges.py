"""What Kubernetes objects make a cloud bill."""

from collections.abc import Sequence

from infra.review.facts import Charge
from infra.review.properties import UNKNOWN, at, text
from infra.review.stack import Resource, Stack

BALANCED = ("kubernetes:networking.k8s.io/v1:Ingress", "kubernetes:gateway.networking.k8s.io/v1:Gateway")


def charges(stack: Stack) -> Sequence[Charge]:
    """What has to be paid for beside the nodes, at a price that depends on what the cluster makes of it."""
    return [
        Charge(resource.urn, what, None)
        for resource in stack.resources.values()
        if resource.package == "kubernetes" and not resource.read and (what := _billed(resource))
    ]


def _billed(resource: Resource) -> str:
    spec = resource.properties.get("spec")
    if resource.type in BALANCED:
        return "load balancer, whose price is not recorded"
    if resource.type == "kubernetes:core/v1:Service" and at(spec, "type") == "LoadBalancer":
        return "load balancer, whose price is not recorded"
    # A claim of the class "" binds to a volume that is there already.
    if resource.type == "kubernetes:core/v1:PersistentVolumeClaim" and at(spec, "storageClassName") != "":
        size = at(spec, "resources", "requests", "storage")
        class_ = at(spec, "storageClassName")
        named = (
            "the default class" if class_ is None else f"class {UNKNOWN if class_ == UNKNOWN else text(class_)}"
        )
        return f"volume of {size or 'unknown size'}, {named}, whose price is not recorded"
    return ""
