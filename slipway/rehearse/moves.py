"""Steps with places in a rehearsal: their Jobs run and stop as the mover says, on the clock of the trace.

The mover is `slipway.runtime.schedule.places.move.Mover` itself. What is stood in for is the API server: which
Jobs are suspended, and which of their pods have nodes.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipway.engine.provider_outputs import object_name
from slipway.evaluated.phrasing import duration, join, money
from slipway.evaluated.places import is_probe, moves_of
from slipway.infra.kubernetes.pods.pod import STORE
from slipway.infra.review.stack import Resource, at, mappings, strings, texts
from slipway.rehearse.capacity import Capacity, Clock
from slipway.rehearse.cluster.cluster_objects import Namespace
from slipway.rehearse.cluster.job_controller import SUSPENDED, JobResult, LinkedStop
from slipway.rehearse.machine.processes import CancelledError, Stop
from slipway.runtime.exits import StepError
from slipway.runtime.kubernetes_api import Api
from slipway.runtime.schedule.places.clusters import OtherCluster
from slipway.runtime.schedule.places.jobs import LAST, STATE, Ending, PlaceJobs, PlannedPlace, Seen, read_places
from slipway.runtime.schedule.places.kept import restore
from slipway.runtime.schedule.places.move import Mover, newest_file, rules_of
from slipway.runtime.schedule.places.orders import Feeds
from slipway.runtime.schedule.places.policy import MARGIN, Rules, State, paid

PAUSE = 0.1
"""Seconds between two looks of the mover."""

GRACE = 10.0
"""Seconds that the program of a step has to end when its Job is suspended."""

FRESH = 1.0
"""Seconds since a checkpoint after which next to nothing is lost: the programs of a rehearsal are short."""

QUIET = 0.3
"""Seconds without a further file after which those that are there are taken for a checkpoint."""


def plan_of(resource: Resource, namespace: Namespace) -> dict[str, Any]:
    """What the mover of ``resource`` reads: its places, their Jobs, and the rules."""
    config_map = namespace.find("ConfigMap", str(moves_of(resource)["plan"]))
    data = strings(config_map.inputs.get("data")) if config_map else {}
    return json.loads(data["plan.json"])


@dataclass
class HeldJob:
    """A Job that is suspended until somebody lets it run. ``run`` does that until it ends or is told to stop, and
    ``placed`` says how many of its pods are on nodes.
    """

    resource: Resource
    run: Callable[["HeldJob", Stop], JobResult]
    suspended: bool = True
    placed: Callable[[], int] = lambda: 0
    result: JobResult | None = None
    error: Exception | None = None
    _stop: Stop | None = None
    _thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The Kubernetes name of the Job."""
        return object_name(self.resource)

    @property
    def is_alive(self) -> bool:
        """Whether it has pods."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def outcome(self) -> str | None:
        """Empty where it is complete, the reason where it failed, None where it has not ended."""
        if self.error is not None:
            return str(self.error)
        if self.result is None or self.is_alive:
            return None
        return "" if self.result.succeeded else f"{self.result.reason}: {self.result.message}"

    def release(self, stop: Stop) -> None:
        """Lets it run; ``stop`` ends it, too."""
        self.suspended = False
        linked = LinkedStop(stop)
        thread = threading.Thread(target=self._follow, args=(linked, self._thread), daemon=True)
        self._stop, self._thread = linked, thread
        thread.start()

    def suspend(self, grace: float) -> None:
        """Takes its pods from it."""
        self.suspended = True
        if self._stop is not None:
            self._stop.request(SUSPENDED, grace)

    def join(self) -> None:
        """Waits until its pods have ended."""
        if self._thread is not None:
            self._thread.join()

    def _follow(self, stop: Stop, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            result = self.run(self, stop)
        except CancelledError:
            # It waited for quota.
            return
        except Exception as error:
            self.error = error
            return
        if stop.kind != SUSPENDED or result.succeeded:
            self.result = result


@dataclass
class RehearsedJobs(PlaceJobs):
    """The Jobs of the places of one step, by their Kubernetes names; ``stop`` ends all of them."""

    held: Mapping[str, HeldJob] = field(default_factory=dict[str, HeldJob])
    stop: Stop = field(default_factory=Stop)
    others: Sequence[OtherCluster] = ()
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    epoch: int = field(default_factory=lambda: int(time.time()))

    def settle(self, wanted: Sequence[str], *, may_run: bool = True) -> dict[str, Seen]:
        """As of a cluster. Programs in other clusters begin when an order lets them, as there."""
        seen = super().settle(wanted, may_run=may_run)
        for cluster in self.others:
            cluster.read(self.now())
            run = [name for name in wanted if name in cluster.uids and not self.held[name].suspended]
            cluster.order(self.epoch, run, self.now())
        return seen

    def look(self, name: str) -> Seen:
        """The Job of that name and its pods."""
        job = self.held[name]
        on_nodes = job.placed() if job.is_alive else 0
        return Seen(job.suspended, max(on_nodes, int(job.is_alive)), on_nodes, on_nodes, job.outcome)

    def suspend(self, name: str, suspended: bool) -> None:
        job = self.held[name]
        if suspended:
            job.suspend(0.0 if is_probe(job.resource) else GRACE)
        else:
            job.release(self.stop)

    def stockout(self, name: str) -> str:
        """Nobody says it here."""
        del name
        return ""

    def tell(self, sentence: str) -> None:
        """It is in the log."""
        del sentence

    def why(self, name: str) -> str:
        result = self.held[name].result
        if not result or not result.pod:
            return ""
        return ": ".join([result.pod.ending, *result.pod.message.strip().splitlines()[-1:]])

    def read(self) -> tuple[dict[str, Any], Ending | None]:
        return dict(self.state), None

    def way(self, rules: Rules, now: float) -> str:
        """The way that the step took until ``now``, in words."""
        return way_words(rules, restore(self.state, self.places, rules, now), now)

    def due(self, name: str) -> int:
        """Another rehearsal runs all anew."""
        del name
        return 1

    def _note(self, data: Mapping[str, str | None]) -> None:
        # What is noted at the end is the way that the step took.
        if kept := data.get(STATE) or data.get(LAST):
            self.state = json.loads(kept)


def clusters_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """The clusters of the Jobs that are moved, by their names; empty for that of the mover."""
    return {name: place.cluster for place in read_places(plan) for name in (place.job, place.probe) if name}


def orders_of(mover: Resource) -> str:
    """The folder below the store's root with the orders of a mover; empty where its places are in one cluster."""
    (container, *_) = mappings(at(mover.inputs, "spec", "template", "spec", "containers"))
    arguments = texts(container.get("args"))
    folder = arguments[arguments.index(ORDERS) + 1] if ORDERS in arguments else ""
    return folder.removeprefix(f"{STORE}/")


@dataclass(frozen=True)
class Way:
    """What a step with places goes by: the ``store`` for its checkpoints and its result, and the folder there for
    ``orders`` to other clusters, ``capacity``, and who is told what happens.
    """

    store: Path
    orders: str
    capacity: Capacity | None
    say: Callable[[str], None]


def move(plan: Mapping[str, Any], jobs: Sequence[HeldJob], stop: Stop, way: Way) -> JobResult:
    """Moves a step by its ``plan`` until it is done or has failed.

    Raises CancelledError where ``stop`` is requested.
    """
    store, capacity, say = way.store, way.capacity, way.say
    clock = capacity.clock if capacity else Clock()
    clock.start()
    began = time.time() - clock.now() / clock.speed
    said = [""]

    def now() -> float:
        return began + clock.now()

    def newest() -> float:
        written = newest_file(store / plan["directory"], QUIET)
        return began + (written - began) * clock.speed if written > began else 0.0

    def pause(_: float) -> None:
        if capacity:
            capacity.take_back()
        stop.wait(PAUSE)
        if stop.requested:
            raise CancelledError

    def tell(sentence: str) -> None:
        # How many minutes it waited is a new sentence several times a second.
        words = re.sub(r"\d+", "", sentence)
        if words != said[0]:
            said[0] = words
            say(sentence)

    held, places = {job.name: job for job in jobs}, read_places(plan)
    others = _other_clusters(places, store / way.orders)
    cluster = RehearsedJobs(NO_API, "", pause, places, held=held, stop=stop, others=others)
    # However short `next_after` is on the clock of the trace, a process here needs its second to be there.
    declared = rules_of(plan)
    next_after = max(declared.next_after, MARGIN * clock.speed)
    rules = replace(
        declared, next_after=next_after, fresh=FRESH * clock.speed, start=clock.speed, interval=clock.speed
    )
    try:
        # How long a program takes on this machine says nothing of a time limit on the clock of the trace.
        limit = math.inf if capacity else plan["time_limit"]
        Mover(cluster, lambda: (rules, limit), newest, now, tell).follow()
        say(cluster.way(rules, now()))
    except StepError as error:
        failed = next((job.result for job in jobs if job.result is not None and not job.result.succeeded), None)
        return JobResult(False, "Failed", str(error), 0, failed.pod if failed else None)
    finally:
        # Where the rehearsal is interrupted, their programs have its seconds.
        for job in jobs:
            if not stop.requested:
                job.suspend(0.0)
        for job in jobs:
            job.join()
    return next(job.result for job in jobs if job.result is not None and job.result.succeeded)


def _other_clusters(places: Sequence[PlannedPlace], orders: Path) -> list[OtherCluster]:
    jobs: dict[str, dict[str, str]] = {}
    for place in places:
        if place.cluster:
            jobs.setdefault(place.cluster, {}).update({name: name for name in (place.job, place.probe) if name})
    return [OtherCluster(name, Feeds.below(orders / name), of_cluster) for name, of_cluster in jobs.items()]


def way_words(rules: Rules, state: State, now: float) -> str:
    """The way that a step took until ``now``: how long it was at each place, and the nodes that it had there."""
    ends = [*(entry[1] for entry in state.way[1:]), now]
    stays = [
        f"{rules.places[int(index)].name} {duration(end - since)}"
        for (index, since, _), end in zip(state.way, ends, strict=True)
    ]
    had = [
        f"{place.name} {duration(seconds)} ({money(place.price and place.price * seconds / 3600)})"
        for place, seconds in zip(rules.places, state.spent, strict=True)
        if seconds
    ]
    known = all(
        place.price is not None for place, seconds in zip(rules.places, state.spent, strict=True) if seconds
    )
    total = money(paid(rules, state) if known else None)
    return f"its way: {' → '.join(stays)}; nodes: {join(had)}; {total} in all"


ORDERS = "--orders"
"""The argument of a mover with the folder of its orders (`slipway.infra.kubernetes.places.mover`)."""

NO_API = Api("", Path())
"""A rehearsal has no API server."""
