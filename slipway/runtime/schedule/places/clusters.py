"""The Jobs of a step with places in several clusters, as its mover sees and changes them.

Those of the mover's own cluster it changes itself. To each other one it writes orders, which an agent there
carries out and answers (`slipway.runtime.schedule.places.agent`). Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from slipway.runtime.kubernetes_api import persist
from slipway.runtime.schedule.places.jobs import ORDERED, Ending, PlaceJobs, Seen, read_places
from slipway.runtime.schedule.places.orders import FENCE, RENEW, TTL, Feeds, Order
from slipway.runtime.schedule.run import PATIENCE, PAUSE

NOTHING = Seen(True, 0, 0, 0, None)
"""What is seen of a Job of which nothing runs, nor will."""


@dataclass(frozen=True)
class Report:
    """A Job of another cluster as its agent sees it: its UID, and what `PlaceJobs` says of it."""

    uid: str
    seen: Seen
    stockout: str = ""
    why: str = ""
    due: int = 0
    waits: str = ""


@dataclass(frozen=True)
class Answer:
    """What the Jobs of a cluster were after its agent had read the order of that epoch and number."""

    epoch: int
    number: int
    jobs: Mapping[str, Report]

    @property
    def position(self) -> tuple[int, int]:
        """That of the order."""
        return self.epoch, self.number

    def write(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Answer:
        """The inverse of `write`."""
        jobs: dict[str, Report] = {}
        for name, report in content["jobs"].items():
            values: dict[str, Any] = {**report, "seen": Seen(**report["seen"])}
            jobs[name] = Report(**values)
        return cls(content["epoch"], content["number"], jobs)


@dataclass(frozen=True)
class Ask:
    """The newest ask of a pod, for a Job, and when the mover read it."""

    job: str
    number: int
    at: float


@dataclass
class OtherCluster:
    """What the mover tells another cluster, and what it hears from there. `uids` are those of its Jobs by name."""

    name: str
    feeds: Feeds
    uids: Mapping[str, str]
    answer: Answer | None = None
    left: dict[str, int] = field(default_factory=dict[str, int])
    """The number of the first order since which a Job is not wanted."""
    _answered_at: float = 0.0
    _pods: dict[str, Ask] = field(default_factory=dict[str, Ask])
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    _sent: Order | None = None
    _sent_at: float = 0.0

    def begin(self, now: float) -> None:
        """From now on it has `TTL` seconds to answer."""
        self._answered_at = now

    def read(self, now: float) -> None:
        """Take note of what is new from there. What cannot be read now may be read next time."""
        with contextlib.suppress(OSError, KeyError, TypeError):
            for pod, entry in self.feeds.asks.read().items():
                if pod not in self._pods or entry.number > self._pods[pod].number:
                    self._pods[pod] = Ask(str(entry.content["job"]), entry.number, now)
        with contextlib.suppress(OSError, KeyError, TypeError):
            for writer, entry in self.feeds.answers.read().items():
                if entry.number > self._numbers.get(writer, 0):
                    self._numbers[writer] = entry.number
                    self._take(Answer.read(entry.content), now)

    def _take(self, answer: Answer, now: float) -> None:
        if self.answer is None or answer.position >= self.answer.position:
            self.answer, self._answered_at = answer, now

    def report(self, name: str) -> Report | None:
        """The newest that is known of the Job, none of an earlier one of the same name."""
        report = self.answer.jobs.get(name) if self.answer else None
        return report if report and report.uid == self.uids.get(name, report.uid) else None

    def is_silent(self, now: float) -> bool:
        """Whether its agent does not answer."""
        return now - self._answered_at >= TTL

    def asking(self, name: str, now: float) -> int:
        """How many pods of the Job ask whether they may run."""
        return sum(1 for ask in self._pods.values() if ask.job == name and now - ask.at < TTL)

    def order(self, epoch: int, wanted: Sequence[str], now: float) -> None:
        """Say which Jobs may run, where that is due."""
        heard = {pod: ask.number for pod, ask in self._pods.items() if ask.job in wanted and now - ask.at < TTL}
        sent = self._sent
        if (
            sent is not None
            and list(wanted) == sent.wanted
            and heard.keys() <= sent.heard.keys()
            and now - self._sent_at < RENEW
        ):
            return
        for name in wanted:
            self.left.pop(name, None)
        order = Order(epoch, 0, list(wanted), heard)
        try:
            number = order.write(self.feeds.orders)
        except OSError as error:
            print(f"warning: cluster {self.name} gets no orders: {error}", flush=True)
            return
        self._sent, self._sent_at = order, now
        for name in self.uids:
            if name not in wanted:
                self.left.setdefault(name, number)

    def has_left(self, name: str, epoch: int) -> bool:
        """Whether it says that nothing of the Job runs, nor will, since that is not wanted any more."""
        report = self.report(name)
        if report is None or self.answer is None or name not in self.left:
            return False
        return self.answer.position >= (epoch, self.left[name]) and report.seen.is_quiet

    def end(self, epoch: int, ending: Ending) -> None:
        """Say that the mover has ended. Raises OSError."""
        Order(epoch, 0, [], {}, ending.code, ending.why).write(self.feeds.orders)
        self.feeds.asks.remove(list(self._pods))
        with contextlib.suppress(OSError):
            self.feeds.orders.remove([writer for writer in self.feeds.orders.read() if writer != str(epoch)])


@dataclass
class JobsOfClusters(PlaceJobs):
    """The Jobs of the places of one step in several clusters; `clusters` are the others by name.

    `busy` has the Jobs of other clusters of which pods may run, with the time of the last order that wanted them.
    It is in the notes before an order wants one, and while a place is busy, no other one is let run.
    """

    clusters: Mapping[str, OtherCluster] = field(default_factory=dict[str, OtherCluster])
    wall: Callable[[], float] = time.time
    _epoch: int = 0
    _busy: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def names(self) -> list[str]:
        """The names of the Jobs of the mover's own cluster, probes included."""
        return [name for name in super().names if name not in self._elsewhere]

    @property
    def _elsewhere(self) -> dict[str, OtherCluster]:
        """The other clusters by the names of all their Jobs."""
        return {
            name: self.clusters[place.cluster]
            for place in self.places
            if place.cluster
            for name in (place.job, place.probe)
            if name
        }

    @property
    def _place_jobs(self) -> set[str]:
        """The names of all Jobs but the probes."""
        return {place.job for place in self.places}

    def read(self) -> tuple[dict[str, Any], Ending | None]:
        """As of one cluster; from then on the orders of an earlier pod of the mover are not heard any more."""
        data = self._read_notes()
        ordered: dict[str, Any] = json.loads(data.get(ORDERED, "{}"))
        # The clock counts where the notes were made anew, and the store was not.
        self._epoch = max(int(ordered.get("epoch", 0)) + 1, int(self.wall()))
        now = self.now()
        self._busy = {name: now for name in ordered.get("busy", ()) if name in self._elsewhere}
        self._leave(data, self._elsewhere)
        self._keep_ordered()
        for cluster in self.clusters.values():
            cluster.begin(now)
        return self._kept(data)

    def _keep_ordered(self) -> None:
        busy = sorted({*self._busy, *self.gone})
        self._note({ORDERED: json.dumps({"epoch": self._epoch, "busy": busy})})

    def settle(self, wanted: Sequence[str], *, may_run: bool = True) -> dict[str, Seen]:
        """As of one cluster, with those of the others: what runs there is wanted, or ends within `TTL + FENCE`."""
        elsewhere, places = self._elsewhere, self._place_jobs
        # Asks are read before the Jobs here are looked at: where another pod moves them, nobody is heard.
        for cluster in self.clusters.values():
            cluster.read(self.now())
        self._let_go(wanted)
        ended = any(report.seen.outcome is not None for name in places if (report := self._report(name)))
        is_free = self._has_left() and may_run and not ended and not self._busy.keys() & places
        seen = super().settle(wanted, may_run=is_free)
        here = [job for name, job in seen.items() if name in places]
        is_free = is_free and all(job.is_quiet for job in here)
        may_probe = not ended and all(job.outcome is None for job in here)
        ordered = [
            name
            for name in wanted
            if name in elsewhere and (name in self._busy or (is_free if name in places else may_probe))
        ]
        if more := [name for name in ordered if name not in self._busy]:
            self._busy.update(dict.fromkeys(more, self.now()))
            self._keep_ordered()
        for cluster in self.clusters.values():
            cluster.order(self._epoch, [name for name in ordered if elsewhere[name] is cluster], self.now())
        self._busy.update(dict.fromkeys(ordered, self.now()))
        return {**seen, **{name: self._seen(name) for name in elsewhere}}

    def _let_go(self, wanted: Sequence[str]) -> None:
        """Note which Jobs of other clusters are not busy any more."""
        over = [
            name
            for name, since in self._busy.items()
            if name not in wanted
            and (self._elsewhere[name].has_left(name, self._epoch) or self.now() - since >= TTL + FENCE)
        ]
        if over:
            for name in over:
                del self._busy[name]
            self._keep_ordered()

    def _report(self, name: str) -> Report | None:
        cluster = self._elsewhere.get(name)
        return cluster.report(name) if cluster else None

    def _seen(self, name: str) -> Seen:
        """What a Job of another cluster is, as far as that is known."""
        cluster, report, now = self._elsewhere[name], self._report(name), self.now()
        seen = report.seen if report else NOTHING
        if name not in self._busy:
            return replace(NOTHING, outcome=seen.outcome)
        nodes, running = seen.on_nodes, seen.running
        if cluster.is_silent(now):
            # Its pods may go on without an agent.
            nodes = running = cluster.asking(name, now)
        return Seen(False, max(seen.pods, 1), nodes, running, seen.outcome)

    def stockout(self, name: str) -> str:
        """Also that a cluster does not answer."""
        cluster, report = self._elsewhere.get(name), self._report(name)
        if cluster is None:
            return super().stockout(name)
        if cluster.is_silent(self.now()):
            return f"cluster {cluster.name} does not answer"
        return report.stockout if report else ""

    def waits(self, name: str) -> str:
        """As of one cluster."""
        report = self._report(name)
        return report.waits if report else super().waits(name)

    def why(self, name: str) -> str:
        """As of one cluster."""
        report = self._report(name)
        return report.why if report else super().why(name)

    def due(self, name: str) -> int:
        """As of one cluster."""
        if name not in self._elsewhere:
            return super().due(name)
        report = self._report(name)
        return report.due if report else 0

    def finish(self, ending: Ending) -> None:
        """Tell the agents of all clusters that the mover has ended, and they with it."""
        for cluster in self.clusters.values():

            def end(cluster: OtherCluster = cluster) -> None:
                cluster.end(self._epoch, ending)

            try:
                persist(end, PATIENCE, PAUSE, self.sleep)
            except OSError as error:
                print(f"warning: the agent of cluster {cluster.name} was not told: {error}", flush=True)


def others(plan: Mapping[str, Any], orders: Path) -> dict[str, OtherCluster]:
    """The clusters of the places of a plan that are not the mover's own, with their folders below `orders`."""
    names: dict[str, list[str]] = {}
    for place in read_places(plan):
        if place.cluster:
            names.setdefault(place.cluster, []).extend(name for name in (place.job, place.probe) if name)
    uids: Mapping[str, str] = plan["jobs"]
    return {
        cluster: OtherCluster(cluster, Feeds.below(orders / cluster), {name: uids[name] for name in jobs})
        for cluster, jobs in names.items()
    }
