"""What GPU nodes are paid for beside the work of steps: seconds and money by cause, of each step and of the run.

Only nodes that come and go for Jobs count: what is there at all times is paid anyway. A node is counted from when
it is asked for until it is gone, which is a few seconds too much at both ends. Clouds bill it while it is in the
state RUNNING (Compute Engine, docs.cloud.google.com/compute/docs/instances/instance-lifecycle) or `running` (EC2,
docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle; both seen November 2026), which begins before
its system has booted; how much of the boot lies before that, no source says.
"""

import contextlib
import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from slipway.evaluated.model import Cause, Paid, PaidPart, PaidStep, PaidUseful
from slipway.evaluated.nodes import Stay
from slipway.evaluated.phrasing import join, money
from slipway.evaluated.schedule import JobDuration, Schedule, Work
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.kubernetes.review import scale_down
from slipway.infra.placed import STORE_GATE
from slipway.infra.review.facts import Seconds
from slipway.infra.review.stack import NodePool, Resource, Stack, at, mapping, strings
from slipway.runtime.parts import GATE, INPUTS, LOADING, PACKAGES, PROGRAM, PUBLISH, RESTORE

WORK = cast("Sequence[Cause]", (GATE, PACKAGES, INPUTS, RESTORE, LOADING, PROGRAM, PUBLISH))
"""What the time of a pod goes for, in the order in which it mostly does."""

START, KEPT = "start", "kept"
"""The node's time before its first pod, boot and image together; and that without a pod, after one."""

ORDER = (PROGRAM, LOADING, PUBLISH, RESTORE, INPUTS, PACKAGES, GATE, "image", "boot", START, KEPT)
"""What a second counts for in which a node does several: the first of these."""

CAUSES: Sequence[Cause] = ("boot", "image", *WORK, "kept")
"""In the order in which people read them."""

LIMITED = ("limit", "deadline", "unknown")
"""Bases of times that say only how long a Job may take at most."""


@dataclass(frozen=True)
class Piece:
    """A time of a node for one ``cause``; ``of`` is whose it is. ``source`` is from where its length is known."""

    begins: float
    ends: float
    cause: str
    of: str
    source: str = ""


def once(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of one node with each second in one of them alone, in the order of time."""
    known = sorted((piece for piece in pieces if piece.ends > piece.begins), key=lambda piece: piece.begins)
    times = sorted({time for piece in known for time in (piece.begins, piece.ends)})
    at_once: list[tuple[int, int, Piece]] = []
    apart: list[Piece] = []
    begun = 0
    for begins, ends in pairwise(times):
        while begun < len(known) and known[begun].begins <= begins:
            heapq.heappush(at_once, (ORDER.index(known[begun].cause), begun, known[begun]))
            begun += 1
        while at_once and at_once[0][2].ends <= begins:
            heapq.heappop(at_once)
        if at_once:
            apart.append(replace(at_once[0][2], begins=begins, ends=ends))
    return apart


def paid_useful(
    stack: Stack,
    schedule: Schedule,
    measured: Mapping[str, JobDuration],
    rate: Callable[[NodePool, int], float | None],
) -> PaidUseful | None:
    """What the GPU nodes of ``schedule`` that come and go are paid for; None where there are none.

    ``measured`` are the times of Jobs by name that the schedule was made with; ``rate`` is the price of an hour of
    a pool's node with that number, None where it is not known.
    """
    parts: dict[str, list[PaidPart]] = {}
    pools: dict[str, NodePool] = {}
    nodes: dict[str, set[tuple[int, float]]] = {}
    limited: set[str] = set()
    by_node: dict[tuple[str, str, int], list[Work]] = {}
    for work in schedule.work:
        by_node.setdefault((work.pool.cluster, work.pool.name, work.number), []).append(work)
    for stay in schedule.stays:
        works = _during(stay, by_node.get((stay.pool.cluster, stay.pool.name, stay.number), []))
        if not (works and stay.booted and stay.pool.gpus) or stay.pool.bills_pods:
            continue
        hourly = rate(stay.pool, stay.number)
        owners = _owners(works)
        limited |= {owners[work.resource.urn] for work in works if work.basis in LIMITED}
        pieces = [piece for work in works for piece in _pieces(work, owners, measured)]
        for piece in once([*pieces, *_kept(stay, works, owners)]):
            seconds = piece.ends - piece.begins
            dollars = None if hourly is None else hourly * seconds / 3600
            cause = cast("Cause", piece.cause)
            part = PaidPart(cause=cause, seconds=seconds, dollars=dollars, source=piece.source)
            parts.setdefault(piece.of, []).append(part)
            pools[piece.of] = stay.pool
            nodes.setdefault(piece.of, set()).add((stay.number, stay.since))
    steps = [
        PaidStep(
            job=moved.job.name if (moved := schedule.moved.get(job)) else stack.resources[job].name,
            pool=pools[job].name,
            nodes=len(nodes[job]),
            **_totals(of_job, at_least=job in limited),
        )
        for job, of_job in parts.items()
    ]
    of_run = [part for step in steps for part in step.parts]
    at_least = any(step.at_least for step in steps)
    return PaidUseful(steps=steps, **_totals(of_run, at_least=at_least)) if steps else None


def kept_after(pool: NodePool) -> float | None:
    """For how many seconds a GPU node of ``pool`` is kept after its last pod; None for one that does not come and
    go, or whose pods are billed in its place.
    """
    comes_and_goes = pool.urn and pool.gpus and not (pool.min_nodes or pool.bills_pods)
    return scale_down(pool).amount if comes_and_goes else None


def _during(stay: Stay, works: Iterable[Work]) -> list[Work]:
    """What ran on the node while it was there, in the order of its beginning."""
    on_it = (work for work in works if stay.since <= work.begins <= stay.until)
    return sorted(on_it, key=lambda work: (work.begins, work.ends))


def _owners(works: Sequence[Work]) -> dict[str, str]:
    """The Job that each Job's time counts for, by URN: that of a gate for the first one that waits for it."""
    owners: dict[str, str] = {}
    steps = [work for work in works if not _is_gate(work.resource)]
    for work in works:
        urn, owner = work.resource.urn, work
        if _is_gate(work.resource):
            guarded = (step for step in steps if urn in step.resource.dependencies)
            owner = next(guarded, steps[0] if steps else work)
        owners[urn] = owner.of or owner.resource.urn
    return owners


def _is_gate(job: Resource) -> bool:
    return strings(at(job.properties, "metadata", "labels")).get(NAME) == STORE_GATE


def _pieces(work: Work, owners: Mapping[str, str], measured: Mapping[str, JobDuration]) -> list[Piece]:
    """What the Job's time on its node is for."""
    left = work.ends - work.begins
    waits: list[tuple[Cause, float, str]] = []
    known_waits: list[tuple[Cause, Seconds | None]] = [("boot", work.boot), ("image", work.image)]
    for cause, known in known_waits:
        if known is not None:
            waits.append((cause, known.amount, f"{known.source.url} ({known.source.when})"))
            left -= known.amount
    shares = _shares(work, measured)
    waits.extend((cause, max(left, 0.0) * shares.get(cause, 0.0), "") for cause in WORK)
    pieces, begins = list[Piece](), work.begins
    for cause, seconds, source in waits:
        ends = min(begins + seconds, work.ends)
        if ends <= begins:
            continue
        pieces.append(Piece(begins, ends, cause, owners[work.resource.urn], source))
        begins = ends
    return pieces


def _shares(work: Work, measured: Mapping[str, JobDuration]) -> Mapping[Cause, float]:
    """What shares of a Job's own time are for what; empty where nothing is known of the time of a gate."""
    if _is_gate(work.resource):
        return {} if work.basis in LIMITED else {"gate": 1.0}
    known = measured.get(work.resource.name)
    parts: dict[Cause, float] = {cause: known.parts.get(cause, 0.0) for cause in WORK} if known else {}
    whole = sum(parts.values())
    return {cause: seconds / whole for cause, seconds in parts.items()} if whole else {"program": 1.0}


def _kept(stay: Stay, works: Sequence[Work], owners: Mapping[str, str]) -> list[Piece]:
    """The node without a Job, between two and after the last: for the one before."""
    pieces: list[Piece] = []
    kept = scale_down(stay.pool)
    source = f"{kept.source.url} ({kept.source.when})"
    last = works[0]
    for work in works[1:]:
        if work.begins > last.ends:
            pieces.append(Piece(last.ends, work.begins, "kept", owners[last.resource.urn], source))
        last = max(last, work, key=lambda work: work.ends)
    until = max(stay.until, last.ends) + kept.amount
    return [*pieces, Piece(last.ends, until, "kept", owners[last.resource.urn], source)]


def _totals(parts: Sequence[PaidPart], *, at_least: bool) -> dict[str, Any]:
    """The fields that a step and the run have in common, with one part for each cause."""
    by_cause: dict[Cause, list[PaidPart]] = {
        cause: [part for part in parts if part.cause == cause] for cause in CAUSES
    }
    added = [
        PaidPart(
            cause=cause,
            seconds=sum(part.seconds for part in of_cause),
            dollars=_sum(part.dollars for part in of_cause),
            source="; ".join(dict.fromkeys(part.source for part in of_cause if part.source)),
        )
        for cause, of_cause in by_cause.items()
        if of_cause
    ]
    paid, useful = sum(part.seconds for part in added), sum(part.seconds for part in by_cause["program"])
    return {
        "paid": paid,
        "useful": useful,
        "ratio": paid / useful if useful else None,
        "dollars": _sum(part.dollars for part in added),
        "useful_dollars": _sum(part.dollars for part in by_cause["program"]),
        "parts": added,
        "at_least": at_least,
    }


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


def kept_parts(folder: Path) -> dict[str, float]:
    """The seconds of a Job's last pods by what they went for, as these kept them in ``folder`` of the store."""
    seconds: dict[str, float] = {}
    for file in folder.glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            parts = mapping(mapping(json.loads(file.read_bytes())).get("parts"))
            for part in WORK:
                if isinstance(known := parts.get(part), int | float):
                    seconds[part] = seconds.get(part, 0.0) + known
    return seconds


def paid_words(paid: PaidUseful) -> str:
    """``GPU nodes: paid ÷ useful is 1.39; $0.11 for 575 s boot, 245 s image, 600 s kept.``.

    Where only time limits are known, also what it would be if each step took an hour.
    """
    hours = 3600 * sum(step.nodes for step in paid.steps)
    hour = f"{1 + (paid.paid - paid.useful) / hours:.2f} with an hour of each"
    by = f" with every step at its time limit, {hour}" if paid.at_least else ""
    of_work = f"paid ÷ useful is {ratio(paid)}{by}" if paid.ratio else "they are paid for nothing useful"
    beside = None if paid.dollars is None else paid.dollars - (paid.useful_dollars or 0.0)
    price = f"{money(beside)} for " if beside is not None else ""
    causes = cause_words(paid)
    return f"GPU nodes: {of_work}{f'; {price}{join(causes)}' if causes else ''}."


def ratio(paid: Paid) -> str:
    """``1.39``, ``≥ 1.39``, ``24``; empty where there is nothing useful."""
    if paid.ratio is None:
        return ""
    return f"{'≥ ' if paid.at_least else ''}{paid.ratio:.{2 if paid.ratio < 10 else 0}f}"


def cause_words(paid: Paid) -> list[str]:
    """The parts beside the programs, without those below a second: ``575 s boot``."""
    beside = [part for part in paid.parts if part.cause != "program" and part.seconds >= 1]
    return [f"{part.seconds:,.0f} s {part.cause}" for part in beside]
