"""Let a step run at one of its places at a time, and move it to another one where that is due.

The pod of the step's own Job starts it. All that it knows is in the cluster: which Jobs run, and in its notes
where the step is on its way. A pod that takes the place of a lost one goes on with these. It ends when the step
has its result, or cannot have one, and leaves no pod of the step behind. Run as `python -m
slipway.runtime.schedule.places.move --namespace slipway --plan mnist-train-mover --notes
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

from slipway.runtime.exits import OK, StepError, run, stop_on_sigterm
from slipway.runtime.kubernetes_api import add_options, api_of
from slipway.runtime.schedule.places.clusters import JobsOfClusters, others
from slipway.runtime.schedule.places.jobs import Ending, PlaceJobs, Seen, read_places
from slipway.runtime.schedule.places.kept import former_jobs, restore, written
from slipway.runtime.schedule.places.policy import STOP, Look, Place, Rules, State, decide
from slipway.runtime.schedule.run import JOB_FAILED, NO_API, PAUSE, Cluster, limits_in
from slipway.runtime.usage.limits import GRACE, USAGE, Guard, Reached

TOO_LATE = 18
"""Exit code: the step was not done at its time limit."""

TOO_DEAR = 19
"""Exit code: the step ended at a checkpoint, before it would cost more than it may."""

MOST_FILES = 20_000
"""Files of a step's directory at which the search for the newest checkpoint ends."""

BETWEEN_SEARCHES = 30.0
"""Seconds between two searches for the newest checkpoint, where the step is not about to leave after it."""

QUIET = 5.0
"""Seconds without a further file after which those that are there are taken for a checkpoint."""


@dataclass
class Mover:
    """What moves one step. `plan` gives the rules as they are now, and the time limit in seconds. `now` is the
    time in seconds since the epoch, `newest` that of the newest checkpoint, 0 where there is none. `say` gets each
    new sentence on where the step is. `reached` says which limit would end a pod at a pool as soon as that has a
    node.
    """

    jobs: PlaceJobs
    plan: Callable[[], tuple[Rules, float]]
    newest: Callable[[], float]
    now: Callable[[], float] = time.time
    say: Callable[[str], None] = lambda text: print(text, flush=True)
    reached: Callable[[str], Reached | None] = lambda _: None
    _said: str = ""
    _newest: float = 0.0
    _searched_at: float | None = None

    def follow(self) -> int:
        """Move the step until it has its result; returns the exit code.

        Raises:
            StepError: with JOB_FAILED where the step failed, BUDGET_SPENT or GPU_IDLE where a limit ended it,
                TOO_LATE, TOO_DEAR, or NO_API.
        """
        content, ending = self.jobs.read()
        if ending is not None:
            # A pod of the same Job ended, and was lost before Kubernetes saw it.
            self._stop_all()
            self.jobs.finish(ending)
            return _end_with(ending)
        rules, time_limit = self.plan()
        state = restore(content, self.jobs.places, rules, self.now())
        if self.jobs.stopped:
            state.resume(self.now())
        self.jobs.former = former_jobs(content, self.jobs.places, self.jobs.every)
        self._keep(state)
        place = -1 if not content else state.place
        while True:
            if place != state.place and (limit := self.reached(self.jobs.places[state.place].pool)):
                return self._end(state, Ending(limit.code, f"{limit.words}: no node is asked for"))
            place = state.place
            seen = self.jobs.settle(self._wanted(state))
            done = next((place for place in self.jobs.places if seen[place.job].outcome == ""), None)
            if done is not None:
                self._tell(f"done at {done.pool}")
                return self._end(state, Ending(OK, self._said))
            if failed := next((place for place in self.jobs.places if seen[place.job].outcome), None):
                why = self.jobs.why(failed.job) or str(seen[failed.job].outcome)
                # A spent budget is none of this place, and the next one would be paid from it, too.
                limit = Reached.parse(why)
                code = limit.code if limit else JOB_FAILED
                return self._end(state, Ending(code, f"failed at {failed.pool}: {why}"))
            if self.now() - state.began >= time_limit:
                why = f"not done after {time_limit:.0f} s, its time limit"
                return self._end(state, Ending(TOO_LATE, why))
            decision = decide(rules, state, self._look(rules, state, seen))
            self._tell(decision.sentence)
            if decision.what == STOP:
                why = f"{decision.sentence}; what is done is kept at its newest checkpoint"
                return self._end(state, Ending(TOO_DEAR, why))
            self._keep(state)
            self.jobs.sleep(PAUSE)
            rules, time_limit = self.plan()

    def _wanted(self, state: State) -> list[str]:
        """The Jobs that may run."""
        places = self.jobs.places
        probe = places[state.probed].probe if state.probed >= 0 else ""
        return [places[state.place].job, *([probe] if probe else [])]

    def _look(self, rules: Rules, state: State, seen: Mapping[str, Seen]) -> Look:
        place = self.jobs.places[state.place]
        probed = self.jobs.places[state.probed].probe if state.probed >= 0 else ""
        job, probe = seen[place.job], seen.get(probed)
        nodes = job.on_nodes >= place.pods
        probe_nodes = probe is not None and probe.running >= place.pods
        return Look(
            self.now(),
            nodes=nodes,
            runs=job.running >= place.pods,
            probe_nodes=probe_nodes,
            checkpoint=self._checkpoint(rules, state, leaves=probe_nodes) if job.running else state.saved,
            stockout="" if nodes or job.suspended else self.jobs.stockout(place.job),
            queue="" if nodes else self.jobs.waits(place.job),
            probe_stockout=self.jobs.stockout(probed)
            if probe and not probe.suspended and not probe.on_nodes
            else "",
        )

    def _checkpoint(self, rules: Rules, state: State, *, leaves: bool) -> float:
        """The time of the newest checkpoint, where anything depends on it; `leaves` says that the step leaves its
        place after the next one. A directory with many files takes its time on a mount of a bucket.
        """
        timed = rules.deadline is not None or rules.work is not None
        if not (timed or rules.max_price is not None or (rules.returns and state.place > 0)):
            return state.saved
        searched, now = self._searched_at, self.now()
        if leaves or rules.max_price is not None or searched is None or now - searched >= BETWEEN_SEARCHES:
            self._newest, self._searched_at = self.newest(), now
        return self._newest

    def _keep(self, state: State) -> None:
        self.jobs.keep(written(state, self.jobs.places, self.jobs.former), said=self._said)

    def _end(self, state: State, ending: Ending) -> int:
        """Suspend all Jobs, note the way that the step took and which attempts are due, and end."""
        # What is noted last is not noted at all where this pod is lost before: the next one ends in the same way.
        self._stop_all()
        numbers = {place.job: self.jobs.due(place.job) for place in self.jobs.places if ending.code != OK}
        due = {name: str(number) for name, number in numbers.items() if number}
        self.jobs.end(written(state, self.jobs.places), ending, said=self._said, **due)
        self.jobs.finish(ending)
        return _end_with(ending)

    def _stop_all(self) -> None:
        while not all(job.is_quiet for job in self.jobs.settle([]).values()):
            self.jobs.sleep(PAUSE)

    def _tell(self, sentence: str) -> None:
        if sentence != self._said:
            self.say(sentence)
            self.jobs.tell(sentence)
            self._said = sentence


def _end_with(ending: Ending) -> int:
    if ending.code == OK:
        return OK
    raise StepError(ending.code, ending.why)


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
    places = [Place(place.pool, place.price, place.sure, bool(place.probe)) for place in read_places(plan)]
    keys = ("next_after", "returns", "deadline", "work", "max_price")
    return Rules(places, **{key: plan[key] for key in keys})


def main(arguments: list[str] | None = None) -> int:
    """Move the step; returns the exit code.

    Raises:
        StepError: as `Mover.follow`.
    """
    options = _parse(arguments)
    stop_on_sigterm("the next pod goes on where this one was")
    api, namespace, notes = api_of(options), options.namespace, options.notes

    def read_plan() -> dict[str, Any]:
        return json.loads(Cluster(api, namespace).config_map(options.plan)["data"]["plan.json"])

    plan = read_plan()
    places = read_places(plan)

    def read_rules() -> tuple[Rules, float]:
        now = read_plan()
        if [place.job for place in read_places(now)] != [place.job for place in places]:
            raise StepError(NO_API, "the step has other places now: the next pod goes on with these")
        return rules_of(now), now["time_limit"]

    shared: dict[str, Any] = {"places": places, "notes": notes, "every": plan["every"]}
    cluster = (
        PlaceJobs(api, namespace, **shared)
        if options.orders is None
        else JobsOfClusters(api, namespace, **shared, clusters=others(plan, options.orders))
    )
    cluster.claim(os.environ.get("POD_NAME", ""))
    directory = options.store / plan["directory"]
    mover = Mover(cluster, read_rules, lambda: newest_file(directory))
    if options.limits and plan["directory"]:
        mover.reached = limit_at(Cluster(api, namespace), options, plan)
    return mover.follow()


def limit_at(
    cluster: Cluster, options: argparse.Namespace, plan: Mapping[str, Any]
) -> Callable[[str], Reached | None]:
    """Says by the records of the store which limit would end the pods of the step at a pool, once they have
    nodes."""
    pods = {place.pool: place.pods for place in read_places(plan)}
    # Nothing is kept there: it is no pod of the step.
    file = options.store / USAGE / plan["directory"] / "mover.json"

    def reached(pool: str) -> Reached | None:
        try:
            guard = Guard(lambda: limits_in(cluster, options.limits), file, plan["step"], pool, grace=GRACE)
            return guard.look_ahead(pods[pool])
        except (OSError, ValueError, TypeError, KeyError, StepError) as error:
            # The pod itself looks, too.
            print(f"warning: the budget is not looked at: {error!r}", flush=True)
            return None

    return reached


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.schedule.places.move", description=__doc__)
    add_options(parser)
    parser.add_argument("--namespace", required=True, help="where the Jobs are")
    parser.add_argument(
        "--plan", required=True, metavar="NAME", help="the ConfigMap with the places and the rules"
    )
    parser.add_argument("--notes", required=True, metavar="NAME", help="the ConfigMap in which it keeps its state")
    parser.add_argument("--store", required=True, type=Path, metavar="DIR", help="where the store is mounted")
    parser.add_argument("--limits", metavar="NAME", help="the ConfigMap with what the stack may spend")
    parser.add_argument(
        "--orders", type=Path, metavar="DIR", help="the folder for orders to other clusters, where there are any"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
