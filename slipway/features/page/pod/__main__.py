"""Serve the page; by itself it listens on this machine alone.

Run as `python -m slipway.features.page.pod --serving http://127.0.0.1:8501 --model digits --port 8080`.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence

import uvicorn

from slipway.features.page.pod.app import PROXIES, Options, Page
from slipway.features.page.pod.limits import Bounded
from slipway.features.page.pod.pixels import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code, 2 for arguments that cannot be used."""
    words = parser()
    given = words.parse_args(arguments, Options())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    given.serving = given.serving if "://" in given.serving else f"http://{given.serving}"
    if not re.fullmatch(r"https?://[^\s/?#@]+/?", given.serving):
        words.error(f"{given.serving}: not the address of a server, such as http://127.0.0.1:8501")
    if min(given.rate, given.rate_of_all) <= 0 or not 0 < given.port < 65536:
        words.error("--rate and --rate-of-all are above 0, and --port is below 65536")
    print(f"the page is at http://{given.host}:{given.port} and asks {given.serving}", flush=True)
    uvicorn.run(
        Page(given).application(),
        host=given.host,
        port=given.port,
        http=Bounded,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The page counts proxies itself, and takes nothing from a visitor's own header.
        proxy_headers=False,
        limit_concurrency=512,
        # Longer than a proxy's own: it answers 502 where it asks on a connection that ends at that moment.
        timeout_keep_alive=620 if given.proxies else 10,
        timeout_graceful_shutdown=15,
    )
    return 0


def _variable(name: str) -> str:
    return os.environ.get(name, f"{name} is not set")


def parser() -> argparse.ArgumentParser:
    """The command line, which fills `Options`."""
    words = argparse.ArgumentParser(prog="python -m slipway.features.page.pod", description=__doc__)
    server = words.add_mutually_exclusive_group(required=True)
    server.add_argument("--serving", metavar="URL", help="the REST port of TensorFlow Serving")
    server.add_argument("--serving-variable", dest="serving", type=_variable, help="variable with host and port")
    add = words.add_argument
    add("--model", required=True, help="the model's name there")
    add("--host", help="address to listen on; default: this machine's own")
    add("--port", type=int, help="default: 8080")
    add("--title")
    add("--label", dest="labels", action="append", help="what an output means, once for each; default: 0, 1, …")
    add("--samples", type=load, help="test images: a folder of PNG files with labels.json")
    add("--ink", choices=("light", "dark"), help="what the model reads")
    add("--rate", type=float, help="predictions a second of each visitor")
    add("--rate-of-all", type=float, help="and of all together")
    add("--proxies", type=int, help=f"entries that proxies append to X-Forwarded-For; default: {PROXIES}, else 0")
    return words


if __name__ == "__main__":
    sys.exit(main())
