"""Pods that no node can take, with kube-scheduler's reasons, and images whose content may change."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.evaluated.phrasing import many
from slipway.evaluated.scheduling import PodRequest, pool_obstacle, pools_of
from slipway.evaluated.workloads import CRON_JOB, PoolRoom, Workload, pool_rooms, workloads
from slipway.infra.commands import command
from slipway.infra.kubernetes.labels import IMAGE_ANNOTATION
from slipway.infra.pipelines.images import DATA, DIGESTS, IMAGES
from slipway.infra.places import LIBRARY, PROJECT
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, strings


def _placed_pods(stack: Stack) -> Iterator[tuple[Workload, PodRequest, list[NodePool]]]:
    """The pods that a scheduler places, with the pools of their cluster."""
    for workload in workloads(stack):
        request = workload.request
        if request is not None and (pools := pools_of(stack, workload.cluster)):
            yield workload, request, pools


def _find_unschedulable(stack: Stack) -> Iterator[Violation]:
    for workload, request, pools in _placed_pods(stack):
        reasons = {pool.name: pool_obstacle(request, pool, pools) for pool in pools}
        if not all(reasons.values()):
            continue
        yield Violation(
            workload.resource.urn,
            "no pool can take its pod; " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()),
            "change what the pod asks for, selects or tolerates, or the pool that is meant for it",
        )


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


RELEASE = "kubernetes:helm.sh/v3:Release"
CHARTS = (RELEASE, "kubernetes:helm.sh/v4:Chart", "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v2:Chart")


WHOLE_VERSION = re.compile(r"\d+\.\d+\.\d+")
"""A whole version in a tag. Publishers move `2.21` but not `2.21.0`; only a digest never changes."""

PINNING = (
    f"Run `{command('pin-images')}` once, where registries can be reached, and commit what it writes; what runs "
    "in these images then runs again."
)


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


POLICIES = policies_of(
    Path(__file__).with_name("policies.toml"),
    {
        "unschedulable-pod": _find_unschedulable,
        "no-room-beside-services": _find_beside_services,
        "more-workers-than-room": _find_workers,
        "more-nodes-than-room": _find_nodes,
        "unpinned-image": _find_images,
        "default-image-by-tag": _find_defaults,
        "unguarded-build": _find_unguarded,
    },
)
