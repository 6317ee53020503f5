"""The table of all stacks, and the sentences on cost, time and quota, for text and Markdown."""

from collections.abc import Iterable, Sequence

from slipway.evaluated import phrasing
from slipway.evaluated.model import (
    Cost,
    CostDifference,
    CostLine,
    KeptNodes,
    PaidStep,
    Preview,
    QuotaNeed,
    RunCost,
    ScheduledCost,
    StackPreview,
)
from slipway.evaluated.paid import paid_words
from slipway.evaluated.phrasing import UNKNOWN, join, many, money
from slipway.evaluated.places import range_words

IDLE, MOST, NODES = "Idle a month", "At most an hour", "Nodes"

AMOUNTS = ("Each an hour", "How many", "Idle an hour", "At most an hour")
"""The columns of a line of cost that have numbers."""

BASES = {
    "limit": "at their time limits",
    "measured": "by their last run",
    "rehearsed": "by rehearsals on a CPU",
}
"""The bases of the times of Jobs as text."""


def columns(preview: Preview, named: int = 0) -> dict[str, list[str]]:
    """The cells of each column by heading, for those of `stacks_in_table`. No column is empty.

    Up to ``named`` Jobs of a stack are named; more are counted.
    """
    stacks = stacks_in_table(preview)
    columns_by_title = {
        "Stack": [stack.stack for stack in stacks],
        "Changes" if preview.base else "Program": [phrasing.state(stack) for stack in stacks],
        "Jobs that run": [phrasing.job_words(stack.changes, named) for stack in stacks],
        run_heading(preview): [run_figure(stack.cost) for stack in stacks],
    }
    if any(_differs(stack, "idle_monthly") for stack in stacks):
        columns_by_title[IDLE] = [_figure(stack, "idle_monthly", "idle_count") for stack in stacks]
    if any(_differs(stack, "most_hourly") for stack in stacks):
        columns_by_title[MOST] = [_figure(stack, "most_hourly", "most_count") for stack in stacks]
    if any(_differs(stack, "least_nodes") or _differs(stack, "most_nodes") for stack in stacks):
        columns_by_title[NODES] = [_nodes(stack) for stack in stacks]
    columns_by_title["Findings"] = [
        phrasing.finding_words(stack.findings) if stack.findings or phrasing.is_evaluated(stack) else "not known"
        for stack in stacks
    ]
    return {heading: cells for heading, cells in columns_by_title.items() if any(cells)}


def run_heading(preview: Preview) -> str:
    """The heading of the cost of the Jobs that run."""
    return f"{'Their cost' if preview.base else 'All Jobs once'}, {BASES[preview.basis]}"


def numeric(preview: Preview) -> frozenset[str]:
    """The headings of the columns with amounts."""
    return frozenset({run_heading(preview), IDLE, MOST})


def stacks_in_table(preview: Preview) -> list[StackPreview]:
    """The stacks with changes or new findings."""
    return [stack for stack in preview.stacks if not is_same(stack)]


def is_same(preview: StackPreview) -> bool:
    """Whether a stack has neither changes nor new findings."""
    changes = preview.changes
    return (
        changes is not None
        and not (changes.resources or changes.remarks or changes.unknown)
        and not (preview.failures or any(finding.new for finding in preview.findings))
    )


def notes(preview: Preview) -> list[str]:
    """The sentences below the table."""
    sentences: list[str] = []
    if unchanged := [stack for stack in preview.stacks if is_same(stack)]:
        sentences.append(f"No changes in {join(map(_same_words, unchanged))}.")
    sentences += [words for stack in preview.stacks for words in elsewhere_words(stack)]
    runs = [stack.cost.run for stack in preview.stacks if stack.cost is not None and stack.cost.run is not None]
    if runs:
        anyway = any(run.paid_anyway for run in runs)
        billed = {step.by_pod for run in runs for step in run.steps}
        if billed != {True}:
            sentences.append(
                f"The cost of Jobs is that of their nodes {BASES[preview.basis]}, from a node's boot until the "
                "autoscaler takes it away after its last Job."
                + (" Nodes that are always there count, too; they are paid anyway." if anyway else "")
            )
        if True in billed:
            sentences.append(
                f"Where pods are billed, the cost of Jobs is that of their pods {BASES[preview.basis]}."
            )
    # Not in the sections: other stacks may have the same changes, and share one with these.
    changed = [stack for stack in preview.stacks if not is_whole(stack)]
    if places := [f"{stack.stack}: {words}" for stack in changed for words in places_words(stack)]:
        sentences[-1:] = [" ".join([*sentences[-1:], *places])]
    if preview.prices_as_of and (runs or {IDLE, MOST} & set(columns(preview))):
        sentences.append(
            "List prices in US dollars, without what is paid by use; "
            f"of those with a date, the oldest as of {preview.prices_as_of}."
        )
    return sentences


def run_figure(cost: Cost | None) -> str:
    """The cost of the Jobs that run; empty if none does."""
    return "" if cost is None or cost.run is None else _amount(cost.run)


def total(amount: float | None, cost: Cost, count: str) -> str:
    """A sum of known prices: a lower bound if some are unknown, empty if all are.

    ``count`` is the field of a line with the number of units in this sum.
    """
    partial = any(line.hourly is None and not line.metered and getattr(line, count) for line in cost.lines)
    if not (cost.lines or cost.unknown):
        # Nothing is billed to the stack.
        return money(0.0)
    if amount is None or (partial and not amount):
        return UNKNOWN
    return f"≥ {money(amount)}" if partial else money(amount)


def difference(amount: float) -> str:
    """The change of a sum, with its sign; empty if there is none."""
    if abs(amount) < 0.00005:
        return ""
    return f"+{money(amount)}" if amount > 0 else money(amount)


def cost_words(preview: StackPreview) -> list[str]:
    """The sums of a stack's cost, or only those that changed if there is a base."""
    cost = preview.cost
    if cost is None or not (is_whole(preview) or _dearer(preview)):
        return []
    if cost.idle_hourly is None:
        words = [f"Nothing here has a known price: {'; '.join(cost.unknown)}."] if cost.unknown else []
        # The nodes of other stacks have prices there.
        priced = cost.run if cost.run is not None and cost.run.dollars and is_whole(preview) else None
        return [*words, *([_run_words(priced)] if priced else [])]
    idle, monthly, most = (
        _figure(preview, key, count)
        for key, count in (
            ("idle_hourly", "idle_count"),
            ("idle_monthly", "idle_count"),
            ("most_hourly", "most_count"),
        )
    )
    lines = [f"Idle: {idle} an hour, {monthly} a month. Every pool at its maximum: {most} an hour."]
    if cost.run is not None and is_whole(preview):
        lines.append(_run_words(cost.run))
        lines += [paid_words(cost.run.paid)] if cost.run.paid else []
    lines += map(_kept_words, cost.kept)
    lines += map(_scheduled_words, cost.scheduled)
    if cost.unknown:
        lines.append(f"Unknown, and in no sum: {'; '.join(cost.unknown)}.")
    if cost.stale and is_whole(preview):
        lines.append(_stale_words([as_of(source) for source in cost.stale]))
    return lines


def elsewhere_words(preview: StackPreview) -> list[str]:
    """The other stacks that are billed for the nodes of this one's Jobs, a sentence for each."""
    run = preview.cost.run if preview.cost is not None else None
    pools: dict[str, dict[str, None]] = {}
    for step in run.steps if run is not None else ():
        if step.stack:
            pools.setdefault(step.stack, {})[step.pool] = None
    return [
        f"The Jobs of {preview.stack} run on nodes of {stack}, in whose cost these are: "
        f"pool{'s' * (len(names) > 1)} {join(names)}."
        for stack, names in pools.items()
    ]


def places_words(preview: StackPreview) -> list[str]:
    """What the steps with places that run cost and take, a sentence for each; their quotas where any changes."""
    run = preview.cost.run if preview.cost is not None else None
    ranges = [(step.job, step.range) for step in run.steps if step.range] if run is not None else []
    if not quotas(preview):
        ranges = [(job, cost.model_copy(update={"needs": []})) for job, cost in ranges]
    return [range_words(job, cost) for job, cost in ranges]


def unknown_words(preview: StackPreview) -> str:
    """The charges of a stack's Jobs without a known price; empty if there are none."""
    run = preview.cost.run if preview.cost is not None else None
    if run is None or run.dollars is None or is_whole(preview):
        return ""
    places = [f"(pool {pool})" for step in run.steps if step.range for pool in step.range.unpriced]
    # Those of places are said of these.
    unknown = [price for price in run.unknown if not price.endswith(tuple(places))]
    return f"The cost of its Jobs is without {join(unknown)}." if unknown else ""


def is_whole(preview: StackPreview) -> bool:
    """Whether the whole stack is shown, because there is no base to compare it with."""
    return preview.changes is None


def cost_lines(preview: StackPreview) -> list[CostLine]:
    """The lines of cost that the base does not have; none if no price is known."""
    if preview.cost is None:
        return []
    lines = [line for line in preview.cost.lines if is_whole(preview) or line.new]
    return lines if any(line.metered or line.hourly is not None for line in lines) else []


def amounts(line: CostLine) -> tuple[str, str, str, str]:
    """The cells of the columns in `AMOUNTS`."""
    if line.metered:
        return line.metered_price or UNKNOWN, "by use", "", ""
    count = _from_to(line.idle_count, line.most_count)
    return money(line.hourly), count, money(line.idle), money(line.most)


def quotas(preview: StackPreview) -> list[QuotaNeed]:
    """The quotas of which the base needs another amount."""
    return [quota for quota in preview.quotas if is_whole(preview) or quota.new]


def where_to_see(quotas: Iterable[QuotaNeed]) -> list[str]:
    """The commands and pages that show the limits of quotas, each once."""
    return list(dict.fromkeys(quota.see for quota in quotas))


def as_of(basis: str) -> str:
    """The date in brackets at the end of a source; the whole text if there is none."""
    return phrasing.DATE.sub(r"\1", basis)


def quota_words(quota: QuotaNeed) -> str:
    """The needed amount of a quota, and what a new account has."""
    ordinary = f" (new accounts have {quota.ordinary:g})" if quota.ordinary is not None else ""
    if not quota.known:
        ordinary = " (which quota counts them is unknown)"
    return f"{phrasing.amount_of(quota.needed, quota.unit)}{ordinary}".replace("  ", " ")


def _figure(preview: StackPreview, key: str, count: str) -> str:
    """A sum, and its change in brackets."""
    if preview.cost is None:
        return ""
    figure = total(getattr(preview.cost, key), preview.cost, count)
    if preview.difference is None or figure == UNKNOWN:
        return figure
    change = getattr(preview.difference, key)
    changed = "change unknown" if change is None else difference(change)
    return figure + (f" ({changed})" if changed else "")


def _same_words(preview: StackPreview) -> str:
    return preview.stack + (f" ({phrasing.finding_words(preview.findings)})" if preview.findings else "")


def _nodes(preview: StackPreview) -> str:
    cost, by = preview.cost, preview.difference
    if cost is None:
        return ""
    now = _from_to(cost.least_nodes, cost.most_nodes)
    if by is None or not (by.least_nodes or by.most_nodes):
        return now
    return f"{now} (were {_from_to(cost.least_nodes - by.least_nodes, cost.most_nodes - by.most_nodes)})"


def _from_to(least: float, most: float) -> str:
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def _differs(preview: StackPreview, key: str) -> bool:
    """Whether a figure differs from the base's; true without a base."""
    if preview.cost is None:
        return False
    change: float | None = 1.0 if preview.difference is None else getattr(preview.difference, key)
    return change is None or abs(change) >= 0.00005


def _dearer(preview: StackPreview) -> bool:
    return any(_differs(preview, key) for key in CostDifference.model_fields)


def _amount(run: RunCost) -> str:
    """Marks the sum as a lower bound if a part of it is unknown."""
    if run.dollars is None:
        return UNKNOWN
    anyway = "all" if run.paid_anyway >= run.dollars > 0 else money(run.paid_anyway)
    anyway_words = f" ({anyway} paid anyway)" if run.paid_anyway >= 0.005 else ""
    return f"{'≥ ' if run.unknown else ''}{money(run.dollars)}{anyway_words}"


def _run_words(run: RunCost) -> str:
    limits = "" if run.dollars == run.most or run.most is None else f", at most {money(run.most)}"
    left_out = f", without {join(run.unknown)}" if run.unknown else ""
    return f"All Jobs once: {_amount(run)}{limits}{left_out}."


def paid_steps(preview: StackPreview) -> list[PaidStep]:
    """What the GPU nodes of each step are paid for; empty where none comes and goes."""
    run = preview.cost.run if preview.cost is not None else None
    return run.paid.steps if run is not None and run.paid is not None else []


def _kept_words(kept: KeptNodes) -> str:
    """What services add to the nodes of a pool that would have fewer while no Job runs."""
    count = phrasing.many(kept.nodes, "node")
    price = f" for {money(kept.monthly)} a month" if kept.monthly is not None else ""
    stay = "stays" if len(kept.services) == 1 else "stay"
    return f"{join(kept.services)} {stay}, so the pool {kept.pool} keeps {count}{price} while no Job runs."


def _scheduled_words(scheduled: ScheduledCost) -> str:
    """What a pipeline costs that runs by itself, and which times of its Jobs count."""
    anyway = f", {money(scheduled.paid_anyway)} of it paid anyway" if scheduled.paid_anyway >= 0.005 else ""
    often = "" if scheduled.times is None else f", {round(scheduled.times, 1):g} times a month"
    monthly = "" if scheduled.monthly is None else f": {money(scheduled.monthly)} a month beside that"
    when = " ".join(filter(None, [scheduled.cron, scheduled.time_zone]))
    once = f"{money(scheduled.dollars)} each time, its Jobs {BASES[scheduled.basis]}"
    return f"{scheduled.name} runs by itself ({when}) for {once}{anyway}{often}{monthly}."


def _stale_words(dates: Sequence[str]) -> str:
    dated = [date for date in dates if date[0].isdigit()]
    parts = (
        [f"older than 90 days, those of {many(len(dated), 'source')}, the oldest of {min(dated)}"] if dated else []
    )
    if undated := len(dates) - len(dated):
        parts.append(f"of unknown age, those of {many(undated, 'source')}")
    return f"Prices {'; '.join(parts)}."
