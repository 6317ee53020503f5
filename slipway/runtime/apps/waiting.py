"""Wait until the results that an app reads are in the store, and until the apps that it connects to answer.

An init container runs this before an app's program where nobody waits for the steps before the app is declared.
It ends well once all is there, and waits as long as that takes: a step that failed runs again later. Run as
`python3 -m slipway.runtime.apps.waiting --result train=DIR --any publish=DIR --server
serving=HOST:PORT`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from slipway.runtime.apps import newest
from slipway.runtime.exits import OK, StepError, parse_pairs, run, stop_on_sigterm
from slipway.runtime.store import MANIFEST, load_manifest, store_errors

PAUSE = 10.0
"""Seconds between two looks. In a bucket, each look is a few requests for each result that is not there."""

ANSWER = 2.0
"""Seconds that an app has to take a connection."""


def main(arguments: list[str] | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Return once all is there, and print what is waited for whenever that changes."""
    options = _parse(arguments)
    stop_on_sigterm("the next pod waits on")
    printed: list[str] = []
    while lacking := list(_lacking(options)):
        if lacking != printed:
            print(f"Waits for {'; '.join(lacking)}", flush=True)
        printed = lacking
        sleep(PAUSE)
    print("All that it reads is there", flush=True)
    return OK


def _lacking(options: argparse.Namespace) -> Iterator[str]:
    """What is not there, in words."""
    looks: list[tuple[str, Callable[[], object]]] = []
    for name, directory in options.results.items():
        looks.append((f"the result of {name}", partial(load_manifest, Path(directory))))
    for name, folder in options.any.items():
        looks.append((f"a result of {name}", partial(_require_any, Path(folder))))
    if options.runs:
        looks.append(("a good run", partial(_require_run, options.runs, options.run)))
    for what, look in looks:
        if why := _missing(look):
            yield f"{what} ({why})"
    for name, address in options.servers.items():
        if not _answers(address):
            yield f"the app {name} ({address} does not answer)"


def _missing(look: Callable[[], object]) -> str:
    """Why something cannot be read; empty where it can. A store that is away for a moment is waited for, too."""
    try:
        look()
    except StepError as error:
        return str(error)
    return ""


def _require_any(folder: Path) -> None:
    """Raises NotWholeError where no directory in `folder` has a result, StoreError."""
    with store_errors(folder):
        results = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if not any(not _missing(partial(load_manifest, directory)) for directory in results):
        load_manifest(results[-1] if results else folder)


def _require_run(file: Path, name: str) -> None:
    """Raises StepError where the file has no such run, StoreError."""
    newest.named(newest.read(file), name, file)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except OSError:
        return False
    return True


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m slipway.runtime.apps.waiting", description=__doc__)
    add = parser.add_argument
    add("--result", dest="results", action="append", default=[], metavar="NAME=DIR", help="a result")
    add("--any", action="append", default=[], metavar="NAME=DIR", help="the folder of the results of a step")
    add("--runs", type=Path, metavar="FILE", help="<store>/<pipeline>/newest/runs.json")
    add("--run", default=newest.NEWEST, help="the run of that file, by its name; default: any")
    add("--server", dest="servers", action="append", default=[], metavar="NAME=HOST:PORT", help="an app")
    options = parser.parse_args(arguments)
    options.results = parse_pairs(parser, "--result", options.results)
    options.any = parse_pairs(parser, "--any", options.any)
    options.servers = parse_pairs(parser, "--server", options.servers)
    return options


if __name__ == "__main__":
    run(main)
