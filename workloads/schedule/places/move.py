"""Let a step run at one of its places at a time, and move it to another one where that is due.

The pod of the step's own Job starts it. All that it knows is in the cluster: which Jobs run, and in its notes
where the step is on its way. A pod that takes the place of a lost one goes on with these. It ends when the step
has its result, or cannot have one, and leaves no pod of the step behind. Run as `python -m
slipway.workloads.schedule.places.move --namespace slipway --plan mnist-train-mover --notes
mnist-train-mover-notes`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.workloads.runtime.exits import OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.kubernetes_api import add_options, api_of
from slipway.workloads.schedule.places.jobs import PlaceJobs, Seen, read_places
from slipway.workloads.schedule.places.policy import STOP, Look, Place, Rules, State, decide
from slipway.workloads.schedule.run import JOB_FAILED, PAUSE

TOO_LATE = 18
"""Exit code: the step was not done at its time limit."""

TOO_DEAR = 19
"""Exit code: the step ended at a checkpoint, before it would cost more than it may."""

MOST_FILES = 20_000
"""Files of a step's directory at which the search for the newest checkpoint ends."""

QUIET = 5.0
"""Seconds without a further file after which those that are there are taken for a checkpoint."""


@dataclass
class Mover:
    """What moves one step. `now` is the time in seconds since the epoch, `newest` that of the newest checkpoint, 0
    where there is none. `say` gets each new sentence on where the step is.
    """

    jobs: PlaceJobs
    rules: Rules
    time_limit: float
    newest: Callable[[], float]
    now: Callable[[], float] = time.time
    say: Callable[[str], None] = lambda text: print(text, flush=True)
    _said: str = ""

    def follow(self) -> int:
        """Move the step until it has its result; returns the exit code.

        Raises:
            StepError: with JOB_FAILED where the step failed, TOO_LATE, TOO_DEAR, or NO_API.
        """
        state = State.read(self.jobs.read(), self.rules, self.now())
        while True:
            seen = self.jobs.settle(self._wanted(state))
            done = next((place for place in self.jobs.places if seen[place.job].outcome == ""), None)
            if done is not None:
                self._tell(f"done at {done.pool}")
                self._end(state, good=True)
                return OK
            if failed := next((place for place in self.jobs.places if seen[place.job].outcome), None):
                why = self.jobs.why(failed.job) or str(seen[failed.job].outcome)
                self._end(state, failed=failed.job)
                raise StepError(JOB_FAILED, f"failed at {failed.pool}: {why}")
            if self.now() - state.began >= self.time_limit:
                self._end(state)
                raise StepError(TOO_LATE, f"not done after {self.time_limit:.0f} s, its time limit")
            decision = decide(self.rules, state, self._look(state, seen))
            self._tell(decision.sentence)
            if decision.what == STOP:
                self._end(state)
                raise StepError(TOO_DEAR, f"{decision.sentence}; what is done is kept at its newest checkpoint")
            self.jobs.keep(state.write(), said=decision.sentence)
            self.jobs.sleep(PAUSE)

    def _wanted(self, state: State) -> list[str]:
        """The Jobs that may run."""
        places = self.jobs.places
        probe = places[state.probed].probe if state.probed >= 0 else ""
        return [places[state.place].job, *([probe] if probe else [])]

    def _look(self, state: State, seen: Mapping[str, Seen]) -> Look:
        place = self.jobs.places[state.place]
        job, probe = seen[place.job], seen.get(self.jobs.places[state.probed].probe) if state.probed >= 0 else None
        nodes = job.on_nodes >= place.pods
        return Look(
            self.now(),
            nodes=nodes,
            runs=job.running >= place.pods,
            probe_nodes=probe is not None and probe.running >= place.pods,
            checkpoint=self.newest() if job.running else state.saved,
            stockout="" if nodes or job.suspended else self.jobs.stockout(place.job),
        )

    def _end(self, state: State, *, good: bool = False, failed: str = "") -> None:
        """Suspend all Jobs, and note the way that the step took, and which Job `failed`: it is to be made anew."""
        # What is noted last is not noted at all where this pod is lost before: the next one ends in the same way.
        while not all(job.is_quiet for job in self.jobs.settle([]).values()):
            self.jobs.sleep(PAUSE)
        attempts = {failed: str(self.jobs.attempts.get(failed, 1) + 1)} if failed else {}
        self.jobs.end(state.write(), good=good, said=self._said, **attempts)

    def _tell(self, sentence: str) -> None:
        if sentence != self._said:
            self.say(sentence)
            self._said = sentence


def newest_file(directory: Path, quiet: float = QUIET) -> float:
    """When the newest file below the directory was written; 0 where there is none, or it is not older than `quiet`
    seconds: more may belong to it.

    A step saves its checkpoints there, and nothing else before its end.
    """
    newest = 0.0
    for count, entry in enumerate(_files(directory)):
        if count >= MOST_FILES:
            break
        newest = max(newest, entry)
    return newest if time.time() - newest >= quiet else 0.0


def _files(directory: Path) -> Iterator[float]:
    waiting = [str(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False).st_mtime
        except OSError:
            # It is not there yet, or no more.
            continue


def rules_of(plan: Mapping[str, Any]) -> Rules:
    """The rules of a plan."""
    places = [Place(place.pool, place.price, place.sure) for place in read_places(plan)]
    keys = ("next_after", "returns", "deadline", "work", "max_price")
    return Rules(places, **{key: plan[key] for key in keys})


def main(arguments: list[str] | None = None) -> int:
    """Move the step; returns the exit code.

    Raises:
        StepError: as `Mover.follow`.
    """
    options = _parse(arguments)
    stop_on_sigterm("the next pod goes on where this one was")
    cluster = PlaceJobs(api_of(options), options.namespace, notes=options.notes)
    plan: dict[str, Any] = json.loads(cluster.config_map(options.plan)["data"]["plan.json"])
    cluster.places = read_places(plan)
    cluster.claim(os.environ.get("POD_NAME", ""))
    directory = options.store / plan["directory"]
    return Mover(cluster, rules_of(plan), plan["time_limit"], lambda: newest_file(directory)).follow()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.schedule.places.move", description=__doc__)
    add_options(parser)
    parser.add_argument("--namespace", required=True, help="where the Jobs are")
    parser.add_argument(
        "--plan", required=True, metavar="NAME", help="the ConfigMap with the places and the rules"
    )
    parser.add_argument("--notes", required=True, metavar="NAME", help="the ConfigMap in which it keeps its state")
    parser.add_argument("--store", required=True, type=Path, metavar="DIR", help="where the store is mounted")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
