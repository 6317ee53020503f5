"""A server that answers as GitHub's REST API does, for the little that the workflows ask of it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

OURS = {"login": "github-actions[bot]", "id": 7}
SOMEBODY = {"login": "somebody", "id": 8}


@dataclass
class Repository:
    """Comments as the API lists them; ``requests`` are what was asked that changes something."""

    url: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    refuse: bool = False

    def lists(self, path: str, query: dict[str, list[str]]) -> Any:
        if re.search(r"/pulls/\d+$", path):
            return self.change
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return self.comments[(page - 1) * size : page * size]


@contextmanager
def serving() -> Iterator[Repository]:
    repository = Repository()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            signed = self.headers.get("Authorization") == "Bearer t"
            if repository.refuse or not signed:
                self.send_error(403, "Resource not accessible")
                return
            if self.command == "GET":
                content = repository.lists(parts.path, parse_qs(parts.query))
            else:
                repository.requests.append((self.command, parts.path, body))
                content = {}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        do_GET = do_POST = do_PATCH = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    repository.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield repository
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def comment(number: int, body: str, author: dict[str, Any] = OURS) -> dict[str, Any]:
    return {"id": number, "body": body, "user": author}
