"""The pods that a stack runs on GKE Autopilot, which bills them in place of nodes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from infra.clouds.gcp import autopilot
from infra.clouds.gcp.catalogue import MachineType
from infra.clouds.gcp.fuse_sidecar import sidecar
from infra.clouds.gcp.review.pools import DeclaredWay, declared_ways
from infra.platform import ASKED_ANNOTATION, GPU_RESOURCE, Resources
from infra.review.properties import Properties, at, mapping, mappings, strings, whole
from infra.review.stack import JOB, Resource, Stack
from infra.schema.quantities import cpu_millicores, mebibytes

_TEMPLATE = ("spec", "template")

KINDS: Mapping[str, tuple[Sequence[str], str]] = {
    JOB: (_TEMPLATE, "parallelism"),
    "kubernetes:batch/v1:CronJob": (("spec", "jobTemplate", *_TEMPLATE), "parallelism"),
    "kubernetes:apps/v1:StatefulSet": (_TEMPLATE, "replicas"),
    "kubernetes:apps/v1:Deployment": (_TEMPLATE, "replicas"),
}
"""The path of the pod template in each kind, and the key beside it with the number of pods."""


@dataclass(frozen=True)
class DeclaredPod:
    """The pods of one resource, ``count`` at once, of the pod spec ``spec``.

    Each asks for ``declared``, and for ``requests`` with what a cloud adds to it and makes of that. ``asked`` is
    what its step asks for, where that is less. ``stays`` says that they run as long as the resource is there.
    ``way`` is how they ask for nodes; None for one that the stack file does not have.
    """

    resource: Resource
    cluster: Resource
    spec: Properties
    declared: Resources
    requests: Resources
    asked: Resources | None
    count: int
    stays: bool
    way: DeclaredWay | None


def declared_pods(stack: Stack) -> Iterator[DeclaredPod]:
    """The pods on clusters on Autopilot whose requests are known."""
    ways = [*declared_ways(stack)]
    clusters = {way.cluster: way.resource for way in ways}
    for resource in stack.of_type(*KINDS):
        cluster = clusters.get(stack.cluster_of(resource))
        path, number = KINDS[resource.type]
        template = mapping(at(resource.properties, *path))
        spec = mapping(template.get("spec"))
        if cluster is None:
            continue
        try:
            declared = _declared(spec)
            added = sidecar(strings(mapping(template.get("metadata")).get("annotations")))
            asked = _step(resource)
        except ValueError:
            continue
        requests = _sum(declared, added)
        selected = strings(spec.get("nodeSelector"))
        of_cluster = (way for way in ways if way.resource is cluster)
        way = next((each for each in of_cluster if autopilot.selector(each.way) == selected), None)
        if way:
            # A sidecar may leave a class with one ratio beside it.
            requests = autopilot.rules(way.way).admitted(requests)
        count = whole(at(resource.properties, *path[:-1], number), 1)
        stays = number == "replicas"
        yield DeclaredPod(resource, cluster, spec, declared, requests, asked, count, stays, way)


def machine_of(pod: DeclaredPod) -> MachineType | None:
    """The machine type of the node that each of these pods has to itself; None where it shares one."""
    return autopilot.machine_for(pod.way.way, pod.requests) if pod.way and pod.way.way.has_own_node else None


def _declared(spec: Properties) -> Resources:
    """What one pod asks for. Raises ValueError where an amount cannot be read."""
    before = [_amounts(at(each, "resources", "requests")) for each in mappings(spec.get("initContainers"))]
    beside = [_amounts(at(each, "resources", "requests")) for each in mappings(spec.get("containers"))]
    return _combined(max, [*before, _combined(sum, [*beside, NOTHING])])


def _step(resource: Resource) -> Resources | None:
    """What the step of a Job asks for, where its pod asks for more."""
    said = strings(at(resource.properties, "metadata", "annotations")).get(ASKED_ANNOTATION)
    return _amounts(json.loads(said)) if said else None


NOTHING = Resources(cpu=0, memory=0)


def _sum(*amounts: Resources) -> Resources:
    return _combined(sum, amounts)


def _combined(combine: Callable[[list[int]], int], amounts: Sequence[Resources]) -> Resources:
    return Resources(
        **{each.name: combine([getattr(one, each.name) for one in amounts]) for each in fields(Resources)}
    )


def _amounts(requests: object) -> Resources:
    asked = strings(requests)
    return Resources(
        cpu=cpu_millicores(asked.get("cpu", "0")),
        memory=mebibytes(asked.get("memory", "0")),
        ephemeral_storage=mebibytes(asked.get("ephemeral-storage", "0")),
        gpus=int(asked.get(GPU_RESOURCE, "0")),
    )
