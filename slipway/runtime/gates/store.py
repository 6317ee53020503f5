"""Check that the store does what the steps ask of it: write, read back, list, rename, append to and delete a file.

A new identity binding takes minutes to reach every server of a cloud. So a failure is tried again, with growing
pauses, until a time limit; only what the store cannot do, whoever asks, is said at once. Run as
`python -m slipway.runtime.gates.store --store /store --prefix churn`.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from slipway.runtime.exits import OK, STORE_TROUBLE, StepError, run, stop_on_sigterm
from slipway.runtime.store import explain

FIRST_PAUSE = 1.0
"""Seconds before the second try; each further pause is twice as long."""
LONGEST_PAUSE = 20.0

LACKING = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""How a file system says that it has no such operation. Mountpoint for S3 answers ENOSYS to a rename and EPERM to
an append (its `mountpoint-s3-fs/src/fs/error.rs`, August 2026); an identity without permission gets EACCES."""


def main(arguments: list[str] | None = None) -> int:
    """Run the check; returns the exit code.

    Raises:
        StepError: with STORE_TROUBLE when the last try before the limit failed, or when the store has no such
            operation.
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
            reason = ", ".join([f"{error.filename or options.store}: {explain(error)}", *_notes(error)])
        else:
            able = "written, read, listed, renamed in, appended to and deleted from"
            print(f"The store at {options.store} can be {able}", flush=True)
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
        OSError: what the file system answered, or what was found to be wrong.
        StepError: with STORE_TROUBLE when the store can be written and lacks an operation.
    """
    if not store.is_dir():
        raise FileNotFoundError(2, "no such directory", str(store))
    folder = store / prefix
    folder.mkdir(parents=True, exist_ok=True)
    name = f".probe-{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(4)}"
    written, renamed = folder / name, folder / f"{name}.renamed"
    content = f"{name}\n".encode()
    try:
        _write(written, content)
        _expect(written.read_bytes() == content, written, "what was read is not what was written")
        _expect(written in folder.iterdir(), folder, "the listing lacks a file that was just written")
        with _operation(store, "rename a file"):
            written.replace(renamed)
        _expect(renamed.read_bytes() == content, renamed, "the renamed file has other content")
        _expect(not written.exists(), written, "a renamed file is still there under its old name")
        with _operation(store, "append to a file"), renamed.open("ab") as stream:
            stream.write(content)
        _expect(renamed.read_bytes() == 2 * content, renamed, "what was appended is not at the file's end")
        _write(written, content)
        with _operation(store, "rename a file over another"):
            written.replace(renamed)
        _expect(renamed.read_bytes() == content, renamed, "the replaced file still has its old content")
        with _operation(store, "delete a file"):
            renamed.unlink()
        _expect(not renamed.exists(), renamed, "the deleted file is still there")
    finally:
        for leftover in (written, renamed):
            # The error that led here says more than one on the way out.
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)


def _write(file: Path, content: bytes) -> None:
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _operation(store: Path, action: str) -> Iterator[None]:
    """What is done inside is `action`, which the store may lack; trying again would not help then."""
    try:
        yield
    except OSError as error:
        if error.errno in LACKING:
            raise StepError(
                STORE_TROUBLE,
                f"the store at {store} can be written, but it cannot {action} ({error.strerror}), as the steps do "
                "to publish whole results; mount it in a way that does all that a file system does",
            ) from error
        error.add_note(f"when it was to {action}")
        raise


def _notes(error: OSError) -> list[str]:
    return getattr(error, "__notes__", [])


def _expect(condition: bool, path: Path, problem: str) -> None:
    if not condition:
        raise OSError(0, problem, str(path))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.gates.store", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="where the store is mounted: /store")
    parser.add_argument("--prefix", default="", help="folder of the store that the pipeline uses: churn")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until it gives up (default: 300)")
    options = parser.parse_args(arguments)
    if options.prefix.startswith("/") or ".." in Path(options.prefix).parts:
        parser.error("--prefix must be a relative path inside the store")
    return options


if __name__ == "__main__":
    run(main)
