"""Random runs of steps with several pods against a budget: on several nodes, and with a queue.

As `benchmarks.limits`, with real launchers and workers below the module that measures them, a real Valkey
server, and what stands in for the Job controller (`benchmarks.stand_in_job`): one pod that ends by the budget ends
the Job. Pods are killed on the way. Afterwards, with a higher budget, another Job goes on:

    python -m benchmarks.limits_groups --form nodes --runs 20
    python -m benchmarks.limits_groups --form queue --runs 20

prints by how many intervals of the guard each limit was overrun at most, and fails at more than one; where the Job
did not end by the budget; and where work was lost, done twice, or begun anew.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.limits import EVERY, SKEW, Node, Pod, report
from benchmarks.queue_kill_run import PASSWORD, PROGRAM, ValkeyServer
from benchmarks.stand_in_job import ROOT, StandInJob
from slipway.workloads.runtime.exits import BUDGET_SPENT
from slipway.workloads.runtime.items.items import ITEMS, RESULT
from slipway.workloads.runtime.store import check
from slipway.workloads.runtime.usage.limits import Stay, cost

GRACE = 5.0
"""Seconds that a launcher or a worker has to end its program."""

STEP, PATH = "p.train", "p/train/0123456789"
NODES, QUEUE = "nodes", "queue"
ITEM_COUNT, ITEM_SECONDS = 60, 2.0
STEPS, STEP_SECONDS = 1200, 0.1


class LimitedJob(StandInJob):
    """A Job whose pods count what they cost, each on its node. Times are this machine's, since the epoch."""

    def __init__(
        self, store: Path, form: str, nodes: Sequence[Node], server: ValkeyServer | None, uid: str
    ) -> None:
        self.store, self.nodes = store, nodes
        self.seen: list[Pod] = []
        output = store / PATH
        flags = ["--wait", 60, "--step", STEP, "--output", output]
        program = ROOT / "benchmarks" / "node_kill_plain.py"
        words = [sys.executable, program, output, STEPS, STEP_SECONDS]
        starts = store / "starts"
        environment = {
            "PYTHONPATH": f"{store / 'site'}:{ROOT}",
            "LOG_OF_STARTS": str(starts),
            "SECONDS_PER_ITEM": str(ITEM_SECONDS),
            "QUEUE_PASSWORD": PASSWORD,
        }
        super().__init__(store / uid, len(nodes), flags, words, environment=environment, uid=uid)
        if form == QUEUE:
            assert server is not None
            self.command = [
                sys.executable, "-m", "slipway.workloads.runtime.items.worker", "--step", STEP,
                "--output", str(output), "--items", f"{store}/data/*.csv", "--workers", str(len(nodes)),
                "--attempts", "2", "--lease", "20", "--mode", "parallel",
                "--queue", server.address, "--queue-password", "QUEUE_PASSWORD",
                "--", sys.executable, "-c", PROGRAM, "{item}", "{output}", "",
            ]  # fmt: skip

    def start(self, index: int) -> None:
        node = self.nodes[index]
        name = f"{self.uid}-{len(self.seen)}"
        of_pod = {"POD_NAME": name, "SLIPWAY_VIRTUAL_NODE": node.name, "CLOCK_SKEW": str(node.skew)}
        command, environment = self.command, self._environment
        self.command = [*measured(self.store), "--", *command]
        self._environment = {**environment, **of_pod}
        try:
            super().start(index)
        finally:
            self.command, self._environment = command, environment
        # What stands in for a node takes pods of all kinds: its end is that of the process.
        self.seen.append(Pod(name, node, self.pods[index], time.time()))  # pyright: ignore[reportArgumentType]

    def look_after(self) -> None:
        for pod in self.seen:
            self._learn(pod)
            if not pod.ended and pod.process.poll() is not None:
                pod.ended = time.time()
        super().look_after()

    def _learn(self, pod: Pod) -> None:
        """Take over when the pod began by its own words: what its start takes here is not the guard's."""
        index = self.nodes.index(pod.node)
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((self.store / ".usage" / PATH / f"{index}.json").read_text())
            if not pod.known and record["pod"] == pod.name:
                pod.began, pod.known = record["node_booted"] - pod.node.skew, True

    def lose(self, index: int) -> None:
        """Kill all processes of a pod, as with its node."""
        for pod in self.seen:
            pod.told = pod.told or pod.process is self.pods[index]
        for process in self.processes(index):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def spent(self) -> float:
        """What the nodes cost, with the time that they are kept."""
        return cost(
            Stay(
                pod.node.name, pod.began, pod.ended + (0.0 if pod.told else pod.node.kept), 3600 * pod.node.dollars
            )
            for pod in self.seen
            if pod.known
        )


def measured(store: Path) -> list[str]:
    """The command that measures a program of the step, and keeps the limits of the store."""
    words = [sys.executable, "-m", "slipway.workloads.runtime.usage.measure", "--step", STEP, "--pool", "pool"]
    words += ["--file", str(store / ".usage" / PATH / "{index}.json"), "--limits", str(store / "limits.json")]
    return [*words, "--limits-every", str(EVERY), "--grace", str(GRACE)]


def allow(store: Path, node: Node, dollars: float) -> None:
    """Write the limits, with `dollars` for the run, and the price of `node` for all."""
    price = {"dollars": 3600 * node.dollars, "kept": node.kept, "by_pod": False}
    content = {"stack": "bench", "run": dollars, "month": None, "runs": [PATH], "prices": {STEP: {"pool": price}}}
    temporary = store / "limits.json.tmp"
    temporary.write_text(json.dumps(content))
    temporary.replace(store / "limits.json")


def trial(form: str, seed: int) -> dict[str, Any]:
    """One run: by how many intervals of its guards the limit was overrun, and what became of the work."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        store = Path(folder)
        for name in ("site", "data", PATH):
            (store / name).mkdir(parents=True)
        (store / "site" / "sitecustomize.py").write_text(SKEW)
        for number in range(ITEM_COUNT):
            (store / "data" / f"day-{number:03}.csv").write_text(f"rows of {number}\n")
        server = ValkeyServer(store / "valkey") if form == QUEUE else None
        if server is not None:
            server.start()
            stack.callback(server.kill)
        price, kept = dice.uniform(0.1, 9.0), dice.choice([0.0, dice.uniform(0, 2)])
        nodes = [Node(f"n{index}", dice.uniform(-600, 600), price, kept) for index in range(dice.randint(2, 3))]
        limit = len(nodes) * price * (EVERY * dice.uniform(3, 6) + GRACE + kept)
        allow(store, nodes[0], limit)
        job = LimitedJob(store, form, nodes, server, "first")
        stack.callback(job.kill)
        job.start_all()
        until = time.time() + 180
        while not job.is_over and time.time() < until:
            job.look_after()
            time.sleep(0.05)
            if dice.random() < 0.004 and job.failed is None:
                job.lose(dice.randrange(len(nodes)))
        job.look_after()
        held = {pod.node.name: pod.node.dollars for pod in job.seen if not pod.told}
        interval = EVERY * sum(held.values())
        overrun = job.spent() - limit
        done = progress(store, form)
        allow(store, nodes[0], 1000 * limit)
        again = LimitedJob(store, form, nodes, server, "second")
        stack.callback(again.kill)
        again.start_all()
        return {
            "seed": seed,
            "pods": len(job.seen),
            "lost": sum(pod.told for pod in job.seen),
            "ended": job.failed,
            "left": len(job.left_behind()),
            "records": len(list((store / ".usage" / PATH).glob("[0-2].json"))) == len(nodes),
            "intervals": overrun / interval if interval else 0.0,
            "share": overrun / limit,
            "goes_on": goes_on(store, form, again, done),
        }


def progress(store: Path, form: str) -> Any:
    """What the first Job has left: the items with a result, or the steps that the checkpoint has."""
    (store / "starts").rename(store / "starts-before")
    if form == QUEUE:
        return {file.parent.name for file in (store / PATH).glob(f"*/{RESULT}")}
    return json.loads((store / PATH / "checkpoint.json").read_text())["done"]


def goes_on(store: Path, form: str, job: LimitedJob, done: Any) -> bool:
    """Whether the second Job goes on where the first one ended, and comes to its end with all items, each once."""
    if form == NODES:
        # Its end is that of the step, and tells nothing of the budget.
        end = time.time() + 60
        while not (store / "starts").exists() and time.time() < end:
            job.look_after()
            time.sleep(0.1)
        begun = [json.loads(line)["from"] for line in (store / "starts").read_text().splitlines()]
        return done > 0 and all(start >= done for start in begun)
    job.run(400)
    check(store / PATH)
    rows = json.loads((store / PATH / ITEMS).read_text())
    begun = [Path(json.loads(line)["item"]).stem for line in (store / "starts").read_text().splitlines()]
    names = [row["item"] for row in rows]
    whole = len(names) == len(set(names)) == ITEM_COUNT and all(row["state"] == "done" for row in rows)
    return whole and bool(done) and not done & set(begun) and len(begun) == len(set(begun))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits_groups", description=__doc__)
    parser.add_argument("--form", choices=(NODES, QUEUE), required=True, help="of the step")
    parser.add_argument("--runs", type=int, default=20, help="runs (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run (default: 0)")
    parser.add_argument("--at-once", type=int, default=1, help="runs at once (default: 1)")
    options = parser.parse_args(arguments)
    with ThreadPoolExecutor(options.at_once) as pool:
        seeds = range(options.seed, options.seed + options.runs)
        trials = list(pool.map(functools.partial(trial, options.form), seeds))
    wrong = [
        entry
        for entry in trials
        if entry["intervals"] > 1.0
        or entry["ended"] != BUDGET_SPENT
        or entry["left"]
        or not entry["records"]
        or not entry["goes_on"]
    ]
    print(f"{options.form}: ", end="")
    return report(trials, wrong, f"{sum(entry['lost'] for entry in trials)} were killed")


if __name__ == "__main__":
    sys.exit(main())
