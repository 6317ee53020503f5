"""What a step with places costs, and how often it is late, over traces of Spot nodes: beside one region, on
demand, SkyPilot's policies, and the cheapest plan that knows the future.

Jobs begin at times drawn from a seed, once in each home region, whose places come first; on demand is the last
place. Traces are JSON files: all zones as runs of [nodes, ticks], or SkyPilot's
(github.com/skypilot-org/spot-traces), a file a zone. Run as `python -m benchmarks.places TRACE [TRACE ...]`; it
takes about two minutes for 60 starts and nine zones.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.places.plans import best_plan
from benchmarks.places.skypilot import SkyNomad, UniformProgress, follow
from benchmarks.places.world import SURE, Job, Moved, Outcome, Traces, World, read_traces, rules_for
from slipway.workloads.schedule.places.policy import Place

HOUR = 3600.0
LIMIT = 4
"""Deadlines after which a job is given up that has not ended."""

TARGETS = (0.05, 0.35, 1.10)
"""Of jobs of 24 hours: how many may be late, the cost of on demand, and that of the best plan."""

OURS = "places, deadline"

Run = Callable[["Case", World, Job, Sequence[str], float], Outcome]


@dataclass(frozen=True)
class Case:
    """Jobs of one kind over one set of traces."""

    traces: Traces
    hours: float
    nodes: int
    options: argparse.Namespace

    @property
    def job(self) -> Job:
        """What runs."""
        options = self.options
        return Job(
            self.hours * HOUR,
            self.hours * HOUR * options.deadline,
            self.nodes,
            start=options.start * 60,
            interval=options.interval * 60,
            stockout_after=options.stockout_after,
            spot=options.spot,
        )


@dataclass(frozen=True)
class Row:
    """What came of a policy: means over starts and homes, and the worst home. Costs are parts of on demand."""

    traces: str
    hours: float
    nodes: int
    policy: str
    late: float
    worst_late: float
    cost: float
    worst_cost: float
    to_best: float
    moves: float
    evictions: float


def _places(case: Case, world: World, job: Job, home: Sequence[str], began: float, *, deadline: bool) -> Outcome:
    """The policy of this repository, with a place for each region, and one on demand."""
    regions = world.traces.places()
    zones = [regions[region] for region in home]
    places = [Place(region, job.spot, sure=False) for region in home] + [Place(SURE, 1.0, sure=True)]
    rules = rules_for(job, places, case.options.next_after * 60, deadline=deadline)
    return Moved(world, job, rules, [*zones, [SURE]], began).run(LIMIT * job.deadline)


def _one_region(case: Case, world: World, job: Job, home: Sequence[str], began: float) -> Outcome:
    """What a step does that declares one pool of Spot nodes: it waits."""
    rules = rules_for(job, [Place(home[0], job.spot, sure=False)], case.options.next_after * 60, deadline=False)
    return Moved(world, job, rules, [world.traces.places()[home[0]]], began).run(LIMIT * job.deadline)


def _on_demand(_: Case, world: World, job: Job, home: Sequence[str], began: float) -> Outcome:
    del world, home, began
    seconds = job.start + job.work
    return Outcome(seconds, seconds / HOUR, 0, 0)


def _zones(world: World, home: Sequence[str]) -> list[str]:
    regions = world.traces.places()
    return [zone for region in home for zone in regions[region]]


def _uniform_one(_: Case, world: World, job: Job, home: Sequence[str], began: float) -> Outcome:
    return follow(UniformProgress(_zones(world, home[:1])), world, job, began, LIMIT * job.deadline)


def _uniform_all(_: Case, world: World, job: Job, home: Sequence[str], began: float) -> Outcome:
    return follow(UniformProgress(_zones(world, home)), world, job, began, LIMIT * job.deadline)


def _sky_nomad(_: Case, world: World, job: Job, home: Sequence[str], began: float) -> Outcome:
    return follow(SkyNomad(_zones(world, home)), world, job, began, LIMIT * job.deadline)


def _unnamed(case: Case, world: World, job: Job, home: Sequence[str], began: float) -> Outcome:
    """As where nobody says that a cloud has no nodes."""
    return _places(case, world, replace(job, stockout_after=math.inf), home, began, deadline=True)


POLICIES: dict[str, Run] = {
    "one region": _one_region,
    "on demand": _on_demand,
    "Uniform Progress, one region": _uniform_one,
    "Uniform Progress, all regions": _uniform_all,
    "SkyNomad": _sky_nomad,
    "places": partial(_places, deadline=False),
    OURS: partial(_places, deadline=True),
    "places, deadline, stockouts not named": _unnamed,
}


def measure(case: Case) -> list[Row]:
    """The rows of a case."""
    world, job = World(case.traces, case.nodes), case.job
    drawn = random.Random(case.options.seed)
    starts = [drawn.uniform(0, world.length) for _ in range(case.options.starts)]
    regions = list(case.traces.places())
    homes = [[home, *(region for region in regions if region != home)] for home in regions]
    best = statistics.mean(best_plan(world, job, list(case.traces.zones), began) for began in starts)
    name = (case.traces.name, case.hours, case.nodes)
    rows: list[Row] = []
    for policy, run in POLICIES.items():
        outcomes = [[run(case, world, job, home, began) for began in starts] for home in homes]
        late = [statistics.mean(one.seconds > job.deadline for one in home) for home in outcomes]
        cost = [statistics.mean(one.paid for one in home) for home in outcomes]
        every = [one for home in outcomes for one in home]
        rows.append(
            Row(
                *name,
                policy,
                statistics.mean(late),
                max(late),
                statistics.mean(cost) / case.hours,
                max(cost) / case.hours,
                statistics.mean(cost) / best,
                statistics.mean(one.moves for one in every),
                statistics.mean(one.evictions for one in every),
            )
        )
    rows.append(Row(*name, "best plan", 0, 0, best / case.hours, best / case.hours, 1, 0, 0))
    return rows


def line(row: Row) -> str:
    """A row of the table."""
    late, cost = (f"{row.late:.0%} ({row.worst_late:.0%})", f"{row.cost:.3f} ({row.worst_cost:.3f})")
    return (
        f"| {row.traces} | {row.hours:g} h, {row.nodes} | {row.policy} | {late} | {cost} | {row.to_best:.2f} | "
        f"{row.moves:.1f} | {row.evictions:.1f} |"
    )


def verdict(rows: Sequence[Row]) -> list[str]:
    """Which targets the jobs of 24 hours miss, by traces."""
    late, cost, to_best = TARGETS
    words: list[str] = []
    for row in rows:
        if row.hours == 24 and row.policy == OURS:
            missed = [
                f"{what} {value:.2f} > {target:.2f}"
                for what, value, target in (
                    ("late", row.worst_late, late),
                    ("cost", row.worst_cost, cost),
                    ("of the best plan", row.to_best, to_best),
                )
                if value > target
            ]
            words.append(f"{row.traces}, {row.nodes} nodes: {'; '.join(missed) or 'all targets are met'}")
    return words


def main() -> int:
    """Print the table, and which targets are missed; returns 0."""
    options = _parse()
    cases: list[Case] = []
    for traces in options.traces:
        for nodes in options.nodes:
            if nodes > traces.most:
                print(f"{traces.name}: no jobs of {nodes} nodes; its zones were asked for {traces.most} at most")
                continue
            cases += [Case(traces, hours, nodes, options) for hours in options.hours]
    with multiprocessing.Pool(options.processes) as pool:
        rows = [row for several in pool.map(measure, cases, chunksize=1) for row in several]
    print(
        "| traces | hours, nodes | policy | late (worst home) | cost (worst home) | of the best | moves | losses |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join([*map(line, rows), "", *verdict(rows)]))
    if options.output:
        options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.places", description=__doc__)
    add = parser.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="JSON file")
    add("--starts", type=int, default=60, help="jobs in each home region (default: 60)")
    add("--seed", type=int, default=1, help="of the times at which they begin (default: 1)")
    add("--hours", type=float, nargs="+", default=[24, 4], help="of computing (default: 24 4)")
    add("--nodes", type=int, nargs="+", default=[1, 4, 16], help="of a job, all at once (default: 1 4 16)")
    add("--deadline", type=float, default=1.25, help="times the hours of computing (default: 1.25)")
    add("--interval", type=float, default=15, help="minutes between checkpoints (default: 15)")
    add("--start", type=float, default=10, help="minutes from granted nodes to computing (default: 10)")
    add("--spot", type=float, default=0.3, help="price of Spot, of on demand (default: 0.3)")
    add("--next-after", type=float, default=15, help="minutes of waiting at a place (default: 15)")
    add("--stockout-after", type=float, default=120, help="seconds until a stockout is named (default: 120)")
    add("--processes", type=int, default=2, help="at once (default: 2)")
    add("--output", type=Path, help="where to write all figures as JSON")
    options = parser.parse_args()
    if options.starts < 1 or min(options.nodes) < 1 or min(options.hours) <= 0 or options.deadline <= 1:
        parser.error("--starts and --nodes must be at least 1, --hours above 0, --deadline above 1")
    try:
        options.traces = read_traces(options.traces)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"a trace cannot be read: {error!r}")
    return options


if __name__ == "__main__":
    sys.exit(main())
