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

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from slipway.offline.rehearsal.fakes.tensorflow_serving import predicting
from slipway.offline.rehearsal.fakes.tensorflow_serving.servables import Servables, ServingError, invalid, load
from slipway.workloads.runtime.hosts import REFUSED, is_known

json_format: Any = load("google.protobuf.json_format")

HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The HTTP status of each code (`ToHTTPStatusCode` in model_servers/http_server.cc of 2.21); of all others 500."""

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

FAKE = (
    "This is a fake of TensorFlow Serving, which a rehearsal runs. It has predict only, over REST, of real "
    "SavedModels: TensorFlow in Python computes, without batching and without the speed of the server.\n"
)

_WHICH = r"(?:/versions/(\d{1,30})|/labels/([^/:]+))?"
_CALL = re.compile(rf"(?i)/v1/models/([^/:]+){_WHICH}:(classify|regress|predict)")
_STATUS = re.compile(rf"(?i)/v1/models(?:/([^/:]+))?{_WHICH}(?:/(metadata))?")


class Metrics:
    """Counts and latencies of predictions, under the names of TensorFlow Serving.

    From servables/tensorflow/util.cc and util/prometheus_exporter.cc of 2.21, and TensorFlow's
    cc/saved_model/loader.cc. Counts are gauges here: prometheus_client ends the name of a counter with `_total`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.loads = Gauge(
            ":tensorflow:cc:saved_model:load_attempt_count",
            "Attempts to load a version.",
            ("model_path", "status"),
            registry=self.registry,
        )
        self.requests = Gauge(
            ":tensorflow:serving:request_count", "Requests.", ("model_name", "status"), registry=self.registry
        )
        self.latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Microseconds of a prediction that was answered.",
            ("model_name", "API", "entrypoint"),
            buckets=[10 * 1.8**power for power in range(33)],
            registry=self.registry,
        )


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
    server_version = "slipway-fake"
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
            self._send(200, FAKE, "text/plain; charset=utf-8")
        elif path == self.of.metrics_path:
            self._send(200, generate_latest(self.of.metrics.registry).decode(), "text/plain")
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
        match = _CALL.fullmatch(path) or _STATUS.fullmatch(path)
        model = unquote(match[1] or "") if match else ""
        began = time.monotonic()
        try:
            text, code = answer(), "OK"
        except ServingError as error:
            text, code = json.dumps({"error": error.message}, indent=4, ensure_ascii=False), error.code
        self.of.metrics.requests.labels(model, code).inc()
        if code == "OK" and _CALL.fullmatch(path):
            self.of.metrics.latency.labels(model, "predict", "REST").observe((time.monotonic() - began) * 1e6)
        self._send(200 if code == "OK" else HTTP.get(code, 500), text, "application/json")

    def _get(self, path: str) -> str:
        match = _STATUS.fullmatch(path)
        if not match:
            invalid(f"Malformed request: GET {path}")
        name, number, label = _spec(match)
        if not name:
            invalid("Missing model name in request.")
        answer = metadata if match[4] else status
        return json.dumps(answer(self.of.servables, name, number, label), indent=1, ensure_ascii=False)

    def _post(self, path: str, body: bytes) -> str:
        match = _CALL.fullmatch(path)
        if not match:
            invalid(f"Malformed request: POST {path}")
        if match[4].lower() != "predict":
            raise ServingError("UNIMPLEMENTED", FAKE.strip())
        request = predicting.parse(body)
        _, model = self.of.servables.model(*_spec(match))
        return predicting.predict(model, request)

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


def _spec(match: re.Match[str]) -> tuple[str, int | None, str]:
    return unquote(match[1] or ""), int(match[2]) if match[2] else None, unquote(match[3] or "")


def status(servables: Servables, name: str, number: int | None, _label: str) -> dict[str, Any]:
    """The state of each version of a model, or of one. Raises ServingError."""
    states: list[dict[str, Any]] = []
    for version in servables.states(name, number):
        code, text = version.error or ("OK", "")
        reason = {"error_code": code, "error_message": text}
        states.append({"version": str(version.number), "state": version.state, "status": reason})
    return {"model_version_status": states}


def metadata(servables: Servables, name: str, number: int | None, label: str) -> dict[str, Any]:
    """The signatures of a version that is loaded, and its number. Raises ServingError."""
    version, model = servables.model(name, number, label)
    options = {"always_print_fields_with_no_presence": True, "preserving_proto_field_name": True}
    signatures = {
        alias: json_format.MessageToDict(signature, **options) for alias, signature in model.signatures.items()
    }
    spec = {"name": name, "signature_name": "", "version": str(version)}
    return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}}
