"""Kill workers and the queue at random while they work, and compare the results with those of a run without kills.

`tests.support.queue_kills` says what is killed. Run as `python -m benchmarks.queue --kills 100 --seed 1`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tests.support.queue_kills import MODES, Tally, measure, plan


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
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
