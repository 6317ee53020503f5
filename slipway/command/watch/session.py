"""Looks at all clusters of a stack, again and again, and remembers what a cluster forgets."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from slipway.command.clusters import AccessError, Clusters, NotCreatedError, explain
from slipway.command.watch.apps import waiting_apps
from slipway.command.watch.job_states import (
    Snapshot,
    failed_runs,
    failing_services,
    is_run,
    newest_runs,
    pod_of,
    step_state,
)
from slipway.command.watch.moved import at_its_place
from slipway.command.watch.observed import (
    LONG_AGO,
    Namespace,
    Observed,
    annotations_of,
    conditions,
    holds,
    job_uid,
    labels_of,
    name_of,
    owners,
    time_of,
    uid_of,
)
from slipway.command.watch.plan import Expected, Plan, Stay, cost, stay_of
from slipway.command.watch.pod_states import seen, waiting_claims
from slipway.command.watch.states import KEPT, Phase, PodState, Reading, Reason, StepState, View, together
from slipway.infra.api_server import ApiServer, UnreadableError
from slipway.infra.kubernetes.labels import COMPONENT, INSTANCE, NAME, RUNS_ANNOTATION
from slipway.infra.placed import MOVER
from slipway.infra.pulumi_cli import CliError
from slipway.infra.review.stack import Properties, at

FIRST = 5000
"""Lines that a first look takes from the end of a log."""


@dataclass(frozen=True)
class Line:
    """A line of a log; ``stamp`` is its time as the kubelet wrote it, to the nanosecond, empty without one."""

    stamp: str
    text: str

    @property
    def at(self) -> datetime | None:
        """When it was written."""
        # Python reads microseconds.
        whole, dot, rest = self.stamp.partition(".")
        return time_of(f"{whole}.{rest.rstrip('Z')[:6]}+00:00" if dot else self.stamp)


def lines(
    server: ApiServer, namespace: str, pod: PodState, after: str = "", **query: str
) -> Iterator[Line] | None:
    """The lines of a pod's log that came after the stamp ``after``; None where there is no log (any more).

    Raises UnreadableError.
    """
    query |= {"container": pod.container, "timestamps": "true"}
    if after:
        # The API takes whole seconds.
        query["sinceTime"] = f"{after.partition('.')[0].rstrip('Z')}Z"
    log = server.lines(f"/api/v1/namespaces/{namespace}/pods/{pod.name}/log", **query)
    return None if log is None else (line for line in map(_line, log) if not after or line.stamp > after)


def _line(text: str) -> Line:
    stamp, _, rest = text.partition(" ")
    if len(stamp) >= 20 and stamp[4:5] == "-" and "T" in stamp and stamp.endswith("Z"):
        return Line(stamp, rest)
    return Line("", text)


@dataclass
class PodLog:
    """What was read of one pod's log so far.

    ``cut`` says that its beginning was not read, ``complete`` that the pod has ended and all of it was.
    """

    reading: Reading = field(default_factory=Reading)
    after: str = ""
    cut: bool = False
    complete: bool = False
    last: datetime | None = None

    def read_on(self, server: ApiServer, namespace: str, pod: PodState) -> str:
        """Takes up what came since; returns why it could not be read, empty where it was."""
        if self.complete:
            return ""
        query = {} if self.after else {"tailLines": str(FIRST)}
        count = 0
        try:
            for line in lines(server, namespace, pod, self.after, **query) or ():
                if not count and not line.stamp:
                    # Who serves logs without times serves them whole each time.
                    self.reading = Reading()
                count += 1
                self.reading.feed(line.text)
                self.after = max(self.after, line.stamp)
                self.last = line.at or self.last
        except UnreadableError as error:
            return str(error)
        self.cut = self.cut or (bool(query) and count >= FIRST)
        self.complete = pod.over
        return ""


STATE_PAUSE = timedelta(seconds=15)
"""Between two looks at the stack's state for a cluster that is not there yet."""

UNFINISHED_PAUSE = timedelta(seconds=60)
"""Between two looks at the stack's state for Jobs that did not succeed."""

READERS = 8
"""Logs that are read at once."""

ITEM_LOGS = 32
"""Workers of a step whose logs are read for the items that they finished."""

SILENT = 600
"""Seconds without a line after which a log is called silent."""


@dataclass
class _Cluster:
    """What is remembered of a cluster: ``error`` is why it could not be read at the last look."""

    namespace: Namespace | None = None
    observed: Observed | None = None
    error: Exception | None = None
    again: datetime = LONG_AGO


@dataclass
class _Memory:
    """All pods of a Job that were ever seen, and their stays on nodes, by the UIDs of the pods."""

    pods: dict[str, PodState] = field(default_factory=dict[str, PodState])
    stays: dict[str, Stay] = field(default_factory=dict[str, Stay])


@dataclass
class Session:
    """``look`` gives a `View` of the stack. Usable from one thread.

    ``unfinished`` asks the stack's state for the Jobs whose `up` did not see them succeed, by cluster, namespace
    and name.
    """

    plan: Plan
    clusters: Clusters
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    logs: bool = True
    unfinished: Callable[[], AbstractSet[tuple[str, str, str]]] = frozenset
    _unfinished: AbstractSet[tuple[str, str, str]] = frozenset()
    _state_again: datetime = LONG_AGO
    _clusters: dict[str, _Cluster] = field(default_factory=dict[str, _Cluster])
    _memories: dict[str, _Memory] = field(default_factory=dict[str, _Memory])
    """By the UID of the Job."""
    _jobs: dict[str, str] = field(default_factory=dict[str, str])
    """The UID of the Job of each step."""
    _before: dict[str, StepState] = field(default_factory=dict[str, StepState])
    _logs: dict[str, PodLog] = field(default_factory=dict[str, PodLog])

    def look(self) -> View:
        """The stack as it is now; what cannot be read is as it was, and said to be."""
        now = self.clock()
        trouble = [line for place in self.plan.places for line in self._read(place.name, now)]
        known = {step.name: self._state(step, now) for step in self.plan.steps}
        states = [self._with_blockers(known[step.name], step, known, now) for step in self.plan.steps]
        others, earlier = self._other_jobs(now)
        states += others
        self._before = {state.name: state for state in states}
        steps = [self._with_log(state, now) for state in states]
        whole = cost([stay for memory in self._memories.values() for stay in memory.stays.values()], now)
        return View(
            self.plan.stack,
            now,
            steps,
            trouble,
            whole.dollars,
            whole.least or any(step.cost.least for step in steps),
            _pools_without_price(self.plan.steps, states),
            list(self._alarms()),
            earlier,
            [*self._waiting_apps(states)],
        )

    def pods_of(self, step: Expected) -> list[PodState]:
        """All pods that the step's Job has had, as far as they were seen, in the order of their creation."""
        pods = self._memories.get(self._jobs.get(step.name, ""), _Memory()).pods.values()
        return sorted(pods, key=lambda pod: pod.created or LONG_AGO)

    def _read(self, name: str, now: datetime) -> Iterator[str]:
        """Looks at a cluster; what could not be read is said."""
        cluster = self._clusters.setdefault(name, _Cluster())
        if cluster.error and now < cluster.again:
            yield f"cluster {name}: {explain(cluster.error)}"
            return
        try:
            if cluster.namespace is None:
                cluster.namespace = Namespace(self.clusters.server(name), self.plan.namespaces[name])
            cluster.observed, cluster.error = cluster.namespace.read(now), None
            yield from (f"cluster {name}: {line}" for line in cluster.observed.trouble)
        except (AccessError, UnreadableError) as error:
            cluster.error = error
            if isinstance(error, AccessError):
                cluster.again = now + STATE_PAUSE
            seen = cluster.observed
            stale = f"; shown is {seen.at.astimezone():%H:%M:%S}" if seen else ""
            yield f"cluster {name}: {explain(error)}{stale}"

    def _state(self, step: Expected, now: datetime) -> StepState:
        cluster = self._clusters.get(step.cluster, _Cluster())
        if cluster.observed is not None:
            job = next((job for job in cluster.observed.jobs if name_of(job) == step.job), None)
            state = self._job_state(step, job, cluster.observed, now)
            return self._at_its_place(step, state, cluster, now) if step.places else state
        return self._unread(step, cluster)

    def _unread(self, step: Expected, cluster: _Cluster) -> StepState:
        """The state of a Job whose ``cluster`` nobody could read so far."""
        phase, what = Phase.UNKNOWN, f"its cluster {step.cluster} cannot be read"
        if isinstance(cluster.error, NotCreatedError):
            phase, what = Phase.ABSENT, f"its cluster {step.cluster} is not there yet"
        words = explain(cluster.error) if cluster.error else ""
        reason = Reason(what, words=words, kind="cluster")
        return StepState(step.name, step.job, step.cluster, step.pool, phase, reason, wanted=step.pods)

    def _at_its_place(self, step: Expected, mover: StepState, cluster: _Cluster, now: datetime) -> StepState:
        """The state of a step with places, as one step; ``mover`` is that of the Job that moves it.

        That one is in ``cluster``.
        """
        held = [*step.places, *step.probes]
        states = [self._held_state(other, now) for other in held]
        notes = cluster.namespace.config_map(step.notes) if cluster.namespace and not mover.phase.over else {}
        places = states[: len(step.places)]
        state = at_its_place(mover, places, [place.pool for place in step.places], notes)
        for place, at_place in zip(step.places, places, strict=True):
            # Its log is that of the place where it is, or was last.
            if at_place.pool == state.pool and place.name in self._jobs:
                self._jobs[step.name] = self._jobs[place.name]
        uids = [self._jobs[other.name] for other in held if other.name in self._jobs]
        stays = [stay for uid in uids for stay in self._memories[uid].stays.values()]
        return replace(state, cost=cost(stays, now, least=any(other.cost.least for other in states)))

    def _held_state(self, job: Expected, now: datetime) -> StepState:
        """The state of a Job at a place, or of a probe, in its own cluster."""
        cluster = self._clusters.get(job.cluster, _Cluster())
        if (observed := cluster.observed) is None:
            return self._unread(job, cluster)
        return self._job_state(
            job, next((live for live in observed.jobs if name_of(live) == job.job), None), observed, now
        )

    def _job_state(self, step: Expected, job: Properties | None, observed: Observed, now: datetime) -> StepState:
        if job is None:
            self._jobs.pop(step.name, None)
            return step_state(step, Snapshot(observed=observed))
        uid = self._jobs[step.name] = uid_of(job)
        memory = self._memories.setdefault(uid, _Memory())
        pods = [pod for pod in observed.pods if job_uid(pod) == uid]
        uids = {uid_of(pod) for pod in pods}
        gone = [pod for pod_uid, pod in memory.pods.items() if pod_uid not in uids]
        before = self._before.get(step.name)
        same_job = before is not None and before.job == name_of(job)
        snapshot = Snapshot(job, pods, observed, gone, before if same_job else None)
        state = step_state(step, snapshot)
        for pod in (pod_of(pod, step, snapshot) for pod in pods):
            memory.pods[pod.uid] = pod
            if stay := stay_of(pod, step):
                memory.stays[pod.uid] = stay
        for pod in gone:
            stay = memory.stays.get(pod.uid)
            if stay and stay.ended is None:
                memory.stays[pod.uid] = replace(stay, ended=now)
        # Pods that ended before this began to look, and were deleted, held nodes that nobody knows of.
        unseen = bool(state.began) and not memory.stays and state.phase not in {Phase.WAITING, Phase.CREATING}
        unseen = unseen or state.retries > max(len(memory.pods) - state.wanted, 0)
        return replace(state, cost=cost(memory.stays.values(), now, least=unseen))

    def _with_blockers(
        self, state: StepState, step: Expected, known: Mapping[str, StepState], now: datetime
    ) -> StepState:
        if state.phase not in {Phase.ABSENT, Phase.HELD} or state.reason.kind == "cluster":
            return state
        before = [known[name] for name in step.after if name in known]
        failed = [other.name for other in before if other.phase is Phase.FAILED]
        waits = [other.name for other in before if other.phase is not Phase.DONE]
        after = {other.name: set(other.after) for other in self.plan.steps}
        # Of those that wait for one another, the last says it all.
        waits = [name for name in waits if not any(name in after[other] for other in waits)]
        if failed:
            says = f"{_join(failed)} failed"
        elif waits:
            says = f"{_join(waits)} {'comes' if len(waits) == 1 else 'come'} before it"
        elif state.phase is Phase.HELD:
            return state
        elif (state.cluster, self.plan.namespaces[state.cluster], state.job) in self._unfinished_jobs(now):
            return replace(state, reason=seen("deleted"))
        else:
            observed = self._clusters.get(state.cluster, _Cluster()).observed
            claims = waiting_claims(observed).values() if observed else ()
            return replace(state, reason=next(iter(claims), state.reason))
        return replace(state, reason=Reason(says, kind="after"))

    def _unfinished_jobs(self, now: datetime) -> AbstractSet[tuple[str, str, str]]:
        if now >= self._state_again:
            self._state_again = now + UNFINISHED_PAUSE
            # Without the CLI, or without a login, the step is as one that `up` has not come to.
            with contextlib.suppress(CliError):
                self._unfinished = self.unfinished()
        return self._unfinished

    def _other_jobs(self, now: datetime) -> tuple[list[StepState], int]:
        """Jobs of the stack that are none of the plan's: those of another revision, or by the clock; and how many
        more of them have ended."""
        planned = {
            (job.cluster, job.job) for step in self.plan.steps for job in (step, *step.places, *step.probes)
        }
        states: list[StepState] = []
        earlier = 0
        for cluster, observed in self._observations():
            newest = newest_runs(observed.jobs)
            for job in observed.jobs:
                if (cluster, name_of(job)) in planned or not self._is_ours(job):
                    continue
                if annotations_of(job).get(RUNS_ANNOTATION) == MOVER and at(job, "spec", "suspend") is True:
                    # A place or a probe of an earlier run, which nothing lets run again.
                    continue
                by_clock = bool(owners(job) & newest) or uid_of(job) in newest
                over = holds(conditions(job), "Complete") or holds(conditions(job), "Failed")
                if over and not by_clock:
                    earlier += 1
                    continue
                remark = "not a Job that this checkout declares: of an earlier run, or of another revision"
                if by_clock or is_run(job):
                    remark = "by the clock"
                state = self._job_state(self._step_of_job(cluster, job), job, observed, now)
                states.append(replace(state, planned=False, remark=state.remark or remark))
        return states, earlier

    def _alarms(self) -> Iterator[str]:
        """The scheduled runs that failed last, the services that do not come up, and claims without a volume."""
        for cluster, observed in self._observations():
            yield from (f"{reason.says}. Fix: {reason.fix}" for reason in waiting_claims(observed).values())
            yield from failing_services([pod for pod in observed.pods if self._is_ours(pod)])
            jobs = [job for job in observed.jobs if self._is_ours(job)]
            yield from failed_runs(jobs, observed.cron_jobs, partial(self._state_of_run, cluster, observed))

    def _waiting_apps(self, states: Sequence[StepState]) -> Iterator[str]:
        failed = {state.name for state in states if state.phase is Phase.FAILED}
        done = {state.name for state in states if state.phase is Phase.DONE}
        for _, observed in self._observations():
            yield from waiting_apps([pod for pod in observed.pods if self._is_ours(pod)], failed, done)

    def _state_of_run(self, cluster: str, observed: Observed, job: Properties) -> StepState:
        pods = [pod for pod in observed.pods if job_uid(pod) == uid_of(job)]
        return step_state(self._step_of_job(cluster, job), Snapshot(job, pods, Observed(events=observed.events)))

    def _observations(self) -> Iterator[tuple[str, Observed]]:
        for name, cluster in self._clusters.items():
            if cluster.observed is not None:
                yield name, cluster.observed

    def _is_ours(self, item: Properties) -> bool:
        # Jobs that a CronJob's pod created have no label of a stack. The organization is not known here.
        instance = labels_of(item).get(INSTANCE, "")
        return not instance or instance == self.plan.instance or instance.endswith(f".{self.plan.instance}")

    def _step_of_job(self, cluster: str, job: Properties) -> Expected:
        """A Job that the plan does not have, with what the plan knows of the step that it was made from."""
        labels, name = labels_of(job), name_of(job)
        pipeline, step = labels.get(NAME, ""), labels.get(COMPONENT, "")
        known = [other for other in self.plan.steps if (other.pipeline, other.step) == (pipeline, step)]
        plain = Expected(name, name, pipeline, step, cluster, self.plan.namespaces[cluster])
        return replace(next(iter(known), plain), name=name, job=name, cluster=cluster)

    def _with_log(self, state: StepState, now: datetime) -> StepState:
        """The state with what its log says."""
        step = next((step for step in self.plan.steps if step.name == state.name), None)
        started = [pod for pod in state.pods if pod.running_since is not None]
        pods = started[: ITEM_LOGS if step and step.items else 1]
        if not self.logs or not pods:
            return state
        server, namespace = self.clusters.server(state.cluster), self.plan.namespaces[state.cluster]
        logs = [self._logs.setdefault(pod.uid, PodLog()) for pod in pods]
        with ThreadPoolExecutor(READERS, "log") as pool:
            reading = [
                pool.submit(log.read_on, server, namespace, pod) for log, pod in zip(logs, pods, strict=True)
            ]
        errors = [future.result() for future in reading]
        progress = together(
            [log.reading for log in logs], cut=any(log.cut for log in logs) or len(pods) < len(started)
        )
        assert progress is not None
        if step is None or step.kept is None:
            # A node that is there at all times was not started for this.
            progress.node_up = None
        tail = list(logs[0].reading.tail)[-KEPT:]
        if not tail and errors[0]:
            tail = [f"its log cannot be read: {errors[0]}"]
        last, remark, retries = logs[0].last, state.remark, max(state.retries, progress.generation - 1)
        silent = (now - last).total_seconds() if last and state.phase is Phase.RUNNING else 0.0
        if progress.wasted:
            remark = describe_waste(progress.idle, state.cost.dollars)
        elif not remark and silent >= SILENT:
            remark = f"its log is silent for {int(silent // 60)} min"
        state = replace(state, progress=progress, tail=tail, remark=remark, retries=retries)
        if state.phase is Phase.RUNNING and progress.gathering:
            # Of a training on several nodes, the log of the first pod says whether the programs run.
            return replace(state, phase=Phase.MEETING, reason=Reason(progress.gathering))
        return state


def describe_waste(idle: float, dollars: float | None) -> str:
    """What is said of GPUs that are idle for that share of the time; ``dollars`` is what the nodes cost so far."""
    lost = "" if dollars is None else f": about ${idle * dollars:.2f} of ${dollars:.2f} bought nothing"
    return f"GPU IDLE {100 * idle:.0f} % of the time{lost}"


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _pools_without_price(steps: Sequence[Expected], states: Sequence[StepState]) -> list[str]:
    """The pools whose price is not known and that were used."""
    used = {state.name for state in states if state.began is not None}
    at_pools = {state.pool for state in states}
    places = [
        place
        for step in steps
        if step.name in used
        for place in [entry for entry in step.places if entry.pool in at_pools] or [step]
    ]
    pools = [place.pool for place in places if place.rate is None]
    return list(dict.fromkeys(filter(None, pools)))
