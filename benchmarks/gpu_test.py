"""What the test of a pod's GPUs takes in its own pod, beside a pod of its own for each step.

All ways run by turns, as processes of this machine, where a CPU stands in for the GPU: the seconds are those of
starting Python and importing TensorFlow, and not of scheduling, pulling an image, or copying CUDA libraries, which
a pod of its own pays on top. Run as `python -m benchmarks.gpu_test --rounds 5 --steps 10`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slipway.workloads.runtime.devices import VARIABLE
from slipway.workloads.runtime.store import Manifest

MODEL = ["--model", "nvidia-tesla-t4", "--count", "1"]


def run(module: str, *words: str) -> float:
    """Seconds that the module takes, which has to end well."""
    environment = {**os.environ, VARIABLE: "nvidia-tesla-t4:1"}
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", f"slipway.workloads.gates.{module}", *words],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.monotonic() - began


def measure(rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of each way, round by round."""
    done = folder / "done"
    done.mkdir()
    (done / "manifest.json").write_bytes(Manifest("mnist.train", {}).encode())
    seconds: dict[str, list[float]] = {}
    for index in range(rounds):
        in_pod = ["gpus", "--by", "tensorflow", *MODEL, "--passed", str(folder / f"passed-{index}")]
        program = ["--", "true"]
        ways = {
            "a pod of its own": ["accelerator", *MODEL],
            "first pod of a node": [*in_pod, *program],
            "later pod of the node": [*in_pod, *program],
            "step that has its result": [*in_pod, "--output", str(done), *program],
        }
        for way, words in ways.items():
            seconds.setdefault(way, []).append(run(*words))
    return seconds


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="on one node, for the last line (default: 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(options.rounds, Path(folder))
    medians = {way: statistics.median(taken) for way, taken in seconds.items()}
    gate, first, later, _ = medians.values()
    for way, median in medians.items():
        print(
            f"{way:26} {median:6.2f} s  {median / gate:5.2f}  ({min(seconds[way]):.2f} to {max(seconds[way]):.2f})"
        )
    together = first + (options.steps - 1) * later
    print(
        f"{options.steps} steps on one node: {together:.1f} s; testing in each pod {options.steps * first:.1f} s"
    )


if __name__ == "__main__":
    main()
