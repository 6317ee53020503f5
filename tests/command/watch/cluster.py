"""A Kubernetes API on this machine that answers with the objects and logs of a test, and objects to put there."""

import contextlib
import json
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.servers.api_server import kubeconfig

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def before(seconds: float) -> str:
    """That long before `NOW`, as the API writes it."""
    return f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class Cluster:
    """``lists`` are by the path of the list, ``logs`` by the name of the pod; ``refused`` are answers by path."""

    lists: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict[str, list[Mapping[str, Any]]])
    single: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    logs: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    gone_nodes: set[str] = field(default_factory=set[str])
    namespace: str = "slipway"

    def put(self, *objects: Mapping[str, Any]) -> None:
        """Adds the objects, or replaces those of the same kind and name."""
        roots = {"Job": "apis/batch/v1", "CronJob": "apis/batch/v1", "Workload": "apis/kueue.x-k8s.io/v1beta2"}
        for item in objects:
            root, kind = roots.get(item["kind"], "api/v1"), f"{item['kind'].lower()}s"
            self.drop(kind, item["metadata"]["name"])
            self.lists.setdefault(f"/{root}/namespaces/{self.namespace}/{kind}", []).append(item)
            if kind == "workloads":
                self.single[f"/{root}"] = {"kind": "APIResourceList", "resources": []}

    def drop(self, kind: str, name: str) -> None:
        """Deletes an object."""
        for path, items in self.lists.items():
            if path.endswith(f"/{kind}"):
                items[:] = [item for item in items if item["metadata"]["name"] != name]

    def answer(self, path: str, query: Mapping[str, Sequence[str]]) -> tuple[int, bytes]:
        """The status and the body for a GET."""
        *_, parent, name = path.split("/")
        code, document = 404, dict[str, Any]({"kind": "Status", "message": f"{path} not found"})
        if path in self.refused:
            code, document["message"] = self.refused[path]
        elif name == "log" and parent in self.logs:
            return 200, self._log(self.logs[parent], query).encode()
        elif path in self.single:
            code, document = 200, dict(self.single[path])
        elif path in self.lists or name in {"jobs", "pods", "events", "cronjobs"}:
            code, document = 200, {"kind": "List", "items": self.lists.get(path, [])}
        elif parent == "nodes" and name not in self.gone_nodes:
            code, document = 200, {"kind": "Node"}
        return code, json.dumps(document).encode()

    @staticmethod
    def _log(text: str, query: Mapping[str, Sequence[str]]) -> str:
        lines = text.splitlines(keepends=True)
        if since := query.get("sinceTime"):
            lines = [line for line in lines if line[:19] >= since[0][:19]]
        if tail := query.get("tailLines"):
            lines = lines[-int(tail[0]) :]
        return "".join(lines if "timestamps" in query else [line.partition(" ")[2] for line in lines])


@contextlib.contextmanager
def serving(cluster: Cluster, path: Path) -> Generator[Cluster]:
    """Answers whoever uses the kubeconfig that this writes to ``path``; its current context is ``here``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            status, body = cluster.answer(url.path, parse_qs(url.query))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        path.write_text(yaml.safe_dump(kubeconfig(server.server_address[1])), encoding="utf-8")
        try:
            yield cluster
        finally:
            server.shutdown()
            thread.join()


def labels(pipeline: str, step: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/part-of": "slipway",
        "app.kubernetes.io/managed-by": "pulumi",
        "app.kubernetes.io/name": pipeline,
        "app.kubernetes.io/component": step,
    }


def condition(
    kind: str, status: str = "True", reason: str = "", message: str = "", at: float = 60
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": before(at),
    }


def job(
    name: str,
    *conditions: Mapping[str, Any],
    step: str = "mnist.train",
    pods: int = 1,
    age: float = 600,
    suspend: bool = False,
    **more: Any,
) -> dict[str, Any]:
    pipeline, _, component = step.partition(".")
    status: dict[str, Any] = {"conditions": list(conditions)}
    if not suspend:
        status["startTime"] = before(age)
    if any(condition["type"] == "Complete" for condition in conditions):
        status["completionTime"] = before(10)
    return {
        "kind": "Job",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {**labels(pipeline, component), **more.pop("labels", {})},
            "creationTimestamp": before(age),
            **more.pop("metadata", {}),
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": suspend,
            "activeDeadlineSeconds": more.pop("limit", 14400),
        },
        "status": status,
    }


def pod(
    of: Mapping[str, Any],
    suffix: str = "a",
    *conditions: Mapping[str, Any],
    phase: str = "Pending",
    node: str = "",
    state: Mapping[str, Any] | None = None,
    index: int | None = None,
    gpus: int = 0,
    age: float = 500,
    **status: Any,
) -> dict[str, Any]:
    """A pod of a Job; ``state`` is that of its container."""
    name, container = of["metadata"]["name"], of["metadata"]["labels"]["app.kubernetes.io/component"]
    pod_labels = {**of["metadata"]["labels"], "batch.kubernetes.io/controller-uid": of["metadata"]["uid"]}
    if index is not None:
        pod_labels["batch.kubernetes.io/job-completion-index"] = str(index)
    statuses = [{"name": container, "image": "example/image:1", "state": dict(state)}] if state else []
    scheduled = [condition("PodScheduled", at=age - 60)] if node else []
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{suffix}",
            "uid": f"uid-{name}-{suffix}",
            "labels": pod_labels,
            "creationTimestamp": before(age),
        },
        "spec": {
            "containers": [
                {"name": container, "image": "image:1", "resources": {"limits": {"memory": "8Gi", **limits}}}
            ],
            **({"nodeName": node} if node else {}),
        },
        "status": {
            "phase": phase,
            "conditions": [*scheduled, *conditions],
            "containerStatuses": statuses,
            **status,
        },
    }


def taken(message: str, reason: str = "TerminationByKubelet") -> dict[str, Any]:
    """That somebody took a pod away, as its condition says it."""
    return condition("DisruptionTarget", reason=reason, message=message)


TAKEN = taken("Pod was terminated in response to imminent node shutdown.")


def running(age: float = 300) -> dict[str, Any]:
    return {"running": {"startedAt": before(age)}}


def ended(code: int, message: str = "", reason: str = "Error", at: float = 20) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": before(at + 200),
            "finishedAt": before(at),
        }
    }


def unschedulable(message: str) -> dict[str, Any]:
    return condition("PodScheduled", "False", "Unschedulable", message)


def event(about: Mapping[str, Any], reason: str, message: str, at: float = 30, by: str = "") -> dict[str, Any]:
    """An event; ``at`` is how long ago it was said."""
    metadata = about["metadata"]
    return {
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{reason}.{at}"},
        "involvedObject": {"uid": metadata["uid"], "name": metadata["name"], "kind": about["kind"]},
        "reason": reason,
        "message": message,
        "lastTimestamp": before(at),
        "source": {"component": by},
        "type": "Warning",
    }


def stamped(*lines: str, age: float = 200) -> str:
    """A log with the kubelet's times, a second apart."""
    moments = (NOW - timedelta(seconds=age - number) for number in range(len(lines)))
    return "".join(
        f"{moment:%Y-%m-%dT%H:%M:%S}.{number:09d}Z {line}\n"
        for number, (moment, line) in enumerate(zip(moments, lines, strict=True))
    )
