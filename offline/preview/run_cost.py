"""What the Jobs cost that an update runs: the nodes that they hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.kubernetes.review.times import SCALE_DOWN
from infra.review.facts import Charge
from infra.review.prices import hourly
from infra.review.stack import NodePool, Stack
from offline.preview.job_durations import Measured
from offline.preview.model import Outcome, RunCost, StepCost
from offline.preview.schedule import Schedule, Work, schedule

Times = Literal["measured", "rehearsed", "limit"]


def run_cost(
    stack: Stack, charges: Sequence[Charge], jobs: Mapping[str, Outcome] | None, measured: Mapping[str, Measured]
) -> RunCost | None:
    """Of ``jobs``, by their URNs, or of all where that is None; None where there are none.

    ``charges`` are the stack's that are paid by the hour, ``measured`` the times of its Jobs, by name.
    """
    expected = _Run(stack, charges, schedule(stack, measured, jobs))
    if not expected.schedule.work and not expected.schedule.homeless:
        return None
    longest = _Run(stack, charges, schedule(stack, {}, jobs)) if measured else expected
    amounts = [amount for amount, _ in expected.amounts]
    return RunCost(
        dollars=sum(amounts) if amounts else None,
        paid_anyway=sum(amount for amount, anyway in expected.amounts if anyway),
        most=longest.most,
        unknown=list(dict.fromkeys(expected.unknown)),
        steps=[expected.step(each) for each in expected.schedule.work],
    )


def common_basis(times: Mapping[str, Mapping[str, Measured]], jobs: Mapping[str, Sequence[str]]) -> Times:
    """What the costs of all stacks can be compared by: what every one of their Jobs has.

    ``times`` and ``jobs`` are by stack: what is known of the Jobs, and the names of those whose cost is asked for.
    """
    known = {times[stack][job].basis if job in times[stack] else "limit" for stack in jobs for job in jobs[stack]}
    if known == {"measured"}:
        return "measured"
    return "rehearsed" if known == {"rehearsed"} else "limit"


def hourly_of(charge: Charge) -> float | None:
    """What one of them costs for an hour; None where that is not known."""
    known = hourly(charge.price) if charge.price is not None else None
    return None if known is None else known * charge.quantity


@dataclass(frozen=True)
class _Run:
    stack: Stack
    charges: Sequence[Charge]
    schedule: Schedule

    @property
    def most(self) -> float | None:
        amounts = [amount for amount, _ in self.amounts]
        timed = all(each.basis != "unknown" for each in self.schedule.work)
        return sum(amounts) if amounts and timed else None

    @property
    def amounts(self) -> list[tuple[float, bool]]:
        """What is known of it, by node and charge: dollars, and whether they are paid without the Jobs, too."""
        return [
            (rate * seconds / 3600, charge.idle > number)
            for pool, number, seconds in self._held()
            for charge in self._charges(pool, number)
            if (rate := hourly_of(charge)) is not None
        ]

    @property
    def unknown(self) -> Iterator[str]:
        """What is in no sum."""
        yield from (f"a pool for {name}" for name in self.schedule.homeless)
        for each in self.schedule.work:
            if each.basis == "unknown":
                yield f"a time limit of {each.resource.name}"
        for pool, number, _ in self._held():
            charges = self._charges(pool, number)
            if not charges or all(hourly_of(charge) is None for charge in charges):
                yield f"the price of pool {pool.name}"
            else:
                missing = (charge.what for charge in charges if hourly_of(charge) is None)
                yield from (f"the price of {what} (pool {pool.name})" for what in missing)

    def step(self, work: Work) -> StepCost:
        """What a Job costs in the time that it holds its node."""
        rates = [hourly_of(charge) for charge in self._charges(work.pool, work.number)]
        known = [rate for rate in rates if rate is not None]
        return StepCost(
            job=work.resource.name,
            pool=work.pool.name,
            seconds=work.seconds,
            basis=work.basis,
            dollars=sum(known) * work.seconds / 3600 if known and work.basis != "unknown" else None,
            paid_anyway=work.number < work.pool.min_nodes,
        )

    def _held(self) -> Iterator[tuple[NodePool, int, float]]:
        """Each node with the seconds that it is held: one that boots until the autoscaler takes it away."""
        for stay in self.schedule.stays:
            if stay.booted:
                yield stay.pool, stay.number, stay.until + SCALE_DOWN.amount - stay.since
            else:
                there = [
                    (each.begins, each.ends)
                    for each in self.schedule.work
                    if each.pool is stay.pool and each.number == stay.number
                ]
                yield stay.pool, stay.number, _covered(there)

    def _charges(self, pool: NodePool, number: int) -> list[Charge]:
        """Those of the node of that number; none where nobody can tell them from those of other pools."""
        # What one resource declares several pools is billed for is not told apart, and nodes that the stack finds
        # there are billed to nobody that it knows.
        alone = bool(pool.urn) and sum(each.urn == pool.urn for each in self.stack.pools) == 1
        return [charge for charge in self.charges if alone and charge.pool == pool.urn and charge.most > number]


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """The length of what the spans cover together."""
    total, until = 0.0, 0.0
    for begins, ends in sorted(spans):
        total += max(0.0, ends - max(begins, until))
        until = max(until, ends)
    return total
