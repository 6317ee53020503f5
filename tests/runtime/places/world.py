"""Clusters in which a step with places runs, on a clock of their own: Jobs, their controller, nodes, and programs.

What it keeps to of Kubernetes 1.34 (pkg/controller/job): the Job controller acts on what a Job was seconds ago,
creates pods before it says so in the Job's status, and does not count those of a suspended Job that it deletes; a
deleted pod runs on for its grace period; a merge patch with another `resourceVersion` is refused. Movers and
agents run in threads, one at a time, each up to its next request. In other clusters than the mover's, programs run
below a real `Lease`.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from slipway.runtime.exits import StepError
from slipway.runtime.kubernetes_api import Api, ExistsError
from slipway.runtime.schedule.places.agent import Agent
from slipway.runtime.schedule.places.clusters import JobsOfClusters, OtherCluster
from slipway.runtime.schedule.places.hold import GRACE as HOLD_GRACE
from slipway.runtime.schedule.places.hold import Lease
from slipway.runtime.schedule.places.jobs import PlaceJobs, read_places
from slipway.runtime.schedule.places.move import Mover, rules_of
from slipway.runtime.schedule.places.orders import Feeds
from slipway.runtime.schedule.places.policy import Rules
from slipway.runtime.usage.limits import Reached
from tests.runtime.places.shared_store import CUT_SECONDS, Store

JOBS, MAPS = "/apis/batch/v1/namespaces/ml/jobs", "/api/v1/namespaces/ml/configmaps"
PODS, EVENTS = "/api/v1/namespaces/ml/pods", "/api/v1/namespaces/ml/events"
PRICES = {"spot": 1.0, "flex": 2.0, "bought": 4.0}
ONE_CLUSTER = dict.fromkeys(PRICES, "")
BOOT, GRACE = 40.0, 30.0
NOTES = "notes"


class LostError(BaseException):
    """The mover's process is gone."""


@dataclass
class Pod:
    name: str
    job: str
    pool: str
    created: float
    on_node: bool = False
    runs_since: float | None = None
    deleted_at: float | None = None
    lease: Lease | None = None
    began: float | None = None
    ends_at: float | None = None

    @property
    def computes_since(self) -> float | None:
        """Since when its program runs."""
        return self.runs_since if self.lease is None else self.began


@dataclass
class Job:
    """``is_probe``: its program never ends. ``versions`` are what it was, with the times since when, of which the
    Job controller knows those up to ``seen_until``.
    """

    name: str
    pool: str
    is_probe: bool
    content: dict[str, Any]
    versions: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    seen_until: float = 0.0

    @property
    def conditions(self) -> dict[str, str]:
        return {entry["type"]: entry["status"] for entry in self.content["status"].get("conditions", [])}

    @property
    def has_ended(self) -> bool:
        return "True" in (self.conditions.get("Complete"), self.conditions.get("Failed"))


@dataclass
class World:
    """``rates`` say how likely things are: a lost mover, a refused request, an eviction, each a second or request.

    ``work`` are seconds that the program computes in all, ``checkpoint`` those from one checkpoint to the next.
    With ``clears`` a suspended Job forgets when it began, as since Kubernetes 1.36 (1.37.2 seen, November 2026).
    With ``limits`` a Job fails that is let run again more than its time limit after it began.
    """

    chance: random.Random
    rules: dict[str, Any]
    work: float = 600.0
    checkpoint: float = 60.0
    fails: bool = False
    words: str = ""
    """The last line of a program that fails."""
    reached: Callable[[str], Reached | None] = lambda _: None
    lag: float = 3.0
    pods_each: int = 1
    clusters: Mapping[str, str] = field(default_factory=lambda: ONE_CLUSTER)
    """The cluster of each pool, empty for that of the mover."""
    now: float = 1_000_000.0
    jobs: dict[str, Job] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, bool] = field(default_factory=dict)
    flips: dict[str, tuple[float, float]] = field(default_factory=dict)
    """How likely it is in a second that a pool gets nodes where it has none, and that it loses them."""
    saved: float = 0.0
    saved_at: float = 0.0
    dropped: set[str] = field(default_factory=set[str])
    published: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    mover_uid: str = "first"
    movers: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    refuses: float = 0.0
    limits: bool = False
    clears: bool = False
    api_cuts: float = 0.0
    api_until: dict[str, float] = field(default_factory=dict)
    ticked: float = 0.0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.store = Store(self.chance, sorted(set(self.clusters.values())), lambda: self.now)
        for index, pool in enumerate(self.clusters):
            self._make(f"train-{pool}", pool, is_probe=False)
            if index < len(self.clusters) - 1:
                self._make(f"train-{pool}-probe", pool, is_probe=True)
            self.capacity[pool] = pool == "bought"
        self.notes = {"metadata": {"resourceVersion": "0"}, "data": {"about": "x"}}
        self.ticked = self.now

    def _make(self, name: str, pool: str, *, is_probe: bool, attempt: int = 1) -> None:
        annotations = {"slipway/attempt": str(attempt)} if attempt > 1 else {}
        content: dict[str, Any] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{self._version()}",
                "resourceVersion": self._version(),
                "annotations": {},
            },
            "spec": {"suspend": True, "template": {"metadata": {"annotations": annotations}}},
            "status": {},
        }
        self.jobs[name] = Job(name, pool, is_probe, content, [(self.now, copy.deepcopy(content))])

    def _version(self) -> str:
        return str(next(self.numbers) + 1)

    @property
    def plan(self) -> dict[str, Any]:
        places = [
            {
                "pool": pool,
                "job": f"train-{pool}",
                "probe": f"train-{pool}-probe" if f"train-{pool}-probe" in self.jobs else "",
                "pods": self.pods_each,
                "sure": pool == "bought",
                "price": PRICES[pool],
                **({"cluster": cluster} if cluster else {}),
            }
            for pool, cluster in self.clusters.items()
            if pool not in self.dropped
        ]
        return {
            "places": places,
            "every": [f"train-{pool}" for pool, cluster in self.clusters.items() if not cluster],
            "jobs": {name: job.content["metadata"]["uid"] for name, job in self.jobs.items()},
            **{"returns": True, "deadline": None, "work": None, "max_price": None, **self.rules},
        }

    # What an `up` does after one that failed: another mover, and another Job in place of each that failed.
    def update(self) -> None:
        self.mover_uid = f"mover-{next(self.numbers)}"
        for job in list(self.jobs.values()):
            due = int(self.notes["data"].get(job.name, 1))
            made = int(job.content["spec"]["template"]["metadata"]["annotations"].get("slipway/attempt", 1))
            if due != made:
                self._make(job.name, job.pool, is_probe=job.is_probe, attempt=due)

    # The API server.

    def answer(self, method: str, path: str, content: dict[str, Any] | None, cluster: str = "") -> dict[str, Any]:
        path, _, query = path.partition("?")
        if path == PODS:
            return {"items": self._listed(query.rpartition("job-name%3D")[2])}
        if path == EVENTS:
            self.events += [content] if content else []
            return {"items": []}
        if path == f"{MAPS}/{NOTES}":
            assert not cluster
            if method == "PATCH":
                assert content
                self._merge(self.notes, content)
            return copy.deepcopy(self.notes)
        job = self.jobs[path.removeprefix(f"{JOBS}/")]
        assert self.clusters[job.pool] == cluster, "nobody reaches another cluster"
        if method == "PATCH":
            assert content
            self._merge(job.content, content)
            self._changed(job)
            if content.get("spec") == {"suspend": False}:
                self._check_release(job)
        return copy.deepcopy(job.content)

    def _listed(self, job: str) -> list[dict[str, Any]]:
        if job not in self.jobs:
            return [
                {"metadata": {"name": name, "ownerReferences": [{"uid": uid}]}, "status": {"phase": "Running"}}
                for name, uid in {**self.movers, **self.agents}.items()
                if name.rpartition("-")[0] == job
            ]
        if self.words and self.jobs[job].conditions.get("Failed") == "True":
            ended = {"exitCode": 21, "reason": "Error", "message": self.words}
            status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
            return [{"metadata": {"name": f"{job}-0"}, "spec": {"nodeName": "n"}, "status": status}]
        return [
            {
                "metadata": {"name": pod.name},
                "spec": {"nodeName": "n"} if pod.on_node else {},
                "status": {"phase": "Pending" if pod.runs_since is None else "Running"},
            }
            for pod in self.pods.values()
            if pod.job == job
        ]

    def _merge(self, live: dict[str, Any], changes: dict[str, Any]) -> None:
        version = changes.get("metadata", {}).get("resourceVersion")
        if version is not None and version != live["metadata"]["resourceVersion"]:
            raise ExistsError("409: the object has been modified")
        before = copy.deepcopy(live)
        merge(live, changes)
        if live != before:
            live["metadata"]["resourceVersion"] = self._version()

    def _changed(self, job: Job) -> None:
        job.versions.append((self.now, copy.deepcopy(job.content)))

    def _check_release(self, job: Job) -> None:
        if self.clusters[job.pool]:
            # What runs there is the matter of its pods.
            return
        ended = json.loads(self.notes["data"].get("ended", "{}"))
        if ended.get("mover") == self.mover_uid:
            self.wrong.append(f"{self.now:.0f}: {job.name} is let run by a mover that has ended")
        # That one of another cluster has ended is not known where that is cut off: the next one finds its result.
        here = [other for other in self.jobs.values() if not self.clusters[other.pool]]
        if not job.is_probe and any(other.has_ended for other in here if not other.is_probe):
            self.wrong.append(f"{self.now:.0f}: {job.name} is let run after another one has ended")

    # The controllers, nodes and programs.

    def pass_time(self, seconds: float) -> None:
        """What happens meanwhile, a second at a time."""
        end = self.now + seconds
        while self.ticked + 1 <= end:
            self.ticked += 1
            self.now = self.ticked
            self.store.pass_second()
            for cluster in self.store.clusters:
                if self.chance.random() < self.api_cuts:
                    self.api_until[cluster] = self.now + self.chance.random() * CUT_SECONDS
            for job in self.jobs.values():
                if self.chance.random() < 0.5:
                    self._control(job)
            self._run_pods()
            self._check()
        self.now = end

    def _control(self, job: Job) -> None:
        """A round of the Job controller, which sees what the Job was up to ``lag`` seconds ago."""
        job.seen_until = max(job.seen_until, self.now - self.chance.random() * self.lag)
        seen = next((content for since, content in reversed(job.versions) if since <= job.seen_until), None)
        if seen is None or job.has_ended:
            return
        pods = [pod for pod in self.pods.values() if pod.job == job.name]
        if seen["spec"]["suspend"]:
            for pod in pods:
                if pod.deleted_at is None:
                    pod.deleted_at = self.now
            if all(pod.deleted_at is not None for pod in pods):
                if self.clears:
                    job.content["status"].pop("startTime", None)
                self._condition(job, seen, "Suspended", "True")
            return
        if job.conditions.get("Suspended") != "False":
            # The time limit is looked at before it counts anew.
            since = self.now - job.content["status"].get("startTime", self.now)
            if self.limits and since >= self.rules["time_limit"]:
                self._condition(job, seen, "Failed", "True")
                return
            job.content["status"]["startTime"] = self.now
        # `podReplacementPolicy: Failed`: none while one ends.
        for _ in range(self.pods_each - len(pods)):
            pod = Pod(f"{job.name}-{next(self.numbers)}", job.name, job.pool, self.now)
            self.pods[pod.name] = pod
        self._condition(job, seen, "Suspended", "False")

    def _condition(self, job: Job, seen: dict[str, Any], kind: str, status: str) -> None:
        if job.conditions.get(kind) == status or seen["metadata"] != job.content["metadata"]:
            return
        others = [entry for entry in job.content["status"].get("conditions", []) if entry["type"] != kind]
        job.content["status"]["conditions"] = [*others, {"type": kind, "status": status}]
        job.content["metadata"]["resourceVersion"] = self._version()
        self._changed(job)

    def _run_pods(self) -> None:
        for pool in list(self.clusters)[:-1]:
            gains, loses = self.flips.get(pool, (1 / 150, 1 / 150))
            if self.chance.random() < (loses if self.capacity[pool] else gains):
                self.capacity[pool] = not self.capacity[pool]
        for pod in list(self.pods.values()):
            if not self.capacity[pod.pool] and pod.on_node and pod.deleted_at is None:
                pod.deleted_at = self.now
            if pod.deleted_at is not None:
                grace = GRACE * self.chance.random() if pod.runs_since is not None else 0.0
                if self.now - pod.deleted_at >= grace:
                    del self.pods[pod.name]
                    continue
            elif not pod.on_node:
                pod.on_node = self.capacity[pod.pool] and self.now - pod.created > BOOT * self.chance.random()
            elif pod.runs_since is None and self.chance.random() < 0.2:
                pod.runs_since = self.now
                if (cluster := self.clusters[pod.pool]) and not self.jobs[pod.job].is_probe:
                    pod.lease = Lease(self.store.feeds(cluster, cluster), pod.job, pod.name, lambda: self.now)
            if pod.lease:
                self._hold(pod, pod.lease)
        self._compute()

    def _hold(self, pod: Pod, lease: Lease) -> None:
        """A second of what holds the program of the pod, as `hold.main` does."""
        if self.chance.random() < 0.2:
            with contextlib.suppress(OSError):
                lease.look()
        if pod.began is None:
            if lease.is_valid and pod.deleted_at is None:
                pod.began = self.now
        elif pod.ends_at is None:
            if not lease.is_valid:
                pod.ends_at = self.now + HOLD_GRACE * self.chance.random()
        elif self.now >= pod.ends_at:
            del self.pods[pod.name]

    def _compute(self) -> None:
        for job in self.jobs.values():
            pods = [pod for pod in self.pods.values() if pod.job == job.name]
            if job.is_probe or job.has_ended or len(pods) < self.pods_each:
                continue
            if any(pod.computes_since is None for pod in pods):
                continue
            began = max(pod.computes_since or 0.0 for pod in pods)
            if self.fails and self.now - began > 30:
                self._end(job, "Failed")
            elif self.published:
                self._end(job, "Complete")
            elif self.store.is_cut(self.clusters[job.pool]):
                continue
            elif self.now - max(began, self.saved_at) >= self.checkpoint:
                self.saved, self.saved_at = self.saved + self.checkpoint, self.now
                if self.saved >= self.work:
                    self.published.append(job.pool)
                    self._end(job, "Complete")

    def _end(self, job: Job, kind: str) -> None:
        """Its pods end, and the Job controller counts those that are not deleted."""
        counted = all(pod.deleted_at is None for pod in self.pods.values() if pod.job == job.name)
        for pod in [pod for pod in self.pods.values() if pod.job == job.name]:
            del self.pods[pod.name]
        if counted:
            self._condition(job, job.content, kind, "True")

    def _check(self) -> None:
        pools = {
            pod.pool
            for pod in self.pods.values()
            if not self.jobs[pod.job].is_probe and (not self.clusters[pod.pool] or pod.began is not None)
        }
        if len(pools) > 1:
            self.wrong.append(f"{self.now:.0f}: pods at {sorted(pools)}")

    @property
    def live(self) -> dict[str, Any]:
        """What each Job is to be, and which attempt it is."""
        return {name: copy.deepcopy(job.content["spec"]) for name, job in self.jobs.items()}

    @property
    def is_quiet(self) -> bool:
        """Whether no pod of the step is left, and none will come."""
        return not self.pods and all(job.has_ended or job.content["spec"]["suspend"] for job in self.jobs.values())


def merge(live: dict[str, Any], changes: dict[str, Any]) -> None:
    """A merge patch (RFC 7396)."""
    for key, value in changes.items():
        if value is None:
            live.pop(key, None)
        elif isinstance(value, dict) and isinstance(live.get(key), dict):
            merge(live[key], cast("dict[str, Any]", value))
        else:
            live[key] = value


@dataclass(frozen=True)
class WorldApi(Api):
    """The API server as one mover reaches it: each request is a turn."""

    actor: Actor

    def _send(
        self, method: str, path: str, content: dict[str, Any] | None = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        del kind
        actor = self.actor
        actor.request = (method, path, content)
        actor.yield_turn(0.0)
        world = actor.world
        if world.chance.random() < world.refuses or world.now < world.api_until.get(actor.cluster, 0.0):
            raise OSError("503: try again")
        answer = world.answer(method, path, content, actor.cluster)
        if world.chance.random() < world.refuses:
            raise OSError("the answer was lost")
        return answer


class Actor:
    """A pod of the mover, or of the agent of a ``cluster``. ``request`` is what it is about to send; once ``lost``
    is set, it does not.
    """

    def __init__(self, world: World, name: str, cluster: str = "") -> None:
        self.world, self.name, self.cluster = world, name, cluster
        self.lost, self.ready_at = False, world.now
        self.request: tuple[str, str, Any] = ("", "", None)
        self.code: int | None = None
        self.error: BaseException | None = None
        self.is_over = False
        # Held by whoever waits for its turn: a semaphore takes three times as long.
        self._mine, self._theirs = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._theirs.acquire()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def releases(self) -> bool:
        """Whether it is about to let a Job run."""
        content: dict[str, Any] = self.request[2] or {}
        return content.get("spec") == {"suspend": False}

    def step(self) -> None:
        """Let it run up to its next request."""
        self._mine.release()
        self._theirs.acquire()

    def yield_turn(self, seconds: float) -> None:
        self.ready_at = self.world.now + seconds
        self._theirs.release()
        self._mine.acquire()
        if self.lost:
            raise LostError

    def _run(self) -> None:
        self._mine.acquire()
        try:
            self.code = self._follow()
        except StepError as error:
            self.code, self.error = error.code, error
        except LostError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.is_over = True
            self._theirs.release()

    def clock(self) -> float:
        return self.world.now

    def _follow(self) -> int:
        world = self.world
        plan = json.loads(json.dumps(world.plan))
        api, places = WorldApi("", Path(), self), read_places(plan)
        silent: Callable[[str], None] = lambda _: None  # noqa: E731
        if self.cluster:
            places = [place for place in places if place.cluster == self.cluster]
            jobs = PlaceJobs(api, "ml", self.yield_turn, places, now=self.clock)
            jobs.claim(self.name)
            return Agent(jobs, self._feeds(self.cluster), self.clock, silent).follow()
        others = {
            cluster: OtherCluster(cluster, self._feeds(cluster), plan["jobs"])
            for cluster in sorted({place.cluster for place in places if place.cluster})
        }
        shared: dict[str, Any] = {"places": places, "notes": NOTES, "every": plan["every"], "now": self.clock}
        jobs = (
            JobsOfClusters(api, "ml", self.yield_turn, **shared, clusters=others, wall=self.clock)
            if others
            else PlaceJobs(api, "ml", self.yield_turn, **shared)
        )
        jobs.claim(self.name)
        rules: Callable[[], tuple[Rules, float]] = lambda: (rules_of(world.plan), world.plan["time_limit"])  # noqa: E731
        return Mover(jobs, rules, lambda: world.saved_at, self.clock, silent, world.reached).follow()

    def _feeds(self, of: str) -> Feeds:
        return self.world.store.feeds(self.cluster, of, lambda: self.yield_turn(0.0))
