"""Kill workers and the queue at random while they work, and compare the results with those of a run without kills.

A plan of events is drawn from a seed: a worker with its program is killed (SIGKILL), the server of the queue is
killed, both are, the server's node loses power (with all that was not on its disk), or a worker stands still
(SIGSTOP) for longer than its lease and goes on (SIGCONT). Who died is started again, as a Job's and a
StatefulSet's controllers do. The plan is the same for the same seed; what each event meets depends on the machine,
too. Run as `python -m benchmarks.queue_kills --kills 100 --seed 1`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.queue_kill_run import MODES, Event, Found, Run, ValkeyServer, plan

AT_MOST = 15
"""Events in one run."""


@dataclass
class Tally:
    """What the runs of one mode came to."""

    mode: str
    events: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    items: int = 0
    lost: int = 0
    replaced: int = 0
    different: int = 0
    left_behind: int = 0
    attempts: int = 0
    most: int = 0
    starts: int = 0
    resumed: int = 0
    seconds: float = 0.0
    lost_bytes: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, nothing reported twice, and all is as without kills."""
        return not (self.lost or self.replaced or self.different or self.left_behind)

    def add(self, outcome: Found, reference: Found, events: Sequence[Event]) -> None:
        """Count a run with these events."""
        self.events.update(event.kind for event in events)
        self.runs += 1
        self.items += len(reference.rows)
        done = {row["item"] for row in outcome.rows if row["state"] == "done"}
        self.lost += sum(row["item"] not in done for row in reference.rows)
        self.replaced += len(outcome.replaced)
        others = [row["item"] for row in outcome.rows if row not in reference.rows]
        self.different += len({*others, *outcome.unlike}) or int(outcome.rows != reference.rows)
        self.left_behind += outcome.left_behind
        self.attempts += sum(outcome.attempts)
        self.most = max(self.most, *outcome.attempts)
        self.starts += outcome.starts
        self.resumed += outcome.resumed
        self.seconds += outcome.seconds
        self.lost_bytes += outcome.lost_bytes


def measure(mode: str, events: Sequence[Event], items: int, seconds: float, scratch: Path) -> Tally:
    """Run a step as often as it takes for all events to happen, after once without any. Raises RunError."""
    tally = Tally(mode)
    data = scratch / mode
    reference, _ = _run(data / "reference", mode, items, seconds, [])
    ahead = list(events)
    while ahead:
        outcome, happened = _run(data / f"run-{tally.runs}", mode, items, seconds, ahead[:AT_MOST])
        tally.add(outcome, reference, ahead[:happened])
        ahead = ahead[happened:]
    return tally


def _run(folder: Path, mode: str, items: int, seconds: float, events: Sequence[Event]) -> tuple[Found, int]:
    server = None if mode == "static" else ValkeyServer(folder.with_name(f"{folder.name}-server"))
    if server is not None:
        server.start()
    try:
        return Run(folder, mode, items, seconds, server).run(events)
    finally:
        if server is not None:
            server.kill()


def table(tallies: Sequence[Tally]) -> list[str]:
    """The rows of a Markdown table."""
    lines = [
        "| mode | kills | of which | runs | items | lost | reported twice | other result than without kills "
        "| processes left | attempts | programs started, of which from a checkpoint |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for tally in tallies:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.events.items()))
        lines.append(
            f"| {tally.mode} | {tally.events.total()} | {kinds} | {tally.runs} | {tally.items} | {tally.lost} "
            f"| {tally.replaced} | {tally.different} | {tally.left_behind} "
            f"| {tally.attempts} (at most {tally.most} for one) | {tally.starts}, {tally.resumed} |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, and print a table; returns 1 where anything was lost, doubled, different or left behind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--items", type=int, default=40, help="of each run; default: 40")
    parser.add_argument("--seconds", type=float, default=0.5, help="that one takes; default: 0.5")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs and results there")
    options = parser.parse_args(arguments)
    planned = plan(options.seed, options.kills)
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory(prefix="slipway-kills-") as scratch:
        for mode in options.modes:
            place = options.keep or Path(scratch)
            tallies.append(measure(mode, planned[mode], options.items, options.seconds, place))
            tally = tallies[-1]
            print(f"{mode}: {tally.events.total()} kills in {tally.runs} runs, {tally.seconds:.0f} s", flush=True)
    kills = sum(tally.events.total() for tally in tallies)
    print(f"\n{kills} kills, seed {options.seed}, {date.today()}, {os.cpu_count()} cores\n")
    print("\n".join(table(tallies)))
    print(f"\nThe server lost {sum(tally.lost_bytes for tally in tallies):,} bytes that were not on its disk.")
    return 0 if all(tally.holds for tally in tallies) else 1


if __name__ == "__main__":
    raise SystemExit(main())
