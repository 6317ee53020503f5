"""The cost of the Jobs that an update runs, which is the cost of the nodes that they hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from infra.kubernetes.review import SCALE_DOWN
from infra.review.facts import Charge
from infra.review.prices import hourly, node_price
from infra.review.stack import NodePool, Resource, Stack
from offline.preview.model import Outcome, RunCost, StepCost
from offline.preview.schedule import Measured, Schedule, Work, schedule

Times = Literal["measured", "rehearsed", "limit"]


def run_cost(
    stack: Stack, charges: Sequence[Charge], jobs: Mapping[str, Outcome] | None, measured: Mapping[str, Measured]
) -> RunCost | None:
    """The cost of ``jobs``, by URN (None: of all); None if there are none.

    ``charges`` are those by the hour of the stack and of the other stacks whose pools it uses, ``measured`` the
    times of its Jobs, by name.
    """
    expected = _Run(stack, charges, schedule(stack, measured, jobs))
    if not (expected.schedule.work or expected.schedule.homeless or expected.schedule.unplaced):
        return None
    longest = _Run(stack, charges, schedule(stack, {}, jobs)) if measured else expected
    amounts = [amount for amount, _ in expected.amounts]
    return RunCost(
        dollars=sum(amounts) if amounts else None,
        paid_anyway=sum(amount for amount, anyway in expected.amounts if anyway),
        most=longest.most,
        unknown=list(dict.fromkeys(expected.unknown)),
        steps=expected.steps,
    )


def common_basis(times: Mapping[str, Mapping[str, Measured]], jobs: Mapping[str, Sequence[str]]) -> Times:
    """The kind of times that all of these Jobs have, so that the costs of all stacks can be compared.

    ``times`` are the known times of Jobs, ``jobs`` the names of those whose cost is wanted; both by stack.
    """
    known = {times[stack][job].basis if job in times[stack] else "limit" for stack in jobs for job in jobs[stack]}
    if known == {"measured"}:
        return "measured"
    return "rehearsed" if known == {"rehearsed"} else "limit"


def hourly_of(charge: Charge) -> float | None:
    """The price for an hour; None if it is not known."""
    known = hourly(charge.price) if charge.price is not None else None
    return None if known is None else known * charge.quantity


def node_rate(stack: Stack, pool: NodePool | None) -> float | None:
    """What one node of the pool costs for an hour; None where several pools share one resource's charges."""
    if pool is None or not pool.urn or sum(each.urn == pool.urn for each in stack.pools) > 1:
        return None
    return node_price([*stack.charges, *stack.charges_elsewhere], pool.urn)


def pod_rate(stack: Stack, job: Resource) -> float | None:
    """What one pod of the Job costs for an hour, where pods are billed."""
    rates = [hourly_of(each) for each in stack.charges if each.urn == job.urn]
    return None if not rates or None in rates else sum(each for each in rates if each is not None)


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
        for work in self.schedule.work:
            billed = self._pod_charges(work)
            if work.pool.bills_pods and not billed:
                yield f"pods of another stack's cluster (pool {work.pool.name})"
            missing = (charge.what for charge in billed if hourly_of(charge) is None)
            yield from (f"the price of {what} (pool {work.pool.name})" for what in missing)

    @property
    def steps(self) -> list[StepCost]:
        """The cost of each Job for the time that it holds its nodes."""
        return [
            self._step(list(works)) for _, works in groupby(self.schedule.work, lambda each: each.resource.urn)
        ]

    def _step(self, works: Sequence[Work]) -> StepCost:
        """The cost of a Job, of which ``works`` are what it does on each of its nodes."""
        first = works[0]
        known = [
            rate * work.seconds / 3600
            for work in works
            for charge in self._charges(work.pool, work.number)
            if (rate := hourly_of(charge)) is not None
        ]
        known += [amount for work in works for amount in self._of_pods(work)]
        return StepCost(
            job=first.resource.name,
            pool=first.pool.name,
            seconds=max(work.ends for work in works) - min(work.begins for work in works),
            basis=first.basis,
            dollars=sum(known) if known and first.basis != "unknown" else None,
            paid_anyway=all(work.kept for work in works),
            stack=first.pool.stack,
            nodes=len(works),
            by_pod=first.pool.bills_pods,
        )

    def _held(self) -> Iterator[tuple[NodePool, int, float]]:
        """Each node with the seconds that it is held; one that boots is held until the autoscaler removes it."""
        for stay in self.schedule.stays:
            if stay.pool.bills_pods:
                continue
            if stay.booted:
                yield stay.pool, stay.number, stay.until + SCALE_DOWN.amount - stay.since
            else:
                there = [
                    (each.begins, each.ends)
                    for each in self.schedule.work
                    if each.pool is stay.pool and each.number == stay.number
                ]
                yield stay.pool, stay.number, _covered(there)

    def _of_pods(self, work: Work) -> list[float]:
        """The known cost of a Job's pods on a node, by charge, where pods are billed."""
        rates = (hourly_of(charge) for charge in self._pod_charges(work))
        return [rate * work.pods * work.seconds / 3600 for rate in rates if rate is not None]

    def _pod_charges(self, work: Work) -> list[Charge]:
        """What each of the Job's pods is billed for, where pods are billed."""
        return [each for each in self.charges if work.pool.bills_pods and each.urn == work.resource.urn]

    def _charges(self, pool: NodePool, number: int) -> list[Charge]:
        """The charges of the node with that number; none if they cannot be told from those of other pools."""
        # A resource with several pools is billed as a whole, and existing nodes have no charges in the stack.
        alone = bool(pool.urn) and sum(each.urn == pool.urn for each in self.stack.pools) == 1
        return [charge for charge in self.charges if alone and charge.pool == pool.urn and charge.most > number]


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """The total length of the spans, overlaps counted once."""
    total, until = 0.0, 0.0
    for begins, ends in sorted(spans):
        total += max(0.0, ends - max(begins, until))
        until = max(until, ends)
    return total
