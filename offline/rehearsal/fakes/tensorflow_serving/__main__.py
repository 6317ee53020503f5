"""A fake of TensorFlow Serving: its REST API over real SavedModels, with predict alone.

It follows TensorFlow Serving 2.21, as its documentation (tensorflow.org/tfx/serving/api_rest and serving_config)
and its sources (github.com/tensorflow/serving) had it in November 2026. docs/serving.md says what it leaves out.
The command line is that of `tensorflow_model_server`. Flags about what it leaves out are accepted, and
named in the log. Run as
`python -m slipway.offline.rehearsal.fakes.tensorflow_serving --port=8500 --rest_api_port=8501
--model_config_file=FILE`.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

from slipway.offline.rehearsal.fakes.tensorflow_serving import rest
from slipway.offline.rehearsal.fakes.tensorflow_serving.servables import (
    Retries,
    Servables,
    ServingError,
    load,
    message,
)

grpc: Any = load("grpc")

LOOK = 0.02
"""Seconds between two looks at whether a model answers for the first time."""

IGNORED = "flags that it takes and does nothing with"


class StartError(Exception):
    """The server cannot start; the text says why, in its words where it has some."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code."""
    options, others = _parser().parse_known_args(arguments)
    log(f"fake: {rest.FAKE.strip()}")
    ignored = [*others, *(["--enable_batching"] if options.enable_batching else [])]
    if ignored:
        log(f"fake: {IGNORED}: {' '.join(ignored)}")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop_handler(stop))
    try:
        _serve(options, stop)
    except StartError as error:
        log(f"Failed to start server. Error: {error}")
        return 255
    return 0


def _stop_handler(stop: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    return handle


def log(line: str) -> None:
    """Write a line of the log."""
    # Several threads write, and `print` would write the end of the line by itself.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _serve(options: argparse.Namespace, stop: threading.Event) -> None:
    metrics = rest.Metrics()
    servables = Servables(
        options.allow_version_labels_for_unavailable_models,
        Retries(options.max_num_load_retries, options.load_retry_interval_micros / 1e6),
        log,
        lambda path, status: metrics.loads.labels(path, status).inc(),
    )
    for file in (options.batching_parameters_file, options.monitoring_config_file):
        if file is not None and not file.is_file():
            raise StartError(f"NOT_FOUND: {file}; No such file or directory")
    if options.batching_parameters_file is not None and not options.enable_batching:
        raise StartError(
            "INVALID_ARGUMENT: server_options.batching_parameters_file is set without setting "
            "server_options.enable_batching to true."
        )
    _configure(options, servables)
    threading.Thread(target=_load, args=(options, servables, stop), daemon=True).start()
    _wait(servables, stop)
    if stop.is_set():
        return
    path = _metrics_path(options.monitoring_config_file)
    address = options.address
    rpc_server = refusing_rpc(f"{address}:{options.port}")
    rpc_server.start()
    log(f"Running gRPC ModelServer at {address}:{options.port} ...")
    if options.rest_api_port:
        rest_server = rest.serve(rest.Service(servables, metrics, path), (address, options.rest_api_port))
        threading.Thread(target=rest_server.serve_forever, daemon=True).start()
        log(f"Exporting HTTP/REST API at:{address}:{options.rest_api_port} ...")
    interval = options.model_config_file_poll_wait_seconds
    if options.model_config_file is not None and interval > 0:
        threading.Thread(target=_reload, args=(options, servables, stop, interval), daemon=True).start()
    stop.wait()


def refusing_rpc(address: str) -> Any:
    """A gRPC server at ``address`` that answers every call with UNIMPLEMENTED. It has to be started.

    Raises RuntimeError where the port is taken.
    """

    def refuse(_request: bytes, context: Any) -> None:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{rest.FAKE.strip()} Ask its REST port.")

    class Handler(grpc.GenericRpcHandler):
        def service(self, _: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(refuse)

    # Without the option a second server on the port would share its connections.
    options = [("grpc.so_reuseport", 0)]
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Handler()], options=options)
    server.add_insecure_port(address)
    return server


def _configure(options: argparse.Namespace, servables: Servables) -> None:
    try:
        servables.configure(_configuration(options))
    except ServingError as error:
        raise StartError(f"{error.code}: {error.message}") from error
    except FileNotFoundError as error:
        raise StartError(f"NOT_FOUND: {error.filename}; No such file or directory") from error
    except OSError as error:
        raise StartError(str(error)) from error


def _load(options: argparse.Namespace, servables: Servables, stop: threading.Event) -> None:
    """Look at the folders of versions again and again, as often as the flag says."""
    while not stop.is_set():
        servables.poll()
        interval = max(options.file_system_poll_wait_seconds, 0) or (1 if servables.unavailable else None)
        stop.wait(interval)


def _wait(servables: Servables, stop: threading.Event) -> None:
    """Wait until each model has a version that answers: then the ports open. Others may still be loading."""
    while not stop.is_set() and (missing := servables.unavailable):
        if servables.given_up:
            raise StartError(
                f"UNKNOWN: {len(missing)} servable(s) did not become available: {{{', '.join(missing)}}}"
            )
        stop.wait(LOOK)


def _reload(options: argparse.Namespace, servables: Servables, stop: threading.Event, interval: float) -> None:
    while not stop.wait(interval):
        try:
            config = _configuration(options)
        except (OSError, ServingError) as error:
            log(f"Failed to read ModelServerConfig file: {error}")
            continue
        try:
            servables.configure(config)
        except ServingError as error:
            log(f"PollFilesystemAndReloadConfig failed to ReloadConfig: {error.message}")


def _configuration(options: argparse.Namespace) -> Any:
    """The `ModelServerConfig` that the flags name. Raises StartError, OSError, ServingError."""
    if options.model_config_file is not None:
        return message("ModelServerConfig", _text(options.model_config_file))
    if not options.model_base_path:
        raise StartError(
            "INVALID_ARGUMENT: Both server_options.model_base_path and server_options.model_config_file are empty!"
        )
    config = message("ModelServerConfig")
    config.model_config_list.config.add(name=options.model_name, base_path=options.model_base_path)
    return config


def _metrics_path(file: Path | None) -> str:
    """Where Prometheus reads; empty where the configuration does not enable it. Raises StartError."""
    if file is None:
        return ""
    try:
        config = message("MonitoringConfig", _text(file)).prometheus_config
    except ServingError as error:
        raise StartError(f"{error.code}: {error.message}") from error
    return (config.path or rest.METRICS) if config.enable else ""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _flag(text: str) -> bool:
    """A flag's value as TensorFlow's command lines have it: `--flag`, `--flag=true`, `--flag=false`."""
    if text.lower() not in ("true", "1", "false", "0"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() in ("true", "1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.offline.rehearsal.fakes.tensorflow_serving",
        description=__doc__,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--port", type=int, default=8500)
    add("--rest_api_port", type=int, default=0)
    add("--address", default="127.0.0.1", help="where it listens; a server listens on all addresses")
    add("--model_name", default="default")
    add("--model_base_path", default="")
    add("--model_config_file", type=Path)
    add("--model_config_file_poll_wait_seconds", type=float, default=0)
    add("--file_system_poll_wait_seconds", type=float, default=1)
    add("--max_num_load_retries", type=int, default=5)
    add("--load_retry_interval_micros", type=int, default=60_000_000)
    add("--batching_parameters_file", type=Path)
    add("--monitoring_config_file", type=Path)
    for name in ("enable_batching", "allow_version_labels_for_unavailable_models"):
        add(f"--{name}", type=_flag, nargs="?", const=True, default=False)
    return parser


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # gRPC's and TensorFlow's threads are not waited for: nothing is left to be written.
    os._exit(code)
