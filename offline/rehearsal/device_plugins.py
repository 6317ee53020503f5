"""Which nodes a declared device plugin reaches: without one, a node's GPUs cannot be given to pods.

A cluster without such a Helm release has a device plugin of its own, as GKE does.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.platform import GPU_RESOURCE, Node
from infra.review.properties import Properties, mapping, mappings, strings, texts
from infra.review.stack import Resource
from offline.engine.scheduling import Toleration, tolerations, untolerated
from offline.rehearsal.cluster_objects import cluster_of

RELEASE = "kubernetes:helm.sh/v3:Release"

CHART = "nvidia-device-plugin"
"""What the releases of its chart are called."""


@dataclass(frozen=True)
class DaemonSet:
    """Where the chart's DaemonSet runs, by the values of a release (nodeSelector, affinity and tolerations)."""

    cluster: str
    name: str
    selector: Mapping[str, str]
    terms: Sequence[Properties]
    tolerations: Sequence[Toleration]

    @classmethod
    def of(cls, release: Resource) -> "DaemonSet":
        """The DaemonSet of a release."""
        values = mapping(release.inputs.get("values"))
        affinity = mapping(mapping(values.get("affinity")).get("nodeAffinity"))
        required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
        return cls(
            cluster=cluster_of(release),
            name=str(release.inputs.get("name") or release.name),
            selector=strings(values.get("nodeSelector")),
            terms=mappings(required.get("nodeSelectorTerms")),
            tolerations=tolerations(values.get("tolerations")),
        )

    def obstacle(self, node: Node) -> str | None:
        """Why its pods cannot run on nodes like ``node``, in kube-scheduler's words; None where they can."""
        count = f"{node.count} node(s)"
        if taint := untolerated(self.tolerations, node.taints):
            return f"{count} had untolerated taint {{{taint.key}: {taint.value}}}"
        selected = all(node.labels.get(key) == value for key, value in self.selector.items())
        if not selected or (self.terms and not any(_matches(term, node.labels) for term in self.terms)):
            return f"{count} didn't match Pod's node affinity/selector"
        return None


@dataclass
class DevicePlugins:
    """The device plugins of all clusters. Usable from several threads."""

    _there: list[DaemonSet] = field(default_factory=list[DaemonSet])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, resource: Resource) -> None:
        """Adds a Helm release of the device plugin; ignores any other resource."""
        if resource.type == RELEASE and CHART in str(resource.inputs.get("name") or resource.name):
            with self._lock:
                self._there.append(DaemonSet.of(resource))

    def obstacle(self, node: Node) -> str:
        """Why no device plugin of its cluster reaches ``node``; empty where one does, or none is declared."""
        with self._lock:
            there = [each for each in self._there if each.cluster == node.cluster]
        found = {each.name: each.obstacle(node) for each in there}
        if not node.allocatable.gpus or not there or None in found.values():
            return ""
        reasons = "; ".join(f"DaemonSet {name}: {reason}" for name, reason in found.items())
        return f"no device plugin makes {GPU_RESOURCE} allocatable on pool {node.pool} ({reasons})"


def _matches(term: Properties, labels: Mapping[str, str]) -> bool:
    return all(_holds(each, labels) for each in mappings(term.get("matchExpressions")))


def _holds(expression: Properties, labels: Mapping[str, str]) -> bool:
    """A requirement of a node selector term (kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node)."""
    key, values = str(expression.get("key")), texts(expression.get("values"))
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
