"""What a stack costs: all the time, with every pool at its largest, and for one run of its pipelines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from infra.kubernetes.review.times import SCALE_DOWN
from infra.review.facts import Charge, Price
from infra.review.prices import HOURS_A_MONTH, hourly
from infra.review.stack import NodePool, Stack
from stacks.preview.measured import Measured
from stacks.preview.model import Cost, CostDifference, CostLine, StepCost
from stacks.preview.schedule import Schedule, schedule

FRESH = timedelta(days=90)
"""How old a price's source may be before a preview warns of it. One without a date is old."""

BASES: Mapping[str, str] = {
    "measured": "measured times of {}",
    "rehearsed": "times of {} rehearsed on a CPU",
    "limit": "time limits of {}",
    "unknown": "no times of {}",
}


def cost(stack: Stack, *, today: date, measured: Mapping[str, Measured] | None = None) -> Cost:
    """The cost of ``stack`` at list prices. ``measured`` are times of its Jobs, by name.

    A run is counted from the first node that is asked for until the last is given back. Nodes that are there at
    all times add nothing to it. What else grows with the nodes, such as address translation, is not in it.
    """
    charges = [charge for review in stack.reviews for charge in review.charges(stack)]
    timed = [charge for charge in charges if not charge.metered]
    idle, most = _sum(timed, "idle"), _sum(timed, "most")
    expected = schedule(stack, measured or {})
    longest = schedule(stack, {}, limits=True) if measured else expected
    run = _Run(stack, timed, expected)
    return Cost(
        idle_hourly=idle,
        idle_monthly=None if idle is None else idle * HOURS_A_MONTH,
        most_hourly=most,
        run=run.dollars,
        run_limit=_Run(stack, timed, longest).dollars,
        run_basis=run.basis,
        lines=[_line(stack, charge) for charge in charges],
        steps=run.steps,
        unknown=[_named(stack, charge) for charge in timed if charge.price is None],
        stale=_stale((charge.price for charge in charges), today),
    )


def difference(base: Cost, head: Cost) -> CostDifference:
    """What ``head`` costs more than ``base``: not known where they differ in what has no known price."""
    idle = _unpriced(base, "idle_count") == _unpriced(head, "idle_count")
    most = _unpriced(base, "most_count") == _unpriced(head, "most_count")
    return CostDifference(
        idle_hourly=_more(base.idle_hourly or 0.0, head.idle_hourly or 0.0) if idle else None,
        idle_monthly=_more(base.idle_monthly or 0.0, head.idle_monthly or 0.0) if idle else None,
        most_hourly=_more(base.most_hourly or 0.0, head.most_hourly or 0.0) if most else None,
        run=_more(*(each.run if each.run_basis else 0.0 for each in (base, head))),
        run_limit=_more(*(each.run_limit if each.run_basis else 0.0 for each in (base, head))),
    )


@dataclass(frozen=True)
class _Run:
    """What one run of all pipelines adds to the idle cost."""

    stack: Stack
    charges: Sequence[Charge]
    schedule: Schedule

    @property
    def dollars(self) -> float | None:
        """None without Jobs, or where a price, a pool or a time is not known."""
        if not self.schedule.work or self._hindrances:
            return None
        total = 0.0
        for stay in self.schedule.stays:
            rate = self._rate(stay.pool, stay.number)
            kept = SCALE_DOWN.amount if stay.booted else 0.0
            total += (rate or 0.0) * (stay.until + kept - stay.since) / 3600
        return total

    @property
    def basis(self) -> str:
        """What its times are from; why it is not known, or which nodes add nothing to it. Empty without Jobs."""
        work = self.schedule.work
        counts = Counter(each.basis for each in work)
        times = " and ".join(
            words.format(f"{counts[basis]} Job{'s' * (counts[basis] > 1)}")
            for basis, words in BASES.items()
            if counts[basis]
        )
        if self._hindrances:
            return "; ".join(filter(None, [times, f"not known without {', '.join(self._hindrances)}"]))
        standing = dict.fromkeys(stay.pool.name for stay in self.schedule.stays if not stay.booted)
        there = f"; nodes that are there at all times add nothing (pool {', '.join(standing)})" if standing else ""
        booted = any(stay.booted for stay in self.schedule.stays)
        kept = f"; a node is kept for {SCALE_DOWN.amount / 60:.0f} minutes after its last Job" if booted else ""
        return times + there + kept

    @property
    def steps(self) -> list[StepCost]:
        """Each Job, in the order in which they begin."""
        found: list[StepCost] = []
        for each in self.schedule.work:
            rate = self._rate(each.pool, each.number)
            found.append(
                StepCost(
                    job=each.resource.name,
                    pool=each.pool.name,
                    seconds=each.seconds,
                    basis=each.basis,
                    dollars=rate * each.seconds / 3600 if rate is not None and each.basis != "unknown" else None,
                )
            )
        return found

    @property
    def _hindrances(self) -> list[str]:
        found = [f"a pool for {name}" for name in self.schedule.homeless]
        found += [
            f"a time limit of {each.resource.name}" for each in self.schedule.work if each.basis == "unknown"
        ]
        rates = {each.pool.name: self._rate(each.pool, each.number) for each in self.schedule.work}
        found += [f"the price of pool {name}" for name, rate in rates.items() if rate is None]
        return found

    def _rate(self, pool: NodePool, number: int) -> float | None:
        """What the node of that number adds to the idle cost, an hour; None where a price is not known."""
        # What one resource declares several pools is billed for is not told apart, and nodes that the stack finds
        # there are billed to nobody that it knows.
        alone = bool(pool.urn) and sum(each.urn == pool.urn for each in self.stack.pools) == 1
        charges = [charge for charge in self.charges if alone and charge.pool == pool.urn]
        if not charges:
            return None
        rates = [_hourly(charge) for charge in charges if charge.idle <= number]
        return None if any(rate is None for rate in rates) else sum(rate for rate in rates if rate is not None)


def _hourly(charge: Charge) -> float | None:
    """Of one of them."""
    known = hourly(charge.price) if charge.price is not None else None
    return None if known is None else known * charge.quantity


def _sum(charges: Iterable[Charge], count: str) -> float | None:
    known = [rate * getattr(charge, count) for charge in charges if (rate := _hourly(charge)) is not None]
    return sum(known) if known else None


def _line(stack: Stack, charge: Charge) -> CostLine:
    rate = None if charge.metered else _hourly(charge)
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
    """In full, to the cent at least."""
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
    """How many there are of each thing whose price is not known."""
    found = Counter[tuple[str, str]]()
    for line in cost.lines:
        if line.hourly is None and not line.metered:
            found[line.resource, line.what] += getattr(line, count)
    return found


def _more(base: float | None, head: float | None) -> float | None:
    return None if base is None or head is None else head - base
