"""What adding up gradients among processes costs: two workers with a core each, beside one worker with one core.

Both are there all the time and train by turns, so that whatever else the machine does falls on both. Their ratio
is 2 where the collective costs nothing, and below 1 where a second worker makes training slower. Everything is on
the loopback: a network between nodes costs more, and the bytes of a step are printed to reckon with. Run as
`python -m benchmarks.collective` on a machine with two quiet cores; `--cores 2,4` names them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.collective_worker import ANSWER, NETWORKS
from benchmarks.training import processor
from slipway.offline.rehearsal.machine.processes import LOOPBACK, free_ports
from slipway.workloads.runtime.nodes.collectives import VARIABLE

ROOT = Path(__file__).resolve().parents[1]
WORTH = 1.7
"""Images per second of two workers against one from which the second one is said to be worth its core."""
PARAMETERS = {"mnist": 347_146, "resnet50": 25_583_592}
"""Trainable parameters, of four bytes each: what one step of a worker adds up."""


@dataclass(frozen=True)
class Row:
    """What came of one network and batch: images per second of each round, and the ratios of the rounds."""

    network: str
    batch: int
    steps: int
    one: list[float]
    two: list[float]

    @property
    def ratios(self) -> list[float]:
        """Two workers against one, round by round."""
        return [two / one for one, two in zip(self.one, self.two, strict=True)]


class Worker:
    """A process on a core of its own. `config` is its TF_CONFIG."""

    def __init__(self, core: int, size: int, config: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.collective_worker", str(core), str(size)],
            cwd=ROOT,
            env={**os.environ, VARIABLE: config, "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, content: dict[str, object]) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(content) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise SystemExit(f"a worker ended with exit code {self._process.wait()}")

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def workers(cores: Sequence[int], size: int) -> Iterator[tuple[list[Worker], list[Worker]]]:
    """One worker on the first core; and two, on the first and the second, which train together."""
    addresses = [f"{LOOPBACK}:{port}" for port in free_ports(2)]
    processes: list[Worker] = []
    try:
        processes.append(Worker(cores[0], size))
        for rank in range(2):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            processes.append(Worker(cores[rank], size, json.dumps(task)))
        for worker in processes:
            worker.answer()
        yield processes[:1], processes[1:]
    finally:
        for worker in processes:
            worker.kill()


def together(them: Sequence[Worker], content: dict[str, object]) -> dict[str, Any]:
    """Ask all of `them` at once; returns the answer of the slowest."""
    for worker in them:
        worker.ask(content)
    return max((worker.answer() for worker in them), key=lambda answer: answer.get("seconds", 0))


def measure(network: str, batch: int, options: argparse.Namespace, sides: Sequence[Sequence[Worker]]) -> Row:
    """Train by turns, beginning with another side in each round."""

    def ready(steps: int) -> int:
        request = {"network": network, "batch": batch, "steps": steps}
        return min(together(side, request)["steps"] for side in sides)

    steps = ready(options.least_steps)
    taken = together(sides[0], {"run": True})["seconds"]
    if taken < options.seconds / 2:
        steps = ready(min(math.ceil(steps * options.seconds / taken), options.most_steps))
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(options.rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            seconds = together(sides[side], {"run": True})["seconds"]
            rates[side].append(batch * len(sides[side]) * steps / seconds)
    return Row(network, batch, steps, *rates)


def main() -> int:
    """Measure, and print the tables; returns 0."""
    options = _parse()
    print(
        f"{processor()}, {os.cpu_count()} cores, of which {options.cores}; Python {platform.python_version()}; "
        f"{options.rounds} rounds of about {options.seconds:g} s; ResNet-50 on images of {options.image_size} x "
        f"{options.image_size}\n",
        flush=True,
    )
    print(HEAD, flush=True)
    rows: list[Row] = []
    began = time.monotonic()
    for network in options.networks:
        # A network's graphs stay in its process, so that the next one gets another.
        with workers(options.cores, options.image_size) as sides:
            for batch in options.batches[network]:
                rows.append(measure(network, batch, options, sides))
                print(line(rows[-1]), flush=True)
    print()
    for network in options.networks:
        print(verdict(network, [row for row in rows if row.network == network]))
    print(f"{time.monotonic() - began:.0f} s")
    if options.output:
        options.output.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


HEAD = (
    "| network | images per core and step | one worker, images/s | two workers, images/s | ratio | middle half | "
    "a step of one | of two |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def line(row: Row) -> str:
    """A row of the table: medians, and the middle half of the rounds' ratios."""
    one, two = statistics.median(row.one), statistics.median(row.two)
    ratios = sorted(row.ratios)
    quarter = len(ratios) // 4
    return (
        f"| {row.network} | {row.batch} | {one:,.0f} | {two:,.0f} | **{statistics.median(ratios):.2f}** | "
        f"{ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f} | {1000 * row.batch / one:.1f} ms | "
        f"{2000 * row.batch / two:.1f} ms |"
    )


def verdict(network: str, rows: Sequence[Row]) -> str:
    """From which batch on a second worker is worth its core, and below which it makes training slower."""
    ratios = {row.batch: statistics.median(row.ratios) for row in rows}
    worth = [batch for batch in ratios if all(ratios[other] >= WORTH for other in ratios if other >= batch)]
    slower = [batch for batch, ratio in ratios.items() if ratio <= 1]
    megabytes = 4 * PARAMETERS[network] / 1e6
    said = (
        f"at least {WORTH} from {min(worth)} images on"
        if worth
        else f"nowhere {WORTH}; most {max(ratios.values()):.2f}"
    )
    return (
        f"{network}: {said}{f'; slower than one worker up to {max(slower)}' if slower else ''}. A step adds up "
        f"{megabytes:,.1f} MB: {8 * megabytes / 10:.1f} ms in each direction on a network of 10 Gbit/s."
    )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collective", description=__doc__)
    usable = sorted(os.sched_getaffinity(0))
    add = parser.add_argument
    add("--cores", type=_numbers, default=usable[:2], help="two of the machine (default: the first two)")
    add("--rounds", type=int, default=9, help="default: 9")
    add("--seconds", type=float, default=2.0, help="of each turn of the one worker, about (default: 2)")
    add("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="default: both")
    add("--mnist", type=_numbers, default=[16, 32, 64, 128, 256, 512, 1024], help="images per core and step")
    add("--resnet50", type=_numbers, default=[1, 2, 4, 8, 16, 32], help="images per core and step")
    add("--image-size", type=int, default=32, help="of ResNet-50 (default: 32, the least that it takes)")
    add("--least-steps", type=int, default=3, help="of a turn (default: 3)")
    add("--most-steps", type=int, default=2000, help="of a turn (default: 2000)")
    add("--output", type=Path, help="where to write all figures as JSON")
    options = parser.parse_args()
    options.batches = {"mnist": options.mnist, "resnet50": options.resnet50}
    if len(set(options.cores)) != 2 or not set(options.cores) <= set(usable):
        parser.error(f"--cores must be two of {', '.join(map(str, usable))}")
    if options.rounds < 1 or options.seconds <= 0 or options.least_steps < 1:
        parser.error("--rounds and --least-steps must be at least 1, --seconds above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
