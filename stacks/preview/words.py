"""How a preview's amounts, counts and names are written, in the terminal and in Markdown alike."""

import json
import math
import re
from collections.abc import Iterable, Sequence

from infra.review.stack import JOB
from stacks.preview.model import (
    Changes,
    Cost,
    CostDifference,
    Failure,
    Finding,
    JobRun,
    Operation,
    Outcome,
    Preview,
    PropertyChange,
    QuotaNeed,
    ResourceChange,
    StackPreview,
    Timeline,
)

SYMBOLS = {Operation.CREATE: "+", Operation.UPDATE: "~", Operation.REPLACE: "±", Operation.DELETE: "-"}
DONE = {
    Operation.CREATE: "created",
    Operation.UPDATE: "updated in place",
    Operation.REPLACE: "replaced",
    Operation.DELETE: "deleted",
}
DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{10}(?![0-9a-f])")
"""Of a run or a bundle, as names and paths end in it."""

DATE = re.compile(r"^.* \(((?:undated, read )?\d{4}-\d\d-\d\d)\)$")

PLURAL = re.compile(r"(?<=ss)es$|(?<!s)s$")
"""How a unit ends that counts: `addresses`, `GPUs`."""

ORDER = (Operation.DELETE, Operation.REPLACE, Operation.UPDATE, Operation.CREATE)
"""What destroys comes first."""

WORK = frozenset({JOB, "node", "image"})
"""Types of the legs of a timeline that are a Job, or that only a Job waits for."""

LONG = 10
"""Seconds from which on it is worth saying what is waited for."""

OUTCOMES = {
    Outcome.RUNS: "runs {}",
    Outcome.RESUMES: "is re-created {} and finds its result in the store",
}

REVISIONS = {"base": "the base", "head": "this revision"}

UNKNOWN = "unknown"
NO_CHANGES = "no changes"


def money(amount: float | None) -> str:
    """An amount in US dollars: cents up to a thousand dollars, two digits that count below ten cents."""
    if amount is None:
        return UNKNOWN
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    if size >= 1000:
        return f"{sign}${size:,.0f}"
    digits = max(2, 1 - math.floor(math.log10(size))) if size else 2
    return f"{sign}${size:.{digits}f}"


def total(amount: float | None, cost: Cost, count: str) -> str:
    """A sum of known prices: a lower bound where some are not known, and no sum at all where none is.

    ``count`` is the field of a line that says how many of it are in this sum.
    """
    partial = any(line.hourly is None and not line.metered and getattr(line, count) for line in cost.lines)
    if amount is None or (partial and not amount):
        return UNKNOWN
    return f"≥ {money(amount)}" if partial else money(amount)


def difference(amount: float) -> str:
    """A change in a sum, with its sign; empty where there is none."""
    if abs(amount) < 0.00005:
        return ""
    return f"+{money(amount)}" if amount > 0 else money(amount)


def with_difference(figure: str, of: CostDifference | None, key: str) -> str:
    """A figure and, in brackets, by how much it changed."""
    if of is None or figure == UNKNOWN:
        return figure
    change = getattr(of, key)
    changed = "change unknown" if change is None else difference(change)
    return figure + (f" ({changed})" if changed else "")


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def many(count: int, word: str, plural: str = "") -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {word if count == 1 else plural or word + 's'}"


def listed(parts: Iterable[str], nothing: str = "none") -> str:
    """With commas; ``nothing`` where there is nothing."""
    return ", ".join(parts) or nothing


def counted(changes: Changes) -> dict[Operation, int]:
    """How many resources each operation touches, those that destroy first."""
    return {
        operation: sum(each.operation is operation for each in changes.resources)
        for operation in ORDER
        if any(each.operation is operation for each in changes.resources)
    }


def change_words(changes: Changes) -> str:
    """``1 replaced, 2 created``."""
    return listed((f"{count} {DONE[operation]}" for operation, count in counted(changes).items()), NO_CHANGES)


def finding_words(findings: Sequence[Finding]) -> str:
    """``2 errors, 1 warning``, and how many are new where the base has some of them."""
    counts = {severity: sum(each.severity == severity for each in findings) for severity in ("error", "warning")}
    new = sum(each.new for each in findings)
    told = f" ({new or 'none'} new)" if new < len(findings) else ""
    return listed(many(count, severity) for severity, count in counts.items() if count) + told


def severity(finding: Finding) -> str:
    """How bad it is, and whether the base has it, too."""
    return finding.severity if finding.new else f"{finding.severity}, not new"


def unchanged(changes: Changes) -> str:
    """What is said where no resource changes."""
    return f"No resource changes; {many(changes.unchanged, 'resource')} as before."


def ordered(changes: Changes) -> list[ResourceChange]:
    """What destroys first, and within it as declared."""
    return sorted(changes.resources, key=lambda each: ORDER.index(each.operation))


def kind(type_: str) -> str:
    """The last part of a resource type: ``NodePool`` of ``gcp:container/nodePool:NodePool``."""
    return type_.rpartition(":")[2]


def forced(change: ResourceChange) -> str:
    """Which properties replace the resource."""
    paths = [each.path for each in change.properties if each.forces]
    return f"forced by {', '.join(paths)}" if paths else ""


def telling(change: ResourceChange) -> list[PropertyChange]:
    """The properties that tell a reader something: all but those that differ in a digest alone, if others do."""
    return [each for each in change.properties if not _digests(each)] or change.properties


def _digests(change: PropertyChange) -> bool:
    if not isinstance(change.before, str) or not isinstance(change.after, str):
        return False
    return DIGEST.sub("", change.before) == DIGEST.sub("", change.after)


def why(change: ResourceChange) -> str:
    """What is to be said of a change beside its properties."""
    parts = [each for each in (change.because, change.note) if each]
    if not change.known:
        parts.append("no schema says whether this replaces it")
    if change.protected and change.operation in {Operation.REPLACE, Operation.DELETE}:
        parts.append("protected, so the update will refuse")
    return "; ".join(parts)


def value(content: object) -> str:
    """A property's value on one line."""
    if content is None or isinstance(content, bool):
        return {None: "not set", True: "true", False: "false"}[content]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def more(count: int, of: int) -> str:
    """What is left out of a list; empty where nothing is."""
    return f"and {of - count} more" if of > count else ""


def state(preview: StackPreview) -> str:
    """What is to be said of a stack in a word or two, before any detail."""
    if any(each.revision == "head" for each in preview.failures):
        return "cannot be evaluated"
    if preview.removed:
        return "removed"
    if preview.new_stack:
        return "new stack"
    if preview.failures:
        return "base cannot be evaluated"
    if preview.changes is None:
        return many(preview.resources, "resource")
    # What an encrypted value does, nobody can see.
    unseen = " to be seen" if preview.changes.remarks and not preview.changes.resources else ""
    return change_words(preview.changes) + unseen


def columns(preview: Preview) -> dict[str, list[str]]:
    """The table over all stacks: the cells of each column by its heading, without those that have none."""
    figures_of = [figures(each) for each in preview.stacks]
    found = {
        "Stack": [each.stack for each in preview.stacks],
        "Changes" if preview.base else "Program": [state(each) for each in preview.stacks],
        "Jobs that run": [jobs(each.changes) for each in preview.stacks],
        "Idle a month": [idle for idle, _, _ in figures_of],
        "At most an hour": [most for _, most, _ in figures_of],
        "One run": [run for _, _, run in figures_of],
        "Findings": [finding_words(each.findings) for each in preview.stacks],
    }
    return {heading: cells for heading, cells in found.items() if any(cells)}


def problems(failure: Failure) -> list[dict[str, str]]:
    """The problems of a stack file that are not among the findings already: the base's."""
    return failure.problems if failure.revision == "base" else []


def jobs(changes: Changes | None) -> str:
    """How many Jobs run again, and on which pools."""
    if changes is None:
        return ""
    running = [each for each in changes.runs if each.outcome is Outcome.RUNS]
    pools = dict.fromkeys(each.pool or "no pool" for each in running)
    return f"{len(running)} on {listed(pools)}" if running else "none"


def figures(preview: StackPreview) -> tuple[str, str, str]:
    """Idle a month, at most an hour, and one run; each with its difference."""
    cost, by = preview.cost, preview.difference
    if cost is None:
        return "", "", ""
    return (
        with_difference(total(cost.idle_monthly, cost, "idle_count"), by, "idle_monthly"),
        with_difference(total(cost.most_hourly, cost, "most_count"), by, "most_hourly"),
        with_difference(money(cost.run) if cost.run_basis else "no Jobs", by, "run"),
    )


def run_words(run: JobRun) -> str:
    """What becomes of a Job, where, and why."""
    gpus = f", {run.gpus} {run.accelerator}" if run.gpus and run.accelerator else ""
    place = f"on pool {run.pool}{gpus}" if run.pool else "on no pool, for none can take it"
    return f"{OUTCOMES[run.outcome].format(place)}: {run.because}"


def cost_words(preview: StackPreview) -> list[str]:
    """The sums of a stack's cost, and what they leave out."""
    cost = preview.cost
    if cost is None:
        return []
    if cost.idle_hourly is None:
        return [f"Nothing here has a known price: {'; '.join(cost.unknown)}."] if cost.unknown else []
    idle, largest, run = figures(preview)
    by = preview.difference
    hourly = with_difference(total(cost.idle_hourly, cost, "idle_count"), by, "idle_hourly")
    lines = [f"Idle: {hourly} an hour, {idle} a month. Every pool at its maximum: {largest} an hour."]
    if cost.run_basis and cost.run is None:
        lines.append(f"What one run of the pipelines adds is unknown: {cost.run_basis}.")
    elif cost.run_basis:
        most = with_difference(money(cost.run_limit), by, "run_limit")
        adds = f"at most {run}" if cost.run == cost.run_limit else f"{run}, at most {most}"
        lines.append(f"One run of the pipelines adds {adds}: {cost.run_basis}.")
    if cost.unknown:
        lines.append(f"Unknown, and in no sum: {'; '.join(cost.unknown)}.")
    if cost.stale:
        lines.append(_stale_words([as_of(each) for each in cost.stale]))
    return lines


def _stale_words(dates: Sequence[str]) -> str:
    dated = [each for each in dates if each[0].isdigit()]
    parts = (
        [f"older than 90 days, those of {many(len(dated), 'source')}, the oldest of {min(dated)}"] if dated else []
    )
    if undated := len(dates) - len(dated):
        parts.append(f"of unknown age, those of {many(undated, 'source')}")
    return f"Prices {'; '.join(parts)}."


def timeline_words(timeline: Timeline) -> str:
    """How long an update from nothing takes."""
    first = next((each for each in timeline.critical if each.type in WORK), None)
    limits = bool(first) and timeline.limit == timeline.seconds
    told = f"at most {duration(timeline.seconds)}" if limits else f"about {duration(timeline.seconds)}"
    if first is not None and limits:
        told = f"{told} with every Job at its time limit"
    elif timeline.limit is not None and timeline.limit > timeline.seconds:
        told = f"{told}, at most {duration(timeline.limit)}"
    start = (
        f"`pulumi up` from nothing comes to its first Job after about {duration(first.begins)} and"
        if first
        else ("`pulumi up` from nothing")
    )
    return f"{start} takes {told}."


def path_words(timeline: Timeline) -> str:
    """What an update from nothing waits for, in a line."""
    legs = " → ".join(
        f"{each.name} ({duration(each.seconds)})" for each in timeline.critical if each.seconds >= LONG
    )
    return " ".join(filter(None, [f"It waits for {legs}." if legs else "", *timeline.remarks]))


def as_of(basis: str) -> str:
    """The date of a source, which stands behind its address in brackets; all of the text where there is none."""
    return DATE.sub(r"\1", basis)


def needed(quota: QuotaNeed) -> str:
    """How much of a quota is needed, beside what a new account has."""
    ordinary = f" (new accounts have {quota.ordinary:g})" if quota.ordinary is not None else ""
    unit = PLURAL.sub("", quota.unit) if quota.needed == 1 else quota.unit
    return f"{quota.needed:g} {unit}{ordinary}".replace("  ", " ")


def priced(cost: Cost) -> bool:
    """Whether a table of the prices tells more than that none is known."""
    return any(line.metered or line.hourly is not None for line in cost.lines)


def where_to_see(quotas: Iterable[QuotaNeed]) -> list[str]:
    """The commands and pages that show the limits, each once."""
    return list(dict.fromkeys(each.see for each in quotas))
