"""A hundred random runs against a budget: real processes under the module that measures them, and their guards.

Each run has up to four pods at once on up to three nodes, prices, times for which nodes are kept, and clocks that
differ by up to ten minutes. Pods are killed, told to end, and followed by others, as on nodes that are taken back.
Pods look every five seconds in place of every 30. What a run cost is counted from the processes themselves: from
when a pod began, as it says, corrected by its clock, to when this process sees its end:

    python -m benchmarks.limits --runs 100

prints by how many intervals of the guard each limit was overrun at most, and fails at more than one.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.workloads.runtime.exits import BUDGET_SPENT
from slipway.workloads.runtime.usage.limits import Stay, cost

ROOT = Path(__file__).resolve().parents[1]

EVERY = 5.0
"""Seconds between two looks of a guard."""

GRACE = 0.5

SKEW = """
import os, time
_real, _skew = time.time, float(os.environ.get("CLOCK_SKEW", "0"))
time.time = lambda: _real() + _skew
"""
"""A `sitecustomize` with which a process has the clock of its node."""

KILLED = (-signal.SIGKILL, -signal.SIGTERM, 143)
"""Exit codes of a pod that was killed, or told to end before it could pass that on, or then."""

PROGRAM = "import time; time.sleep(600)"


@dataclass
class Node:
    """`skew` are seconds by which its clock is ahead, and `dollars` what a second of it costs."""

    name: str
    skew: float
    dollars: float
    kept: float


@dataclass
class Pod:
    """A process on a node; times are this machine's, in seconds since the epoch."""

    name: str
    node: Node
    process: subprocess.Popen[str]
    began: float
    ended: float = 0.0
    known: bool = False
    told: bool = False


@dataclass
class Run:
    """One run in its own store."""

    store: Path
    dice: random.Random
    nodes: list[Node]
    limit: float
    pods: list[Pod] = field(default_factory=list[Pod])

    @property
    def file(self) -> Path:
        """The limits of the stack."""
        return self.store / "limits.json"

    def allow(self, dollars: float) -> None:
        """Write the limits, with `dollars` for the run."""
        prices = {
            f"p.s{index}": {
                node.name: {"dollars": 3600 * node.dollars, "kept": node.kept, "by_pod": False}
                for node in self.nodes
            }
            for index in range(4)
        }
        runs = [f"p/s{index}/0123456789" for index in range(4)]
        content = {"stack": "bench", "run": dollars, "month": None, "runs": runs, "prices": prices}
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(content))
        temporary.replace(self.file)

    def start(self, index: int, node: Node) -> Pod:
        """Start a pod of the step `index`."""
        name = f"pod-{len(self.pods)}"
        words = [sys.executable, "-m", "slipway.workloads.runtime.usage.measure", "--step", f"p.s{index}"]
        words += ["--file", str(self.store / ".usage" / f"p/s{index}/0123456789" / "{index}.json")]
        words += ["--limits", str(self.file), "--pool", node.name, "--limits-every", str(EVERY)]
        words += ["--grace", str(GRACE), "--", sys.executable, "-S", "-c", PROGRAM]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.store / 'site'}:{ROOT}",
            "CLOCK_SKEW": str(node.skew),
            "POD_NAME": name,
            "SLIPWAY_VIRTUAL_NODE": node.name,
        }
        began = time.time()
        process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        pod = Pod(name, node, process, began)
        self.pods.append(pod)
        return pod

    def learn(self, index: int, pod: Pod) -> None:
        """Take over when the step's newest pod began."""
        if pod.known:
            return
        try:
            record = json.loads((self.store / ".usage" / f"p/s{index}/0123456789" / "0.json").read_text())
        except (OSError, ValueError):
            return
        if record["pod"] == pod.name:
            # `began` has whole seconds. On a node of a rehearsal a pod's life is the node's.
            pod.began = record["node_booted"] - pod.node.skew
            pod.known = True

    def spent(self, until: float) -> float:
        """What the nodes cost up to `until`, by this machine's clock, with the time that they are kept."""
        stays = [
            Stay(
                pod.node.name,
                pod.began,
                min(pod.ended or until, until) + (0.0 if pod.told else pod.node.kept),
                3600 * pod.node.dollars,
            )
            for pod in self.pods
            if pod.known
        ]
        return cost(stays)


def trial(seed: int) -> dict[str, Any]:
    """One run: by how many intervals of its guards the limit was overrun, and what became of a pod after it."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        (store / "site").mkdir()
        (store / "site" / "sitecustomize.py").write_text(SKEW)
        nodes = [
            Node(
                f"n{index}",
                dice.uniform(-600, 600),
                dice.uniform(0.1, 9.0),
                dice.choice([0.0, dice.uniform(0, 2)]),
            )
            for index in range(dice.randint(1, 3))
        ]
        run = Run(store, dice, nodes, 0.0)
        steps = dice.randint(1, 4)
        rate = sum(node.dollars for node in nodes)
        run.limit = rate * EVERY * dice.uniform(3, 6) + sum(node.dollars * node.kept for node in nodes)
        run.allow(run.limit)
        live = {index: run.start(index, dice.choice(nodes)) for index in range(steps)}
        until = time.time() + 180
        while live and time.time() < until:
            time.sleep(0.05)
            for index, pod in list(live.items()):
                run.learn(index, pod)
                if pod.process.poll() is not None:
                    pod.ended = time.time()
                    del live[index]
                    if pod.process.returncode in KILLED:
                        live[index] = run.start(index, dice.choice(nodes))
                elif pod.known and dice.random() < 0.002:
                    pod.told = True
                    pod.process.send_signal(dice.choice([signal.SIGKILL, signal.SIGTERM]))
        ended = time.time()
        codes = [pod.process.wait() for pod in run.pods]
        overrun = run.spent(ended) - run.limit
        # What a pod's start takes on this machine is not the guard's.
        held = {pod.node.name: pod.node.dollars for pod in run.pods if not pod.told}
        interval = EVERY * sum(held.values())
        late = run.start(0, nodes[0])
        code_late = late.process.wait()
        run.allow(1000 * run.limit)
        resumed = run.start(0, nodes[0])
        time.sleep(1.5 * EVERY)
        goes_on = resumed.process.poll() is None
        resumed.process.kill()
        resumed.process.wait()
        return {
            "seed": seed,
            "pods": len(codes),
            "killed": sum(code in KILLED for code in codes),
            "codes": codes,
            "intervals": overrun / interval if interval else 0.0,
            "share": overrun / run.limit,
            "late": code_late,
            "goes_on": goes_on,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="runs (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run (default: 0)")
    parser.add_argument("--at-once", type=int, default=3, help="runs at once (default: 3)")
    options = parser.parse_args(arguments)
    with ThreadPoolExecutor(options.at_once) as pool:
        trials = list(pool.map(trial, range(options.seed, options.seed + options.runs)))
    wrong = [
        entry
        for entry in trials
        if entry["intervals"] > 1.0
        or entry["late"] != BUDGET_SPENT
        or not entry["goes_on"]
        or not set(entry["codes"]) <= {BUDGET_SPENT, *KILLED}
    ]
    return report(trials, wrong, f"{sum(entry['killed'] for entry in trials)} were killed or told to end")


def report(trials: Sequence[Mapping[str, Any]], wrong: Sequence[Mapping[str, Any]], ended: str) -> int:
    """Print what trials came to, of whose pods `ended` says how many were killed; returns the exit code."""
    for entry in wrong:
        print(entry)
    worst = max(trials, key=lambda entry: entry["intervals"])
    print(
        f"{len(trials)} runs, {sum(entry['pods'] for entry in trials)} pods, of which {ended}: overrun at most "
        f"{worst['intervals']:.2f} intervals ({100 * worst['share']:.1f} % of the limit); {len(wrong)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
