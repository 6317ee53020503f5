"""Delete the results of a pipeline's old runs by the clock, as long as nothing refers to them.

Only directories of runs by the clock are looked at, those whose name ends in a time: what `pulumi up` made stays.
The newest good runs stay, and all that came after the oldest of these; so does what is younger than some days,
and whatever a result that stays was made from. A result loses its manifest first, after which nobody takes it for
one, and none goes before those that were made from it: so this may be killed at any moment, and the next call
goes on. Run as `python -m slipway.workloads.schedule.retention --store DIR --pipeline fraud --step train --runs 30
--days 90`. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path

from slipway.workloads.runtime import history
from slipway.workloads.runtime.exits import OK, run, stop_on_sigterm
from slipway.workloads.runtime.history import FACTS, USAGE, Result
from slipway.workloads.runtime.store import MANIFEST, remove_file, store_errors

LEAST = 10
"""Runs that stay at least. A step with items takes results from the eight runs before it, and one by `pulumi up`
may be at that while another by the clock comes to its end."""

DAY = 86400.0

ZONE = 14 * 3600.0
"""Seconds by which the names of runs, which are in the time zone of their schedule, may differ from UTC."""

SHOWN = 20


@dataclass(frozen=True)
class Rule:
    """Which runs stay: the newest `runs` of which each of `steps` left a result, those younger than `days`, and
    those that are `kept` by their names, since an app reads them.
    """

    runs: int
    days: float
    steps: frozenset[str]
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """What goes, each before what it was made from: `results` by their paths, after `remains`, directories without
    a manifest. `referred` are results of old runs that stay, each with what refers to it.
    """

    remains: Sequence[str] = ()
    results: Sequence[Result] = ()
    referred: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def paths(self) -> list[str]:
        """All directories that go, in their order."""
        return [*self.remains, *(result.path for result in self.results)]


def make_plan(
    rule: Rule, pipeline: str, results: Sequence[Result], directories: Iterable[str], now: float
) -> Plan:
    """What goes of a store with `results`, and with `directories` of this pipeline, whole or not.

    `now` is in seconds since the epoch.
    """
    old = _old_runs(rule, pipeline, results, now)
    stays: dict[str, Result] = {}
    goes: dict[str, Result] = {}
    for result in results:
        (goes if result.pipeline == pipeline and result.mark in old else stays)[result.path] = result
    referred = _take_back(goes, stays)
    named = {path for result in stays.values() for path in _paths_in(result)}
    remains = [
        path
        for path in sorted(directories)
        if path not in {*goes, *stays, *named} and history.mark_of(path) in old
    ]
    return Plan(remains, _ordered(goes), referred)


def _old_runs(rule: Rule, pipeline: str, results: Iterable[Result], now: float) -> _Old:
    steps: dict[str, set[str]] = {}
    for result in results:
        if result.pipeline == pipeline and result.mark:
            steps.setdefault(result.mark, set()).add(result.step)
    good = sorted((mark for mark, made in steps.items() if made >= rule.steps), reverse=True)
    runs = max(rule.runs, LEAST)
    limit = datetime.fromtimestamp(now - rule.days * DAY - ZONE, UTC).strftime("%Y%m%d-%H%M")
    # Without so many good runs there is none before them.
    return _Old(min(good[runs - 1], limit) if len(good) >= runs else "", rule.kept)


@dataclass(frozen=True)
class _Old:
    """The runs before a time, but for those that are kept. Their names sort as the times do."""

    before: str
    kept: frozenset[str]

    def __contains__(self, mark: object) -> bool:
        return isinstance(mark, str) and bool(mark) and mark < self.before and mark not in self.kept


def _take_back(goes: dict[str, Result], stays: dict[str, Result]) -> dict[str, str]:
    """Move from `goes` to `stays` what results that stay refer to, by a digest or by a path, again and again."""
    referred: dict[str, str] = {}
    waiting = list(stays.values())
    digests = {result.manifest.digest for result in waiting}
    # Equal results have equal digests: the newest of them is enough.
    newest = {result.manifest.digest: result for result in sorted(goes.values(), key=lambda result: result.mark)}
    while waiting:
        result = waiting.pop()
        wanted = [
            newest[digest].path for digest in result.manifest.inputs.values() if digest in newest.keys() - digests
        ]
        for path in (*wanted, *_paths_in(result)):
            if path in goes:
                referred[path] = result.path
                stays[path] = goes.pop(path)
                waiting.append(stays[path])
                digests.add(stays[path].manifest.digest)
    return referred


def _paths_in(result: Result) -> list[str]:
    """The directories of runs by the clock that the settings of a result name."""
    words = json.dumps([dict(result.manifest.settings), dict(result.manifest.summary)])
    return re.findall(r"[\w.-]+/[\w.-]+/[0-9a-f]{10}-\d{8}-\d{4}", words)


def _ordered(goes: Mapping[str, Result]) -> list[Result]:
    """Each before those that it was made from, or names by their path."""
    # Of equal results the oldest one goes last. All edges lead to results that are no younger: there is no circle.
    oldest = {
        result.manifest.digest: result
        for result in sorted(goes.values(), key=lambda result: result.mark, reverse=True)
    }
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(sorted(goes), ()))
    for path, result in sorted(goes.items()):
        made_from = [oldest[digest] for digest in result.manifest.inputs.values() if digest in oldest]
        for source in made_from:
            if source.mark <= result.mark:
                sorter.add(source.path, path)
        for source in (goes[named] for named in _paths_in(result) if named in goes):
            if source.mark < result.mark:
                sorter.add(source.path, path)
    return [goes[path] for path in sorter.static_order()]


def delete(store: Path, path: str) -> None:
    """Delete the directory `path` below the store, and what stands beside it. Raises StoreError."""
    directory = store / path
    with store_errors(directory):
        remove_file(directory / MANIFEST)
        if directory.is_dir():
            shutil.rmtree(directory)
        if (store / USAGE / path).is_dir():
            shutil.rmtree(store / USAGE / path)
        remove_file(store / FACTS / f"{path}.json")


def main(arguments: list[str] | None = None) -> int:
    """Delete what the rule lets go, once it is said; returns the exit code. Raises StoreError."""
    options = parse(arguments)
    stop_on_sigterm("the next run of the pipeline goes on")
    store, pipeline = options.store, options.pipeline
    with store_errors(store):
        directories = [
            path.relative_to(store).as_posix() for path in store.glob(f"{pipeline}/*/*") if path.is_dir()
        ]
    plan = make_plan(rule_of(options), pipeline, history.results(store), directories, time.time())
    for line in describe(plan, rule_of(options)):
        print(line, flush=True)
    for path in plan.paths:
        delete(store, path)
    if plan.paths:
        print(f"Deleted {len(plan.paths)} directories", flush=True)
    return OK


def describe(plan: Plan, rule: Rule) -> list[str]:
    """What goes, and what stays all the same, in lines."""
    stay = f"the newest {max(rule.runs, LEAST)} good runs and those of the last {rule.days:g} days stay"
    if not plan.paths:
        return [f"Nothing to delete: {stay}"]
    size = sum(entry.size for result in plan.results for entry in result.manifest.files.values())
    lines = [f"Deletes {len(plan.paths)} directories, of which the results have {size / 1e6:.1f} MB; {stay}:"]
    lines += [f"  {path}" for path in plan.paths[:SHOWN]]
    lines += [f"  and {len(plan.paths) - SHOWN} more"] if len(plan.paths) > SHOWN else []
    return [*lines, *(f"Stays: {path}, to which {what} refers" for path, what in plan.referred.items())]


def rule_of(options: argparse.Namespace) -> Rule:
    """The rule that the options say."""
    return Rule(options.runs, options.days, frozenset(options.steps), frozenset(options.kept))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line; ends the process where they are wrong."""
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.schedule.retention", description=__doc__)
    add = parser.add_argument
    add("--store", type=Path, required=True, metavar="DIR", help="the root of the store")
    add("--pipeline", required=True, help="whose runs by the clock these are")
    add("--step", dest="steps", action="append", default=[], metavar="NAME", help="a step of a good run")
    add("--runs", type=int, required=True, metavar="N", help=f"good runs that stay, the newest; at least {LEAST}")
    add("--days", type=float, required=True, metavar="N", help="younger runs stay")
    add("--keep", dest="kept", action="append", default=[], metavar="RUN", help="a run that stays, 20261122-0300")
    options = parser.parse_args(arguments)
    if not options.steps:
        parser.error("--step is required, once for each step that leaves a result")
    if options.runs < 1 or options.days <= 0:
        parser.error("--runs and --days must be above 0")
    return options


if __name__ == "__main__":
    run(main)
