"""Pods that no node can take, with kube-scheduler's reasons, and images whose content may change."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.infra.commands import command
from slipway.infra.kubernetes.labels import IMAGE_ANNOTATION
from slipway.infra.pipelines.images import DATA, DIGESTS, IMAGES
from slipway.infra.places import LIBRARY, PROJECT
from slipway.infra.review.contract import Harm, Policy, Severity, Violation
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, known, strings
from slipway.offline.evaluated.phrasing import many
from slipway.offline.evaluated.scheduling import (
    PodRequest,
    find_untolerated,
    has_gpus,
    pool_obstacle,
    pools_of,
    selects,
    without_unknown_labels,
)
from slipway.offline.evaluated.workloads import CRON_JOB, PoolRoom, Workload, gpus_of, pool_rooms, workloads

# Pods that no node can take, with kube-scheduler's reasons. Clusters with unknown pools are left out.


def _placed_pods(stack: Stack) -> Iterator[tuple[Workload, PodRequest, list[NodePool]]]:
    """The pods that a scheduler places, with the pools of their cluster."""
    for workload in workloads(stack):
        request = workload.request
        if request is not None and (pools := pools_of(stack, workload.cluster)):
            yield workload, request, pools


def _on_gpus(stack: Stack) -> Iterator[tuple[Workload, PodRequest, list[NodePool], list[NodePool]]]:
    """Pods that ask for GPUs, with the GPU pools of their cluster, and those that their selector picks."""
    for workload, request, pools in _placed_pods(stack):
        if gpus_of(workload):
            gpu_pools = [pool for pool in pools if has_gpus(pool)]
            yield workload, request, gpu_pools, [pool for pool in gpu_pools if _selects_pool(request, pool, pools)]


def _find_without_pool(stack: Stack) -> Iterator[Violation]:
    for workload, request, gpu_pools, chosen in _on_gpus(stack):
        if chosen:
            continue
        if gpu_pools:
            reason = f"its {_selector(request)} matches no GPU pool of {workload.cluster}"
            fix = f"select one of {_list_pools(gpu_pools)}: {_labels(gpu_pools[0])}"
        else:
            reason = f"it asks for a GPU, and {workload.cluster} has no pool with one"
            fix = "add a GPU pool to the cluster, or ask for no GPU"
        yield Violation(workload.resource.urn, reason, fix)


def _find_without_toleration(stack: Stack) -> Iterator[Violation]:
    for workload, request, _, chosen in _on_gpus(stack):
        taints = [find_untolerated(request.tolerations, pool.taints) for pool in chosen]
        if chosen and (taint := taints[0]) is not None and all(taints):
            yield Violation(
                workload.resource.urn,
                f"it does not tolerate the taint {taint.key}={taint.value}:{taint.effect} of "
                f"{_list_pools(chosen)}, and no other GPU pool is there for it",
                f"add the toleration {{key: {taint.key}, operator: Exists, effect: {taint.effect}}}",
            )


def _find_without_selector(stack: Stack) -> Iterator[Violation]:
    for workload, request, _, chosen in _on_gpus(stack):
        possible = [pool for pool in chosen if find_untolerated(request.tolerations, pool.taints) is None]
        kinds = sorted({pool.accelerator for pool in possible if pool.accelerator})
        if len(kinds) > 1:
            yield Violation(
                workload.resource.urn,
                f"it can land on {' or '.join(kinds)} ({_list_pools(possible)}), whichever has room first",
                f"add a node selector for the pool that it is for, such as {_labels(possible[0])}",
            )


def _find_unschedulable(stack: Stack) -> Iterator[Violation]:
    for workload, request, pools in _placed_pods(stack):
        reasons = {pool.name: pool_obstacle(request, pool, pools) for pool in pools}
        if not all(reasons.values()) or _said_otherwise(workload, request, pools):
            continue
        yield Violation(
            workload.resource.urn,
            "no pool can take its pod; " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()),
            "change what the pod asks for, selects or tolerates, or the pool that is meant for it",
        )


def _said_otherwise(workload: Workload, request: PodRequest, pools: Sequence[NodePool]) -> bool:
    """Whether another policy about GPU pods already reports this pod."""
    if not gpus_of(workload):
        return False
    chosen = [pool for pool in pools if has_gpus(pool) and _selects_pool(request, pool, pools)]
    return all(find_untolerated(request.tolerations, pool.taints) for pool in chosen)


def _selects_pool(request: PodRequest, pool: NodePool, pools: Sequence[NodePool]) -> bool:
    return selects(without_unknown_labels(request, pool, pools), pool.labels)


def _selector(request: PodRequest) -> str:
    requirements = [
        f"{expression.key} {expression.operator} {', '.join(expression.values)}".rstrip()
        for term in request.affinity
        for expression in term
    ]
    selector = "{" + ", ".join(f"{key}: {value}" for key, value in request.selector.items()) + "}"
    affinity = f"node affinity ({'; '.join(requirements)})"
    if not request.affinity:
        return f"node selector {selector}"
    return f"node selector {selector} and {affinity}" if request.selector else affinity


def _labels(pool: NodePool) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in pool.labels.items()) + "}"


def _list_pools(pools: Sequence[NodePool]) -> str:
    return ", ".join(f"`{pool.name}`" for pool in pools)


POLICIES = (
    Policy(
        "gpu-pod-without-pool",
        Severity.ERROR,
        "A pod that asks for GPUs selects a GPU pool that is there.",
        _find_without_pool,
        "Select the labels of a GPU pool of the same cluster, or declare that pool.",
    ),
    Policy(
        "gpu-pod-without-toleration",
        Severity.ERROR,
        "A pod that asks for GPUs tolerates the taints of a GPU pool.",
        _find_without_toleration,
        "Add a toleration for the pool's taint.",
    ),
    Policy(
        "gpu-pod-without-selector",
        Severity.WARNING,
        "A pod that asks for GPUs says which, where its cluster has several kinds.",
        _find_without_selector,
        "Add a node selector for the pool that the pod is for.",
    ),
    Policy(
        "unschedulable-pod",
        Severity.ERROR,
        "Every pod fits a node of some pool of its cluster: taints, selector, CPU, memory, storage and GPUs.",
        _find_unschedulable,
        "Change what the pod asks for, or the pool: the finding says what each pool lacks.",
    ),
)


# What pods take of their nodes: the room that services leave, that of many workers, and limits of memory.


def _find_beside_services(stack: Stack) -> Iterator[Violation]:
    for workload, places in _jobs_with_room(stack):
        if any(place.by for place in places) and not _pods_that_fit(workload, places):
            services = list(dict.fromkeys(workload.resource.name for place in places for workload in place.by))
            stays = "stays" if len(services) == 1 else "stay"
            yield Violation(
                workload.resource.urn,
                f"its pod would fit {_pool_names(places)}, but not beside {', '.join(services)}, which {stays} "
                "there: it waits until its time limit",
                "let the pool have one more node, ask for less, or give the service another pool",
            )


def _find_workers(stack: Stack) -> Iterator[Violation]:
    for workload, places in _jobs_with_room(stack):
        pods, room = workload.pods, _pods_that_fit(workload, places)
        if workload.together or not 0 < room < pods:
            continue
        yield Violation(
            workload.resource.urn,
            f"it has {pods} pods at once, and {_pool_names(places)} has room for {room}, with "
            f"{_describe_most_nodes(places)}: the others begin only when some of these have ended",
            f"let the pool grow, ask for less for each, or have {many(room, 'worker')}",
        )


def _find_nodes(stack: Stack) -> Iterator[Violation]:
    for workload, places in _jobs_with_room(stack):
        pods, room = workload.pods, _pods_that_fit(workload, places)
        if not workload.together or not 0 < room < pods:
            continue
        yield Violation(
            workload.resource.urn,
            f"it runs on {pods} nodes at once, and {_pool_names(places)} has room for {room} of its pods, one a "
            f"node, with {_describe_most_nodes(places)}: these wait for the others, hold their nodes, and fail",
            f"let the pool have {pods} nodes with room, or let it run on {many(room, 'node')}",
        )


def _describe_most_nodes(places: Sequence[PoolRoom]) -> str:
    most = sum(place.pool.max_nodes for place in places)
    beside = ", ".join(dict.fromkeys(workload.resource.name for place in places for workload in place.by))
    return f"at most {many(most, 'node')}{f' beside {beside}' if beside else ''}"


def _jobs_with_room(stack: Stack) -> Iterator[tuple[Workload, Sequence[PoolRoom]]]:
    """The Jobs whose pools are known, with the room on these pools."""
    pool_rooms_ = pool_rooms(stack)
    for workload in workloads(stack, JOB, CRON_JOB):
        pools = workload.suitable_pools(stack)
        if pools and workload.requests is not None:
            yield (
                workload,
                [pool_room for pool_room in pool_rooms_ if any(pool_room.pool is pool for pool in pools)],
            )


def _pods_that_fit(workload: Workload, places: Sequence[PoolRoom]) -> int:
    wanted = workload.requests
    if wanted is None:
        return 0
    return sum(place.room(wanted, one_a_node=workload.one_a_node) for place in places)


def _pool_names(places: Sequence[PoolRoom]) -> str:
    return " or ".join(f"`{place.pool.name}`" for place in places)


def _find_without_limit(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        unlimited = [
            str(container.get("name"))
            for container in workload.containers
            if known(container.get("resources")) and at(container, "resources", "limits", "memory") is None
        ]
        if unlimited and not workload.is_device_plugin:
            yield Violation(
                workload.resource.urn,
                f"{', '.join(unlimited)} may take all of its node's memory: the kernel then ends pods there, and "
                "not always this one",
                "set resources.limits.memory to what it requests",
            )


ROOM_POLICIES = (
    Policy(
        "no-room-beside-services",
        Severity.ERROR,
        "A Job's pod fits a node of its pool beside the services that stay there.",
        _find_beside_services,
        "Let the pool have another node, ask for less, or place the service on another pool.",
    ),
    Policy(
        "more-workers-than-room",
        Severity.WARNING,
        "The pods that a Job has at once fit its pool at its largest, beside the services there.",
        _find_workers,
        "Let the pool grow, ask for less for each worker, or have fewer of them.",
    ),
    Policy(
        "more-nodes-than-room",
        Severity.ERROR,
        "A Job whose pods work together has a node for each, with its pool at its largest, beside the services "
        "there.",
        _find_nodes,
        "Let the pool grow, ask for less for each pod, or have fewer nodes.",
    ),
    Policy(
        "pod-without-memory-limit",
        Severity.WARNING,
        "Every container but that of NVIDIA's device plugin has a limit of memory.",
        _find_without_limit,
        "Set resources.limits.memory.",
    ),
)


# Images and charts whose content may change without a change of the stack.


RELEASE = "kubernetes:helm.sh/v3:Release"
CHARTS = (RELEASE, "kubernetes:helm.sh/v4:Chart", "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v2:Chart")

EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
"""A whole version, of which Helm has nothing to choose (semver.org, 2.0.0)."""

WHOLE_VERSION = re.compile(r"\d+\.\d+\.\d+")
"""A whole version in a tag. Publishers move `2.21` but not `2.21.0`; only a digest never changes."""

PINNING = (
    f"Run `{command('pin-images')}` once, where registries can be reached, and commit what it writes; what runs "
    "in these images then runs again."
)

LOCAL = re.compile(r"^(?:[./~]|.*\.tgz$)")


def _find_images(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        named = {
            str(container["image"]): None
            for container in workload.containers
            if isinstance(container.get("image"), str)
        }
        for image in named:
            _, _, tag = image.rpartition("/")[2].partition(":")
            if "@sha256:" in image or WHOLE_VERSION.search(tag):
                continue
            yield Violation(
                workload.resource.urn,
                f"the image {image} is whatever its registry has under that name when a pod starts",
                "name it by digest, which `docker buildx imagetools inspect <image>` shows, or by a whole version",
            )


def _find_defaults(stack: Stack) -> Iterator[Violation]:
    """One finding for the data file that names the image, instead of one for each Job."""
    used = {container.get("image") for workload in workloads(stack) for container in workload.containers}
    if images := [tag for tags in IMAGES.values() for tag in tags if tag in used]:
        reason = "images that are run by default are named by a tag, which can be moved"
        file = f"infra/data/{DATA.name}" if LIBRARY == PROJECT else DIGESTS.name
        yield Violation(file, f"{reason}: {', '.join(images)}", PINNING)


def _find_charts(stack: Stack) -> Iterator[Violation]:
    for resource in stack.resources.values():
        chart, version = resource.properties.get("chart"), resource.properties.get("version")
        if resource.type not in CHARTS or not isinstance(chart, str) or LOCAL.match(chart) or "@sha256:" in chart:
            continue
        if version is None or version == "":
            reason = f"the chart {chart} has no version, so Helm takes the newest"
        elif isinstance(version, str) and not EXACT.fullmatch(version):
            reason = f"the version {version} of the chart {chart} is a range, of which Helm takes the newest"
        else:
            continue
        yield Violation(resource.urn, reason, "name one version, such as 1.2.3")


IMAGE_POLICIES = (
    Policy(
        "unpinned-image",
        Severity.ERROR,
        "Every image is named by digest or by a tag with a whole version: not `latest`, `stable` or `3.11`.",
        _find_images,
        "Name the image by digest, or by a whole version that its publisher does not move.",
    ),
    Policy(
        "default-image-by-tag",
        Severity.WARNING,
        "The images that are run by default are named by digest.",
        _find_defaults,
        PINNING,
    ),
    Policy(
        "unpinned-chart",
        Severity.ERROR,
        "Every Helm chart that is fetched has one exact version.",
        _find_charts,
        "Name the version.",
    ),
)


# Jobs that build images in the cluster without the guards that their pods need.


@dataclass(frozen=True)
class BuiltImage:
    """What a Job builds, as its annotation says: ``size`` are the bytes of its context's ``files``."""

    name: str
    context: str
    dockerfile: str
    files: int
    size: int


def built_image(resource: Resource) -> BuiltImage | None:
    """The image that a Job builds; None where it is no such Job."""
    annotation = strings(at(resource.properties, "metadata", "annotations")).get(IMAGE_ANNOTATION)
    if resource.type != JOB or annotation is None:
        return None
    try:
        image: Any = json.loads(annotation)
        return BuiltImage(image["name"], image["context"], image["dockerfile"], image["files"], image["bytes"])
    except (ValueError, KeyError, TypeError):
        return None


def _find_unguarded(stack: Stack) -> Iterator[Violation]:
    for resource in stack.of_type(JOB):
        if image := built_image(resource):
            yield Violation(
                resource.urn,
                f"it builds an image from {image.context}/{image.dockerfile} without seccomp and AppArmor: the "
                "commands of that file, and all that they install, meet the whole kernel of a node, and may push "
                "any image as the build",
                "build only what you trust so far; or build it elsewhere, and write `image` with its digest in "
                "place of `build`",
            )


IMAGE_BUILD_POLICIES = (
    Policy(
        "unguarded-build",
        Severity.WARNING,
        "No image is built in the cluster, where BuildKit runs without seccomp and AppArmor.",
        _find_unguarded,
        "Name the image by digest, or suppress the finding for a Dockerfile that you trust.",
        harm=Harm.OPENING,
    ),
)
