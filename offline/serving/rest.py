"""The REST API (tensorflow.org/tfx/serving/api_rest; model_servers/http_rest_api_handler.cc of 2.21)."""

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from offline.serving import examples, json_values, predicting
from offline.serving.answers import metadata, status
from offline.serving.errors import HTTP, ServingError, invalid
from offline.serving.libraries import json_format, metadata_pb2
from offline.serving.metrics import Metrics
from offline.serving.servables import Servables
from workloads.runtime.hosts import REFUSED, is_known

LARGEST_BODY = 16 * 2**20
"""Bytes of a request's body. Reading its JSON takes up to sixty times as much memory."""

BODIES = threading.BoundedSemaphore(1)
"""Bodies above `SMALL_BODY` that are held in memory at a time; others wait for their turn."""

SMALL_BODY = 2**18
"""Bytes of a body that waits for nobody."""

BODY_SECONDS = 20.0
"""How long the sending of a body may take."""

IDLE_SECONDS = 30
"""How long a connection may say nothing."""

METRICS = "/monitoring/prometheus/metrics"

STAND_IN = (
    "This is not TensorFlow Serving. It stands in for it in a rehearsal: the same REST and gRPC over real "
    "SavedModels, computed by TensorFlow in Python, without batching and without its speed.\n"
)

_WHICH = r"(?:/versions/(\d{1,30})|/labels/([^/:]+))?"
_ASKED = re.compile(rf"(?i)/v1/models/([^/:]+){_WHICH}:(classify|regress|predict)")
_STATUS = re.compile(rf"(?i)/v1/models(?:/([^/:]+))?{_WHICH}(?:/(metadata))?")


@dataclass(frozen=True)
class Service:
    """What requests are answered from. ``metrics_path`` is empty where Prometheus reads nothing."""

    servables: Servables
    metrics: Metrics
    metrics_path: str = ""


def serve(service: Service, address: tuple[str, int]) -> ThreadingHTTPServer:
    """A server at ``address`` that answers once it is started. Raises OSError where the port is taken."""

    class Handler(_Handler):
        of = service

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    return Server(address, Handler)


class _Handler(BaseHTTPRequestHandler):
    of: Service
    protocol_version = "HTTP/1.1"
    server_version = "slipway-stand-in"
    timeout = IDLE_SECONDS
    # Headers and body in one packet: with two, each answer would wait for an acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if is_known(self.headers.get("Host")):
            return True
        self._refuse(421, REFUSED.strip())
        return False

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(200, STAND_IN, "text/plain; charset=utf-8")
        elif path == self.of.metrics_path:
            self._send(200, self.of.metrics.page(self.of.servables.loads), "text/plain")
        else:
            self._answer(path, lambda: self._get(path))

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        size = self._size()
        if size is None:
            return
        with BODIES if size > SMALL_BODY else nullcontext():
            body = self._body(size)
            if body is not None:
                self._answer(path, lambda: self._post(path, body))

    def _size(self) -> int | None:
        """The length of the body in bytes; None where the request has been refused for it."""
        length = self.headers.get("Content-Length", "0").strip()
        if self.headers.get("Transfer-Encoding"):
            self._refuse(411, "a body needs a Content-Length")
        elif not (length.isascii() and length.isdecimal()):
            self._refuse(400, "Content-Length is not a number of bytes")
        elif len(length) > 15 or int(length) > LARGEST_BODY:
            self._refuse(413, f"the body has more than {LARGEST_BODY // 2**20} MiB")
        else:
            return int(length)
        return None

    def _body(self, size: int) -> bytes | None:
        """The body; None where the request has been refused, since it does not arrive in time or whole."""
        content = bytearray()
        end = time.monotonic() + BODY_SECONDS
        try:
            while len(content) < size:
                self.connection.settimeout(max(end - time.monotonic(), 0.001))
                part = self.rfile.read1(size - len(content))
                if not part:
                    self._refuse(400, "the body ends too early")
                    return None
                content += part
        except TimeoutError:
            self._refuse(408, f"the body takes longer than {BODY_SECONDS:g} s")
            return None
        finally:
            self.connection.settimeout(self.timeout)
        return bytes(content)

    def _refuse(self, code: int, reason: str) -> None:
        """Answer with an error, and end the connection, on which a body may follow."""
        self.close_connection = True
        self._send(code, json.dumps({"error": reason}), "application/json")

    def _answer(self, path: str, answer: Callable[[], str]) -> None:
        if not path.lower().startswith("/v1/"):
            self._send(404, "", "text/plain")
            return
        found = _ASKED.fullmatch(path) or _STATUS.fullmatch(path)
        model = unquote(found[1] or "") if found else ""
        began = time.monotonic()
        try:
            text, code = answer(), "OK"
        except ServingError as error:
            text, code = json.dumps({"error": error.message}, indent=4, ensure_ascii=False), error.code
        self.of.metrics.count(model, code)
        if code == "OK":
            asked = _ASKED.fullmatch(path)
            self.of.metrics.took(model, asked[4].lower() if asked else "", "REST", time.monotonic() - began)
        self._send(200 if code == "OK" else HTTP[code], text, "application/json")

    def _get(self, path: str) -> str:
        found = _STATUS.fullmatch(path)
        if not found:
            invalid(f"Malformed request: GET {path}")
        name, number, label = _spec(found)
        if not name:
            invalid("Missing model name in request.")
        if found[4]:
            return _metadata(metadata(self.of.servables, name, number, label))
        return json_format.MessageToJson(
            status(self.of.servables, name, number), always_print_fields_with_no_presence=True, indent=1
        )

    def _post(self, path: str, body: bytes) -> str:
        found = _ASKED.fullmatch(path)
        if not found:
            invalid(f"Malformed request: POST {path}")
        name, number, label = _spec(found)
        method = found[4].lower()
        if method == "predict":
            asked = json_values.parse(body)
            _, model = self.of.servables.model(name, number, label)
            form, signature, inputs = predicting.asked(asked, model)
            return predicting.answered(form, predicting.run(model, signature, inputs))
        signature, given = examples.from_json(json_values.parse(body))
        _, model = self.of.servables.model(name, number, label)
        if method == "classify":
            return examples.classified(examples.classify(model, signature, given))
        return examples.regressed(examples.regress(model, signature, given))

    def _send(self, code: int, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Like the server, it says nothing of single requests."""


def _spec(found: re.Match[str]) -> tuple[str, int | None, str]:
    return unquote(found[1] or ""), int(found[2]) if found[2] else None, unquote(found[3] or "")


def _metadata(response: Any) -> str:
    """The JSON of metadata as the server puts it together, with the names of fields as they are declared."""
    signatures = metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    options = {"always_print_fields_with_no_presence": True, "preserving_proto_field_name": True, "indent": 1}
    model = json_format.MessageToJson(response.model_spec, **options)
    found = json_format.MessageToJson(signatures, **options)
    return f'{{\n"model_spec":{model},\n"metadata": {{"signature_def": {found}}}\n}}\n'
