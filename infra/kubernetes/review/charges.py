"""What Kubernetes objects make a cloud bill."""

from collections.abc import Iterator, Sequence

from infra.kubernetes.review.holdings import CLAIM, STATEFUL_SET, storage_class
from infra.review.facts import Balancer, Charge, Disk
from infra.review.properties import UNKNOWN, at, mappings, text, whole
from infra.review.stack import Resource, Stack
from infra.schema.quantities import size_in_bytes

SERVICE, INGRESS, GATEWAY = (
    "kubernetes:core/v1:Service",
    "kubernetes:networking.k8s.io/v1:Ingress",
    "kubernetes:gateway.networking.k8s.io/v1:Gateway",
)

OF_CLOUDS = ("", "alb", "gce")
"""The classes of Ingress objects for which a cloud makes a load balancer. All others are carried out by programs
in the cluster, which are there and paid for already."""

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
    if (named := _balanced(resource, spec)) is not None:
        kind = resource.type.rpartition(":")[2]
        for what, used in (("load balancer", False), ("what goes through the load balancer", True)):
            balancer = Balancer(stack.cluster_of(resource), kind, named, used)
            yield Charge(resource.urn, what, None, metered=used, balancer=balancer)
    if resource.type == CLAIM:
        yield from _volume(resource, spec, 1, stack)
    if resource.type == STATEFUL_SET:
        for template in mappings(at(spec, "volumeClaimTemplates")):
            yield from _volume(resource, template.get("spec"), whole(at(spec, "replicas"), 1), stack)


def _balanced(resource: Resource, spec: object) -> str | None:
    """The class of the load balancer that a cloud makes for this object; None where it makes none."""
    if resource.type == SERVICE:
        return text(at(spec, "loadBalancerClass")) if at(spec, "type") == "LoadBalancer" else None
    if resource.type == GATEWAY:
        return text(at(spec, "gatewayClassName"))
    named = at(spec, "ingressClassName")
    if resource.type != INGRESS or (named != UNKNOWN and text(named) not in OF_CLOUDS):
        return None
    return text(named)


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
