"""The objects of a cluster, and the API server that pods with a service account's token ask."""

import base64
import contextlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

from slipway.engine.provider_outputs import kind_of, namespace_of, object_name
from slipway.evaluated.scheduling import Toleration, find_untolerated, tolerations
from slipway.infra.features import features, parts
from slipway.infra.platform import GPU_RESOURCE, Node
from slipway.infra.review.stack import Properties, Resource, mapping, mappings, strings, texts
from slipway.rehearse.cluster.pods import PodSpec

CONFIG_MAP_LIMIT = 1024 * 1024
"""Most bytes in the values of a ConfigMap (kubernetes.io/docs/concepts/configuration/configmap, November 2026)."""

STANDING_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
"""Namespaces of every cluster (kubernetes.io/docs/concepts/overview/working-with-objects/namespaces, 2026)."""


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
            return [
                (key[3], object_) for key, object_ in self._there.items() if key[:3] == (cluster, kind, namespace)
            ]

    def in_all_namespaces(self, cluster: str, kind: str) -> list[tuple[str, str, Resource]]:
        """The objects of one kind, with their namespaces and names."""
        with self._lock:
            return [(*key[2:], object_) for key, object_ in self._there.items() if key[:2] == (cluster, kind)]

    def admit(self, resource: Resource) -> None:
        """Raises RefusedError with the API server's reason where it would not take ``resource``."""
        kind, name, namespace = kind_of(resource.type), object_name(resource), namespace_of(resource)
        if kind is None:
            return
        # What Slipway itself declares is taken, as its tests hold.
        refusals = chain.from_iterable(find(resource) for find in parts("policies", "refusals") if resource.place)
        if reasons := "; ".join(f"{place}: {reason}" for place, reason in refusals):
            raise RefusedError(reasons)
        if namespace and not self._has_namespace(cluster_of(resource), namespace):
            raise RefusedError(f'namespaces "{namespace}" not found')
        version = str(resource.inputs.get("apiVersion", ""))
        served = {api: kinds for feature in features() for api, kinds in feature.served.items()}
        groups = {api.partition("/")[0] for api in served}
        if version.partition("/")[0] in groups and kind not in served.get(version, ()):
            raise RefusedError(f'no matches for kind "{kind}" in version "{version}"')
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
        namespace_object = self.objects.find(self.cluster, "Namespace", "", self.name)
        return strings(namespace_object.metadata.get("labels")) if namespace_object else {}

    def quotas(self) -> list[tuple[str, dict[str, str]]]:
        """Name and hard limits of each ResourceQuota."""
        return [
            (name, strings(mapping(quota.inputs.get("spec")).get("hard")))
            for name, quota in self.objects.all_of(self.cluster, "ResourceQuota", self.name)
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


# Which nodes a declared device plugin runs on: without one, pods cannot get a node's GPUs.
#
# A cluster without such a Helm release has a device plugin of its own, as GKE does.


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
        if taint := find_untolerated(self.tolerations, node.taints):
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
            plugins = [plugin for plugin in self._there if plugin.cluster == node.cluster]
        obstacles = {plugin.name: plugin.obstacle(node) for plugin in plugins}
        if not node.allocatable.gpus or not plugins or None in obstacles.values():
            return ""
        reasons = "; ".join(f"DaemonSet {name}: {reason}" for name, reason in obstacles.items())
        return f"no device plugin makes {GPU_RESOURCE} allocatable on pool {node.pool} ({reasons})"


def _matches(term: Properties, labels: Mapping[str, str]) -> bool:
    return all(_holds(match_expression, labels) for match_expression in mappings(term.get("matchExpressions")))


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


# A Kubernetes API that answers pods with a service account's token: with the list of nodes, and with Jobs and
# ConfigMaps by their names.


FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the token of its service account, and the files that go with it."""

API = "https://kubernetes.default.svc"
"""The address of the Kubernetes API inside a cluster; on this machine it is another."""


@dataclass(frozen=True)
class Token:
    """The token of a pod, and the service account that it stands for."""

    secret: str
    namespace: str
    account: str

    @property
    def user(self) -> str:
        """The user name that the token stands for."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"


def mounts_token(pod: PodSpec, namespace: Namespace) -> bool:
    """Whether the kubelet gives ``pod`` its service account's token: what the pod says comes first."""
    if pod.automounts_token is not None:
        return pod.automounts_token
    account = namespace.find("ServiceAccount", pod.service_account)
    return account is None or account.inputs.get("automountServiceAccountToken") is not False


def mount(pod: PodSpec, namespace: Namespace, folder: Path) -> Token:
    """Makes the files below the pod's ``folder``. There is no certificate: the API here is plain HTTP."""
    token = Token(secrets.token_hex(), namespace.name, pod.service_account)
    place = folder_of(folder)
    place.mkdir(parents=True)
    (place / "token").write_text(token.secret, encoding="utf-8")
    (place / "namespace").write_text(namespace.name, encoding="utf-8")
    return token


def folder_of(folder: Path) -> Path:
    """Where the files lie for the pod whose folder is ``folder``."""
    return folder / "kube-api-access"


KINDS = {"jobs": "Job", "configmaps": "ConfigMap"}
"""What can be read by its name, by its name in URLs."""

_NAMED = re.compile(r"/apis?/(?:batch/)?v1/namespaces/([^/]+)/(jobs|configmaps)/([^/]+)")
_PODS = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:\?.*)?")


def may(token: Token, verb: str, namespace: Namespace, plural: str, name: str = "") -> bool:
    """Whether a RoleBinding of the namespace lets the token's service account ``get`` that object, or ``list``."""
    for _, binding in namespace.objects.all_of(namespace.cluster, "RoleBinding", namespace.name):
        role = namespace.find("Role", str(mapping(binding.inputs.get("roleRef")).get("name")))
        if role is None or not any(_is(token, subject) for subject in mappings(binding.inputs.get("subjects"))):
            continue
        for rule in mappings(role.inputs.get("rules")):
            names = texts(rule.get("resourceNames"))
            if (
                plural in texts(rule.get("resources"))
                and verb in texts(rule.get("verbs"))
                and name in (names or [name])
            ):
                return True
    return False


def _is(token: Token, subject: Properties) -> bool:
    return (subject.get("kind"), subject.get("namespace"), subject.get("name")) == (
        "ServiceAccount",
        token.namespace,
        token.account,
    )


POLL = 0.02
"""Seconds between two looks at whether the server is to end."""


@contextlib.contextmanager
def serving(answer: Callable[[str, str], tuple[int, Mapping[str, Any]]]) -> Generator[int]:
    """Serves JSON over HTTP on a free port of the loopback, which it gives, until the context ends.

    ``answer`` gets the path of a GET and its Authorization header; it returns the status and the body.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # The name that http.server asks for.
            status, body = answer(self.path, self.headers.get("Authorization", ""))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Writes nothing: requests are not the rehearsal's output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class ApiServer:
    """The API of the cluster that ``namespace`` is in."""

    namespace: Namespace

    @contextlib.contextmanager
    def serving(self, token: Token) -> Generator[str]:
        """Serves the API to clients that send ``token``; gives its URL."""
        with serving(lambda path, authorization: self.answer(token, authorization, path)) as port:
            yield f"http://127.0.0.1:{port}"

    def answer(self, token: Token, authorization: str, path: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Status and body of the answer to a GET of ``path``. A refusal is in the API server's words."""
        if authorization != f"Bearer {token.secret}":
            return HTTPStatus.UNAUTHORIZED, {"kind": "Status", "message": "Unauthorized"}
        if named := _NAMED.fullmatch(path):
            return self._named(token, *named.groups())
        if listed := _PODS.fullmatch(path):
            return self._pods(token, listed[1])
        message = "a rehearsal knows GET of pods of a namespace, and of Jobs and ConfigMaps by their names"
        return HTTPStatus.NOT_FOUND, {"kind": "Status", "message": message}

    def _pods(self, token: Token, namespace: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """The pods of a namespace: none, since an earlier rehearsal leaves none."""
        if namespace != self.namespace.name or not may(token, "list", self.namespace, "pods"):
            message = (
                f'pods is forbidden: User "{token.user}" cannot list resource "pods" in API group "" '
                f'in the namespace "{namespace}"'
            )
            return HTTPStatus.FORBIDDEN, {"kind": "Status", "message": message}
        return HTTPStatus.OK, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}

    def _named(self, token: Token, namespace: str, plural: str, name: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """A Job or a ConfigMap. A Job is there once it is complete: a rehearsal runs it before that."""
        if namespace != self.namespace.name or not may(token, "get", self.namespace, plural, name):
            group = "batch" if plural == "jobs" else ""
            message = (
                f'{plural} "{name}" is forbidden: User "{token.user}" cannot get resource "{plural}" in API group '
                f'"{group}" in the namespace "{namespace}"'
            )
            return HTTPStatus.FORBIDDEN, {"kind": "Status", "message": message}
        resource = self.namespace.find(KINDS[plural], name)
        if resource is None:
            return HTTPStatus.NOT_FOUND, {"kind": "Status", "message": f'{plural} "{name}" not found'}
        if plural == "jobs":
            ended = {"conditions": [{"type": "Complete", "status": "True"}]}
            return HTTPStatus.OK, {"metadata": {"name": name}, "spec": {"suspend": False}, "status": ended}
        return HTTPStatus.OK, {"metadata": {"name": name}, "data": dict(mapping(resource.inputs.get("data")))}
