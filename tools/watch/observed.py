"""What a namespace of a cluster has at one moment: Jobs, pods, events, Kueue's Workloads."""

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from infra.api_server import ApiServer, UnreachableError, UnreadableError
from infra.kubernetes.labels import PART_OF
from infra.platform import GPU_RESOURCE
from infra.review.stack import KUBERNETES_PROVIDER, Properties, at, mapping, mappings, strings, text, whole
from tools import pulumi_cli
from tools.watch.plan import Place

# The API servers of a stack's clusters, through the kubeconfigs that the stack file or the stack's state has.


TIMEOUTS = (5, 15)
"""Seconds to wait for a connection and for an answer."""


class AccessError(Exception):
    """A cluster cannot be reached. The text says why, and what to do about it."""


@dataclass
class Clusters:
    """The clusters of ``stack``. ``kubeconfig`` names a file that is used in place of what the stack has."""

    stack: str
    places: dict[str, Place]
    kubeconfig: Path | None = None
    context: str | None = None
    _servers: dict[str, ApiServer] = field(default_factory=dict[str, ApiServer])

    def server(self, cluster: str) -> ApiServer:
        """The API server of the cluster. Raises AccessError, also where the cluster is not there yet."""
        if cluster not in self._servers:
            self._servers[cluster] = self._made(self.places[cluster])
        return self._servers[cluster]

    def forget(self, cluster: str) -> None:
        """Looks the cluster's kubeconfig up anew the next time: a replaced cluster has another address."""
        self._servers.pop(cluster, None)

    def _made(self, place: Place) -> ApiServer:
        if self.kubeconfig is not None:
            return _server(str(self.kubeconfig.expanduser()), self._context(place))
        if place.kubeconfig:
            return _server(str(Path(place.kubeconfig).expanduser()), place.context)
        return _server(*self._of_state(place))

    def _context(self, place: Place) -> str | None:
        """The context of a given kubeconfig: the one that is named, else the cluster's, else the current one."""
        assert self.kubeconfig is not None
        names = {text(context.get("name")) for context in mappings(_loaded(str(self.kubeconfig)).get("contexts"))}
        if self.context:
            return self.context
        if place.name in names:
            return place.name
        if len(self.places) > 1:
            raise AccessError(
                f"the stack has the clusters {', '.join(self.places)}, and {self.kubeconfig} has no context "
                f"{place.name!r}: give it contexts with their names"
            )
        return None

    def _of_state(self, place: Place) -> tuple[str, str | None]:
        try:
            resources = pulumi_cli.resources_of(self.stack)
        except pulumi_cli.CliError as error:
            raise AccessError(f"{error}; or name a kubeconfig: KUBECONFIG_FILE=…") from error
        for resource in resources:
            if resource.get("type") != KUBERNETES_PROVIDER or resource.get("delete"):
                continue
            if text(resource.get("urn")).rpartition("::")[2] == place.name:
                inputs = mapping(resource.get("inputs"))
                found = pulumi_cli.opened(inputs.get("kubeconfig"))
                if isinstance(found, str) and found:
                    return found, text(pulumi_cli.opened(inputs.get("context"))) or None
        raise AccessError("`pulumi up` has not made it yet")


def _server(kubeconfig: str, context: str | None) -> ApiServer:
    loaded = _loaded(kubeconfig)
    names = [text(each.get("name")) for each in mappings(loaded.get("contexts"))]
    if (wanted := context or text(loaded.get("current-context"))) not in names:
        which = "its kubeconfig" if _is_text(kubeconfig) else kubeconfig
        raise AccessError(
            f"{which} has no context {wanted!r}; its contexts: {', '.join(names) or 'none'}. Name one of them: "
            "`context` of the cluster in the stack file, or KUBECONFIG_FILE=… KUBE_CONTEXT=…"
        )
    for command, hint in _plugins(loaded, context):
        if shutil.which(command) is None:
            # The client would ask without a token, and be refused for a reason that is none.
            raise AccessError(f"{command} is not on PATH, which signs in to it. {hint}".strip())
    return ApiServer(kubeconfig, context, TIMEOUTS)


def _is_text(kubeconfig: str) -> bool:
    """Whether it is the kubeconfig itself, not the path of one."""
    return "\n" in kubeconfig or kubeconfig.lstrip().startswith("{")


def _loaded(kubeconfig: str) -> dict[str, Any]:
    whole = _is_text(kubeconfig)
    try:
        found: Any = yaml.safe_load(
            kubeconfig if whole else Path(kubeconfig).expanduser().read_text(encoding="utf-8")
        )
    except OSError as error:
        raise AccessError(f"{kubeconfig} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AccessError(f"{'its kubeconfig' if whole else kubeconfig} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise AccessError(f"{'its kubeconfig' if whole else kubeconfig} is no kubeconfig")
    return dict(mapping(found))  # pyright: ignore[reportUnknownArgumentType]


def _plugins(loaded: dict[str, Any], context: str | None) -> Iterator[tuple[str, str]]:
    """The commands that sign in as the context's user, and how each is installed."""
    wanted = context or text(loaded.get("current-context"))
    users = {
        text(at(each, "context", "user"))
        for each in mappings(loaded.get("contexts"))
        if each.get("name") == wanted
    }
    for user in mappings(loaded.get("users")):
        command = text(at(user, "user", "exec", "command"))
        if user.get("name") in users and command:
            yield command, text(at(user, "user", "exec", "installHint"))


def plain(error: Exception) -> str:
    """Why a cluster could not be read, as one sentence with what to do."""
    said = " ".join(str(error).split())
    if isinstance(error, AccessError):
        return said
    if re.search(r"\b401\b|Unauthorized", said):
        return f"it does not know this login any more ({said}): sign in again"
    if re.search(r"forbidden|cannot (?:list|get)|\b403\b", said, re.IGNORECASE):
        return f"this login may not read it: {said}"
    if re.search(r"timed out|Timeout", said):
        return f"it does not answer: {said}"
    if isinstance(error, UnreachableError):
        return f"it cannot be reached: {said}"
    return said


# Typed looks into the Kubernetes objects that a watch reads: Jobs, pods, events, conditions.


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
    return next(
        (int(found[index_label]) for index_label in INDEX_LABELS if found.get(index_label, "").isdigit()), None
    )


def gpus_of(pod: Properties) -> int:
    """How many GPUs the pod asks for."""
    containers = mappings(at(pod, "spec", "containers"))
    return sum(whole(at(container, "resources", "limits", GPU_RESOURCE)) for container in containers)


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
    found = [event for event in events if event.reason in reasons]
    return max(found, key=lambda each: each.at or _LONG_AGO, default=None)


def later(one: Event | None, other: Event | None) -> bool:
    """Whether ``one`` is there and was said after ``other``, or as the only one."""
    if one is None or other is None:
        return one is not None
    return (one.at or _LONG_AGO) > (other.at or _LONG_AGO)


def by_uid(events: Iterable[Event]) -> dict[str, Sequence[Event]]:
    """The events by the UID of the object that they are about."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.uid, []).append(event)
    return dict(found)


AUTOSCALER_STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
"""Where the cluster autoscaler writes what it thinks of each node group, on GKE as on EKS
(kubernetes/autoscaler, cluster-autoscaler/FAQ.md, seen November 2026)."""

MOST_NODES = 64
"""Nodes that are asked for by their names."""

RARELY = 60.0
"""Seconds between two looks at what is refused, or changes seldom."""


@dataclass(frozen=True)
class Observed:
    """The objects of a namespace as of ``at``; ``events`` are by the UID of what they are about."""

    jobs: Sequence[Properties] = ()
    pods: Sequence[Properties] = ()
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict[str, Sequence[Event]])
    workloads: Sequence[Properties] = ()
    cron_jobs: Sequence[Properties] = ()
    autoscaler: str = ""
    gone_nodes: frozenset[str] = frozenset()
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    trouble: Sequence[str] = ()


@dataclass
class Namespace:
    """Reads a namespace again and again. What can be missing is asked for seldom once it was refused."""

    server: ApiServer
    name: str
    clock: Callable[[], float] = time.monotonic
    _later: dict[str, float] = field(default_factory=dict[str, float])

    def read(self) -> Observed:
        """What is there now. Raises UnreadableError where Jobs or pods cannot be read."""
        selector = ",".join(f"{key}={value}" for key, value in PART_OF.items())
        jobs = self._list("/apis/batch/v1", "jobs", labelSelector=selector)
        pods = self._list("/api/v1", "pods", labelSelector=selector)
        trouble: list[str] = []
        events = self._perhaps("/api/v1", "events", trouble)
        workloads = self._workloads(trouble)
        cron_jobs = self._perhaps("/apis/batch/v1", "cronjobs", trouble, labelSelector=selector)
        return Observed(
            jobs,
            pods,
            by_uid(map(event_of, events)),
            workloads,
            cron_jobs,
            self._autoscaler(),
            self._gone_nodes(pods),
            trouble=trouble,
        )

    def _list(self, root: str, kind: str, **query: str) -> list[Properties]:
        found = self.server.get(f"{root}/namespaces/{self.name}/{kind}", **query)
        return mappings((found or {}).get("items"))

    def _perhaps(self, root: str, kind: str, trouble: list[str], **query: str) -> list[Properties]:
        """What states can be told without, less truly: who may not read it is told so."""
        try:
            return self._list(root, kind, **query)
        except UnreachableError:
            raise
        except UnreadableError as error:
            trouble.append(f"{kind} of {self.name}: {plain(error)}")
            return []

    def _workloads(self, trouble: list[str]) -> list[Properties]:
        """Of a cluster without Kueue, none."""
        if self.clock() < self._later.get("workloads", 0.0):
            return []
        root = "/apis/kueue.x-k8s.io/v1beta2"
        if self.server.get(root) is None:
            self._later["workloads"] = self.clock() + RARELY / 4
            return []
        return self._perhaps(root, "workloads", trouble)

    def _gone_nodes(self, pods: Sequence[Properties]) -> frozenset[str]:
        """The nodes of pods that go on, as far as they are not there any more; nobody needs to be allowed to read
        them."""
        going = [pod for pod in pods if at(pod, "status", "phase") in {"Pending", "Running"}]
        names = dict.fromkeys(text(at(each, "spec", "nodeName")) for each in going)
        return frozenset(name for name in [*names][:MOST_NODES] if name and self._is_gone(name))

    def _is_gone(self, node: str) -> bool:
        key = f"node {node}"
        if self.clock() < max(self._later.get(key, 0.0), self._later.get("nodes", 0.0)):
            return False
        try:
            found = self.server.get(f"/api/v1/nodes/{node}")
        except UnreachableError:
            raise
        except UnreadableError:
            self._later["nodes"] = self.clock() + RARELY
            return False
        if found is not None:
            self._later[key] = self.clock() + RARELY / 4
        return found is None

    def _autoscaler(self) -> str:
        """The autoscaler's own status; nobody needs to be allowed to read it."""
        if self.clock() < self._later.get("autoscaler", 0.0):
            return ""
        try:
            found = self.server.get(AUTOSCALER_STATUS)
        except UnreachableError:
            raise
        except UnreadableError:
            found = None
        if found is None:
            self._later["autoscaler"] = self.clock() + RARELY
        return text(at(found, "data", "status"))
