"""Formats amounts, counts and names for the terminal and for Markdown."""

import json
import math
import re
from collections.abc import Iterable, Sequence

from slipway.evaluated.model import (
    Changes,
    Failure,
    Finding,
    JobRun,
    Operation,
    Outcome,
    Preview,
    PropertyChange,
    ResourceChange,
    StackPreview,
)
from slipway.infra.review.stack import CONFIG_MAP, JOB

SYMBOLS = {Operation.CREATE: "+", Operation.UPDATE: "~", Operation.REPLACE: "±", Operation.DELETE: "-"}
DONE = {
    Operation.CREATE: "created",
    Operation.UPDATE: "updated in place",
    Operation.REPLACE: "replaced",
    Operation.DELETE: "deleted",
}
DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{10}(?![0-9a-f])")
"""The digest of a run or a bundle at the end of names and paths."""

DATE = re.compile(r"^.* \(((?:undated, read )?\d{4}-\d\d-\d\d)\)$")

PLURAL = re.compile(r"(?<=ss)es$|(?<!s)s$")
"""The plural ending of a unit: `addresses`, `GPUs`."""

ORDER = (Operation.DELETE, Operation.REPLACE, Operation.UPDATE, Operation.CREATE)
"""Destructive operations first."""

KIND = re.compile(r" \((\w+)\)$")

REVISIONS = {"base": "the base", "head": "this revision"}

UNKNOWN = "unknown"


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


def join(parts: Iterable[str], nothing: str = "none") -> str:
    """Joined with commas; ``nothing`` if there are no parts."""
    return ", ".join(parts) or nothing


def count_operations(changes: Changes) -> dict[Operation, int]:
    """The number of resources by operation, destructive ones first, without Jobs that run and their parts."""
    parts = [part.urn for of_step in find_parts(changes).values() for part in of_step]
    jobs = {*(run.urn for run in changes.runs), *parts}
    operations = [resource.operation for resource in changes.resources if resource.urn not in jobs]
    return {operation: operations.count(operation) for operation in ORDER if operation in operations}


def find_parts(changes: Changes) -> dict[str, list[ResourceChange]]:
    """What changes only since a step with places runs, by the URN of the Job that stands for the step.

    What is deleted, and what grants or opens something else than before, is none of it.
    """
    runs = {run.urn for run in changes.runs}
    parts: dict[str, list[ResourceChange]] = {}
    for change in changes.resources:
        if change.of in runs and _follows(change):
            parts.setdefault(change.of, []).append(change)
    return parts


def _follows(change: ResourceChange) -> bool:
    if change.operation is Operation.DELETE or change.protected or change.note or not change.known:
        return False
    renamed = bool(change.properties) and all(map(is_digest, change.properties))
    return change.type in {JOB, CONFIG_MAP} or renamed


def change_words(changes: Changes) -> str:
    """``1 replaced, 2 created``, without the Jobs that `job_words` counts."""
    nothing = "Jobs alone" if changes.runs else "no changes"
    return join((f"{count} {DONE[operation]}" for operation, count in count_operations(changes).items()), nothing)


def job_words(changes: Changes | None, named: int = 0) -> str:
    """``2 on train, predict; 1 finds its result``: how many Jobs run, on which pools, and how many need not.

    Up to ``named`` that run are named, by their pools: ``prepare, predict on cpu; train on gpu``.
    """
    if changes is None:
        return ""
    running = [run for run in changes.runs if run.outcome is Outcome.RUNS]
    pools = dict.fromkeys(map(_pool, running))
    kept = len(changes.runs) - len(running)
    parts = [f"{len(running)} on {join(pools)}"] if running else []
    if len(running) <= named:
        parts = [f"{join(run.name for run in running if _pool(run) == pool)} on {pool}" for pool in pools]
    if kept:
        parts.append(f"{kept} {'finds its result' if kept == 1 else 'find their results'}")
    if changes.unknown:
        parts.append(f"unknown of {join(changes.unknown)}")
    return "; ".join(parts) or "none"


def running_words(changes: Changes | None) -> list[str]:
    """``2 Jobs run``; an empty list if none runs."""
    count = sum(run.outcome is Outcome.RUNS for run in changes.runs) if changes else 0
    return [f"{many(count, 'Job')} {'runs' if count == 1 else 'run'}"] if count else []


def place(run: JobRun, parts: int = 0) -> str:
    """The pool that a Job runs on; of a step with places all of them, with how many ``parts`` of it change."""
    quantity = " each" if run.nodes > 1 else ""
    gpus = f", {run.gpus} {run.accelerator}{quantity}" if run.gpus and run.accelerator else ""
    if not run.known:
        return "on a pool that this preview cannot tell"
    if run.places:
        with_parts = f" (with {parts} more of its resources)" if parts else ""
        return f"at whichever of {join(run.places)} has nodes{with_parts}"
    nodes = f"{run.nodes} nodes of " if run.nodes > 1 else ""
    return f"on {nodes}pool {run.pool}{gpus}" if run.pool else "on no pool, for none can take it"


def _pool(run: JobRun) -> str:
    if run.places:
        return f"{run.pool} or {many(len(run.places) - 1, 'other place')}"
    return run.pool or ("no pool" if run.known else "an unknown pool")


def finding_words(findings: Sequence[Finding]) -> str:
    """``2 errors, 1 warning``, and how many of them are new if the base has some."""
    counts = {
        severity: sum(finding.severity == severity for finding in findings) for severity in ("error", "warning")
    }
    new = sum(finding.new for finding in findings)
    new_words = f" ({new or 'none'} new)" if new < len(findings) else ""
    return join(many(count, severity) for severity, count in counts.items() if count) + new_words


def severity(finding: Finding) -> str:
    """The severity, and whether the base has the finding, too."""
    return finding.severity if finding.new else f"{finding.severity}, not new"


def order_changes(changes: Changes) -> list[ResourceChange]:
    """Destructive changes first, otherwise in the order of declaration."""
    return sorted(changes.resources, key=lambda change: ORDER.index(change.operation))


def kind(type_: str) -> str:
    """The last part of a resource type: ``NodePool`` of ``gcp:container/nodePool:NodePool``."""
    return type_.rpartition(":")[2]


def kind_of(name: str) -> str:
    """The kind at the end of a finding's name: ``NodePool`` of ``cpu (NodePool)``; ``key`` of a key."""
    match = KIND.search(name)
    return match[1] if match else "key"


def without_kind(name: str) -> str:
    """A finding's name without the kind at its end."""
    return KIND.sub("", name)


def plural(kind: str) -> str:
    """The plural of a kind: ``NodePools``, ``Ingresses``, ``NetworkPolicies``, ``keys``."""
    if kind.endswith("y") and kind[-2:-1] not in "aeiou":
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


def is_digest(change: PropertyChange) -> bool:
    """Whether a property differs in a digest alone."""
    if not isinstance(change.before, str) or not isinstance(change.after, str):
        return False
    return DIGEST.sub("", change.before) == DIGEST.sub("", change.after)


def why(change: ResourceChange, *, because: bool = True) -> str:
    """The reasons and notes of a change; without ``because`` only the notes."""
    parts = [words for words in (change.because if because else "", change.note) if words]
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
    """How many elements of a list are left out; empty if none."""
    return f"and {of - count} more" if of > count else ""


def is_evaluated(preview: StackPreview) -> bool:
    """Whether the stack can be evaluated at this revision."""
    return all(failure.revision != "head" for failure in preview.failures)


def state(preview: StackPreview) -> str:
    """A summary of a stack in a few words."""
    if not is_evaluated(preview):
        return "cannot be evaluated"
    if preview.removed:
        return "removed"
    if preview.new_stack:
        return "new stack"
    if preview.failures:
        return "base cannot be evaluated"
    if preview.changes is None:
        return many(preview.resources, "resource")
    changes = preview.changes
    # The effect of a changed encrypted value cannot be determined.
    unseen = " to be seen" if (changes.remarks or changes.unknown) and not changes.resources else ""
    return change_words(changes) + unseen


def clean(preview: Preview) -> str:
    """The verdict if it has no lines."""
    return "No new findings." if any(stack.findings for stack in preview.stacks) else "No findings."


def problems(failure: Failure) -> list[dict[str, str]]:
    """The problems of the base's stack file; this revision's are findings."""
    return failure.problems if failure.revision == "base" else []


def amount_of(number: float, unit: str) -> str:
    """``4 vCPUs``, ``1 GPU``."""
    return f"{number:g} {PLURAL.sub('', unit) if number == 1 else unit}"
