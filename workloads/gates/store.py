"""Check that this pod's identity can use the store: write, read back, list, rename and delete a small file.

A new identity binding takes a while to reach every server: usually 2 minutes, up to 7 or more (Google Cloud,
"Access change propagation", cloud.google.com/iam/docs/access-change-propagation; seen November 2026). So a
failure is tried again, with growing pauses, until a time limit. Run as `python -m workloads.gates.store --store
/store --prefix mnist`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import time
from pathlib import Path

from workloads.exits import OK, STORE_TROUBLE, StepError, run, stop_on_sigterm
from workloads.store import explain

FIRST_PAUSE = 1.0
"""Seconds before the second try; each further pause is twice as long."""
LONGEST_PAUSE = 20.0


def main(arguments: list[str] | None = None) -> int:
    """Run the check; returns the exit code.

    Raises:
        StepError: with STORE_TROUBLE when the last try before the limit failed.
    """
    options = _parse(arguments)
    stop_on_sigterm("the check was not finished")
    deadline = time.monotonic() + options.timeout
    pause = FIRST_PAUSE
    attempt = 1
    while True:
        try:
            probe(options.store, options.prefix)
        except OSError as error:
            reason = f"{error.filename or options.store}: {explain(error)}"
        else:
            print(
                f"The store at {options.store} can be written, read, listed, renamed in and deleted from",
                flush=True,
            )
            return OK
        left = deadline - time.monotonic()
        if left <= 0:
            raise StepError(
                STORE_TROUBLE, f"the store failed {attempt} times in {options.timeout:g} s; last: {reason}"
            )
        wait = min(pause, left)
        print(f"Try {attempt} failed: {reason}. Next try in {wait:.0f} s, {left:.0f} s left", flush=True)
        time.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE)
        attempt += 1


def probe(store: Path, prefix: str) -> None:
    """Do once what the steps do to the store, under a name of its own, below `store`/`prefix`.

    Raises:
        OSError: what the file system answered, with the name of the step that failed as part of the message.
    """
    if not store.is_dir():
        raise FileNotFoundError(2, "no such directory", str(store))
    folder = store / prefix
    folder.mkdir(parents=True, exist_ok=True)
    name = f".probe-{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(4)}"
    written, renamed = folder / name, folder / f"{name}.renamed"
    content = f"{name}\n".encode()
    try:
        with written.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _expect(written.read_bytes() == content, written, "what was read is not what was written")
        _expect(written in folder.iterdir(), folder, "the listing lacks a file that was just written")
        written.replace(renamed)
        _expect(renamed.read_bytes() == content, renamed, "the renamed file has other content")
        renamed.unlink()
        _expect(not renamed.exists(), renamed, "the deleted file is still there")
    finally:
        for leftover in (written, renamed):
            # The error that led here says more than one on the way out.
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)


def _expect(condition: bool, path: Path, problem: str) -> None:
    if not condition:
        raise OSError(0, problem, str(path))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.gates.store", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="where the store is mounted: /store")
    parser.add_argument("--prefix", default="", help="folder of the store that the pipeline uses: mnist")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until it gives up (default: 300)")
    options = parser.parse_args(arguments)
    if options.prefix.startswith("/") or ".." in Path(options.prefix).parts:
        parser.error("--prefix must be a relative path inside the store")
    return options


if __name__ == "__main__":
    run(main)
