"""The last day of a stack: that it comes or is over, and what is billed after it all the same."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date

from slipway.infra.kubernetes.labels import APP, NAME, SERVICE, UNTIL_ANNOTATION
from slipway.infra.placed import SCHEDULED_RUN
from slipway.infra.review.contract import Harm, Policy, Severity, Violation
from slipway.infra.review.facts import Charge
from slipway.infra.review.stack import NodePool, Resource, Stack, at, strings, text
from slipway.infra.review.tables import HOURS_A_MONTH, node_price
from slipway.infra.schema.problems import listed
from slipway.infra.settings import until
from slipway.offline.evaluated.phrasing import many, money
from slipway.offline.evaluated.rates import hourly_of
from slipway.offline.policies.changes import Change, ChangePolicy

REMINDED = 14
"""Days before the last one from which on previews and `slipway watch` remind of it."""


def last_day(stack: Stack) -> str:
    """The last day of the stack (ISO 8601); empty where it has none, or not a right one."""
    day = until.written_day(text(stack.configuration.get(until.KEY)))
    with suppress(ValueError):
        return date.fromisoformat(day).isoformat()
    return ""


def reminder(stack: Stack) -> str:
    """That the stack ends soon, or is over, with what is billed all the same; empty at all other times."""
    day = last_day(stack)
    if not day or (left := until.days_left(day)) > REMINDED:
        return ""
    if left < 0:
        return f"the last day of the stack, {day}, is over; {_goes_on(stack)}"
    when = f"in {many(left, 'day')}" if left else "today"
    return f"the stack ends {when}, when {day} is over by UTC: then {_ended(stack)} end; {_goes_on(stack)}"


def _ended(stack: Stack) -> str:
    labels = [strings(at(resource.properties, "metadata", "labels")) for resource in _covered(stack)]
    counts = {
        "app": sum(APP in of for of in labels),
        "service": sum(SERVICE in of for of in labels),
        "schedule": sum(of.get(NAME) == SCHEDULED_RUN for of in labels),
    }
    parts = [many(count, what) for what, count in counts.items() if count]
    return " and ".join(filter(None, [", ".join(parts), "the Jobs that run"]))


def _covered(stack: Stack) -> list[Resource]:
    """What is scaled to no pod, or suspended."""
    return [
        resource
        for resource in stack.resources.values()
        if UNTIL_ANNOTATION in strings(at(resource.properties, "metadata", "annotations"))
    ]


def _goes_on(stack: Stack) -> str:
    monthly, whole = _monthly(stack)
    if monthly is None:
        return "what is left is billed at prices that are not known, until `pulumi destroy`"
    more = "" if whole else ", and more that has no known price"
    return f"what is left costs {money(monthly)} a month{more}, until `pulumi destroy`"


def _left(stack: Stack) -> Sequence[Charge]:
    """What is billed by the hour although nothing runs. The volumes of apps and services are there, too."""
    ended = {resource.urn for resource in _covered(stack)}
    return [
        charge
        for charge in stack.charges
        if not charge.metered and charge.idle > 0 and (charge.urn not in ended or charge.disk is not None)
    ]


def _monthly(stack: Stack) -> tuple[float | None, bool]:
    """What is left costs in a month, None where no price is known, and whether that is all of it."""
    rates = [(hourly_of(charge), charge.idle) for charge in _left(stack)]
    known = [rate * count * HOURS_A_MONTH for rate, count in rates if rate is not None]
    return (sum(known) if known else None), len(known) == len(rates)


def _find_over(stack: Stack) -> Iterator[Violation]:
    day = last_day(stack)
    if day and until.days_left(day) < 0:
        yield Violation(until.KEY, f"{reminder(stack)}; `pulumi up` refuses it", until.FIX)


def _find_soon(stack: Stack) -> Iterator[Violation]:
    day = last_day(stack)
    if day and until.days_left(day) >= 0 and (said := reminder(stack)):
        yield Violation(until.KEY, said, "write a later day, or run `pulumi destroy` once nobody needs the stack")


def _find_billed(stack: Stack) -> Iterator[Violation]:
    if not last_day(stack):
        return
    # Nodes that are there already are nobody's to end here.
    kept = [pool for pool in stack.own_pools if pool.urn and pool.min_nodes > 0 and not pool.bills_pods]
    if not kept and _monthly(stack)[0] is None:
        return
    pools = f": {' and '.join(_describe(pool, stack) for pool in kept)}" if kept else ""
    yield Violation(
        until.KEY,
        f"nothing is deleted when the last day is over: {_goes_on(stack)}{pools}",
        f"{_emptied(kept)}run `pulumi destroy` at that day, which deletes the data, too; or live with it",
    )


def _describe(pool: NodePool, stack: Stack) -> str:
    rate = node_price(stack.charges, pool.urn) if pool.urn else None
    price = f" ({money(rate * pool.min_nodes * HOURS_A_MONTH)} a month)" if rate is not None else ""
    return f"pool {pool.name} keeps {many(pool.min_nodes, 'node')}{price}"


def _emptied(pools: Sequence[NodePool]) -> str:
    names = [pool.name for pool in pools]
    return f"let {listed(names, 'and')} begin with no node, as far as nothing else needs one; " if names else ""


def _find_removed(change: Change) -> Iterator[Violation]:
    day = last_day(change.before)
    if not day or until.days_left(day) >= 0 or last_day(change.after):
        return
    names = [resource.name for resource in _covered(change.before) if not change.ends(resource.urn)]
    if names:
        reason = f"{until.removed(day)}: {listed(sorted(names), 'and')}; `pulumi up` refuses it"
        yield Violation(until.KEY, reason, until.BACK)


POLICIES = (
    Policy(
        "until-over",
        Severity.ERROR,
        "The last day of a stack, `slipway:until`, is not over.",
        _find_over,
        "Write a later day, or delete what is left with `pulumi destroy`.",
        harm=Harm.REFUSAL,
    ),
    Policy(
        "until-stays-billed",
        Severity.WARNING,
        "Nothing is billed any more once the last day of a stack is over.",
        _find_billed,
        "Run `pulumi destroy` at that day; or live with it.",
        harm=Harm.COST,
    ),
    Policy(
        "until-soon",
        Severity.WARNING,
        "The last day of a stack is more than 14 days away.",
        _find_soon,
        "Write a later day, or run `pulumi destroy` once nobody needs the stack.",
    ),
)

CHANGE_POLICIES = (
    ChangePolicy(
        "until-removed",
        Severity.ERROR,
        "A change does not take out the last day of a stack, `slipway:until`, once that is over.",
        _find_removed,
        "Write a later day, which starts again what was ended; then take it out with another update.",
        harm=Harm.REFUSAL,
    ),
)
"""Policies about an update."""
