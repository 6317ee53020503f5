"""What a preview says of Kubernetes objects. None of it imports the SDK.

Nodes and quotas are the clouds' to know.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from slipway.infra.features import data_files, features
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Charge, Disk, Grant, Holding, InPlace, Seconds
from slipway.infra.review.stack import (
    JOB,
    UNKNOWN,
    NodePool,
    Resource,
    Stack,
    at,
    items,
    mappings,
    text,
    texts,
    whole,
)
from slipway.infra.review.tables import durations, in_place_from
from slipway.infra.schema.quantities import size_in_bytes

RBAC = "kubernetes:rbac.authorization.k8s.io/v1:"
BINDINGS = (f"{RBAC}RoleBinding", f"{RBAC}ClusterRoleBinding")

SYSTEM = "kube-system"


def grants(stack: Stack) -> Sequence[Grant]:
    """The subjects of all bindings."""
    inside = {
        SYSTEM,
        *(text(at(resource.properties, "metadata", "namespace")) for resource in stack.resources.values()),
    }
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


CLIENT_SERVICE = "kubernetes:core/v1:Service"
SECRET = "kubernetes:core/v1:Secret"

QUEUE_FLAG = "--queue"
"""The argument of workers before the address of the service that hands their items out
(`slipway.features.items.pod.worker`)."""

_ADDRESS = re.compile(r"(?<![\w.-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)(?:\.[a-z0-9.-]+)?:(\d{1,5})(?!\d)")
"""A host, of which the first label counts, and a port."""


def addresses(spec: object) -> Iterator[tuple[str, int]]:
    """The hosts, without the domain, and ports that the containers of a pod's spec name."""
    for container in (*mappings(at(spec, "initContainers")), *mappings(at(spec, "containers"))):
        values = [text(variable.get("value")) for variable in mappings(container.get("env"))]
        for word in (*texts(container.get("command")), *texts(container.get("args")), *values):
            yield from ((host, int(port)) for host, port in _ADDRESS.findall(word))


def secrets_of(spec: object) -> set[str]:
    """The names of the Secrets that the pods of this spec are given as variables or files."""
    containers = (*mappings(at(spec, "initContainers")), *mappings(at(spec, "containers")))
    names = [at(volume, "secret", "secretName") for volume in mappings(at(spec, "volumes"))]
    for container in containers:
        names += [at(variable, "valueFrom", "secretKeyRef", "name") for variable in mappings(container.get("env"))]
        names += [at(source, "secretRef", "name") for source in mappings(container.get("envFrom"))]
    return {text(name) for name in names} - {""}


def queued_items(set_: Resource, stack: Stack) -> list[str]:
    """The names of the Jobs whose items a StatefulSet hands out.

    Empty where another Job connects to it, too: what that keeps there nobody knows.
    """
    name = text(at(set_.properties, "spec", "serviceName"))
    lines: list[str] = []
    for job in stack.of_type(JOB):
        spec = at(job.properties, "spec", "template", "spec")
        if job.provider != set_.provider or name not in {host for host, _ in addresses(spec)}:
            continue
        if name not in _queues(spec):
            return []
        lines.append(job.name)
    return lines


def _queues(spec: object) -> Iterator[str]:
    """The hosts that workers get their items from."""
    for container in mappings(at(spec, "containers")):
        words = texts(container.get("args"))
        for flag, word in pairwise(words):
            if flag == QUEUE_FLAG and (address := _ADDRESS.match(word)):
                yield address[1]


# What of users' data goes with a Kubernetes object.
#
# Sources, read 2026-11-22: https://kubernetes.io/docs/concepts/storage/persistent-volumes/#reclaiming,
# https://kubernetes.io/docs/concepts/storage/storage-classes/#reclaim-policy and
# https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention.


CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
NAMESPACE = "kubernetes:core/v1:Namespace"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"

RETAIN = "Retain"
DELETE = "Delete"

FROM_STORE = (
    "items that are not done are found again from the store, the results of the others are in it, and only how "
    "often each was tried is forgotten"
)
"""What becomes of the items of a queue that is lost."""


def holding(resource: Resource, stack: Stack) -> Holding | None:
    """What goes with this one; None for a kind that holds nothing of users'.

    A namespace holds the claims that its StatefulSets make; those that the stack declares are asked for
    themselves.
    """
    if resource.type == CLAIM:
        return _claim(resource, stack)
    if resource.type == VOLUME:
        return Holding("the volume and everything on it", kept=_why_kept(_policy(resource)))
    if resource.type == NAMESPACE and (owners := _with_claims(resource, stack)):
        named = ", ".join(f"the claims of the StatefulSet {owner.name}" for owner in owners)
        lost = f"the namespace and everything in it, {named} included"
        return Holding(lost, meant=all(map(_goes_with_it, owners)))
    if resource.type == STATEFUL_SET and _claims(resource):
        return _volumes(resource, stack)
    return None


def _volumes(set_: Resource, stack: Stack) -> Holding:
    """Of a StatefulSet: its volumes outlive it unless it says otherwise."""
    if not _goes_with_it(set_):
        return Holding("its volumes", kept="the claims of a StatefulSet outlive it, unless it says otherwise")
    steps = queued_items(set_, stack)
    return Holding(
        "its volume and everything on it",
        rebuilt=f"{FROM_STORE}; {', '.join(steps)} can go on once it is there again" if steps else "",
        meant=True,
    )


def _goes_with_it(set_: Resource) -> bool:
    """Whether the claims of a StatefulSet are deleted with it."""
    return at(set_.properties, "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted") == DELETE


def _claims(set_: Resource) -> bool:
    return bool(items(at(set_.properties, "spec", "volumeClaimTemplates")))


def _claim(claim: Resource, stack: Stack) -> Holding:
    lost = "the claim and everything in it"
    within = frozenset(namespace.urn for namespace in _namespaces(claim, stack))
    if volume := volume_of(claim, stack):
        return Holding(lost, kept=_why_kept(_policy(volume)), within=within)
    if class_ := storage_class(at(claim.properties, "spec", "storageClassName"), claim, stack):
        return Holding(lost, kept=_why_kept(text(class_.properties.get("reclaimPolicy"))), within=within)
    name = at(claim.properties, "spec", "storageClassName")
    if at(claim.properties, "spec", "volumeName") or name == "":
        owner = "its volume"
    else:
        owner = f"the storage class {name}" if text(name) else "the cluster's default storage class"
    return Holding(
        lost, restore=f"it cannot be restored, unless the reclaim policy of {owner} is Retain", within=within
    )


def volume_of(claim: Resource, stack: Stack) -> Resource | None:
    """The volume that the stack declares for the claim; None where the cluster makes one or has it already."""
    name = at(claim.properties, "spec", "volumeName")
    for volume in stack.of_type(VOLUME):
        named = isinstance(name, str) and at(volume.properties, "metadata", "name") == name
        if volume.provider == claim.provider and (
            named or volume.urn in claim.property_dependencies.get("spec", ())
        ):
            return volume
    return None


def _policy(volume: Resource) -> str:
    """Of a volume that somebody declares, not of one that a class makes."""
    return text(at(volume.properties, "spec", "persistentVolumeReclaimPolicy")) or RETAIN


def _why_kept(policy: str) -> str:
    return "the reclaim policy of its volume is Retain" if policy == RETAIN else ""


def storage_class(name: object, resource: Resource, stack: Stack) -> Resource | None:
    """The class of that name on the cluster of ``resource``, where the stack declares it."""
    return next(
        (
            class_
            for class_ in stack.of_type(STORAGE_CLASS)
            if text(name)
            and class_.provider == resource.provider
            and at(class_.properties, "metadata", "name") == name
        ),
        None,
    )


def _namespaces(resource: Resource, stack: Stack) -> list[Resource]:
    """The namespace of an object, where the stack declares it."""
    name = at(resource.properties, "metadata", "namespace")
    return [
        namespace_
        for namespace_ in stack.of_type(NAMESPACE)
        if isinstance(name, str)
        and namespace_.provider == resource.provider
        and at(namespace_.properties, "metadata", "name") == name
    ]


def _with_claims(namespace: Resource, stack: Stack) -> list[Resource]:
    """What makes claims in the namespace: StatefulSets without queues, whose items are found again."""
    sets = [set_ for set_ in stack.of_type(STATEFUL_SET) if _claims(set_) and not queued_items(set_, stack)]
    return [set_ for set_ in sets if namespace in _namespaces(set_, stack)]


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
    """Charges of the volumes of claims, and of load balancers, whose prices are not recorded."""
    return [
        charge
        for resource in stack.resources.values()
        if resource.package == "kubernetes" and not resource.read
        for charge in _billed(resource, stack)
    ]


def _billed(resource: Resource, stack: Stack) -> Iterator[Charge]:
    spec = resource.properties.get("spec")
    if _makes_balancer(resource, spec):
        yield Charge(resource.urn, "load balancer, whose price is not recorded", None)
    if resource.type == CLAIM:
        yield from _volume(resource, spec, 1, stack)
    if resource.type == STATEFUL_SET:
        for template in mappings(at(spec, "volumeClaimTemplates")):
            yield from _volume(resource, template.get("spec"), whole(at(spec, "replicas"), 1), stack)


def _makes_balancer(resource: Resource, spec: object) -> bool:
    """Whether a cloud makes a load balancer for this object."""
    if resource.type == SERVICE:
        return at(spec, "type") == "LoadBalancer"
    named = at(spec, "ingressClassName")
    return resource.type == GATEWAY or (
        resource.type == INGRESS and (named == UNKNOWN or text(named) in OF_CLOUDS)
    )


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


DATA = Path(__file__).parent / "data"
FILE = DATA / "replacing.toml"
TIMES = durations(DATA / "times.toml")

GPU_TAG = re.compile(r":[^/]*(gpu|cuda)")

SCALE_DOWN = TIMES["autoscaler", "scale-down"]
"""How long a node without pods is kept where its pool does not say."""


def in_place() -> Mapping[str, Sequence[InPlace]]:
    """By resource type, what updates in place mean for what is there."""
    files = (DATA / "in_place.toml", *data_files("in_place.toml"))
    return {type_: facts for file in files for type_, facts in in_place_from(file).items()}


@cache
def replacing() -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    with FILE.open("rb") as file:
        content = tomllib.load(file)
    objects: dict[str, Sequence[str]] = {
        type_: [*content["every"], *paths] for type_, paths in content["types"].items()
    }
    # Custom resources are never replaced for anything else (`forceNewProperties` knows no kind of theirs).
    for api, kinds in [served for feature in features() for served in feature.served.items()]:
        objects |= {f"kubernetes:{api}:{kind}": content["every"] for kind in kinds}
    return {**objects, **content["others"]}


def pull(images: Collection[str], pool: NodePool | None = None) -> Seconds:
    """How long a node of the pool that has none of them takes until it starts containers of a pod's images.

    Those made for GPUs, which are many times larger, are told by their tags, as TensorFlow and PyTorch write them.
    """
    time = TIMES["pull", "gpu" if any(GPU_TAG.search(image) for image in images) else "cpu"]
    streaming = pool.streaming if pool else None
    if streaming is None or not all(map(streaming.reads, images)):
        return time
    return min(time, streaming.start, key=lambda seconds: seconds.amount)


def scale_down(pool: NodePool) -> Seconds:
    """How long a node of the pool is kept after its last pod, and paid."""
    return pool.scale_down or SCALE_DOWN


REVIEW = Review(
    charges=charges,
    replacing=replacing,
    holding=holding,
    in_place=in_place,
    grants=grants,
)
