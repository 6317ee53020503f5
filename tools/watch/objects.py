"""Typed looks into the Kubernetes objects that a watch reads: Jobs, pods, events, conditions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.platform import GPU_RESOURCE
from infra.review.properties import Properties, at, mapping, mappings, strings, text, whole

JOB_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
INDEX_LABELS = ("batch.kubernetes.io/job-completion-index",)


def time_of(value: object) -> datetime | None:
    """A time of the API (RFC 3339); None for anything else."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def name_of(item: Properties) -> str:
    """The object's name."""
    return text(at(item, "metadata", "name"))


def uid_of(item: Properties) -> str:
    """The object's UID."""
    return text(at(item, "metadata", "uid"))


def labels_of(item: Properties) -> dict[str, str]:
    """The object's labels."""
    return strings(at(item, "metadata", "labels"))


def annotations_of(item: Properties) -> dict[str, str]:
    """The object's annotations."""
    return strings(at(item, "metadata", "annotations"))


def created(item: Properties) -> datetime | None:
    """When the object was created."""
    return time_of(at(item, "metadata", "creationTimestamp"))


def deleted(item: Properties) -> datetime | None:
    """When the object is to be gone; None where nobody deletes it."""
    return time_of(at(item, "metadata", "deletionTimestamp"))


def owners(item: Properties) -> set[str]:
    """The UIDs of the objects that it belongs to."""
    return {text(each.get("uid")) for each in mappings(at(item, "metadata", "ownerReferences"))}


def conditions(item: Properties) -> Mapping[str, Properties]:
    """The object's conditions by type."""
    return {text(each.get("type")): each for each in mappings(at(item, "status", "conditions"))}


def holds(found: Mapping[str, Properties], kind: str) -> Properties | None:
    """The condition of that type where it is true."""
    each = found.get(kind)
    return each if each is not None and each.get("status") == "True" else None


def since(condition: Properties | None) -> datetime | None:
    """When a condition came to be as it is."""
    return time_of(condition.get("lastTransitionTime")) if condition else None


def job_uid(pod: Properties) -> str:
    """The UID of the Job that the pod is of; empty where it is of none."""
    found = labels_of(pod)
    return next((found[label] for label in JOB_UID_LABELS if label in found), "")


def index_of(pod: Properties) -> int | None:
    """The pod's completion index; None where its Job counts none."""
    found = {**annotations_of(pod), **labels_of(pod)}
    return next((int(found[each]) for each in INDEX_LABELS if found.get(each, "").isdigit()), None)


def gpus_of(pod: Properties) -> int:
    """How many GPUs the pod asks for."""
    containers = mappings(at(pod, "spec", "containers"))
    return sum(whole(at(each, "resources", "limits", GPU_RESOURCE)) for each in containers)


@dataclass(frozen=True)
class Event:
    """What was said of an object: ``by`` whom, the ``reason`` in one word, and ``count`` times until ``at``."""

    uid: str
    name: str
    reason: str
    message: str
    at: datetime | None
    by: str = ""
    count: int = 1
    warning: bool = False


def event_of(item: Properties) -> Event:
    """An event of either version of the API."""
    about = mapping(item.get("involvedObject") or item.get("regarding"))
    times = (
        time_of(at(item, "series", "lastObservedTime")),
        time_of(item.get("lastTimestamp") or item.get("deprecatedLastTimestamp")),
        time_of(item.get("eventTime")),
        time_of(item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp")),
        created(item),
    )
    return Event(
        uid=text(about.get("uid")),
        name=text(about.get("name")),
        reason=text(item.get("reason")),
        message=" ".join(text(item.get("message") or item.get("note")).split()),
        at=next((each for each in times if each is not None), None),
        by=text(at(item, "source", "component")) or text(item.get("reportingComponent")),
        count=max(whole(at(item, "series", "count")), whole(item.get("count")), 1),
        warning=item.get("type") == "Warning",
    )


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def newest(events: Iterable[Event], *reasons: str) -> Event | None:
    """The event with one of these reasons that was said last."""
    found = [each for each in events if each.reason in reasons]
    return max(found, key=lambda each: each.at or _LONG_AGO, default=None)


def later(one: Event | None, other: Event | None) -> bool:
    """Whether ``one`` is there and was said after ``other``, or as the only one."""
    if one is None or other is None:
        return one is not None
    return (one.at or _LONG_AGO) > (other.at or _LONG_AGO)


def by_uid(events: Iterable[Event]) -> dict[str, Sequence[Event]]:
    """The events by the UID of the object that they are about."""
    found: dict[str, list[Event]] = {}
    for each in events:
        found.setdefault(each.uid, []).append(each)
    return dict(found)
