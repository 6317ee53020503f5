"""The Kubernetes objects of each cluster, and the checks of the API server that need them."""

import base64
import re
import threading
from dataclasses import dataclass, field

from infra.review.properties import mapping, strings
from infra.review.stack import Resource
from infra.schema.names import KUBERNETES_NAME_LIMIT
from offline.engine.provider_outputs import kind_of, namespace_of, object_name
from offline.engine.queue_fields import GROUP, problems

CONFIG_MAP_LIMIT = 1024 * 1024
"""Most bytes in the values of a ConfigMap (kubernetes.io/docs/concepts/configuration/configmap, November 2026)."""

STANDING_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
"""Those that every cluster has (kubernetes.io/docs/concepts/overview/working-with-objects/namespaces, 2026)."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class RefusedError(Exception):
    """The API server would not take the object, or the kubelet could not start the pod."""


def cluster_of(resource: Resource) -> str:
    """The cluster that a Kubernetes object is on: the logical name of its provider."""
    return resource.provider.rpartition("::")[2]


@dataclass
class Objects:
    """The objects of all clusters. Usable from several threads."""

    _there: dict[tuple[str, str, str, str], Resource] = field(
        default_factory=dict[tuple[str, str, str, str], Resource]
    )
    _namespaces: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stands(self, cluster: str, namespace: str) -> None:
        """Adds a namespace that exists before the stack."""
        self._namespaces.add((cluster, namespace))

    def add(self, resource: Resource, cluster: str | None = None) -> None:
        """Adds a Kubernetes object, on ``cluster`` if it is not its own; ignores any other resource."""
        kind, on = kind_of(resource.type), cluster or cluster_of(resource)
        if kind is not None:
            with self._lock:
                self._there[on, kind, namespace_of(resource), object_name(resource)] = resource

    def find(self, cluster: str, kind: str, namespace: str, name: str) -> Resource | None:
        """The object, or None."""
        with self._lock:
            return self._there.get((cluster, kind, namespace, name))

    def all_of(self, cluster: str, kind: str, namespace: str) -> list[tuple[str, Resource]]:
        """The objects of one kind in a namespace, with their names."""
        with self._lock:
            return [(key[3], found) for key, found in self._there.items() if key[:3] == (cluster, kind, namespace)]

    def in_all_namespaces(self, cluster: str, kind: str) -> list[tuple[str, str, Resource]]:
        """The objects of one kind, with their namespaces and names."""
        with self._lock:
            return [(*key[2:], found) for key, found in self._there.items() if key[:2] == (cluster, kind)]

    def admit(self, resource: Resource) -> None:
        """Raises RefusedError with the API server's reason where it would not take ``resource``."""
        kind, name, namespace = kind_of(resource.type), object_name(resource), namespace_of(resource)
        if kind is None:
            return
        if kind in {"Job", "Namespace"} and not (
            len(name) <= KUBERNETES_NAME_LIMIT and _DNS_LABEL.fullmatch(name)
        ):
            raise RefusedError(
                f"metadata.name: Invalid value: {name!r}: must be a DNS label of at most 63 characters"
            )
        if namespace and not self._has_namespace(cluster_of(resource), namespace):
            raise RefusedError(f'namespaces "{namespace}" not found')
        if resource.type.startswith(f"kubernetes:{GROUP}/") and (found := problems(kind, resource.inputs)):
            raise RefusedError(f"{kind} {name!r} is invalid: {'; '.join(found)}")
        if kind == "ConfigMap" and (size := sum(map(len, contents(resource).values()))) > CONFIG_MAP_LIMIT:
            raise RefusedError(
                f"ConfigMap {name!r} is invalid: {size} bytes, must have at most {CONFIG_MAP_LIMIT}"
            )

    def _has_namespace(self, cluster: str, name: str) -> bool:
        standing = name in STANDING_NAMESPACES or (cluster, name) in self._namespaces
        return standing or self.find(cluster, "Namespace", "", name) is not None


@dataclass(frozen=True)
class Namespace:
    """The objects of one namespace of one cluster: those that its pods can refer to."""

    objects: Objects
    cluster: str
    name: str

    def find(self, kind: str, name: str) -> Resource | None:
        """The object, or None."""
        return self.objects.find(self.cluster, kind, self.name, name)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the namespace."""
        found = self.objects.find(self.cluster, "Namespace", "", self.name)
        return strings(found.metadata.get("labels")) if found else {}

    def quotas(self) -> list[tuple[str, dict[str, str]]]:
        """Name and hard limits of each ResourceQuota."""
        return [
            (name, strings(mapping(found.inputs.get("spec")).get("hard")))
            for name, found in self.objects.all_of(self.cluster, "ResourceQuota", self.name)
        ]


def contents(config_map: Resource) -> dict[str, bytes]:
    """The values of a ConfigMap or Secret by key."""
    texts: dict[str, bytes] = {}
    secret = kind_of(config_map.type) == "Secret"
    for key, value in mapping(config_map.inputs.get("data")).items():
        texts[key] = base64.b64decode(str(value)) if secret else str(value).encode()
    for key, value in mapping(config_map.inputs.get("stringData")).items():
        texts[key] = str(value).encode()
    for key, value in mapping(config_map.inputs.get("binaryData")).items():
        texts[key] = base64.b64decode(str(value))
    return texts
