"""What a namespace of a cluster has at one moment: Jobs, pods, events, and what features watch."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from slipway.command.clusters import explain
from slipway.infra.api_server import ApiServer, UnreachableError, UnreadableError
from slipway.infra.features import features
from slipway.infra.kubernetes.labels import PART_OF
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.stack import Properties, at, mappings, strings, text, whole
from slipway.infra.stack.running_jobs import time_of

JOB_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

LONG_AGO = datetime.min.replace(tzinfo=UTC)


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


def creation_time(item: Properties) -> datetime | None:
    """When the object was created."""
    return time_of(at(item, "metadata", "creationTimestamp"))


def deletion_time(item: Properties) -> datetime | None:
    """When the object is to be gone; None where nobody deletes it."""
    return time_of(at(item, "metadata", "deletionTimestamp"))


def owners(item: Properties) -> set[str]:
    """The UIDs of the objects that it belongs to."""
    return {text(owner.get("uid")) for owner in mappings(at(item, "metadata", "ownerReferences"))}


def conditions(item: Properties) -> Mapping[str, Properties]:
    """The object's conditions by type."""
    return {text(condition.get("type")): condition for condition in mappings(at(item, "status", "conditions"))}


def holds(by_type: Mapping[str, Properties], kind: str) -> Properties | None:
    """The condition of that type where it is true."""
    condition = by_type.get(kind, {})
    return condition if condition.get("status") == "True" else None


def since(condition: Properties | None) -> datetime | None:
    """When a condition came to be as it is."""
    return time_of(condition.get("lastTransitionTime")) if condition else None


def job_uid(pod: Properties) -> str:
    """The UID of the Job that the pod is of; empty where it is of none."""
    labels = labels_of(pod)
    return next((labels[label] for label in JOB_UID_LABELS if label in labels), "")


def index_of(pod: Properties) -> int | None:
    """The pod's completion index; None where its Job counts none."""
    index = {**annotations_of(pod), **labels_of(pod)}.get(INDEX_LABEL, "")
    return int(index) if index.isdigit() else None


def gpus_of(pod: Properties) -> int:
    """How many GPUs the pod asks for."""
    containers = mappings(at(pod, "spec", "containers"))
    return sum(whole(at(container, "resources", "limits", GPU_RESOURCE)) for container in containers)


def selection_of(pod: Properties) -> str:
    """The labels that the pod's node selector asks for, as a selector of the API."""
    return ",".join(f"{key}={value}" for key, value in sorted(strings(at(pod, "spec", "nodeSelector")).items()))


@dataclass(frozen=True)
class Event:
    """What was said last of an object: the ``reason`` in one word, and ``by`` whom it was said."""

    uid: str
    reason: str
    message: str
    at: datetime | None
    by: str = ""


def event_of(item: Properties) -> Event:
    """An event of either version of the API."""
    times = (
        time_of(at(item, "series", "lastObservedTime")),
        time_of(item.get("lastTimestamp") or item.get("deprecatedLastTimestamp")),
        time_of(item.get("eventTime")),
        time_of(item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp")),
        creation_time(item),
    )
    return Event(
        uid=text(at(item.get("involvedObject") or item.get("regarding"), "uid")),
        reason=text(item.get("reason")),
        message=" ".join(text(item.get("message") or item.get("note")).split()),
        at=next(filter(None, times), None),
        by=text(at(item, "source", "component")) or text(item.get("reportingComponent")),
    )


def newest(events: Iterable[Event], *reasons: str) -> Event | None:
    """The event with one of these reasons that was said last."""
    candidates = [event for event in events if event.reason in reasons]
    return max(candidates, key=lambda event: event.at or LONG_AGO, default=None)


def later(one: Event | None, other: Event | None) -> bool:
    """Whether ``one`` is there and was said after ``other``, or as the only one."""
    if one is None or other is None:
        return one is not None
    return (one.at or LONG_AGO) > (other.at or LONG_AGO)


AUTOSCALER_STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
"""Where the cluster autoscaler writes what it thinks of each node group, on GKE as on EKS
(kubernetes/autoscaler, cluster-autoscaler/FAQ.md, seen November 2026)."""

MOST_NODES = 64
"""Nodes that are asked for by their names."""

SOON, RARELY = 15.0, 60.0
"""Seconds between two looks at what changes seldom, and at what is refused."""


@dataclass(frozen=True)
class Observed:
    """The objects of a namespace as of ``at``; ``events`` are by the UID of what they are about,
    and ``beside`` is what features watch, by the plural of its kind.

    ``own_nodes`` are those with the labels which pods select that taints keep away, by `selection_of`.
    ``trouble`` says what could not be read.
    """

    jobs: Sequence[Properties] = ()
    pods: Sequence[Properties] = ()
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict[str, Sequence[Event]])
    beside: Mapping[str, Sequence[Properties]] = field(default_factory=dict[str, Sequence[Properties]])
    cron_jobs: Sequence[Properties] = ()
    autoscaler: str = ""
    gone_nodes: frozenset[str] = frozenset()
    own_nodes: Mapping[str, Sequence[Properties]] = field(default_factory=dict[str, Sequence[Properties]])
    claims: Sequence[Properties] = ()
    at: datetime = LONG_AGO
    trouble: Sequence[str] = ()


@dataclass
class Namespace:
    """Reads a namespace again and again. What can be missing is asked for seldom once it was refused."""

    server: ApiServer
    name: str
    clock: Callable[[], float] = time.monotonic
    _pauses: dict[str, float] = field(default_factory=dict[str, float])

    def read(self, now: datetime) -> Observed:
        """What is there at ``now``. Raises UnreadableError where Jobs or pods cannot be read."""
        selector = ",".join(f"{key}={value}" for key, value in PART_OF.items())
        trouble: list[str] = []
        jobs = self._list("/apis/batch/v1", "jobs", labelSelector=selector)
        pods = self._list("/api/v1", "pods", labelSelector=selector)
        events: dict[str, list[Event]] = {}
        for event in map(event_of, self._list("/api/v1", "events", trouble)):
            events.setdefault(event.uid, []).append(event)
        watched = {kind: root for feature in features() for kind, root in feature.watched.items()}
        return Observed(
            jobs,
            pods,
            dict(events),
            {
                kind: self._list(root, kind, trouble)
                for kind, root in watched.items()
                if self._ask(root, when_missing=SOON)
            },
            self._list("/apis/batch/v1", "cronjobs", trouble, labelSelector=selector),
            text(at(self._ask(AUTOSCALER_STATUS), "data", "status")),
            self._gone_nodes(pods),
            self._own_nodes(pods),
            mappings((self._ask(f"/api/v1/namespaces/{self.name}/persistentvolumeclaims") or {}).get("items")),
            now,
            trouble,
        )

    def _list(self, root: str, kind: str, trouble: list[str] | None = None, **query: str) -> list[Properties]:
        """The objects of a kind. With ``trouble`` states can be told without them, less truly: who may not read
        them is told so there."""
        try:
            answer = self.server.get(f"{root}/namespaces/{self.name}/{kind}", **query)
        except UnreadableError as error:
            if trouble is None or isinstance(error, UnreachableError):
                raise
            trouble.append(f"{kind} of {self.name}: {explain(error)}")
            return []
        return mappings((answer or {}).get("items"))

    def _ask(self, path: str, *, when_missing: float = RARELY, **query: str) -> Properties | None:
        """What nobody needs to be allowed to read: None where it is not there, or was refused a while ago."""
        if self.clock() < self._pauses.get(path, 0.0):
            return None
        try:
            answer, pause = self.server.get(path, **query), when_missing
        except UnreachableError:
            raise
        except UnreadableError:
            answer, pause = None, RARELY
        if answer is None:
            self._pauses[path] = self.clock() + pause
        return answer

    def config_map(self, name: str) -> dict[str, str]:
        """What a ConfigMap has; nothing where it is not there, or this login may not read it."""
        path = f"/api/v1/namespaces/{self.name}/configmaps/{name}"
        return strings((self._ask(path, when_missing=0.0) or {}).get("data")) if name else {}

    def _own_nodes(self, pods: Sequence[Properties]) -> dict[str, Sequence[Properties]]:
        """The nodes that have the labels which pods select that taints keep away; of those that may be read."""
        waiting = [pod for pod in pods if "taint" in text(conditions(pod).get("PodScheduled", {}).get("message"))]
        by_selection: dict[str, Sequence[Properties]] = {}
        for selection in dict.fromkeys(map(selection_of, waiting)):
            nodes = self._ask("/api/v1/nodes", labelSelector=selection, limit=str(MOST_NODES))
            if nodes is not None:
                by_selection[selection] = mappings(nodes.get("items"))
        return by_selection

    def _gone_nodes(self, pods: Sequence[Properties]) -> frozenset[str]:
        """The nodes of pods that go on, as far as they are not there any more; nobody needs to be allowed to read
        them."""
        active = [pod for pod in pods if at(pod, "status", "phase") in {"Pending", "Running"}]
        names = dict.fromkeys(text(at(pod, "spec", "nodeName")) for pod in active)
        return frozenset(name for name in [*names][:MOST_NODES] if name and self._is_gone(name))

    def _is_gone(self, node: str) -> bool:
        path = f"/api/v1/nodes/{node}"
        if self.clock() < max(self._pauses.get(path, 0.0), self._pauses.get("nodes", 0.0)):
            return False
        try:
            gone = self.server.get(path) is None
        except UnreachableError:
            raise
        except UnreadableError:
            self._pauses["nodes"] = self.clock() + RARELY
            return False
        if not gone:
            self._pauses[path] = self.clock() + SOON
        return gone
