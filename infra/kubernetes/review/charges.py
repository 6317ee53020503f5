"""What Kubernetes objects make a cloud bill."""

from collections.abc import Iterator, Sequence

from infra.kubernetes.review.holdings import CLAIM, STATEFUL_SET, storage_class
from infra.review.facts import Charge, Disk
from infra.review.properties import UNKNOWN, at, mappings, text, whole
from infra.review.stack import Resource, Stack
from infra.schema.quantities import size_in_bytes

BALANCED = ("kubernetes:networking.k8s.io/v1:Ingress", "kubernetes:gateway.networking.k8s.io/v1:Gateway")

GIB = 2**30


def charges(stack: Stack) -> Sequence[Charge]:
    """What has to be paid for beside the nodes: load balancers, and the volumes of claims."""
    return [
        charge
        for resource in stack.resources.values()
        if resource.package == "kubernetes" and not resource.read
        for charge in _billed(resource, stack)
    ]


def _billed(resource: Resource, stack: Stack) -> Iterator[Charge]:
    spec = resource.properties.get("spec")
    if resource.type in BALANCED or (
        resource.type == "kubernetes:core/v1:Service" and at(spec, "type") == "LoadBalancer"
    ):
        yield Charge(resource.urn, "load balancer, whose price is not recorded", None)
    if resource.type == CLAIM:
        yield from _volume(resource, spec, 1, stack)
    if resource.type == STATEFUL_SET:
        for template in mappings(at(spec, "volumeClaimTemplates")):
            yield from _volume(resource, template.get("spec"), whole(at(spec, "replicas"), 1), stack)


def _volume(resource: Resource, spec: object, pods: int, stack: Stack) -> Iterator[Charge]:
    """The volumes that a claim, or those of so many pods, make their class provide."""
    size, name = at(spec, "resources", "requests", "storage"), at(spec, "storageClassName")
    # A claim of the class "" binds to a volume that is there already.
    if name == "" or pods == 0:
        return
    named = "the default class" if name is None else f"class {UNKNOWN if name == UNKNOWN else text(name)}"
    declared = storage_class(name, resource, stack)
    disk = Disk(
        cluster=stack.cluster_of(resource),
        storage_class=name if isinstance(name, str) else None if name is None else "",
        provisioner=text(declared.properties.get("provisioner")) if declared else "",
        kind=text(at(declared.properties, "parameters", "type")) if declared else "",
    )
    what = f"volume of {size or 'unknown size'}, {named}"
    yield Charge(resource.urn, what, None, pods, pods, quantity=_gib(size), disk=disk)


def _gib(size: object) -> float:
    """0 where it is not known."""
    try:
        return float(size_in_bytes(size)) / GIB if isinstance(size, str) else 0
    except ValueError:
        return 0
