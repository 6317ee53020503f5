"""Kill pods of a step on several nodes at random, and compare the result with that of a run without kills.

A plan of events is drawn from a seed. A launcher, a whole pod or a program is killed (SIGKILL), a program or a
launcher is told to end (SIGTERM), or a launcher or a whole pod stands still (SIGSTOP) for longer than the others
bear its silence, and goes on. Who died gets a successor, as by a Job's controller. Most events come when all
programs are at work again, some while the one before is still being dealt with. The plan is the same for the same
seed; what each event meets depends on the machine, too.
Run as `python -m benchmarks.node_kills --kills 20 --seed 1 --program plain`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.stand_in_job import StandInJob
from slipway.workloads.runtime.nodes.group import SILENCE
from slipway.workloads.runtime.store import check

KINDS = {
    "launcher killed": 4,
    "pod killed": 4,
    "program killed": 3,
    "program told to end": 2,
    "pod told to end": 3,
    "launcher stood still": 2,
    "pod stood still": 2,
}
"""Kinds of events, and how often each is drawn."""

PODS = {"plain": 3, "tensorflow": 2}
STEPS = {"plain": 150, "tensorflow": 100}
AT_MOST = 5
"""Events in one run."""
LONGEST = 420.0
"""Seconds after which a run hangs."""


@dataclass(frozen=True)
class Event:
    """`after` is in seconds since all programs are at work or, where it is `early`, since the event before.

    `chosen` in [0, 1) says which pod it meets, `away` for how many seconds that one stands still.
    """

    kind: str
    after: float
    chosen: float
    early: bool
    away: float


@dataclass
class Tally:
    """What all runs came to. `seconds` are those from an event until all programs were at work again."""

    events: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    same: int = 0
    hung: int = 0
    failed: int = 0
    left: int = 0
    seconds: list[float] = field(default_factory=list)
    seconds_after_silence: list[float] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every run ended with the same result, and left nothing."""
        return self.same == self.runs and not self.left


def plan(seed: int, kills: int) -> list[Event]:
    """The events. Equal for equal arguments."""
    dice = random.Random(f"nodes {seed}")
    events: list[Event] = []
    for _ in range(kills):
        [kind] = dice.choices(list(KINDS), weights=list(KINDS.values()))
        early = dice.random() < 0.25
        after = dice.uniform(0.0, 2.0) if early else dice.uniform(0.3, 2.5)
        events.append(Event(kind, after, dice.random(), early, SILENCE + dice.uniform(1.0, 4.0)))
    return events


class Run:
    """One run of the step from its beginning to its end."""

    def __init__(self, folder: Path, program: str, steps: int, seconds: float) -> None:
        self.folder = folder
        self._count = PODS[program]
        self._starts = folder / "starts"
        self._output = folder / "output"
        script = Path(__file__).with_name(f"node_kill_{program}.py")
        self._job = StandInJob(
            folder,
            self._count,
            ["--output", self._output, "--step", "kills.train", "--wait", "120", "--result", "value=value.json"],
            [sys.executable, script, self._output, steps, seconds],
            environment={"LOG_OF_STARTS": str(self._starts)},
        )
        self._starts.touch()
        self._paused: dict[int, tuple[float, list[int]]] = {}

    def run(self, events: Sequence[Event], tally: Tally) -> tuple[bytes, int]:
        """Run it; returns the result, and how many of the events happened before it was over."""
        ahead = list(events)
        began, last, last_generation, waiting = time.monotonic(), 0.0, 0, ""
        self._job.start_all()
        try:
            while not self._job.is_over:
                self._job.look_after()
                now = time.monotonic()
                if now - began > LONGEST:
                    tally.hung += 1
                    print(self._job.logs(), flush=True)
                    break
                self._let_go_on(now)
                at_work = self._at_work(last_generation)
                if at_work and waiting:
                    silent = "still" in waiting
                    (tally.seconds_after_silence if silent else tally.seconds).append(at_work - last)
                    waiting = ""
                if ahead and not self._paused:
                    event = ahead[0]
                    due = last + event.after if event.early and last else at_work + event.after if at_work else 0
                    if due and now >= due and self._happen(event, now):
                        ahead.pop(0)
                        tally.events[event.kind] += 1
                        last, last_generation, waiting = now, self._generation(), event.kind
                time.sleep(0.01)
            tally.left += len(self._job.left_behind())
        finally:
            for _, processes in self._paused.values():
                _signal(processes, signal.SIGCONT)
            self._job.kill()
        if self._job.failed is not None:
            tally.failed += 1
            print(f"the Job failed with {self._job.failed}\n{self._job.logs()}", flush=True)
        content = b""
        with contextlib.suppress(Exception):
            check(self._output)
            content = (self._output / "value.json").read_bytes()
        return content, len(events) - len(ahead)

    def _happen(self, event: Event, now: float) -> bool:
        """Do it to one of the pods that are alive; whether there was one."""
        alive = [index for index, pod in sorted(self._job.pods.items()) if pod.poll() is None]
        if not alive:
            return False
        index = alive[int(event.chosen * len(alive))]
        launcher = [self._job.pods[index].pid]
        pod, program = self._job.processes(index), self._job.programs(index)
        if event.kind.startswith("program") and not program:
            return False
        if event.kind.endswith("still"):
            processes = pod if event.kind.startswith("pod") else launcher
            _signal(processes, signal.SIGSTOP)
            self._paused[index] = (now + event.away, processes)
        else:
            number = signal.SIGTERM if event.kind.endswith("told to end") else signal.SIGKILL
            whom = {"launcher killed": launcher, "pod killed": pod, "pod told to end": launcher}
            _signal(whom.get(event.kind, program), number)
        return True

    def _let_go_on(self, now: float) -> None:
        for index in [paused for paused, (at, _) in self._paused.items() if now >= at]:
            _signal(self._paused.pop(index)[1], signal.SIGCONT)

    def _lines(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in self._starts.read_text().splitlines()]

    def _generation(self) -> int:
        """The newest one of which any launcher has said that it began."""
        words = [
            int(line.split()[1].rstrip(":"))
            for index in range(self._count)
            for line in self._job.text(index).splitlines()
            if line.startswith("Generation ") and "all programs start" in line
        ]
        return max(words, default=0)

    def _at_work(self, after: int) -> float:
        """Since when all programs of a generation after this one are at work; 0 where they are not."""
        begun: dict[int, dict[int, float]] = {}
        for line in self._lines():
            begun.setdefault(int(line["generation"]), {})[int(line["rank"])] = line["at"]
        newest = max(begun, default=0)
        if newest <= after or len(begun[newest]) < self._count:
            return 0.0
        return max(begun[newest].values())


def _signal(processes: Sequence[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def measure(program: str, events: Sequence[Event], steps: int, seconds: float, scratch: Path) -> Tally:
    """Run the step as often as it takes for all events to happen, after once without any."""
    unhurt = Tally()
    reference, _ = Run(scratch / "reference", program, steps, seconds).run([], unhurt)
    if not reference or unhurt.hung or unhurt.failed or unhurt.left:
        raise SystemExit("the run without kills came to nothing")
    tally = Tally()
    ahead = list(events)
    while ahead:
        result, happened = Run(scratch / f"run-{tally.runs}", program, steps, seconds).run(ahead[:AT_MOST], tally)
        tally.runs += 1
        tally.same += result == reference
        ahead = ahead[happened:]
        print(
            f"run {tally.runs}: {happened} kills, {'the same' if result == reference else 'another'} result",
            flush=True,
        )
    return tally


def table(program: str, tally: Tally) -> list[str]:
    """The rows of a Markdown table."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.events.items()))
    return [
        "| program | pods | kills | of which | runs | same result | hung | failed | processes left "
        "| seconds from a kill until all work again: median, worst | the same where one stood still |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        f"| {program} | {PODS[program]} | {tally.events.total()} | {kinds} | {tally.runs} | {tally.same} "
        f"| {tally.hung} | {tally.failed} | {tally.left} | {_spread(tally.seconds)} "
        f"| {_spread(tally.seconds_after_silence)} |",
    ]


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f} (of {len(seconds)})" if seconds else "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, and print a table; returns 1 where a result was another one, a run hung, or a process was left."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", choices=sorted(PODS), default="plain")
    parser.add_argument("--steps", type=int, help="of each run")
    parser.add_argument("--seconds", type=float, default=0.1, help="that a step takes at least; default: 0.1")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs and results there")
    options = parser.parse_args(arguments)
    steps = options.steps or STEPS[options.program]
    with tempfile.TemporaryDirectory(prefix="slipway-kills-") as scratch:
        place = options.keep or Path(scratch)
        tally = measure(options.program, plan(options.seed, options.kills), steps, options.seconds, place)
    print(f"\n{tally.events.total()} kills, seed {options.seed}, {date.today()}, {os.cpu_count()} cores\n")
    print("\n".join(table(options.program, tally)))
    return 0 if tally.holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
