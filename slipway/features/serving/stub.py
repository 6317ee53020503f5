"""A stub of TensorFlow Serving, which a rehearsal runs where this machine has no `tensorflow_model_server`.

It has what Slipway's apps ask of version 2.21, over REST (tensorflow.org/tfx/serving/api_rest): status, metadata
and predictions of the version that `models.config` names. Other flags of the server do nothing. Run as
`python -m slipway.features.serving.stub --rest_api_port=8501 --model_config_file=FILE`.
"""

import argparse
import importlib
import json
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from slipway.runtime.hosts import REFUSED, is_known

# A SavedModel runs without Keras: TensorFlow looks for the package tf_keras, and goes on where there is none.
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_USE_LEGACY_KERAS": "1"}

np: Any = importlib.import_module("numpy")
tf: Any = importlib.import_module("tensorflow")
json_format: Any = importlib.import_module("google.protobuf.json_format")
saved_model_pb2: Any = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")

CONFIG = re.compile(r'name: ("[^"]*")\s+base_path: ("[^"]*").*?versions: (\d+)', re.DOTALL)
PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,9}))?(/metadata|:predict)?")


class RefusedError(Exception):
    """A request that is answered with an error: its HTTP status, and why."""


@dataclass(frozen=True)
class Version:
    """A version that is loaded: its function, and its signatures as the API shows them."""

    model: str
    number: int
    function: Any
    signatures: dict[str, Any]


def load(config: str) -> Version:
    """Load the version that a `models.config` names. Raises what TensorFlow raises of a damaged SavedModel."""
    name, base_path, number = CONFIG.findall(config)[0]
    path = Path(json.loads(base_path), number)
    loaded = tf.saved_model.load(str(path), tags=["serve"])
    content = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph = next(meta_graph for meta_graph in content.meta_graphs if "serve" in meta_graph.meta_info_def.tags)
    options = {"always_print_fields_with_no_presence": True, "preserving_proto_field_name": True}
    signatures = {key: json_format.MessageToDict(value, **options) for key, value in graph.signature_def.items()}
    return Version(json.loads(name), int(number), loaded.signatures["serving_default"], signatures)


def predict(version: Version, body: bytes) -> dict[str, Any]:
    """The answer to `instances`, a row each. Raises RefusedError."""
    try:
        rows = json.loads(body)["instances"]
        specs = version.function.structured_input_signature[1]
        named: list[Any] = [row if isinstance(row, dict) else dict.fromkeys(specs, row) for row in rows]
        columns = {name: [row[name] for row in named] for name in specs}
        arrays = {name: np.array(columns[name], specs[name].dtype.as_numpy_dtype) for name in specs}
        outputs = {name: output.numpy().tolist() for name, output in version.function(**arrays).items()}
    except (ValueError, TypeError, KeyError, OverflowError, tf.errors.OpError) as error:
        raise RefusedError(400, f"{type(error).__name__}: {error}") from error
    answers = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    return {"predictions": answers if len(outputs) > 1 else next(iter(outputs.values()))}


def answer(version: Version, path: str, body: bytes | None) -> dict[str, Any]:
    """The answer to a GET, which has no body, or to a POST. Raises RefusedError."""
    match = PATH.fullmatch(path)
    if match is None or (match[3] == ":predict") != (body is not None):
        raise RefusedError(400, f"Malformed request: {path}; this stub has status, metadata and predict alone")
    number = int(match[2] or version.number)
    if match[1] != version.model or number != version.number:
        raise RefusedError(404, f"Servable not found for request: Specific({match[1]}, {number})")
    if body is not None:
        return predict(version, body)
    if match[3]:
        said = {"signature_def": {"signature_def": version.signatures}}
        return {"model_spec": {"name": match[1], "version": str(number)}, "metadata": said}
    return {"model_version_status": [{"version": str(number), "state": "AVAILABLE", "status": {}}]}


class Handler(BaseHTTPRequestHandler):
    """Answers requests from the ``version`` that is loaded."""

    version: Version | None = None
    wbufsize = -1  # Headers and body in one packet: the second would wait for an acknowledgement.

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes | None) -> None:
        assert self.version is not None
        try:
            if not is_known(self.headers.get("Host")):
                raise RefusedError(421, REFUSED.strip())
            code, content = 200, answer(self.version, self.path, body)
        except RefusedError as error:
            code, content = error.args[0], {"error": error.args[1]}
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Like the server, it says nothing of single requests."""


def look(config: Path, poll: float) -> None:
    """Load what the file names, again and again: the version before answers while one loads, or does not load."""
    last = ""
    while True:
        try:
            if (text := config.read_text(encoding="utf-8")) != last:
                Handler.version, last = load(text), text
                print(f"Loaded version {Handler.version.number} of {Handler.version.model}", flush=True)
        except Exception as error:  # Each kind of damage of a SavedModel has one of its own.
            print(f"Loading failed: {type(error).__name__}: {error}", flush=True)
        time.sleep(poll)


def main() -> None:
    """Serve until SIGTERM; the port opens once a version answers, as the server's does."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rest_api_port", type=int, default=8501)
    parser.add_argument("--model_config_file", dest="config", type=Path, required=True)
    parser.add_argument("--model_config_file_poll_wait_seconds", dest="poll", type=float, default=1)
    options, ignored = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))  # TensorFlow's threads are not waited for.
    print(f"A stub of TensorFlow Serving, which a rehearsal runs; it ignores {' '.join(ignored)}", flush=True)
    threading.Thread(target=look, args=(options.config, options.poll), daemon=True).start()
    while Handler.version is None:
        time.sleep(0.05)
    ThreadingHTTPServer(("127.0.0.1", options.rest_api_port), Handler).serve_forever()


if __name__ == "__main__":
    main()
