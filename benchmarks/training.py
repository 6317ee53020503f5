"""Compare the training step with the tutorial it comes from: images per second, accuracy, seconds.

Each round runs both as processes of their own, one after the other on the same data, beginning with another one
each time, so that whatever else the machine does falls on both. Run as `python -m benchmarks.training`;
`--source DIR` takes a folder with MNIST's files (default: the environment variable SLIPWAY_MNIST_DIR; without
it scikit-learn's digits, each image six times).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tutorial import files

ROOT = Path(__file__).resolve().parents[1]
REPEAT_DIGITS = 6
"""scikit-learn's 1,438 training images are too few to time an epoch."""


def main() -> int:
    """Run the comparison and print a table; returns 0."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as scratch:
        data = _prepare(options.source, Path(scratch))
        count = len(np.load(files(data)[0])["labels"])
        name = "MNIST" if options.source else "digits"
        machine = f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        print(
            f"{machine}; {count:,} training images of {name}, {options.epochs} epochs, {options.rounds} rounds\n"
        )
        print("round  tutorial  Slipway  ratio   accuracy        whole command")
        rounds = []
        for number in range(options.rounds):
            output = Path(scratch) / f"model-{number}"
            runs = {
                "tutorial": lambda: _tutorial(data, options.epochs, number),  # noqa: B023
                "ours": lambda: _ours(data, output, options.epochs, number),  # noqa: B023
            }
            results = {name: runs[name]() for name in (sorted(runs) if number % 2 else sorted(runs, reverse=True))}
            rounds.append(results)
            print(_row(str(number + 1), **results, ratio=_ratio(**results)), flush=True)
        median = {
            name: {key: statistics.median(one[name][key] for one in rounds) for key in rounds[0][name]}
            for name in ("tutorial", "ours")
        }
        # Of the rounds' ratios, since only within a round do both share the machine's luck.
        ratio = statistics.median(_ratio(one["tutorial"], one["ours"]) for one in rounds)
        print(_row("median", median["tutorial"], median["ours"], ratio))
    return 0


def _ratio(tutorial: dict[str, float], ours: dict[str, float]) -> float:
    return ours["rate"] / tutorial["rate"]


def _row(name: str, tutorial: dict[str, float], ours: dict[str, float], ratio: float) -> str:
    return (
        f"{name:6} {tutorial['rate']:8,.0f} {ours['rate']:8,.0f} {ratio:6.2f}"
        f"   {tutorial['accuracy']:.4f} {ours['accuracy']:.4f}"
        f"  {tutorial['seconds']:5.1f} s {ours['seconds']:5.1f} s"
    )


def _tutorial(data: Path, epochs: int, seed: int) -> dict[str, float]:
    output = _run("-m", "benchmarks.tutorial", "--data", data, "--epochs", epochs, "--seed", seed)
    return _figures(json.loads(output.splitlines()[-1]))


def _ours(data: Path, output: Path, epochs: int, seed: int) -> dict[str, float]:
    _run(
        "workloads/mnist/train.py",
        *("--data", data, "--output", output, "--epochs", epochs, "--seed", seed, "--min-accuracy", 0),
    )
    metrics = json.loads((output / "metrics.json").read_text(encoding="utf-8"))
    metrics["images_per_second"] = [epoch["images_per_second"] for epoch in metrics["history"]]
    return _figures({**metrics, "accuracy": metrics["test"]["accuracy"]})


def _figures(result: dict[str, Any]) -> dict[str, float]:
    """`rate` is the median over the epochs but the first, in which TensorFlow builds its graphs."""
    rates = result["images_per_second"]
    return {
        "rate": statistics.median(rates[1:] or rates),
        "accuracy": result["accuracy"],
        "seconds": result["seconds"],
    }


def _prepare(source: Path | None, scratch: Path) -> Path:
    data = scratch / "data"
    chosen = ("idx", "--source", source) if source else ("digits",)
    _run("workloads/mnist/prepare.py", "--dataset", *chosen, "--output", data)
    if source:
        return data
    with np.load(files(data)[0]) as file:
        images, labels = np.tile(file["images"], (REPEAT_DIGITS, 1, 1)), np.tile(file["labels"], REPEAT_DIGITS)
    np.savez_compressed(files(data)[0], images=images, labels=labels)
    return data


def _run(*words: object) -> str:
    command = [sys.executable, *map(str, words)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    folder = os.environ.get("SLIPWAY_MNIST_DIR")
    parser.add_argument(
        "--source", type=Path, default=Path(folder) if folder else None, help="folder with IDX files"
    )
    parser.add_argument("--epochs", type=int, default=12, help="default: 12")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    options = parser.parse_args()
    if options.epochs < 2 or options.rounds < 1:
        parser.error("--epochs must be at least 2, --rounds at least 1")
    return options


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
