"""How long ``pulumi up`` takes from nothing, and what it waits for."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from infra.review.stack import JOB, Stack
from offline.preview.model import Leg, Timeline
from offline.preview.schedule import Measured, Schedule, Span, schedule


def timeline(stack: Stack, measured: Mapping[str, Measured] | None = None) -> Timeline:
    """The timeline of an update that creates all of ``stack``. ``measured`` are times of its Jobs, by name."""
    found = schedule(stack, measured or {})
    spans = list(_critical(found))
    longest = schedule(stack, {}) if measured else found
    return Timeline(
        seconds=_end(found),
        limit=None if any(work.basis == "unknown" for work in longest.work) else _end(longest),
        critical=[leg for span in spans for leg in _legs(span)],
        remarks=list(_remarks(found, spans)),
    )


def _end(found: Schedule) -> float:
    return max((span.ends for span in found.spans.values()), default=0.0)


def _critical(found: Schedule) -> Iterator[Span]:
    """The critical path, from the first resource to the one that ends last."""
    path: list[Span] = []
    last = max(found.spans.values(), key=lambda span: span.ends, default=None)
    while last is not None:
        path.append(last)
        last = found.spans.get(last.after)
    yield from reversed(path)


def _legs(span: Span) -> Iterator[Leg]:
    begins = span.begins
    for part in span.parts:
        if part.seconds:
            yield Leg(
                name=part.name,
                type=part.type,
                begins=begins,
                seconds=part.seconds,
                basis=part.basis,
                pods=part.pods,
                at_once=part.at_once,
                together=part.together,
            )
        begins += part.seconds


def _remarks(found: Schedule, critical: list[Span]) -> Iterator[str]:
    on_path = [span.resource.urn for span in critical if span.resource.urn in found.unknown]
    elsewhere = [urn for urn in found.unknown if urn not in set(on_path)]
    for urns, where in ((on_path, "on this path"), (elsewhere, "off this path")):
        if urns:
            yield f"Not known how long, and counted as no time, {where}: {_counted(found, urns)}."
    if any(part.basis == "rehearsed" for span in critical for part in span.parts):
        yield "Times that were rehearsed are those of a CPU."
    if any(one.resource.type == two.resource.type == JOB and _queued(one, two) for one, two in pairwise(critical)):
        yield "Jobs wait for one another on a pool that has no further node."
    if found.homeless:
        yield f"No pool takes {', '.join(found.homeless)}, so these will wait until their time limit."
    if found.unplaced:
        yield f"Not known which pool takes {', '.join(found.unplaced)}: waits for nodes are not counted."


def _queued(one: Span, two: Span) -> bool:
    return one.resource.urn not in two.resource.dependencies


def _counted(found: Schedule, urns: list[str]) -> str:
    counts = Counter(found.unknown[urn].rpartition(":")[2] for urn in urns)
    return ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in sorted(counts.items()))
