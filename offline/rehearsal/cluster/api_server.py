"""A Kubernetes API that answers one request, the list of nodes, to pods with a service account's token."""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from infra.platform import GPU_RESOURCE, Node
from infra.review.stack import Properties, mapping, mappings, texts
from offline.rehearsal.cluster.cluster_objects import Namespace
from offline.rehearsal.cluster.pods import PodSpec
from offline.rehearsal.cluster.scheduler import Scheduler, node_name

# Service accounts: which pods get a token, in which files, and what it allows.


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


def may_list_nodes(token: Token, namespace: Namespace) -> bool:
    """Whether a ClusterRoleBinding of the cluster lets the token's service account list nodes."""
    objects = namespace.objects
    for _, binding in objects.all_of(namespace.cluster, "ClusterRoleBinding", ""):
        reference = mapping(binding.inputs.get("roleRef"))
        role = objects.find(namespace.cluster, "ClusterRole", "", str(reference.get("name")))
        subjects = mappings(binding.inputs.get("subjects"))
        if role is not None and any(_is(token, subject) for subject in subjects):
            rules = mappings(role.inputs.get("rules"))
            if any(
                "nodes" in texts(rule.get("resources")) and "list" in texts(rule.get("verbs")) for rule in rules
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
    """The API of the cluster that ``namespace`` is in, whose nodes are the scheduler's."""

    scheduler: Scheduler
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
        if path.partition("?")[0] != "/api/v1/nodes":
            return HTTPStatus.NOT_FOUND, {"kind": "Status", "message": "a rehearsal knows GET /api/v1/nodes alone"}
        if not may_list_nodes(token, self.namespace):
            message = (
                f'nodes is forbidden: User "{token.user}" cannot list resource "nodes" in API group "" '
                "at the cluster scope"
            )
            return HTTPStatus.FORBIDDEN, {"kind": "Status", "message": message}
        nodes = [
            _document(self.scheduler.registered(node), number)
            for node in self.scheduler.nodes
            if node.cluster == self.namespace.cluster
            for number in range(node.count)
        ]
        return HTTPStatus.OK, {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": nodes}


def _document(node: Node, number: int) -> dict[str, Any]:
    amounts = {"cpu": f"{node.allocatable.cpu}m", "memory": f"{node.allocatable.memory}Mi"}
    if node.allocatable.gpus:
        amounts[GPU_RESOURCE] = str(node.allocatable.gpus)
    return {
        "metadata": {"name": node_name(node, number), "labels": dict(node.labels)},
        "spec": {"taints": [vars(taint) for taint in node.taints]},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
