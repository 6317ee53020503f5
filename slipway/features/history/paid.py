"""What nodes were paid for beside programs, from what the pods of results kept of their time."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, cast

from slipway.evaluated.paid import KEPT, START, WORK, Piece, once
from slipway.features.history.results import Result
from slipway.runtime.parts import PROGRAM

SECONDS_KEPT = "kept"
"""The fact of a result that says for how many seconds a node of its pool is kept after its last pod; only where
its nodes come and go."""


@dataclass
class Paid:
    """The node seconds that a result was paid for, by cause.

    ``dollars`` is their list price, None where that is not known. The last pod on one of its nodes ended at
    ``until``, in seconds since the epoch: later pods change what it was paid for.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    dollars: float | None = 0.0
    until: float = 0.0

    @property
    def paid(self) -> float:
        """All of them."""
        return sum(self.seconds.values())

    @property
    def useful(self) -> float:
        """Those of programs."""
        return self.seconds.get(PROGRAM, 0.0)

    @property
    def ratio(self) -> float | None:
        """Paid over useful; None where no program ran."""
        return self.paid / self.useful if self.useful else None


def paid_for(results: Sequence[Result]) -> dict[str, Paid]:
    """What the nodes of ``results`` were paid for, by the path of the result.

    A node's time before its first pod counts for that, and the time that it is kept for the last one, though of
    that nobody measured it: it is the setting of its pool. Results of which this is not known, or how long their
    nodes were there, are left out. A node that other pods had, too, counts for these here.
    """
    pods: dict[str, list[_Pod]] = {}
    for result in results:
        for pod in chain.from_iterable(_pod(result, usage) for usage in result.all_usage):
            pods.setdefault(pod.boot, []).append(pod)
    paid: dict[str, Paid] = {}
    for on_node in pods.values():
        if any(pod.kept is None for pod in on_node):
            continue
        on_node.sort(key=lambda pod: pod.ends)
        rate = next((pod.rate for pod in on_node if pod.rate is not None), None)
        for piece in once(_pieces(on_node)):
            of, seconds = paid.setdefault(piece.of, Paid()), piece.ends - piece.begins
            of.seconds[piece.cause] = of.seconds.get(piece.cause, 0.0) + seconds
            of.dollars = None if rate is None or of.dollars is None else of.dollars + rate * seconds / 3600
            of.until = max(of.until, on_node[-1].ends)
    return paid


@dataclass(frozen=True)
class _Pod:
    of: str
    boot: str
    booted: float
    begins: float
    ends: float
    parts: Mapping[str, float]
    kept: float | None
    rate: float | None


def _pod(result: Result, usage: Mapping[str, Any]) -> Iterable[_Pod]:
    """One pod of a result; none where it did not keep how long its node was there, or where that was no node."""
    boot, booted = str(usage.get("boot") or ""), _number(usage.get("node_booted"))
    seconds, parts = _number(usage.get("seconds")), usage.get("parts")
    if boot.partition(":")[0] in ("", "virtual", "pod") or not isinstance(parts, dict):
        return
    with contextlib.suppress(KeyError, TypeError, ValueError):
        began = datetime.fromisoformat(str(usage["began"])).timestamp()
        if booted is not None and seconds is not None:
            known = {part: _number(cast("Mapping[str, Any]", parts).get(part)) or 0.0 for part in WORK}
            ends = began + seconds
            begins, of_pool = max(ends - sum(known.values()), booted), result.node_facts(usage)
            kept, rate = _written(of_pool.get(SECONDS_KEPT)), _written(of_pool.get("rate"))
            yield _Pod(result.path, boot, booted, begins, ends, known, kept, rate)


def _pieces(pods: Sequence[_Pod]) -> Iterable[Piece]:
    """What a node's time was for, from its pods in the order of their ends. Of the parts of a pod only the lengths
    are known: they end with the pod.
    """
    first, last = min(pods, key=lambda pod: pod.begins), pods[-1]
    yield Piece(min(pod.booted for pod in pods), first.begins, START, first.of)
    for pod in pods:
        begins = pod.begins
        for part in WORK:
            yield Piece(begins, min(begins + pod.parts[part], pod.ends), part, pod.of)
            begins += pod.parts[part]
    for before, after in zip(pods, sorted(pods, key=lambda pod: pod.begins)[1:], strict=False):
        # Where others are there meanwhile, it is theirs.
        yield Piece(before.ends, after.begins, KEPT, before.of)
    yield Piece(last.ends, last.ends + (last.kept or 0.0), KEPT, last.of)


def _written(fact: object) -> float | None:
    """A number that was noted as one, or as text."""
    with contextlib.suppress(TypeError, ValueError):
        return float(cast("str", fact))
    return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
