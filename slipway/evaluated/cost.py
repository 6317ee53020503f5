"""The cost of a stack while no Job runs, of its Jobs, and with every pool at its largest."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import groupby
from typing import Literal

from slipway.evaluated.model import (
    Cost,
    CostDifference,
    CostLine,
    KeptNodes,
    Outcome,
    RunCost,
    ScheduledCost,
    StepCost,
)
from slipway.evaluated.paid import paid_useful
from slipway.evaluated.places import step_range
from slipway.evaluated.schedule import JobDuration, Schedule, Work, known_time, schedule
from slipway.evaluated.workloads import CRON_JOB, PoolRoom, hourly_of, pool_rooms
from slipway.infra.kubernetes.review import scale_down
from slipway.infra.review.facts import Charge, Price
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, text
from slipway.infra.review.tables import HOURS_A_MONTH, node_price
from slipway.infra.schema.cron import times_a_month

Times = Literal["measured", "rehearsed", "limit"]


def run_cost(
    stack: Stack,
    charges: Sequence[Charge],
    jobs: Mapping[str, Outcome] | None,
    measured: Mapping[str, JobDuration],
) -> RunCost | None:
    """The cost of ``jobs``, by URN (None: of all); None if there are none.

    ``charges`` are those by the hour of the stack and of the other stacks whose pools it uses, ``measured`` the
    times of its Jobs, by name.
    """
    expected = _Run(stack, charges, schedule(stack, measured, jobs), measured)
    if not (expected.schedule.work or expected.schedule.homeless or expected.schedule.unplaced):
        return None
    longest = _Run(stack, charges, schedule(stack, {}, jobs), {}) if measured else expected
    amounts = [amount for amount, _ in expected.amounts]
    return RunCost(
        dollars=sum(amounts) if amounts else None,
        paid_anyway=sum(amount for amount, anyway in expected.amounts if anyway),
        most=longest.most,
        unknown=list(dict.fromkeys(expected.unknown)),
        steps=expected.steps,
        paid=paid_useful(stack, expected.schedule, measured, expected.hourly),
    )


def common_basis(times: Mapping[str, Mapping[str, JobDuration]], jobs: Mapping[str, Sequence[str]]) -> Times:
    """The kind of times that all ``jobs`` have, so that the costs of all stacks can be compared.

    ``times`` are the known times of Jobs, ``jobs`` the names of those whose cost is wanted; both by stack.
    """
    known = {times[stack][job].basis if job in times[stack] else "limit" for stack in jobs for job in jobs[stack]}
    if known == {"measured"}:
        return "measured"
    return "rehearsed" if known == {"rehearsed"} else "limit"


@dataclass(frozen=True)
class _Run:
    stack: Stack
    charges: Sequence[Charge]
    schedule: Schedule
    measured: Mapping[str, JobDuration]

    @property
    def most(self) -> float | None:
        amounts = [amount for amount, _ in self.amounts]
        timed = all(work.basis != "unknown" for work in self.schedule.work)
        return sum(amounts) if amounts and timed else None

    @property
    def amounts(self) -> list[tuple[float, bool]]:
        """The known cost by node and charge: dollars, and whether they are also paid without the Jobs."""
        of_nodes = [
            (
                rate * seconds / 3600,
                charge.idle > number or (pool.cluster, pool.name, number) in self.schedule.kept,
            )
            for pool, number, seconds in self._held()
            for charge in self._charges(pool, number)
            if (rate := hourly_of(charge)) is not None
        ]
        of_pods = [(amount, False) for work in self.schedule.work for amount in self._of_pods(work)]
        return [*of_nodes, *of_pods]

    @property
    def unknown(self) -> Iterator[str]:
        """Charges without a known price."""
        yield from (f"a pool for {name}" for name in self.schedule.homeless)
        yield from (f"the pool of {name}" for name in self.schedule.unplaced)
        for entry in self.schedule.work:
            if entry.basis == "unknown":
                yield f"a time limit of {entry.resource.name}"
        held = [(pool, number) for pool, number, _ in self._held()]
        held += [(pool, 0) for pool in self._places() if pool not in [of for of, _ in held]]
        for pool, number in held:
            charges = self._charges(pool, number)
            if not charges or all(hourly_of(charge) is None for charge in charges):
                yield f"the price of pool {pool.name}"
            else:
                missing = (charge.what for charge in charges if hourly_of(charge) is None)
                yield from (f"the price of {what} (pool {pool.name})" for what in missing)
        for work in self.schedule.work:
            billed = self._pod_charges(work)
            if work.pool.bills_pods and not billed:
                yield f"pods of another stack's cluster (pool {work.pool.name})"
            missing = (charge.what for charge in billed if hourly_of(charge) is None)
            yield from (f"the price of {what} (pool {work.pool.name})" for what in missing)

    @property
    def steps(self) -> list[StepCost]:
        """The cost of each Job for the time that it holds its nodes."""
        # A mover's own pod costs next to nothing beside the step.
        works = [work for work in self.schedule.work if work.resource.urn not in self.schedule.moved]
        return [self._step(list(group)) for _, group in groupby(works, lambda work: work.resource.urn)]

    def _step(self, works: Sequence[Work]) -> StepCost:
        """The cost of a Job. ``works`` are its parts, one for each of its nodes."""
        first = works[0]
        moved = self.schedule.moved.get(first.of)
        known_before = known_time(self.measured.get(moved.job.name)) if moved else None
        range_ = step_range(self.stack, moved, known_before) if moved else None
        known = [
            rate * work.seconds / 3600
            for work in works
            for charge in self._charges(work.pool, work.number)
            if (rate := hourly_of(charge)) is not None
        ]
        known += [amount for work in works for amount in self._of_pods(work)]
        return StepCost(
            job=moved.job.name if moved else first.resource.name,
            pool=first.pool.name,
            seconds=max(work.ends for work in works) - min(work.begins for work in works),
            basis=first.basis,
            dollars=sum(known) if known and first.basis != "unknown" else None,
            paid_anyway=all(work.kept for work in works),
            stack=first.pool.stack,
            nodes=len(works),
            by_pod=first.pool.bills_pods,
            range=range_,
        )

    def hourly(self, pool: NodePool, number: int) -> float | None:
        """What an hour of the node with that number costs; None where that is not known."""
        rates = [hourly_of(charge) for charge in self._charges(pool, number)]
        return None if not rates or None in rates else sum(rate for rate in rates if rate is not None)

    def _places(self) -> list[NodePool]:
        """The pools of which one runs a step with places, those whose nodes are billed."""
        places = [place.pool(self.stack) for step in self.schedule.moved.values() for place in step.places]
        return [pool for pool in places if pool is not None and not pool.bills_pods]

    def _held(self) -> Iterator[tuple[NodePool, int, float]]:
        """Each node with the seconds that it is held; one that boots is held until the autoscaler removes it."""
        for stay in self.schedule.stays:
            if stay.pool.bills_pods:
                continue
            if stay.booted:
                yield stay.pool, stay.number, stay.until + scale_down(stay.pool).amount - stay.since
            else:
                spans = [
                    (work.begins, work.ends)
                    for work in self.schedule.work
                    if work.pool is stay.pool and work.number == stay.number
                ]
                yield stay.pool, stay.number, _covered_seconds(spans)

    def _of_pods(self, work: Work) -> list[float]:
        """The known cost of a Job's pods on a node, by charge, where pods are billed."""
        rates = (hourly_of(charge) for charge in self._pod_charges(work))
        return [rate * work.pods * work.seconds / 3600 for rate in rates if rate is not None]

    def _pod_charges(self, work: Work) -> list[Charge]:
        """What each of the Job's pods is billed for, where pods are billed."""
        return [charge for charge in self.charges if work.pool.bills_pods and charge.urn == work.resource.urn]

    def _charges(self, pool: NodePool, number: int) -> list[Charge]:
        """The charges of the node with that number; none if they cannot be told from those of other pools."""
        # A resource with several pools is billed as a whole, and existing nodes have no charges in the stack.
        alone = bool(pool.urn) and sum(other.urn == pool.urn for other in self.stack.pools) == 1
        return [charge for charge in self.charges if alone and charge.pool == pool.urn and charge.most > number]


def _covered_seconds(spans: Sequence[tuple[float, float]]) -> float:
    """The total length of the spans, overlaps counted once."""
    total, until = 0.0, 0.0
    for begins, ends in sorted(spans):
        total += max(0.0, ends - max(begins, until))
        until = max(until, ends)
    return total


def scheduled_costs(
    stack: Stack, charges: Sequence[Charge], times: Mapping[str, JobDuration]
) -> Iterator[ScheduledCost]:
    """The cost of each CronJob that runs Jobs of the stack again: those that it is declared after.

    ``charges`` are those of `run_cost`. ``times`` of Jobs, by name, count where all Jobs of a schedule have one of
    the same kind; else its time limits do.
    """
    for cron_job, names in scheduled_jobs(stack):
        basis = common_basis({"": times}, {"": names})
        jobs = {job.urn: Outcome.RUNS for job in stack.of_type(JOB) if job.name in names}
        run = run_cost(stack, charges, jobs, times if basis != "limit" else {}) if jobs else None
        if run is None:
            continue
        cron = text(at(cron_job.properties, "spec", "schedule"))
        often = _times(cron)
        yield ScheduledCost(
            name=cron_job.name,
            cron=cron,
            time_zone=text(at(cron_job.properties, "spec", "timeZone")),
            times=often,
            basis=basis,
            dollars=run.dollars,
            paid_anyway=run.paid_anyway,
            monthly=None if run.dollars is None or often is None else (run.dollars - run.paid_anyway) * often,
        )


def scheduled_jobs(stack: Stack) -> Iterator[tuple[Resource, list[str]]]:
    """Each CronJob with the names of the stack's Jobs that it runs again."""
    for cron_job in stack.of_type(CRON_JOB):
        yield cron_job, [job.name for job in stack.of_type(JOB) if job.urn in cron_job.dependencies]


def _times(cron: str) -> float | None:
    try:
        return times_a_month(cron)
    except ValueError:
        return None


FRESH = timedelta(days=90)
"""Age of a price's source from which on a preview warns. A source without a date counts as old."""


def cost(
    stack: Stack,
    *,
    today: date,
    jobs: Mapping[str, Outcome] | None = None,
    measured: Mapping[str, JobDuration] | None = None,
    scheduled: Mapping[str, JobDuration] | None = None,
) -> Cost:
    """The cost of ``stack`` at list prices, and of its ``jobs`` that run, by URN; of all where that is None.

    The nodes on which services stay are there while no Job runs, too, whatever the least number of their pool.
    ``measured`` are times of its Jobs, by name; a Job without one takes its time limit. ``scheduled`` are those
    for the runs of schedules (None: the same). What else grows with the nodes, such as address translation, is
    not in the cost of Jobs.
    """
    places = [pool_room for pool_room in pool_rooms(stack) if not pool_room.pool.stack]
    charges = list(_with_services(stack, places))
    timed = [charge for charge in charges if not charge.metered]
    idle, most = _sum(timed, "idle"), _sum(timed, "most")
    return Cost(
        idle_hourly=idle,
        idle_monthly=None if idle is None else idle * HOURS_A_MONTH,
        most_hourly=most,
        least_nodes=sum(place.nodes for place in places),
        most_nodes=sum(pool.max_nodes for pool in stack.own_pools),
        run=run_cost(stack, [*timed, *stack.charges_elsewhere], jobs, measured or {}),
        scheduled=list(
            scheduled_costs(
                stack, [*timed, *stack.charges_elsewhere], (measured if scheduled is None else scheduled) or {}
            )
        ),
        kept=list(_kept(stack, places)),
        lines=[_line(stack, charge) for charge in charges],
        unknown=[_charge_name(stack, charge) for charge in timed if charge.price is None],
        stale=_stale_sources((charge.price for charge in stack.charges), today),
    )


def difference(base: Cost, head: Cost) -> CostDifference:
    """The cost of ``head`` less that of ``base``; unknown if they differ in a resource without a known price."""
    idle = _count_unpriced(base, "idle_count") == _count_unpriced(head, "idle_count")
    most = _count_unpriced(base, "most_count") == _count_unpriced(head, "most_count")
    return CostDifference(
        idle_hourly=(head.idle_hourly or 0.0) - (base.idle_hourly or 0.0) if idle else None,
        idle_monthly=(head.idle_monthly or 0.0) - (base.idle_monthly or 0.0) if idle else None,
        most_hourly=(head.most_hourly or 0.0) - (base.most_hourly or 0.0) if most else None,
        least_nodes=head.least_nodes - base.least_nodes,
        most_nodes=head.most_nodes - base.most_nodes,
        scheduled_monthly=_scheduled_monthly(head) - _scheduled_monthly(base),
    )


def _scheduled_monthly(cost: Cost) -> float:
    return sum(charge.monthly or 0.0 for charge in cost.scheduled)


def _with_services(stack: Stack, places: Sequence[PoolRoom]) -> Iterator[Charge]:
    """The charges of the stack, those of nodes with the nodes that services keep."""
    # What of a resource with several pools is for which of them cannot be told.
    counts = Counter(place.pool.urn for place in places)
    least = {place.pool.urn: len(place.free) for place in places if place.pool.urn and counts[place.pool.urn] == 1}
    for charge in stack.charges:
        yield replace(charge, idle=max(charge.idle, least.get(charge.pool, 0))) if charge.pool else charge


def _kept(stack: Stack, places: Sequence[PoolRoom]) -> Iterator[KeptNodes]:
    for place in places:
        # Where pods are billed, those of services are, as long as they are declared.
        if (more := place.nodes - place.pool.min_nodes) > 0 and not place.pool.bills_pods:
            hourly = node_price(stack.charges, place.pool.urn) if place.pool.urn else None
            yield KeptNodes(
                pool=place.pool.name,
                services=list(dict.fromkeys(workload.resource.name for workload in place.by)),
                nodes=more,
                monthly=None if hourly is None else hourly * more * HOURS_A_MONTH,
            )


def _sum(charges: Iterable[Charge], count: str) -> float | None:
    known = [rate * getattr(charge, count) for charge in charges if (rate := hourly_of(charge)) is not None]
    return sum(known) if known else None


def _line(stack: Stack, charge: Charge) -> CostLine:
    rate = None if charge.metered else hourly_of(charge)
    price = charge.price
    metered = f"${_cents(price.amount)} per {price.unit}" if price is not None else "unknown"
    return CostLine(
        resource=_resource(stack, charge),
        what=charge.what,
        hourly=rate,
        idle=None if rate is None else rate * charge.idle,
        most=None if rate is None else rate * charge.most,
        idle_count=charge.idle,
        most_count=charge.most,
        source=price.source.url if price is not None else "",
        as_of=price.source.when if price is not None else "",
        metered=charge.metered,
        metered_price=metered if charge.metered else "",
    )


def _cents(amount: float) -> str:
    """The sum, rounded to the cent or finer."""
    whole = f"{amount:g}"
    return whole if len(whole.partition(".")[2]) > 2 else f"{amount:.2f}"


def _resource(stack: Stack, charge: Charge) -> str:
    declared = stack.resources.get(charge.urn)
    return declared.name if declared is not None else ""


def _charge_name(stack: Stack, charge: Charge) -> str:
    return f"{_resource(stack, charge) or stack.name}: {charge.what}"


def _stale_sources(prices: Iterable[Price | None], today: date) -> list[str]:
    used = {price.source for price in prices if price is not None}
    old = [source for source in used if not source.dated or today - source.date > FRESH]
    ordered = sorted(old, key=lambda entry: (not entry.dated, entry.date, entry.url))
    return [f"{source.url} ({source.when})" for source in ordered]


def _count_unpriced(cost: Cost, count: str) -> Counter[tuple[str, str]]:
    """How many there are of each resource whose price is not known."""
    counts = Counter[tuple[str, str]]()
    for line in cost.lines:
        if line.hourly is None and not line.metered:
            counts[line.resource, line.what] += getattr(line, count)
    return counts
