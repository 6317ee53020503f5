"""A store that takes so many bytes a second, for benchmarks: what a process writes below it waits as for a mount.

It is no file system: in each Python process that has the folder of `environment` on its PYTHONPATH, and so in the
runner of a step and in its program, files that are opened for writing below the store let `write` take its time.
All of a process share the rate. Reading is not slowed.
"""

from __future__ import annotations

import os
from pathlib import Path

STORE, RATE = "SLOW_STORE", "SLOW_STORE_RATE"

SITE = """
import builtins, io, os, threading, time
store, rate = os.environ["SLOW_STORE"] + "/", float(os.environ["SLOW_STORE_RATE"])
opened, lock, ahead = io.open, threading.Lock(), 0.0

class Slow:
    def __init__(self, file):
        self._file = file
    def write(self, piece):
        global ahead
        written = self._file.write(piece)
        with lock:
            ahead = max(ahead, time.monotonic()) + written / rate
            pause = ahead - time.monotonic()
        time.sleep(max(pause, 0))
        return written
    def __getattr__(self, name):
        return getattr(self._file, name)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self._file.close()

def open_slowly(file, mode="r", *rest, **options):
    handle = opened(file, mode, *rest, **options)
    below = isinstance(file, (str, os.PathLike)) and os.path.abspath(os.fspath(file)).startswith(store)
    return Slow(handle) if below and ("w" in mode or "a" in mode) else handle

io.open = builtins.open = open_slowly
"""


def environment(folder: Path, store: Path, rate: float) -> dict[str, str]:
    """The environment of a process to which the store is slow: `rate` bytes a second."""
    site = folder / "slow-store"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)
    root = str(Path(__file__).resolve().parents[1])
    python = os.pathsep.join([str(site), root])
    return {**os.environ, "PYTHONPATH": python, STORE: str(store), RATE: str(rate)}
