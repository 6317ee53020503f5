"""Carry out the orders of the mover of a step in another cluster than its own, and answer them.

It lets the Jobs run that the newest order wants, and suspends all others; so it does with all where no order came
for `TTL` seconds. It ends as the mover did. All that it knows is in the cluster and in the store, so that the next
pod goes on where one was lost. Run as `python -m slipway.runtime.schedule.places.agent --namespace slipway
--plan mnist-train-mover --orders DIR --cluster NAME`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.runtime.exits import OK, StepError, run, stop_on_sigterm
from slipway.runtime.kubernetes_api import add_options, api_of
from slipway.runtime.schedule.places.clusters import Answer, Report
from slipway.runtime.schedule.places.jobs import PlaceJobs, Seen, read_places
from slipway.runtime.schedule.places.orders import RENEW, TTL, Feeds, Order
from slipway.runtime.schedule.run import PAUSE

SILENT = "the mover sends no orders"

LATE = 900.0
"""Seconds after which an end is believed that was there at the beginning: by then a new mover would have begun."""


@dataclass
class Agent:
    """`jobs` are those of its cluster, which it has claimed."""

    jobs: PlaceJobs
    feeds: Feeds
    now: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda text: print(text, flush=True)
    _order: Order | None = None
    _came_at: float | None = None
    _has_read: bool = False
    _answer: dict[str, Any] = field(default_factory=dict[str, Any])
    _answered_at: float = 0.0
    _said: str = ""

    def __post_init__(self) -> None:
        self._began = self.now()

    def follow(self) -> int:
        """Carry out orders until the mover has ended; returns its exit code.

        Raises:
            StepError: with the exit code of the mover where that is not 0, or NO_API.
        """
        while True:
            wanted = self._read()
            if wanted is None:
                self.jobs.sleep(PAUSE)
                continue
            seen = self.jobs.settle(wanted)
            order = self._order
            if order is not None:
                self._tell(order, seen, wanted)
                if self._is_end(order) and all(job.is_quiet for job in seen.values()):
                    return _end_with(order)
            self.jobs.sleep(PAUSE)

    def _read(self) -> list[str] | None:
        """Take note of the newest order; returns the Jobs that may run, None before the first order came.

        What an earlier pod let run goes on till then: its pods ask for themselves.
        """
        try:
            order = Order.newest(self.feeds.orders)
        except OSError as error:
            self._say(f"the orders cannot be read: {error}")
            order = None
        else:
            # What lies there at the beginning may be of a mover that is no more.
            if order and (self._order is None or order.position > self._order.position):
                self._order = order
                self._came_at = self.now() if self._has_read else None
            self._has_read = True
        if self.now() - (self._began if self._came_at is None else self._came_at) >= TTL:
            self._say(SILENT)
            return []
        if self._order is None or self._came_at is None:
            return None
        wanted = [name for name in self._order.wanted if name in self.jobs.names]
        self._say(f"may run: {', '.join(wanted) or 'nothing'}")
        return wanted

    def _tell(self, order: Order, seen: Mapping[str, Seen], wanted: list[str]) -> None:
        """Answer where something is new, or that is due."""
        pods = {name: place.pods for place in self.jobs.places for name in (place.job, place.probe)}
        jobs: dict[str, Report] = {}
        for name, job in seen.items():
            no_nodes = name in wanted and not job.suspended and job.on_nodes < pods[name]
            jobs[name] = Report(
                self.jobs.uid(name),
                job,
                self.jobs.stockout(name) if no_nodes else "",
                self.jobs.why(name) if job.outcome else "",
                self.jobs.due(name),
                self.jobs.waits(name) if no_nodes else "",
            )
        answer = Answer(order.epoch, order.number, jobs).write()
        if answer == self._answer and self.now() - self._answered_at < RENEW:
            return
        try:
            self.feeds.answers.append(self.jobs.holder, answer)
        except OSError as error:
            self._say(f"no answer can be written: {error}")
        else:
            if not self._answer:
                # Those of pods before this one say nothing any more.
                with contextlib.suppress(OSError):
                    self.feeds.answers.remove(set(self.feeds.answers.read()) - {self.jobs.holder})
            self._answer, self._answered_at = answer, self.now()

    def _is_end(self, order: Order) -> bool:
        # One that was there before may be of a mover before the present one.
        return order.code is not None and (self._came_at is not None or self.now() - self._began >= LATE)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self.say(sentence)
            self._said = sentence


def _end_with(order: Order) -> int:
    assert order.code is not None
    if order.code == OK:
        return OK
    raise StepError(order.code, order.why)


def main(arguments: list[str] | None = None) -> int:
    """Carry out the orders; returns the exit code.

    Raises:
        StepError: as `Agent.follow`.
    """
    options = _parse(arguments)
    stop_on_sigterm("the next pod goes on where this one was")
    jobs = PlaceJobs(api_of(options), options.namespace)
    plan: dict[str, Any] = json.loads(jobs.config_map(options.plan)["data"]["plan.json"])
    jobs.places = [place for place in read_places(plan) if place.cluster == options.cluster]
    jobs.claim(os.environ.get("POD_NAME", ""))
    return Agent(jobs, Feeds.below(options.orders / options.cluster)).follow()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.schedule.places.agent", description=__doc__)
    add_options(parser)
    parser.add_argument("--namespace", required=True, help="where the Jobs are")
    parser.add_argument("--plan", required=True, metavar="NAME", help="the ConfigMap with the places")
    parser.add_argument(
        "--orders", required=True, type=Path, metavar="DIR", help="the folder with the orders of the mover"
    )
    parser.add_argument("--cluster", required=True, metavar="NAME", help="the name of this cluster in the plan")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
