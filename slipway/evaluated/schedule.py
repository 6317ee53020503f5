"""When an update begins and ends each Job, and which nodes its Jobs hold."""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from slipway.evaluated.model import Outcome
from slipway.evaluated.nodes import PoolNodes, Seat, Stay
from slipway.evaluated.places import MovedStep, is_held, moved_steps
from slipway.evaluated.workloads import DEPLOYMENT, STATEFUL_SET, Workload, awaited, pool_rooms, workloads
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.kubernetes.review import pull
from slipway.infra.placed import CLUSTER_RUN
from slipway.infra.review.facts import Seconds
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, strings, whole

# A resource is created as soon as its dependencies, its provider and its parent exist, in no time but for Jobs and
# services. A Job goes to the pool that takes its pods, waits there for room, boots nodes where there are none, and
# pulls its image once on each node. As many of its pods are placed as its pool has room for; its duration covers
# the others. The pods of a service stay.


Basis = Literal["measured", "rehearsed", "deadline", "limit", "found", "unknown"]

WORK_ALONE: frozenset[Basis] = frozenset({"rehearsed", "found", "unknown"})
"""Times that include neither the boot of a node nor the pull of an image."""


@dataclass(frozen=True)
class JobDuration:
    """How long a Job took, in seconds.

    A ``rehearsed`` time is that of the work alone, on a CPU. A ``measured`` one is that of the whole Job in a
    cluster: with waiting for its node, and with pulling its image. ``parts`` are the seconds of its pods by what
    they went for (`slipway.runtime.parts`); empty where that is not known.
    """

    seconds: float
    basis: Literal["measured", "rehearsed"]
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


def known_time(job: JobDuration | None) -> tuple[float, Literal["measured", "rehearsed"]] | None:
    """The time of a Job with where it is from; None where it is not known."""
    return None if job is None else (job.seconds, job.basis)


@dataclass(frozen=True)
class Span:
    """The time of one resource, from when it can be created."""

    resource: Resource
    begins: float
    ends: float


@dataclass(frozen=True)
class Work:
    """One Job on a node, which it holds from ``begins`` to ``ends``. ``basis`` is the source of its duration.

    A Job with several pods may have several nodes; ``pods`` are those on this one. ``kept`` says that the node is
    there without any Job, too. ``boot`` and ``image`` are what its first pod waits for on the node, within its
    time; None where it does not, or that is not known.
    """

    resource: Resource
    pool: NodePool
    number: int
    begins: float
    ends: float
    basis: Basis
    kept: bool = False
    pods: int = 1
    of: str = ""
    """The URN of the Job of the step with places of which this is one; empty for any other."""
    boot: Seconds | None = None
    image: Seconds | None = None

    @property
    def seconds(self) -> float:
        """How long it holds its node."""
        return self.ends - self.begins


@dataclass
class Schedule:
    """The whole update. Times are seconds after it begins."""

    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    """By URN."""
    work: list[Work] = field(default_factory=list[Work])
    stays: list[Stay] = field(default_factory=list[Stay])
    homeless: list[str] = field(default_factory=list[str])
    """The names of the Jobs that no pool can take."""
    unplaced: list[str] = field(default_factory=list[str])
    """The names of the Jobs of which it cannot be told which pools can take them."""
    kept: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    """The nodes on which services stay: by cluster, pool and number."""
    moved: dict[str, MovedStep] = field(default_factory=dict[str, MovedStep])
    """The steps with places that run, by the URN of their Job."""


def schedule(
    stack: Stack, measured: Mapping[str, JobDuration], jobs: Mapping[str, Outcome] | None = None
) -> Schedule:
    """The update that creates ``stack``. Jobs take the ``measured`` time (by name), else their time limit.

    With ``jobs`` (by URN) the update creates only these. A Job that finds its result ends as soon as it starts.
    Resources whose duration is not known take no time.
    """
    return _Scheduler(stack, measured, jobs).run()


class _Scheduler:
    def __init__(
        self, stack: Stack, measured: Mapping[str, JobDuration], jobs: Mapping[str, Outcome] | None
    ) -> None:
        self._stack = stack
        self._measured = measured
        self._jobs = jobs
        self._workloads = {
            workload.resource.urn: workload for workload in workloads(stack, JOB, STATEFUL_SET, DEPLOYMENT)
        }
        self._moved = moved_steps(stack)
        self._held = {(pool_room.pool.cluster, pool_room.pool.name): pool_room for pool_room in pool_rooms(stack)}
        self._pools: dict[tuple[str, str], PoolNodes] = {}
        self._found = Schedule()

    def run(self) -> Schedule:
        resources = self._stack.resources
        order = {urn: number for number, urn in enumerate(resources)}
        needs = {
            urn: {need for need in _needs(resource) if need in resources} for urn, resource in resources.items()
        }
        needed: dict[str, list[str]] = {urn: [] for urn in resources}
        for urn, wanted in needs.items():
            for need in wanted:
                needed[need].append(urn)
        left = {urn: len(wanted) for urn, wanted in needs.items()}
        ready = [(0.0, number, urn) for urn, number in order.items() if not left[urn]]
        heapq.heapify(ready)
        # Jobs are placed in the order in which they can begin, so none is overtaken while it waits for a node.
        while ready:
            time, _, urn = heapq.heappop(ready)
            spans = self._found.spans
            spans[urn] = self._span(resources[urn], time)
            for follower in needed[urn]:
                left[follower] -= 1
                if not left[follower]:
                    begins = max(spans[need].ends for need in needs[follower])
                    heapq.heappush(ready, (begins, order[follower], follower))
        self._found.stays = [stay for pool in self._pools.values() for stay in pool.stays]
        self._found.kept = {
            (pool.pool.cluster, pool.pool.name, number) for pool in self._pools.values() for number in pool.kept
        }
        return self._found

    def _span(self, resource: Resource, time: float) -> Span:
        workload = self._workloads.get(resource.urn)
        # The time of a Job that is held is that of the step.
        if workload is None or is_held(resource):
            return Span(resource, time, time)
        if self._jobs is not None and resource.urn not in self._jobs:
            if workload.stays:
                self._service(workload, time)
            return Span(resource, time, time)
        if step := self._moved.get(resource.urn):
            return self._moved_step(step, workload, time)
        return self._service(workload, time) if workload.stays else self._job(workload, time)

    def _runner(self, workload: Workload, time: float) -> Span:
        """What lets Jobs run is there from before the first until after the last, ``time``, on one node."""
        nodes, work = (
            self._nodes(workload),
            [work for work in self._found.work if not (work.of or awaited(work.resource))],
        )
        if nodes is None or not work:
            return Span(workload.resource, time, time)
        begins, on_pool = (
            min(entry.begins for entry in work),
            [entry for entry in work if entry.pool is nodes.pool],
        )
        number = min(on_pool, key=lambda entry: entry.begins).number if on_pool else 0
        kept = number < nodes.pool.min_nodes or number in nodes.kept
        self._found.work.append(Work(workload.resource, nodes.pool, number, begins, time, work[0].basis, kept))
        since = min([begins, *(stay.since for stay in nodes.stays if stay.number == number)])
        nodes.stays = [
            *(stay for stay in nodes.stays if stay.number != number),
            Stay(nodes.pool, number, since, time, booted=not kept),
        ]
        return Span(workload.resource, begins, time)

    def _moved_step(self, step: MovedStep, mover: Workload, time: float) -> Span:
        """A step with places, as if it were at the dearest all the time; what moves it is on nodes of its own."""
        resource, place = step.job, step.dearest(self._stack)
        self._found.moved[resource.urn] = step
        seconds, basis = self._time_of_moved(step)
        count = len(self._found.work)
        paid = min(seconds, step.paid_seconds(self._stack))
        span = self._job(place, time, (paid, basis))
        self._found.work[count:] = [replace(work, of=resource.urn) for work in self._found.work[count:]]
        ends = span.ends + seconds - paid
        for program in (mover, *step.agents):
            nodes = self._nodes(program)
            if nodes is not None and program.requests is not None:
                seat = nodes.seat(time, program.requests)
                kept = seat.node.always
                nodes.take(seat, program.requests, max(ends, seat.begins))
                self._found.work.append(
                    Work(resource, nodes.pool, seat.node.number, seat.begins, max(ends, seat.begins), basis, kept)
                )
        return Span(resource, span.begins, ends)

    def _time_of_moved(self, step: MovedStep) -> tuple[float, Basis]:
        if self._jobs is not None and self._jobs[step.job.urn] is Outcome.RESUMES:
            return 0.0, "found"
        if self._measured and step.deadline is not None:
            return step.deadline, "deadline"
        return step.time_limit, "limit"

    def _job(self, workload: Workload, time: float, takes: tuple[float, Basis] | None = None) -> Span:
        resource, nodes, wanted = workload.resource, self._nodes(workload), workload.requests
        if strings(at(resource.properties, "metadata", "labels")).get(NAME) == CLUSTER_RUN:
            return self._runner(workload, time)
        seconds, basis = takes or self._time(resource)
        alone = Span(resource, time, time + seconds)
        if nodes is None or wanted is None:
            known = workload.placement_known(self._stack)
            (self._found.homeless if known else self._found.unplaced).append(resource.name)
            return alone
        at_once = self._at_once(workload, nodes.pool)
        if not at_once or (workload.together and at_once < workload.pods):
            self._found.homeless.append(resource.name)
            return alone
        # The seconds are those of all pods, also of those that wait for room: a limit and a time from a cluster
        # are those of the whole Job, and a rehearsal places pods on the same nodes.
        if workload.together:
            return self._together(workload, time, nodes, seconds, basis=basis)
        pods: list[Span] = []
        work: dict[int, Work] = {}
        for _ in range(at_once):
            seat = nodes.seat(time, wanted)
            kept = seat.node.always
            boot, image = _waits(workload, seat)
            ends = seat.begins + (_sum(boot, image) if basis in WORK_ALONE else 0.0) + seconds
            nodes.take(seat, wanted, ends)
            seat.node.images.update(_images(workload))
            pods.append(Span(resource, seat.begins, ends))
            others = work.get(seat.node.number)
            begins, ends = (
                (min(others.begins, seat.begins), max(others.ends, ends)) if others else (seat.begins, ends)
            )
            number = seat.node.number
            if others:
                work[number] = replace(others, begins=begins, ends=ends, pods=others.pods + 1)
            else:
                work[number] = Work(
                    resource, nodes.pool, number, begins, ends, basis, kept, boot=boot, image=image
                )
        self._found.work.extend(work.values())
        return max(pods, key=lambda pod: pod.ends)

    def _together(
        self, workload: Workload, time: float, nodes: PoolNodes, seconds: float, *, basis: Basis
    ) -> Span:
        """The pods of a Job that work together: each on a node of its own, from when the last of them is there."""
        resource, wanted = workload.resource, workload.requests
        assert wanted is not None
        seats: list[Seat] = []
        for _ in range(workload.pods):
            seats.append(nodes.seat(time, wanted, [seat.node.number for seat in seats]))
        alone = basis in WORK_ALONE
        ready = [seat.begins + (_sum(*_waits(workload, seat)) if alone else 0.0) for seat in seats]
        last = max(range(len(seats)), key=ready.__getitem__)
        ends = ready[last] + seconds
        for seat in seats:
            kept = seat.node.always
            boot, image = _waits(workload, seat)
            nodes.take(seat, wanted, ends)
            seat.node.images.update(_images(workload))
            self._found.work.append(
                Work(
                    *(resource, nodes.pool, seat.node.number, seat.begins, ends, basis, kept),
                    boot=boot,
                    image=image,
                )
            )
        return Span(resource, seats[last].begins, ends)

    def _at_once(self, workload: Workload, pool: NodePool) -> int:
        """How many of its pods fit the pool at the same time, with nothing there but what stays."""
        pool_rooms_ = self._held[pool.cluster, pool.name]
        if workload.requests is None:
            return 0
        return min(workload.pods, pool_rooms_.room(workload.requests, one_a_node=workload.one_a_node))

    def _service(self, workload: Workload, time: float) -> Span:
        """The pods of a service, which are ready once they have started, and stay."""
        resource, nodes, wanted = workload.resource, self._nodes(workload), workload.requests
        if nodes is None or wanted is None:
            known = workload.placement_known(self._stack)
            (self._found.homeless if known else self._found.unplaced).append(resource.name)
            return Span(resource, time, time)
        last = Span(resource, time, time)
        for _ in range(workload.pods):
            seat = nodes.seat(time, wanted)
            if math.isinf(seat.begins):
                self._found.homeless.append(resource.name)
                break
            ends = seat.begins + _sum(*_waits(workload, seat))
            seat.node.keep(seat, wanted)
            seat.node.images.update(_images(workload))
            if ends > last.ends:
                last = Span(resource, seat.begins, ends)
        return last

    def _time(self, job: Resource) -> tuple[float, Basis]:
        if self._jobs is not None and self._jobs[job.urn] is Outcome.RESUMES:
            return 0.0, "found"
        if (known := self._measured.get(job.name)) is not None:
            return known.seconds, known.basis
        limit = whole(at(job.properties, "spec", "activeDeadlineSeconds"))
        return (float(limit), "limit") if limit else (0.0, "unknown")

    def _nodes(self, workload: Workload) -> PoolNodes | None:
        pool = workload.pool(self._stack)
        return pool and self._pools.setdefault((pool.cluster, pool.name), PoolNodes(pool))


def _needs(resource: Resource) -> frozenset[str]:
    return resource.dependencies | {resource.provider, resource.parent}


def _waits(workload: Workload, seat: Seat) -> tuple[Seconds | None, Seconds | None]:
    """How long the pod waits in its seat until the node has booted, and until it has the pod's images."""
    pulls = seat.boots or not _images(workload) <= seat.node.images
    return seat.node.pool.boot if seat.boots else None, pull(_images(workload), seat.node.pool) if pulls else None


def _sum(*waits: Seconds | None) -> float:
    """The seconds of those that are known."""
    return sum(wait.amount for wait in waits if wait is not None)


def _images(workload: Workload) -> set[str]:
    return {str(container.get("image", "")) for container in workload.containers}
