"""A Kubernetes API server on this machine that answers GETs from a list of objects."""

import contextlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slipway.rehearse.cluster import cluster_objects

PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "RuntimeClass": "runtimeclasses",
    "StorageClass": "storageclasses",
}
CLUSTER_WIDE = {
    *("Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding"),
    *("RuntimeClass", "StorageClass"),
}
KINDS = {
    "v1": (
        *("Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap"),
        *("ServiceAccount", "ResourceQuota"),
    ),
    "batch/v1": ("Job",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "node.k8s.io/v1": ("RuntimeClass",),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding"),
    "storage.k8s.io/v1": ("StorageClass",),
}


def plural(kind: str) -> str:
    return PLURALS.get(kind, f"{kind.lower()}s")


@dataclass
class Cluster:
    """``objects`` are what is there; ``refused`` are paths that the user may not read; ``asked`` those read."""

    objects: list[Mapping[str, Any]]
    refused: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if path in self.refused:
            return 403, {"kind": "Status", "message": f'User "me" cannot get path "{path}"'}
        for version, kinds in KINDS.items():
            root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
            if path == root:
                listed = [
                    {"kind": kind, "name": plural(kind), "namespaced": kind not in CLUSTER_WIDE} for kind in kinds
                ]
                return 200, {"kind": "APIResourceList", "resources": listed}
            for kind in kinds:
                if path == f"{root}/{plural(kind)}":
                    return 200, {"items": [item for item in self.objects if item["kind"] == kind]}
            for item in self.objects:
                if item["kind"] in kinds and path == f"{root}{self._path(item)}":
                    return 200, dict(item)
        return 404, {"kind": "Status", "message": f"{path} not found"}

    @staticmethod
    def _path(item: Mapping[str, Any]) -> str:
        namespace = item["metadata"].get("namespace")
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{inside}/{plural(item['kind'])}/{item['metadata']['name']}"


@contextlib.contextmanager
def serving(
    path: Path, objects: Iterable[Mapping[str, Any]] = (), refused: tuple[str, ...] = ()
) -> Generator[Cluster]:
    """Answers whoever uses the kubeconfig that this writes to ``path``; its current context is ``here``."""
    cluster = Cluster(list(objects), refused)
    with cluster_objects.serving(lambda path_of_request, _: cluster.answer(path_of_request)) as port:
        path.write_text(yaml.safe_dump(kubeconfig(port)), encoding="utf-8")
        yield cluster


def kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "users": [{"name": "me", "user": {"token": "none"}}],
    }
