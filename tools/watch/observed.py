"""What a namespace of a cluster has at one moment: Jobs, pods, events, Kueue's Workloads."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from infra.api_server import ApiServer, UnreachableError, UnreadableError
from infra.kubernetes.labels import PART_OF
from infra.review.properties import Properties, at, mappings, text
from tools.watch.access import plain
from tools.watch.objects import Event, by_uid, event_of

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
        going = [each for each in pods if at(each, "status", "phase") in {"Pending", "Running"}]
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
