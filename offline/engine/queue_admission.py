"""Who is admitted next: Kueue's order, and what it stops for a Job that waits.

After pkg/scheduler/scheduler.go, pkg/cache/queue/cluster_queue.go and pkg/scheduler/preemption of
github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026). What is left out: fair sharing, Jobs of other
ClusterQueues that are stopped for one (``reclaimWithinCohort``, ``borrowWithinCohort``), admission checks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offline.engine.queue_objects import Asked, ClusterQueue, FlavorResource
from offline.engine.queues import Assignment, Mode, Queues


@dataclass(frozen=True)
class Admitted:
    """A Job that has quota, and since when, counted. One that is ``stopping`` has it until its pods are gone."""

    asked: Asked
    assignment: Assignment
    since: int = 0
    stopping: bool = False


@dataclass
class Decision:
    """What one look at the queues comes to: who starts, who is stopped for whom, and why the others wait.

    ``stopped`` are pairs of the Job that is stopped and the one for which; ``reasons`` are by `Asked.order`.
    """

    admitted: list[tuple[Asked, Assignment]] = field(default_factory=list[tuple[Asked, Assignment]])
    stopped: list[tuple[Admitted, Asked]] = field(default_factory=list[tuple[Admitted, Asked]])
    reasons: dict[int, str] = field(default_factory=dict[int, str])


def decide(queues: Queues, waiting: Iterable[Asked], running: Sequence[Admitted]) -> Decision:
    """Looks at all queues once. ``waiting`` are Jobs whose queues are there and active.

    Of each ClusterQueue the Job with the highest priority, then the oldest, is looked at first; among those of
    several ClusterQueues one that borrows nothing comes before others. One that does not fit lets later ones pass,
    unless its queue is strict.
    """
    found = Decision()
    used = _usage(running)
    lines = _lines(queues, waiting)
    while heads := [(line[0], queues.assign(line[0], used)) for line in lines.values() if line]:
        asked, assignment = min(heads, key=lambda each: (each[1].borrows, -each[0].priority, each[0].order))
        queue = _queue(queues, asked)
        line = lines[queue.name]
        line.pop(0)
        if assignment.mode is Mode.FIT:
            found.admitted.append((asked, assignment))
            _add(used, queue.name, assignment.usage)
            continue
        found.reasons[asked.order] = "; ".join(assignment.reasons)
        if assignment.mode is Mode.PREEMPT and (targets := _targets(queues, asked, running, used)):
            found.stopped += [(each, asked) for each in targets if not each.stopping]
            names = ", ".join(each.asked.name for each in targets)
            found.reasons[asked.order] += f"; Pending the preemption of {names}"
            # Nobody else gets what is freed for it.
            _add(used, queue.name, assignment.usage)
        if queue.strict:
            for each in line:
                found.reasons[each.order] = f"waits behind {asked.name} (StrictFIFO)"
            line.clear()
    return found


def _lines(queues: Queues, waiting: Iterable[Asked]) -> dict[str, list[Asked]]:
    lines: dict[str, list[Asked]] = {}
    for each in sorted(waiting, key=lambda one: (-one.priority, one.order)):
        lines.setdefault(_queue(queues, each).name, []).append(each)
    return lines


def _queue(queues: Queues, asked: Asked) -> ClusterQueue:
    found = queues.of(asked)
    assert found is not None
    return found


def _usage(running: Iterable[Admitted]) -> dict[str, dict[FlavorResource, int]]:
    used: dict[str, dict[FlavorResource, int]] = {}
    for each in running:
        _add(used, each.assignment.queue, each.assignment.usage)
    return used


def _add(
    used: dict[str, dict[FlavorResource, int]], queue: str, usage: Mapping[FlavorResource, int], sign: int = 1
) -> None:
    own = used.setdefault(queue, {})
    for key, value in usage.items():
        own[key] = own.get(key, 0) + sign * value


def _targets(
    queues: Queues, asked: Asked, running: Sequence[Admitted], used: Mapping[str, Mapping[FlavorResource, int]]
) -> list[Admitted]:
    """The fewest of its queue's Jobs of lower priority without which the Job fits; none where that is not enough.

    Those with the lowest priority go first, and of these the newest.
    """
    queue = _queue(queues, asked)
    left = {name: dict(usage) for name, usage in used.items()}
    lower = [
        each for each in running if each.assignment.queue == queue.name and each.asked.priority < asked.priority
    ]
    lower.sort(key=lambda each: (not each.stopping, each.asked.priority, -each.since))
    targets: list[Admitted] = []
    for each in lower:
        targets.append(each)
        _add(left, queue.name, each.assignment.usage, -1)
        if queues.assign(asked, left).mode is Mode.FIT:
            break
    else:
        return []
    for each in targets[-2::-1]:
        _add(left, queue.name, each.assignment.usage)
        if queues.assign(asked, left).mode is Mode.FIT:
            targets.remove(each)
        else:
            _add(left, queue.name, each.assignment.usage, -1)
    return targets
