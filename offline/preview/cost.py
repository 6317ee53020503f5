"""The cost of a stack while no Job runs, of its Jobs, and with every pool at its largest."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

from infra.review.facts import Charge, Price
from infra.review.prices import HOURS_A_MONTH, node_price
from infra.review.stack import Stack
from offline.policies.capacity import Held, held
from offline.preview.model import Cost, CostDifference, CostLine, KeptNodes, Outcome
from offline.preview.run_cost import hourly_of, run_cost
from offline.preview.schedule import Measured
from offline.preview.scheduled_cost import scheduled

FRESH = timedelta(days=90)
"""Age of a price's source from which on a preview warns. A source without a date counts as old."""


def cost(
    stack: Stack,
    *,
    today: date,
    jobs: Mapping[str, Outcome] | None = None,
    measured: Mapping[str, Measured] | None = None,
) -> Cost:
    """The cost of ``stack`` at list prices, and of its ``jobs`` that run, by URN; of all where that is None.

    The nodes on which services stay are there while no Job runs, too, whatever the least number of their pool.
    ``measured`` are times of its Jobs, by name; a Job without one takes its time limit. What else grows with the
    nodes, such as address translation, is not in the cost of Jobs.
    """
    places = [each for each in held(stack) if not each.pool.stack]
    charges = list(_with_services(stack, places))
    timed = [charge for charge in charges if not charge.metered]
    idle, most = _sum(timed, "idle"), _sum(timed, "most")
    return Cost(
        idle_hourly=idle,
        idle_monthly=None if idle is None else idle * HOURS_A_MONTH,
        most_hourly=most,
        least_nodes=sum(each.nodes for each in places),
        most_nodes=sum(pool.max_nodes for pool in stack.own_pools),
        run=run_cost(stack, [*timed, *stack.charges_elsewhere], jobs, measured or {}),
        scheduled=list(scheduled(stack, [*timed, *stack.charges_elsewhere], measured or {})),
        kept=list(_kept(stack, places)),
        lines=[_line(stack, charge) for charge in charges],
        unknown=[_named(stack, charge) for charge in timed if charge.price is None],
        stale=_stale((charge.price for charge in stack.charges), today),
    )


def difference(base: Cost, head: Cost) -> CostDifference:
    """The cost of ``head`` less that of ``base``; unknown if they differ in a resource without a known price."""
    idle = _unpriced(base, "idle_count") == _unpriced(head, "idle_count")
    most = _unpriced(base, "most_count") == _unpriced(head, "most_count")
    return CostDifference(
        idle_hourly=(head.idle_hourly or 0.0) - (base.idle_hourly or 0.0) if idle else None,
        idle_monthly=(head.idle_monthly or 0.0) - (base.idle_monthly or 0.0) if idle else None,
        most_hourly=(head.most_hourly or 0.0) - (base.most_hourly or 0.0) if most else None,
        least_nodes=head.least_nodes - base.least_nodes,
        most_nodes=head.most_nodes - base.most_nodes,
        scheduled_monthly=_scheduled(head) - _scheduled(base),
    )


def _scheduled(cost: Cost) -> float:
    return sum(each.monthly or 0.0 for each in cost.scheduled)


def _with_services(stack: Stack, places: Sequence[Held]) -> Iterator[Charge]:
    """The charges of the stack, those of nodes with the nodes that services keep."""
    # What of a resource with several pools is for which of them cannot be told.
    counts = Counter(each.pool.urn for each in places)
    least = {each.pool.urn: len(each.free) for each in places if each.pool.urn and counts[each.pool.urn] == 1}
    for charge in stack.charges:
        yield replace(charge, idle=max(charge.idle, least.get(charge.pool, 0))) if charge.pool else charge


def _kept(stack: Stack, places: Sequence[Held]) -> Iterator[KeptNodes]:
    for each in places:
        # Where pods are billed, those of services are, as long as they are declared.
        if (more := each.nodes - each.pool.min_nodes) > 0 and not each.pool.bills_pods:
            hourly = node_price(stack.charges, each.pool.urn) if each.pool.urn else None
            yield KeptNodes(
                pool=each.pool.name,
                services=list(dict.fromkeys(by.resource.name for by in each.by)),
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


def _named(stack: Stack, charge: Charge) -> str:
    return f"{_resource(stack, charge) or stack.name}: {charge.what}"


def _stale(prices: Iterable[Price | None], today: date) -> list[str]:
    used = {price.source for price in prices if price is not None}
    old = [source for source in used if not source.dated or today - source.date > FRESH]
    ordered = sorted(old, key=lambda each: (not each.dated, each.date, each.url))
    return [f"{source.url} ({source.when})" for source in ordered]


def _unpriced(cost: Cost, count: str) -> Counter[tuple[str, str]]:
    """How many there are of each resource whose price is not known."""
    found = Counter[tuple[str, str]]()
    for line in cost.lines:
        if line.hourly is None and not line.metered:
            found[line.resource, line.what] += getattr(line, count)
    return found
