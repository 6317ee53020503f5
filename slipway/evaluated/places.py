"""Steps with places in an evaluated stack: Jobs of which one at a time runs, and the Job that decides which.

All of them are in the stack at once. The Job of the mover stands for the step: `pulumi up` waits for it.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from slipway.evaluated.model import PlaceNeed, StepRange
from slipway.evaluated.phrasing import amount_of, duration, join, money
from slipway.evaluated.workloads import Workload, workload_of, workload_rate
from slipway.infra.kubernetes.labels import MOVES_ANNOTATION, PLACE_ANNOTATION, RUNS_ANNOTATION
from slipway.infra.kubernetes.review import pull
from slipway.infra.placed import MOVER
from slipway.infra.review.stack import CONFIG_MAP, JOB, NodePool, Resource, Stack, at, is_true, mappings, strings


def is_held(resource: Resource) -> bool:
    """Whether ``resource`` is a Job that belongs to a mover: at a place of a step, a probe, or an agent."""
    return _annotations(resource).get(RUNS_ANNOTATION) == MOVER


def is_probe(resource: Resource) -> bool:
    """Whether ``resource`` is a Job that asks for nodes and does nothing on them."""
    return is_held(resource) and PLACE_ANNOTATION not in _annotations(resource) and not is_agent(resource)


def is_agent(resource: Resource) -> bool:
    """Whether ``resource`` is a Job that carries out a mover's orders in another cluster."""
    return is_held(resource) and not is_true(at(resource.properties, "spec", "suspend"))


def is_moved(resource: Resource) -> bool:
    """Whether ``resource`` is the Job of a step with places: that of its mover."""
    return MOVES_ANNOTATION in _annotations(resource)


def moves_of(job: Resource) -> dict[str, Any]:
    """What the annotation of the Job of a step with places says of it; empty where it is not one."""
    try:
        content: Any = json.loads(_annotations(job).get(MOVES_ANNOTATION, "{}"))
    except ValueError:
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _annotations(resource: Resource) -> dict[str, str]:
    # Most of a stack is no Job, and this is asked of all of it.
    return strings(at(resource.properties, "metadata", "annotations")) if resource.type == JOB else {}


@dataclass(frozen=True)
class MovedStep:
    """A step with places: the ``job`` of its mover, and its Jobs at its ``places``, in their order.

    ``agents`` act for the mover in further clusters. ``sure`` says of each place whether its nodes stay, empty
    where nothing says it. Times are in seconds, ``max_price`` is in US dollars.
    """

    job: Resource
    places: Sequence[Workload]
    sure: Sequence[bool]
    time_limit: float
    deadline: float | None
    work: float | None
    max_price: float | None
    agents: Sequence[Workload] = ()

    def dearest(self, stack: Stack) -> Workload:
        """The place with the highest price, among those whose price is known; the last where none is."""
        priced = self._priced(stack)
        return max(priced, key=lambda entry: entry[0])[1] if priced else self.places[-1]

    def cheapest(self, stack: Stack) -> Workload:
        """The place with the lowest price, among those whose price is known; the first where none is."""
        priced = self._priced(stack)
        return min(priced, key=lambda entry: entry[0])[1] if priced else self.places[0]

    def paid_seconds(self, stack: Stack) -> float:
        """How long it may have nodes of the dearest place for its ``max_price``; endless without one."""
        priced = self._priced(stack)
        # What has no known price does not count for the mover either.
        if (
            self.max_price is None
            or len(priced) < len(self.places)
            or not (most := max(rate for rate, _ in priced))
        ):
            return math.inf
        return self.max_price / most * 3600

    def pools(self, stack: Stack) -> list[str]:
        """The pools of its places, in their order; those that take no pod of it are left out."""
        return [pool.name for place in self.places if (pool := place.pool(stack))]

    def _priced(self, stack: Stack) -> list[tuple[float, Workload]]:
        rates = [(workload_rate(stack, place), place) for place in self.places]
        return [(rate, place) for rate, place in rates if rate is not None]


def moved_steps(stack: Stack) -> dict[str, MovedStep]:
    """The steps of the stack with places, by the URN of their Job."""
    places: dict[str, dict[int, Workload]] = {}
    jobs = stack.of_type(JOB)
    agents = [job for job in jobs if is_agent(job)]
    for job in jobs:
        if PLACE_ANNOTATION in _annotations(job):
            # A Job's name has the digest of what it runs: its places may be in several clusters.
            place = json.loads(_annotations(job)[PLACE_ANNOTATION])
            places.setdefault(place["of"], {})[place["index"]] = workload_of(job, stack)
    steps: dict[str, MovedStep] = {}
    for job in jobs:
        rules, ordered = moves_of(job), places.get(_name(job))
        if rules and ordered:
            steps[job.urn] = MovedStep(
                job,
                [ordered[index] for index in sorted(ordered)],
                # A base of before it has no such key.
                rules.get("sure", ()),
                rules["time_limit"],
                rules["deadline"],
                rules["work"],
                rules["max_price"],
                [workload_of(agent, stack) for agent in agents if agent.urn in job.dependencies],
            )
    return steps


def owners(stack: Stack) -> dict[str, str]:
    """The URN of the Job of a step with places, by that of each resource that it has since it has places."""
    steps = {step.job.parent: step for step in moved_steps(stack).values() if step.job.parent}
    owned: dict[str, str] = {}
    for urn, resource in stack.resources.items() if steps else ():
        parent = resource.parent
        while parent and parent not in steps:
            parent = stack.resources[parent].parent if parent in stack.resources else ""
        if parent and urn != steps[parent].job.urn and not _ships(resource, steps[parent]):
            owned[urn] = steps[parent].job.urn
    return owned


def _ships(resource: Resource, step: MovedStep) -> bool:
    """Whether ``resource`` is a ConfigMap with files of the step in the cluster of its first place, where it would
    be without other places, too."""
    if resource.type != CONFIG_MAP or resource.provider != step.job.provider:
        return False
    mounted = {at(volume, "configMap", "name") for volume in mappings(step.places[0].spec.get("volumes"))}
    return at(resource.properties, "metadata", "name") in mounted


def _name(job: Resource) -> str:
    return str(at(job.properties, "metadata", "name"))


def step_range(
    stack: Stack, step: MovedStep, known: tuple[float, Literal["measured", "rehearsed"]] | None
) -> StepRange:
    """What ``step`` costs and takes; ``known`` is how long it took, and where."""
    cheapest, dearest = step.cheapest(stack), step.dearest(stack)
    seconds: float
    basis: Literal["work", "measured", "rehearsed", "limit"]
    if step.work is not None:
        seconds, basis = _start(stack, cheapest) + step.work, "work"
    elif known is not None:
        # A time from a cluster has the start in it.
        start = _start(stack, cheapest) if known[1] == "rehearsed" else 0.0
        seconds, basis = start + known[0], known[1]
    else:
        seconds, basis = step.time_limit, "limit"
    most_seconds = step.deadline if step.deadline is not None else step.time_limit
    seconds = min(seconds, most_seconds)
    least_rate, most_rate = workload_rate(stack, cheapest), workload_rate(stack, dearest)
    most = None if most_rate is None else most_rate * min(most_seconds, step.paid_seconds(stack)) / 3600
    least = None if least_rate is None or most is None else min(least_rate * seconds / 3600, most)
    return StepRange(
        places=step.pools(stack),
        least=least,
        most=most,
        least_seconds=seconds,
        most_seconds=most_seconds,
        least_place=_pool_name(stack, cheapest),
        most_place=_pool_name(stack, dearest),
        least_basis=basis,
        most_basis="deadline" if step.deadline is not None else "limit",
        max_price=step.max_price,
        unpriced=[_pool_name(stack, place) for place in step.places if workload_rate(stack, place) is None],
        needs=[need for place in step.places for need in _needs(stack, place)],
    )


def _needs(stack: Stack, place: Workload) -> Iterator[PlaceNeed]:
    """What the pods at a place need, which have a node each there."""
    pool = place.pool(stack)
    if pool is None:
        return
    for quota in pool.quotas:
        amount = quota.needed * place.pods
        yield PlaceNeed(place=pool.name, metric=quota.metric, where=quota.where, needed=amount, unit=quota.unit)


def _start(stack: Stack, place: Workload) -> float:
    """Seconds from a node that is asked for, and is there, to the program."""
    pool: NodePool | None = place.pool(stack)
    images = {str(container.get("image", "")) for container in place.containers}
    return (pool.boot.amount if pool and pool.boot else 0.0) + pull(images, pool).amount


def _pool_name(stack: Stack, place: Workload) -> str:
    pool = place.pool(stack)
    return pool.name if pool else place.resource.name


BASES = {
    "work": "as long as its `work`",
    "measured": "as long as the last time",
    "rehearsed": "as long as in its rehearsal, on a CPU",
    "limit": "to its time limit",
    "deadline": "to its `deadline`",
}
"""How long a step is at a place, by the basis of that time."""


def range_words(name: str, cost: StepRange) -> str:
    """What a step with places costs and takes, with what is assumed of it, as a sentence."""
    least, most = (
        f"{money(dollars)} ({duration(seconds)} at {place}, {BASES[basis]})"
        for dollars, seconds, place, basis in (
            (cost.least, cost.least_seconds, cost.least_place, cost.least_basis),
            (cost.most, cost.most_seconds, cost.most_place, cost.most_basis),
        )
    )
    rest = [f"its `max_price` is {money(cost.max_price)}"] if cost.max_price is not None else []
    rest += [f"without the price of {join(cost.unpriced)}"] if cost.unpriced else []
    cost_words = "; ".join([f"{name} costs {least if least == most else f'{least} to {most}'}", *rest])
    needs: dict[str, list[str]] = {}
    for need in cost.needs:
        needs.setdefault(need.place, []).append(
            f"{amount_of(need.needed, need.unit)} of {need.metric} ({need.where})"
        )
    quotas = "; ".join(f"{join(amounts)} at {place}" for place, amounts in needs.items())
    return f"{cost_words}." + (f" It needs of quotas: {quotas}." if quotas else "")
