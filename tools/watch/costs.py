"""What the nodes cost that the pods of a run hold, at list prices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tools.watch.plan import Expected
from tools.watch.states import Cost, PodState


@dataclass(frozen=True)
class Stay:
    """A pod on a node, from when it got it until it ended; None while it is there.

    ``rate`` is dollars an hour, None where it is not known; it is that of the pod itself with ``by_pod``.
    """

    uid: str
    node: str
    began: datetime
    ended: datetime | None
    rate: float | None
    by_pod: bool = False


def stay(pod: PodState, step: Expected) -> Stay | None:
    """The stay of a pod; None where it never had a node."""
    if not pod.node or pod.began is None:
        return None
    node = f"{step.cluster}/{pod.node}"
    return Stay(pod.uid, node, pod.began, pod.ended, step.rate, step.by_pod)


def cost(stays: Iterable[Stay], now: datetime, *, least: bool = False) -> Cost:
    """What the stays cost up to ``now``; a node on which several pods are at once is counted once."""
    known = list(stays)
    priced = [each for each in known if each.rate is not None]
    if not priced:
        return Cost(None, least=least)
    total, hourly = 0.0, 0.0
    groups: dict[str, list[Stay]] = {}
    for each in priced:
        groups.setdefault(each.uid if each.by_pod else each.node, []).append(each)
    for group in groups.values():
        rate = max(each.rate or 0.0 for each in group)
        total += rate * _covered([(each.began, each.ended or now) for each in group]) / 3600
        if any(each.ended is None for each in group):
            hourly += rate
    return Cost(total, hourly, least or len(priced) < len(known))


def _covered(spans: Sequence[tuple[datetime, datetime]]) -> float:
    """The seconds that the spans cover, overlaps counted once."""
    total, until = 0.0, None
    for begins, ends in sorted(spans):
        start = begins if until is None else max(begins, until)
        if ends > start:
            total += (ends - start).total_seconds()
        until = ends if until is None else max(until, ends)
    return total
