"""A Kubernetes API that answers one request, the list of nodes, to pods with a service account's token."""

import contextlib
import json
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from infra.platform import GPU_RESOURCE, Node
from offline.rehearsal.cluster_objects import Namespace
from offline.rehearsal.scheduler import Scheduler, node_name
from offline.rehearsal.service_accounts import Token, may_list_nodes

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
