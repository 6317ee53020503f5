"""A server of HTTP on the loopback that answers what a test wants, in JSON."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """``asked`` are method, path and content of its requests, ``authorizations`` their headers of that name."""

    address: str
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)


@contextlib.contextmanager
def serving(answer: Callable[[str, str, Any], tuple[int, object]]) -> Iterator[Server]:
    """A server whose answer to a method, a path and a JSON content is a status and JSON."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            server.asked.append((self.command, self.path, content))
            server.authorizations.add(self.headers["Authorization"])
            status, document = answer(self.command, self.path, content)
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *_: object) -> None:
            del format

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = Server(f"127.0.0.1:{listening.server_port}")
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
