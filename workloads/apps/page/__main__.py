"""Serve the page.

Run as `python -m slipway.workloads.apps.page --serving http://127.0.0.1:8501 --model digits --port 8080`.
By itself it listens on this machine alone.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import uvicorn
from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from slipway.workloads.apps.page.app import Options, application
from slipway.workloads.apps.page.connections import CONNECTIONS, CONNECTIONS_OF_ONE, protocol
from slipway.workloads.apps.page.limits import Bounds
from slipway.workloads.apps.page.middleware import Metrics
from slipway.workloads.apps.page.model import Pictures
from slipway.workloads.apps.page.samples import SamplesError, load
from slipway.workloads.runtime.hosts import KnownHosts, configured

PROXIES = "SLIPWAY_PROXIES"
"""Where a pod that people reach from outside finds what `--proxies` is."""

IDLE_SECONDS = 10
"""How long a connection may stay open on which nothing is asked."""

IDLE_SECONDS_OF_PROXY = 620
"""The same behind a proxy, longer than the proxy's own: it answers 502 where it asks on a connection that ends at
that moment. AWS's load balancer has 60 s by default; Google's has 600 s, and 620 s is its advice for servers
(cloud.google.com/load-balancing/docs/https, "Backend HTTP keepalive timeout", seen November 2026)."""

log = logging.getLogger("slipway.workloads.apps.page")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code, 2 for arguments that cannot be used."""
    parser = _parser()
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    # One line for each question which version answers would hide all others.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        options = _options(given)
    except (SamplesError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    metrics = Metrics()
    closing = None
    if given.metrics_port is not None:
        closing = _answer_prometheus(given.host, given.metrics_port, metrics)
    _serve(given, options, metrics)
    if closing is not None:
        closing.shutdown()
    return 0


def _serve(given: argparse.Namespace, options: Options, metrics: Metrics) -> None:
    log.info("the page is at http://%s:%d and asks %s", given.host, given.port, options.serving)
    uvicorn.run(
        application(options, metrics),
        host=given.host,
        port=given.port,
        http=protocol(of_one=None if given.proxies else CONNECTIONS_OF_ONE),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # The page counts proxies itself, and takes nothing from a visitor's own header.
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS_OF_PROXY if given.proxies else IDLE_SECONDS,
        timeout_graceful_shutdown=15,
    )


class _Quiet(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:
        """The log has no room for each time that Prometheus asks."""


def _answer_prometheus(host: str, port: int, metrics: Metrics) -> ThreadingWSGIServer:
    app = KnownHosts(make_wsgi_app(metrics.registry), configured())
    server = make_server(host, port, app, server_class=ThreadingWSGIServer, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _options(given: argparse.Namespace) -> Options:
    serving = given.serving
    if given.serving_variable is not None:
        serving = os.environ.get(given.serving_variable)
        if not serving:
            raise ValueError(f"--serving-variable {given.serving_variable}: the environment has no such variable")
    if "://" not in serving:
        serving = f"http://{serving}"
    if not re.fullmatch(r"https?://[^\s/?#@]+/?", serving):
        raise ValueError(f"--serving {serving}: not the address of a server, such as http://127.0.0.1:8501")
    return Options(
        serving=serving,
        model=given.model,
        title=given.title,
        labels=tuple(given.label or ()),
        pictures=Pictures(
            width=given.width,
            height=given.height,
            channels=given.channels,
            ink=given.ink,
            fit=given.fit,
            share=given.share,
            black=given.black,
            white=given.white,
        ),
        samples=load(given.samples) if given.samples else (),
        bounds=Bounds(
            rate=given.rate,
            rate_of_all=given.rate_of_all,
            body=given.largest_body,
            parallel=given.parallel,
            waiting=given.waiting,
            timeout=given.timeout,
            proxies=given.proxies,
        ),
        poll=given.poll,
    )


def _number(kind: type[float], wrong: str, holds: Callable[[float], bool]) -> Callable[[str], float]:
    """What reads a number of the command line, and refuses one for which ``holds`` is false."""

    def number(text: str) -> float:
        value = kind(text)
        if not holds(value):
            raise argparse.ArgumentTypeError(f"{text} {wrong}")
        return value

    return number


_port = _number(int, "is no port", lambda value: 0 < value < 65536)
_whole = _number(int, "is below 0", lambda value: value >= 0)
_count = _number(int, "is below 1", lambda value: value >= 1)
_positive = _number(float, "is not above 0", lambda value: 0 < value < float("inf"))
_share = _number(float, "is not above 0 and at most 1", lambda value: 0 < value <= 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.apps.page", description=__doc__)
    bounds, pictures = Bounds(), Pictures()
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--serving", metavar="URL", help="the REST port of TensorFlow Serving")
    server.add_argument("--serving-variable", metavar="NAME", help="environment variable with its host and port")
    parser.add_argument("--model", required=True, help="the model's name there")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: this machine's own")
    parser.add_argument("--port", type=_port, default=8080)
    parser.add_argument("--metrics-port", type=_port, help="where Prometheus is answered; default: nowhere")
    parser.add_argument("--title", default="Try the model")
    parser.add_argument(
        "--label", action="append", help="what an output of the model means, once for each; default: 0, 1, 2, …"
    )
    parser.add_argument("--samples", type=Path, help="held-out images: a folder, or an .npz file")
    parser.add_argument("--width", type=_count, help="of the model's images; default: what its signature says")
    parser.add_argument("--height", type=_count)
    parser.add_argument("--channels", type=int, choices=(1, 3))
    parser.add_argument(
        "--ink",
        choices=("light", "dark", "any"),
        default=pictures.ink,
        help="what the model reads",
    )
    parser.add_argument("--fit", choices=("content", "contain", "cover", "stretch"))
    parser.add_argument("--share", type=_share, default=pictures.share, help="of a side, for --fit content")
    parser.add_argument("--black", type=float, help="the number for black; default: 0")
    parser.add_argument("--white", type=float, help="the number for white; default: 255 for whole numbers, else 1")
    parser.add_argument("--rate", type=_positive, default=bounds.rate, help="predictions a second of each visitor")
    parser.add_argument("--rate-of-all", type=_positive, default=bounds.rate_of_all, help="and of all together")
    parser.add_argument("--largest-body", type=_count, default=bounds.body, metavar="BYTES")
    parser.add_argument("--parallel", type=_count, default=bounds.parallel, help="predictions asked for at a time")
    parser.add_argument("--waiting", type=_count, default=bounds.waiting, help="and how many others may wait")
    parser.add_argument("--timeout", type=_positive, default=bounds.timeout, help="seconds for a prediction")
    parser.add_argument(
        "--proxies",
        type=_whole,
        default=os.environ.get(PROXIES, "0"),
        help=f"entries at the end of X-Forwarded-For that proxies write; default: what {PROXIES} says, else 0",
    )
    parser.add_argument("--poll", type=_positive, default=1.0, help="seconds between looks at the versions")
    return parser


if __name__ == "__main__":
    sys.exit(main())
