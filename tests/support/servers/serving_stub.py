"""A small server that speaks TensorFlow Serving's REST API, with versions that come and go as a test says.

Its model is real: it knows scikit-learn's handwritten digits by their nearest neighbours.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

Answer = Callable[[Any], Sequence[float]]
"""From one instance, as it came, to a number for each class."""


@cache
def _digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KNeighborsClassifier

    scans = load_digits()
    return KNeighborsClassifier(5, weights="distance").fit(scans.data[:1500], scans.target[:1500]), scans


def reads_digits(instance: Any) -> Sequence[float]:
    """Logits of the digits 0 to 9 for an image of (28, 28, 1), light on dark."""
    pixels = np.asarray(instance, np.uint8).reshape(28, 28)[4:24, 4:24]
    small = np.asarray(Image.fromarray(pixels).resize((8, 8), Image.Resampling.BOX), np.float64) / 255 * 16
    shares = _digits()[0].predict_proba(small.reshape(1, 64))[0]
    return [float(logit) for logit in np.log(shares + 1e-4)]


def held_out(number: int) -> tuple[Image.Image, int]:
    """One of the scans that it does not know, as an image of 28 x 28, with its digit."""
    scans = _digits()[1]
    scan = np.round(scans.images[1500 + number] * (255 / 16)).astype(np.uint8)
    image = Image.new("L", (28, 28))
    image.paste(Image.fromarray(scan).resize((20, 20), Image.Resampling.LANCZOS), (4, 4))
    return image, int(scans.target[1500 + number])


@dataclass
class ServedModel:
    """What the server says of its model. ``shape`` is the input's, the batch left out; None: no metadata.

    The connections of the next ``cut`` requests are closed instead of answered, as a server's that is killed.
    """

    name: str = "digits"
    dtype: str = "DT_UINT8"
    shape: Sequence[int] = (28, 28, 1)
    classes: int = 10
    answer: Answer = reads_digits
    versions: dict[int, str] = field(default_factory=lambda: {1: "AVAILABLE"})
    inputs: Sequence[str] = ("image",)
    seconds: float = 0.0
    cut: int = 0
    asked: list[str] = field(default_factory=list[str])


class ServingStub:
    """The server on a port of this machine; ``model`` may be changed while it runs."""

    def __init__(self, model: ServedModel | None = None, port: int = 0) -> None:
        self.model = model or ServedModel()
        served = self.model
        if served.answer is reads_digits:
            # Learning takes longer than a page waits for an answer.
            _digits()

        class Handler(_Handler):
            model = served

        self._server = _Server(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Goes away: refuses connections, and closes those that are open."""
        self._server.shutdown()
        self._server.server_close()
        self._server.disconnect()
        self._thread.join()

    def __enter__(self) -> ServingStub:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def disconnect(self) -> None:
        for connection in list(self._open):
            self.shutdown_request(connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ServedModel
    # A header and a body in two packets would wait for one another.
    wbufsize = -1

    def _is_cut(self) -> bool:
        if self.model.cut > 0:
            self.model.cut -= 1
            self.close_connection = True
            return True
        return False

    def do_GET(self) -> None:
        if self._is_cut():
            return
        match = re.fullmatch(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata)?", self.path)
        if not match or match[1] != self.model.name:
            self._say(404, {"error": f"Could not find any versions of model {match and match[1]}"})
            return
        self.model.asked.append(self.path)
        number = match[2] and int(match[2])
        ready = [version for version, state in self.model.versions.items() if state == "AVAILABLE"]
        if match[3]:
            if ready:
                self._say(200, self._metadata(int(number or max(ready))))
            else:
                self._say(404, {"error": "Servable not found for request: Latest(digits)"})
            return
        statuses = [
            {"version": str(version), "state": state, "status": {"error_code": "OK", "error_message": ""}}
            for version, state in self.model.versions.items()
            if number in {None, version}
        ]
        self._say(200 if statuses else 404, {"model_version_status": statuses})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.model.asked.append(self.path)
        if self._is_cut():
            return
        match = re.fullmatch(r"/v1/models/([^/:]+)/versions/(\d+):predict", self.path)
        if not match or self.model.versions.get(int(match[2])) != "AVAILABLE":
            self._say(404, {"error": "Servable not found for request: Specific(digits, 7)"})
            return
        time.sleep(self.model.seconds)
        try:
            rows = [list(self.model.answer(instance)) for instance in json.loads(body)["instances"]]
        except (ValueError, TypeError) as error:
            self._say(400, {"error": f"/opt/model/secret.py: {error}"})
            return
        self._say(200, {"predictions": rows})

    def _metadata(self, version: int) -> Any:
        model = self.model

        def tensor(dtype: str, shape: Sequence[int]) -> Any:
            dims = [{"size": str(size), "name": ""} for size in (-1, *shape)]
            return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": False}, "name": "x:0"}

        signature = {
            "inputs": {name: tensor(model.dtype, model.shape) for name in model.inputs},
            "outputs": {"output_0": tensor("DT_FLOAT", (model.classes,))},
            "method_name": "tensorflow/serving/predict",
        }
        return {
            "model_spec": {"name": model.name, "signature_name": "", "version": str(version)},
            "metadata": {"signature_def": {"signature_def": {"serving_default": signature}}},
        }

    def _say(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
