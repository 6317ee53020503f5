"""How long ``pulumi up`` takes to create the whole stack, and what it waits for."""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from slipway.infra.kubernetes.labels import NAME
from slipway.infra.kubernetes.review import pull
from slipway.infra.placed import CLUSTER_RUN
from slipway.infra.review.facts import Seconds
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, strings, whole
from slipway.offline.evaluated.model import Leg, Outcome, Timeline
from slipway.offline.evaluated.nodes import PoolNodes, Seat, Stay
from slipway.offline.evaluated.phrasing import duration, join
from slipway.offline.evaluated.places import MovedStep, is_held, moved_steps, step_range
from slipway.offline.evaluated.workloads import DEPLOYMENT, STATEFUL_SET, Workload, awaited, pool_rooms, workloads

# When an update that creates everything begins and ends each resource, and which nodes its Jobs hold.
#
# A resource is created as soon as its dependencies, its provider and its parent exist. A Job goes to the pool that
# takes its pods, waits there for room, boots nodes where there are none, and pulls its image once on each node. As
# many of its pods are placed as its pool has room for; its duration covers the others. The pods of a service stay.


NODE, IMAGE = "node", "image"

Basis = Literal["measured", "rehearsed", "deadline", "limit", "found", "unknown"]

WORK_ALONE: frozenset[Basis] = frozenset({"rehearsed", "found", "unknown"})
"""Times that include neither the boot of a node nor the pull of an image."""


@dataclass(frozen=True)
class JobDuration:
    """How long a Job took, in seconds.

    A ``rehearsed`` time is that of the work alone, on a CPU. A ``measured`` one is that of the whole Job in a
    cluster: with waiting for its node, and with pulling its image. ``parts`` are the seconds of its pods by what
    they went for (`slipway.workloads.runtime.parts`); empty where that is not known.
    """

    seconds: float
    basis: Literal["measured", "rehearsed"]
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


def known_time(job: JobDuration | None) -> tuple[float, Literal["measured", "rehearsed"]] | None:
    """The time of a Job with where it is from; None where it is not known."""
    return None if job is None else (job.seconds, job.basis)


@dataclass(frozen=True)
class Part:
    """One part of the time that a resource takes. ``basis`` is ``measured``, ``rehearsed``, ``limit``, or a
    source. ``pods`` is how many pods a Job has, and ``at_once`` how many of them there is room for; ``together``
    says that they work together."""

    name: str
    type: str
    seconds: float
    basis: str
    pods: int = 1
    at_once: int = 1
    together: bool = False


@dataclass(frozen=True)
class Span:
    """The time of one resource, from when it can be created. ``after`` is the URN of the last dependency."""

    resource: Resource
    begins: float
    ends: float
    after: str
    parts: Sequence[Part] = ()


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
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons by URN why the duration of a resource is not known: its type, or what a Job waits for."""
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
            after = max(needs[urn], key=lambda need: (spans[need].ends, -order[need]), default="")
            spans[urn] = self._span(resources[urn], time, after)
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

    def _span(self, resource: Resource, time: float, after: str) -> Span:
        workload = self._workloads.get(resource.urn)
        if is_held(resource):
            # Its time is that of the step.
            return Span(resource, time, time, after)
        if self._jobs is not None and resource.urn not in self._jobs:
            if workload is not None and workload.stays:
                self._service(workload, time, after)
            return Span(resource, time, time, after)
        if workload is not None:
            if step := self._moved.get(resource.urn):
                return self._moved_step(step, workload, time, after)
            place = self._service if workload.stays else self._job
            return place(workload, time, after)
        if not resource.custom or resource.read or resource.package == "pulumi":
            return Span(resource, time, time, after)
        parts = self._creation(resource)
        return Span(resource, time, time + sum(part.seconds for part in parts), after, parts)

    def _creation(self, resource: Resource) -> Sequence[Part]:
        known = self._stack.creation.get(resource.urn)
        if known is None:
            self._found.unknown[resource.urn] = resource.type
            return ()
        source = f"{known.source.url} ({known.source.when})"
        return [Part(resource.name, resource.type, known.amount, source)]

    def _runner(self, workload: Workload, time: float, after: str) -> Span:
        """What lets Jobs run is there from before the first until after the last, ``time``, on one node."""
        nodes, work = (
            self._nodes(workload),
            [work for work in self._found.work if not (work.of or awaited(work.resource))],
        )
        if nodes is None or not work:
            return Span(workload.resource, time, time, after)
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
        return Span(workload.resource, begins, time, after)

    def _moved_step(self, step: MovedStep, mover: Workload, time: float, after: str) -> Span:
        """A step with places, as if it were at the dearest all the time; what moves it is on nodes of its own."""
        resource, place = step.job, step.dearest(self._stack)
        self._found.moved[resource.urn] = step
        seconds, basis = self._time_of_moved(step)
        count = len(self._found.work)
        paid = min(seconds, step.paid_seconds(self._stack))
        span = self._job(place, time, after, (paid, basis))
        self._found.work[count:] = [replace(work, of=resource.urn) for work in self._found.work[count:]]
        ends = span.ends + seconds - paid
        parts = [*span.parts[:-1], replace(span.parts[-1], name=resource.name, seconds=seconds)]
        for program in (mover, *step.agents):
            nodes = self._nodes(program)
            if nodes is not None and program.requests is not None:
                seat = nodes.seat(time, program.requests)
                kept = seat.node.always
                nodes.take(seat, program.resource.urn, program.requests, max(ends, seat.begins))
                self._found.work.append(
                    Work(resource, nodes.pool, seat.node.number, seat.begins, max(ends, seat.begins), basis, kept)
                )
        return Span(resource, span.begins, ends, span.after, parts)

    def _time_of_moved(self, step: MovedStep) -> tuple[float, Basis]:
        if self._jobs is not None and self._jobs[step.job.urn] is Outcome.RESUMES:
            return 0.0, "found"
        if self._measured and step.deadline is not None:
            return step.deadline, "deadline"
        return step.time_limit, "limit"

    def _job(self, workload: Workload, time: float, after: str, takes: tuple[float, Basis] | None = None) -> Span:
        resource, nodes, wanted = workload.resource, self._nodes(workload), workload.requests
        if strings(at(resource.properties, "metadata", "labels")).get(NAME) == CLUSTER_RUN:
            return self._runner(workload, time, after)
        seconds, basis = takes or self._time(resource)
        if basis == "unknown":
            self._found.unknown[resource.urn] = "Job without a time limit"
        alone = Span(resource, time, time + seconds, after, [Part(resource.name, JOB, seconds, basis)])
        if nodes is None or wanted is None:
            known = workload.placement_known(self._stack)
            (self._found.homeless if known else self._found.unplaced).append(resource.name)
            return alone
        at_once = self._at_once(workload, nodes.pool)
        if not at_once or (workload.together and at_once < workload.pods):
            self._found.homeless.append(resource.name)
            return alone
        # That of all pods, also of those that wait for room: a limit and a time from a cluster are those of the
        # whole Job, and a rehearsal places pods on the same nodes.
        whole_job = Part(resource.name, JOB, seconds, basis, workload.pods, at_once, workload.together)
        if workload.together:
            return self._together(workload, time, after, nodes, whole_job, basis=basis)
        pods: list[Span] = []
        work: dict[int, Work] = {}
        for _ in range(at_once):
            seat = nodes.seat(time, wanted)
            parts = [*self._before(workload, seat), whole_job] if basis in WORK_ALONE else [whole_job]
            ends = seat.begins + sum(part.seconds for part in parts)
            kept = seat.node.always
            boot, image = _waits(workload, seat)
            nodes.take(seat, resource.urn, wanted, ends)
            seat.node.images.update(_images(workload))
            pods.append(Span(resource, seat.begins, ends, seat.after, parts))
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
        last = max(pods, key=lambda pod: pod.ends)
        waited = last.after if last.after != resource.urn else ""
        return Span(resource, last.begins, last.ends, waited or after, last.parts)

    def _together(
        self, workload: Workload, time: float, after: str, nodes: PoolNodes, work: Part, *, basis: Basis
    ) -> Span:
        """The pods of a Job that work together: each on a node of its own, from when the last of them is there."""
        resource, wanted = workload.resource, workload.requests
        assert wanted is not None
        seats: list[Seat] = []
        for _ in range(workload.pods):
            seats.append(nodes.seat(time, wanted, [seat.node.number for seat in seats]))
        before = [list(self._before(workload, seat)) if basis in WORK_ALONE else [] for seat in seats]
        ready = [
            seat.begins + sum(part.seconds for part in parts) for seat, parts in zip(seats, before, strict=True)
        ]
        last = max(range(len(seats)), key=ready.__getitem__)
        ends = ready[last] + work.seconds
        for seat in seats:
            kept = seat.node.always
            boot, image = _waits(workload, seat)
            nodes.take(seat, resource.urn, wanted, ends)
            seat.node.images.update(_images(workload))
            self._found.work.append(
                Work(
                    *(resource, nodes.pool, seat.node.number, seat.begins, ends, basis, kept),
                    boot=boot,
                    image=image,
                )
            )
        return Span(resource, seats[last].begins, ends, seats[last].after or after, [*before[last], work])

    def _at_once(self, workload: Workload, pool: NodePool) -> int:
        """How many of its pods fit the pool at the same time, with nothing there but what stays."""
        pool_rooms_ = self._held[pool.cluster, pool.name]
        if workload.requests is None:
            return 0
        return min(workload.pods, pool_rooms_.room(workload.requests, one_a_node=workload.one_a_node))

    def _service(self, workload: Workload, time: float, after: str) -> Span:
        """The pods of a service, which are ready once they have started, and stay."""
        resource, nodes, wanted = workload.resource, self._nodes(workload), workload.requests
        creation = self._creation(resource)
        if nodes is None or wanted is None:
            known = workload.placement_known(self._stack)
            (self._found.homeless if known else self._found.unplaced).append(resource.name)
            return Span(resource, time, time + sum(part.seconds for part in creation), after, creation)
        last = Span(resource, time, time, after, creation)
        for _ in range(workload.pods):
            seat = nodes.seat(time, wanted)
            if math.isinf(seat.begins):
                self._found.homeless.append(resource.name)
                break
            parts = [*self._before(workload, seat), *creation]
            ends = seat.begins + sum(part.seconds for part in parts)
            seat.node.keep(seat, wanted)
            seat.node.images.update(_images(workload))
            if ends > last.ends:
                last = Span(resource, seat.begins, ends, seat.after or after, parts)
        return last

    def _before(self, workload: Workload, seat: Seat) -> Iterator[Part]:
        """The waits of the pod that are not part of its duration; limits and times from a cluster include them."""
        pool = seat.node.pool
        boot, image = _waits(workload, seat)
        if seat.boots and boot is None:
            self._found.unknown[workload.resource.urn] = f"boot of a node of pool {pool.name}"
        if boot is not None:
            source = f"{boot.source.url} ({boot.source.when})"
            yield Part(f"node of {pool.name}", NODE, boot.amount, source)
        if image is not None:
            source = f"{image.source.url} ({image.source.when})"
            yield Part(f"image of {workload.resource.name}", IMAGE, image.amount, source)

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


def _images(workload: Workload) -> set[str]:
    return {str(container.get("image", "")) for container in workload.containers}


def timeline(stack: Stack, measured: Mapping[str, JobDuration] | None = None) -> Timeline:
    """The timeline of an update that creates all of ``stack``. ``measured`` are times of its Jobs, by name.

    It ends before the Jobs do that it does not wait for.
    """
    result = schedule(stack, measured or {})
    ended = _end(result)
    held = _leave_out_held(result)
    spans = list(_critical(result))
    longest = schedule(stack, {}) if measured else result
    _leave_out_held(longest)
    return Timeline(
        seconds=_end(result),
        limit=None if any(work.basis == "unknown" for work in longest.work) else _end(longest),
        critical=[leg for span in spans for leg in _legs(span)],
        remarks=[
            *_remarks(result, spans),
            *_moved_words(stack, result, measured or {}),
            *([_held_words(held, ended)] if held else []),
        ],
    )


def _moved_words(stack: Stack, result: Schedule, measured: Mapping[str, JobDuration]) -> Iterator[str]:
    """How long each step with places may take, since the critical path has the longest time alone."""
    for step in result.moved.values():
        took = step_range(stack, step, known_time(measured.get(step.job.name)))
        if took.least_seconds < took.most_seconds:
            yield (
                f"{step.job.name} takes {duration(took.least_seconds)} to {duration(took.most_seconds)}, at "
                f"whichever of {join(took.places)} has nodes."
            )


def _held_words(count: int, ended: float) -> str:
    return (
        f"`pulumi up` does not wait for {count} Jobs, which run on in the cluster until {duration(ended)} after "
        "its start."
    )


def _leave_out_held(result: Schedule) -> int:
    """Leaves the Jobs out that the update does not wait for, and what is declared after them; returns how many
    Jobs.
    """
    held: set[str] = set()
    for urn, span in result.spans.items():
        job = span.resource
        # A step with places is awaited by the Job that moves it.
        if _needs(job) & held or (job.type == JOB and not awaited(job) and not is_held(job)):
            held.add(urn)
    jobs = sum(job.type == JOB and not is_held(job) for job in (result.spans[urn].resource for urn in held))
    for urn in held:
        del result.spans[urn]
    return jobs


def _end(result: Schedule) -> float:
    return max((span.ends for span in result.spans.values()), default=0.0)


def _critical(result: Schedule) -> Iterator[Span]:
    """The critical path, from the first resource to the one that ends last."""
    path: list[Span] = []
    last = max(result.spans.values(), key=lambda span: span.ends, default=None)
    while last is not None:
        path.append(last)
        last = result.spans.get(last.after)
    yield from reversed(path)


def _legs(span: Span) -> Iterator[Leg]:
    begins = span.begins
    for part in span.parts:
        if part.seconds:
            yield Leg(
                name=part.name,
                type=part.type,
                begins=begins,
                seconds=part.seconds,
                basis=part.basis,
                pods=part.pods,
                at_once=part.at_once,
                together=part.together,
            )
        begins += part.seconds


def _remarks(result: Schedule, critical: list[Span]) -> Iterator[str]:
    on_path = [span.resource.urn for span in critical if span.resource.urn in result.unknown]
    elsewhere = [urn for urn in result.unknown if urn not in set(on_path)]
    for urns, where in ((on_path, "on this path"), (elsewhere, "off this path")):
        if urns:
            yield f"Not known how long, and counted as no time, {where}: {_count_kinds(result, urns)}."
    if any(part.basis == "rehearsed" for span in critical for part in span.parts):
        yield "Times that were rehearsed are those of a CPU."
    if any(
        first.resource.type == two.resource.type == JOB and _waits_only_for_nodes(first, two)
        for first, two in pairwise(critical)
    ):
        yield "Jobs wait for one another on a pool that has no further node."
    if result.homeless:
        yield f"No pool takes {', '.join(result.homeless)}, so these will wait until their time limit."
    if result.unplaced:
        yield f"Not known which pool takes {', '.join(result.unplaced)}: waits for nodes are not counted."


def _waits_only_for_nodes(first: Span, two: Span) -> bool:
    return first.resource.urn not in two.resource.dependencies


def _count_kinds(result: Schedule, urns: list[str]) -> str:
    counts = Counter(result.unknown[urn].rpartition(":")[2] for urn in urns)
    return ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in sorted(counts.items()))
