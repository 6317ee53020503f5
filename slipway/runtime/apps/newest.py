"""The good runs of a pipeline, the newest first, for apps that follow them: `runs.json`, whole or as before.

The last step of a pipeline whose apps follow it starts this. All other steps have succeeded by then, whose results
are looked at once more, and only then is the run noted. Run as `python -m slipway.runtime.apps.newest
--output DIR --runs FILE --step train=DIR`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.runtime.exits import BAD_INPUT, OK, StepError, parse_pairs, run, stop_on_sigterm
from slipway.runtime.store import (
    NotWholeError,
    load_manifest,
    publish,
    staging,
    store_errors,
    write_atomically,
)

STEP = "newest"
NEWEST = "newest"
"""Stands for the newest run where a run is named."""

FORMAT = 1
KEPT = 50
"""Runs that are noted: those of seven weeks of nights."""

MARK = re.compile(r"-(\d{8}-\d{4})$")
"""What a run by the clock adds to the names of its directories (`slipway.runtime.schedule.run`)."""


@dataclass(frozen=True)
class GoodRun:
    """A run of which all steps succeeded. `steps` are their directories below the store's root, by their names.

    `name` is the time for which it was scheduled, `20261122-0300`, or the digest of one by `pulumi up`.
    """

    name: str
    published: str
    steps: Mapping[str, str]

    @property
    def by_clock(self) -> bool:
        """Whether it was a run by the clock."""
        return bool(MARK.fullmatch(f"-{self.name}"))

    def repeats(self, other: GoodRun) -> bool:
        """Whether both ran the same steps with the same settings, whenever that was."""
        return _without_marks(self.steps) == _without_marks(other.steps)


def read(file: Path) -> list[GoodRun]:
    """The runs that `file` has, the newest first; none where there is no such file.

    Raises:
        StepError: BAD_INPUT where it cannot be understood; StoreError.
    """
    with store_errors(file):
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return []
    try:
        document = json.loads(content)
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}, this code reads {FORMAT}")
        return [GoodRun(run["run"], run["published"], dict(run["steps"])) for run in document["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        fix = "delete it, and the next good run writes it anew"
        raise StepError(BAD_INPUT, f"{file} cannot be read: {error}; {fix}") from error


def write(file: Path, runs: Sequence[GoodRun]) -> None:
    """Write `runs` so that `file` is as before or has all of them. Raises StoreError."""
    listed = [{"run": run.name, "published": run.published, "steps": dict(run.steps)} for run in runs]
    with store_errors(file):
        write_atomically(file, (json.dumps({"format": FORMAT, "runs": listed}, indent=2) + "\n").encode())


def named(runs: Sequence[GoodRun], name: str, file: Path) -> GoodRun:
    """The run of that name, or the newest. Raises StepError with BAD_INPUT and the names that there are."""
    good = next((run for run in runs if name in (NEWEST, run.name)), None)
    if good is None:
        names = f"it has {', '.join(run.name for run in runs)}" if runs else "no run was good so far"
        raise StepError(BAD_INPUT, f"{file} has no run {name}: {names}")
    return good


def require_whole(store: Path, steps: Mapping[str, str]) -> dict[str, str]:
    """The digests of the results, once each has a manifest and all files that it names, with their sizes.

    Raises:
        NotWholeError: naming the first that has not; StoreError.
    """
    digests: dict[str, str] = {}
    for name, path in steps.items():
        directory = store / path
        manifest = load_manifest(directory)
        with store_errors(directory):
            for file, entry in manifest.files.items():
                place = directory / file
                if not place.is_file():
                    raise NotWholeError(directory, f"{file} is missing")
                if place.stat().st_size != entry.size:
                    raise NotWholeError(directory, f"{file} has not the {entry.size} bytes of its manifest")
        digests[name] = manifest.digest
    return digests


def with_run(runs: Sequence[GoodRun], added: GoodRun) -> list[GoodRun]:
    """`runs` with one more, the newest.

    One by `pulumi up` that says again what the newest run by the clock repeated is no news: its Job ran anew since
    its memory changed, for example, and apps would go back to older results.
    """
    if runs and not added.by_clock and runs[0].repeats(added):
        return list(runs)
    return [added, *(run for run in runs if run.name != added.name)][:KEPT]


def main(arguments: list[str] | None = None) -> int:
    """Note the run; returns the exit code.

    Raises:
        StepError: BAD_INPUT where a result is not whole; STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("the same command goes on")
    store = options.runs.parents[2]
    steps = {name: directory.relative_to(store).as_posix() for name, directory in options.steps.items()}
    digests = require_whole(store, steps)
    mark = MARK.search(options.output.name)
    name = mark[1] if mark else options.output.name
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    earlier = read(options.runs)
    runs = with_run(earlier, GoodRun(name, now, steps))
    with staging() as staged:
        text = json.dumps({"run": name, "steps": steps}, indent=2) + "\n"
        (staged / "run.json").write_text(text, encoding="utf-8")
        publish(staged, options.output, step=STEP, inputs=digests, settings={}, summary={"run": name})
    if runs != earlier:
        # Last, so that whoever follows finds all of it.
        write(options.runs, runs)
    print(f"The newest good run is {runs[0].name}: {options.runs}")
    return OK


def _without_marks(steps: Mapping[str, str]) -> dict[str, str]:
    return {name: MARK.sub("", path) for name, path in steps.items()}


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.apps.newest", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the run is noted")
    parser.add_argument(
        "--runs", type=Path, required=True, metavar="FILE", help="<store>/<pipeline>/newest/runs.json"
    )
    parser.add_argument(
        "--step", dest="steps", action="append", default=[], metavar="NAME=DIR", help="the result of a step"
    )
    options = parser.parse_args(arguments)
    if not options.steps:
        parser.error("--step NAME=DIR is required, once for each result")
    options.steps = {name: Path(place) for name, place in parse_pairs(parser, "--step", options.steps).items()}
    return options


if __name__ == "__main__":
    run(main)
