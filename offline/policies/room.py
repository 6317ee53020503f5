"""What pods take of their nodes: the room that services leave, that of many workers, and limits of memory."""

from collections.abc import Iterator, Sequence

from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import at, known
from infra.review.stack import JOB, Stack
from offline.policies.capacity import Held, held
from offline.policies.workloads import CRON_JOB, Workload, workloads
from offline.preview.phrasing import many


def _beside_services(stack: Stack) -> Iterator[Violation]:
    for workload, places in _placed(stack):
        if any(each.by for each in places) and not _room(workload, places):
            services = list(dict.fromkeys(by.resource.name for each in places for by in each.by))
            stays = "stays" if len(services) == 1 else "stay"
            yield Violation(
                workload.resource.urn,
                f"its pod would fit {_listed(places)}, but not beside {', '.join(services)}, which {stays} there: "
                "it waits until its time limit",
                "let the pool have one more node, ask for less, or give the service another pool",
            )


def _workers(stack: Stack) -> Iterator[Violation]:
    for workload, places in _placed(stack):
        pods, room = workload.pods, _room(workload, places)
        if workload.together or not 0 < room < pods:
            continue
        yield Violation(
            workload.resource.urn,
            f"it has {pods} pods at once, and {_listed(places)} has room for {room}, with {_most(places)}: the "
            "others begin only when some of these have ended",
            f"let the pool grow, ask for less for each, or have {many(room, 'worker')}",
        )


def _nodes(stack: Stack) -> Iterator[Violation]:
    for workload, places in _placed(stack):
        pods, room = workload.pods, _room(workload, places)
        if not workload.together or not 0 < room < pods:
            continue
        yield Violation(
            workload.resource.urn,
            f"it runs on {pods} nodes at once, and {_listed(places)} has room for {room} of its pods, one a "
            f"node, with {_most(places)}: these wait for the others, hold their nodes, and fail",
            f"let the pool have {pods} nodes with room, or let it run on {many(room, 'node')}",
        )


def _most(places: Sequence[Held]) -> str:
    most = sum(each.pool.max_nodes for each in places)
    beside = ", ".join(dict.fromkeys(by.resource.name for each in places for by in each.by))
    return f"at most {many(most, 'node')}{f' beside {beside}' if beside else ''}"


def _placed(stack: Stack) -> Iterator[tuple[Workload, Sequence[Held]]]:
    """The Jobs whose pools are known, with what there is on these."""
    there = held(stack)
    for workload in workloads(stack, JOB, CRON_JOB):
        pools = workload.suitable_pools(stack)
        if pools and workload.requests is not None:
            yield workload, [each for each in there if any(each.pool is pool for pool in pools)]


def _room(workload: Workload, places: Sequence[Held]) -> int:
    wanted = workload.requests
    if wanted is None:
        return 0
    return sum(each.room(wanted, one_a_node=workload.one_a_node) for each in places)


def _listed(places: Sequence[Held]) -> str:
    return " or ".join(f"`{each.pool.name}`" for each in places)


def _without_limit(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        unlimited = [
            str(each.get("name"))
            for each in workload.containers
            if known(each.get("resources")) and at(each, "resources", "limits", "memory") is None
        ]
        if unlimited and not workload.is_device_plugin:
            yield Violation(
                workload.resource.urn,
                f"{', '.join(unlimited)} may take all of its node's memory: the kernel then ends pods there, and "
                "not always this one",
                "set resources.limits.memory to what it requests",
            )


POLICIES = (
    Policy(
        "no-room-beside-services",
        Severity.ERROR,
        "A Job's pod fits a node of its pool beside the services that stay there.",
        _beside_services,
        "Let the pool have another node, ask for less, or place the service on another pool.",
    ),
    Policy(
        "more-workers-than-room",
        Severity.WARNING,
        "The pods that a Job has at once fit its pool at its largest, beside the services there.",
        _workers,
        "Let the pool grow, ask for less for each worker, or have fewer of them.",
    ),
    Policy(
        "more-nodes-than-room",
        Severity.ERROR,
        "A Job whose pods work together has a node for each, with its pool at its largest, beside the services "
        "there.",
        _nodes,
        "Let the pool grow, ask for less for each pod, or have fewer nodes.",
    ),
    Policy(
        "pod-without-memory-limit",
        Severity.WARNING,
        "Every container but that of NVIDIA's device plugin has a limit of memory.",
        _without_limit,
        "Set resources.limits.memory.",
    ),
)
