"""How much longer a step takes for its checkpoints: none, by the program into the store, and copied beside it.

A program that computes for so many seconds, by sleeping, writes a checkpoint of 500 MB after each epoch; the store
takes 20 MB/s. The runner is the one of a pod. What one checkpoint adds is measured in
epochs that are shorter than those of a long training; for one of these it is computed from that. Run as
`python -m benchmarks.checkpoints`: some 7 minutes, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import os, pathlib, sys, time
folder, epochs, seconds, size = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
block = os.urandom(1 << 20)
for epoch in range(epochs):
    time.sleep(seconds)
    if folder != "none":
        began = time.monotonic()
        new = pathlib.Path(folder, "checkpoint.new")
        with open(new, "wb") as file:
            for _ in range(size >> 20):
                file.write(block)
        new.replace(pathlib.Path(folder, "checkpoint"))
        print(f"saved in {time.monotonic() - began:.2f} s", flush=True)
"""

WAYS = {
    "none": ("none", False),
    "on the node's disk, not copied": ("{disk}", False),
    "by the program, into the store": ("{output}", False),
    "copied beside the program": ("{checkpoint}", True),
}


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
"""It is no file system: in each Python process with this module, so in the runner of a step and in its program,
files that are opened for writing below the store let `write` take its time, all at one rate."""


def slowed(folder: Path, store: Path, rate: float) -> dict[str, str]:
    """The environment of a process to which the store is slow: `rate` bytes a second."""
    site = folder / "slow-store"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)
    python = os.pathsep.join([str(site), str(ROOT)])
    return {**os.environ, "PYTHONPATH": python, "SLOW_STORE": str(store), "SLOW_STORE_RATE": str(rate)}


def measure(folder: Path, to: str, options: argparse.Namespace, *, beside: bool) -> tuple[float, float, str]:
    """Seconds of the step, the most MB of memory that its runner held, and what the step printed."""
    output = folder / "store" / "out"
    code = folder / "code"
    code.mkdir(parents=True, exist_ok=True)
    (code / "train.py").write_text(PROGRAM)
    flags = ["--checkpoints", json.dumps({"grace": 120})] if beside else []
    size = options.megabytes << 20
    local = folder / "disk"
    local.mkdir()
    to = to.replace("{output}", str(output)).replace("{disk}", str(local))
    words = ["python3", "train.py", to, options.epochs, options.seconds, size]
    runner = [sys.executable, "-m", "slipway.runtime.steps.command"]
    command = [*runner, "--output", output, "--code", code, *flags, "--", *words]
    slow = {**slowed(folder, folder / "store", options.rate * 1e6), "TMPDIR": options.disk}
    began = time.monotonic()
    started = list(map(str, command))
    process = subprocess.Popen(started, env=slow, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    peak = 0.0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak = max(peak, int(line.split()[1]) / 1000)
            time.sleep(0.5)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    printed, _ = process.communicate()
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(printed.decode())
    return seconds, peak, printed.decode()


def main() -> None:
    """Measure each way, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=45.0, help="of computing in an epoch")
    parser.add_argument("--long", type=float, default=600.0, help="seconds of computing, for the computed column")
    parser.add_argument("--megabytes", type=int, default=500, help="of a checkpoint")
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on the node's fastest disk")
    parser.add_argument("--rate", type=float, default=20.0, help="MB that the store takes in a second")
    parser.add_argument("--only", action="append", choices=WAYS, help="a row of the table; default: all")
    options = parser.parse_args()
    computed = f"of none with one in {options.long:g} s, computed"
    print(f"| checkpoints | s | of none | one adds, s | {computed} | runner's memory, MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    base = 0.0
    printed: list[str] = []
    for name in options.only or WAYS:
        to, beside = WAYS[name]
        with tempfile.TemporaryDirectory(prefix="checkpoints-", dir=options.disk) as folder:
            seconds, peak, text = measure(Path(folder), to, options, beside=beside)
        base = base or seconds
        added = (seconds - base) / options.epochs
        ratios = f"{seconds / base:.3f} | {added:.2f} | {1 + added / options.long:.4f}"
        print(f"| {name} | {seconds:.1f} | {ratios} | {peak:.0f} |", flush=True)
        printed += [f"{name}: {line}" for line in text.splitlines()]
    print("\n".join(["", *printed]))


if __name__ == "__main__":
    main()
