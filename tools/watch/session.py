"""Looks at all clusters of a stack, again and again, and remembers what a cluster forgets."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from infra.api_server import ApiServer, UnreadableError
from infra.kubernetes.labels import COMPONENT, INSTANCE, NAME
from infra.review.stack import Properties
from tools.pulumi_cli import CliError
from tools.watch.job_states import Seen, pod_of, step_state
from tools.watch.observed import (
    AccessError,
    Clusters,
    Namespace,
    Observed,
    conditions,
    holds,
    job_uid,
    labels_of,
    name_of,
    owners,
    plain,
    time_of,
    uid_of,
)
from tools.watch.plan import Expected, Plan, Stay, cost, stay
from tools.watch.queue_states import failed_runs, failing, is_run, newest_runs, workload_of
from tools.watch.states import KEPT, Phase, PodState, Reading, Reason, StepState, View, together

# The logs of pods, read on from where they were read before.


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


def log_path(namespace: str, pod: str) -> str:
    """Where the API has the log of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/log"


def lines(
    server: ApiServer, namespace: str, pod: str, container: str, after: str = "", **query: str
) -> Iterator[Line] | None:
    """The lines of a container's log that came after the stamp ``after``; None where there is no log (any more).

    Raises UnreadableError.
    """
    asked = {"container": container, "timestamps": "true", **query}
    if after:
        # The API takes whole seconds.
        asked["sinceTime"] = f"{after.partition('.')[0].rstrip('Z')}Z"
    found = server.lines(log_path(namespace, pod), **asked)
    return None if found is None else (each for each in map(_line, found) if not after or each.stamp > after)


def _line(written: str) -> Line:
    stamp, _, rest = written.partition(" ")
    if len(stamp) >= 20 and stamp[4:5] == "-" and "T" in stamp and stamp.endswith("Z"):
        return Line(stamp, rest)
    return Line("", written)


@dataclass
class PodLog:
    """What was read of one pod's log so far. ``cut`` says that its beginning was not read."""

    reading: Reading = field(default_factory=Reading)
    after: str = ""
    cut: bool = False
    whole: bool = False
    """Whether all of the log of a pod that has ended was read."""
    last: datetime | None = None

    def read_on(self, server: ApiServer, namespace: str, pod: PodState) -> str:
        """Takes up what came since; returns why it could not be read, empty where it was."""
        if self.whole:
            return ""
        first = not self.after
        try:
            found = lines(
                server,
                namespace,
                pod.name,
                pod.container,
                self.after,
                **({"tailLines": str(FIRST)} if first else {}),
            )
            count = 0
            for line in found or ():
                if not count and not line.stamp:
                    # Who serves logs without times serves them whole each time.
                    self.reading = Reading()
                count += 1
                self.reading.feed(line.text)
                self.after = max(self.after, line.stamp)
                self.last = line.at or self.last
        except UnreadableError as error:
            return str(error)
        self.cut = self.cut or (first and count >= FIRST)
        self.whole = pod.over
        return ""


STATE_PAUSE = 15.0
"""Seconds between two looks at the stack's state for a cluster that is not there yet."""

UNFINISHED_PAUSE = 60.0
"""Seconds between two looks at the stack's state for Jobs that did not succeed."""

_DELETED = Reason(
    "its Job failed or was interrupted, and somebody has deleted it since: `pulumi preview` and `pulumi up` end "
    "with `not found`",
    "`pulumi up --refresh` makes it again",
    kind="deleted",
)

READERS = 8
"""Logs that are read at once."""

ITEM_LOGS = 32
"""Workers of a step whose logs are read for the items that they finished."""


@dataclass
class _Cluster:
    """What is remembered of a cluster between two looks."""

    namespace: Namespace | None = None
    seen: Observed | None = None
    trouble: str = ""
    missing: bool = False
    again: float = 0.0


@dataclass
class Session:
    """``look`` gives a `View` of the stack. Usable from one thread."""

    plan: Plan
    clusters: Clusters
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    logs: bool = True
    unfinished: Callable[[], AbstractSet[tuple[str, str, str]]] = frozenset
    """Asks the stack's state for the Jobs whose `up` did not see them succeed, by cluster, namespace and name."""
    _unfinished: AbstractSet[tuple[str, str, str]] = frozenset()
    _state_again: float = 0.0
    _places: dict[str, _Cluster] = field(default_factory=dict[str, _Cluster])
    _pods: dict[str, dict[str, PodState]] = field(default_factory=dict[str, dict[str, PodState]])
    """By the UID of their Job and their own, all pods that were ever seen."""
    _jobs: dict[str, str] = field(default_factory=dict[str, str])
    """The UID of the Job of each step."""
    _stays: dict[str, dict[str, Stay]] = field(default_factory=dict[str, dict[str, Stay]])
    _before: dict[str, StepState] = field(default_factory=dict[str, StepState])
    _logs: dict[str, PodLog] = field(default_factory=dict[str, PodLog])
    _extra: dict[str, Expected] = field(default_factory=dict[str, Expected])

    def look(self) -> View:
        """The stack as it is now; what cannot be read is as it was, and said to be."""
        now = self.clock()
        trouble: list[str] = []
        for place in self.plan.places:
            self._read(place.name, now, trouble)
        known = {step.name: self._state(step, now) for step in self.plan.steps}
        states = [self._with_blockers(known[step.name], step, known) for step in self.plan.steps]
        others, earlier = self._others(now)
        states += others
        self._before = {state.name: state for state in states}
        steps = [self._told(state, now) for state in states]
        whole = cost([each for job in self._stays.values() for each in job.values()], now)
        return View(
            self.plan.stack,
            now,
            steps,
            trouble,
            whole.dollars,
            whole.least or any(step.cost.least for step in steps),
            _unpriced(self.plan.steps, states),
            list(self._alarms()),
            earlier,
        )

    def pods_of(self, step: Expected) -> list[PodState]:
        """All pods that the step's Job has had, as far as they were seen, in the order of their creation."""
        known = self._pods.get(self._jobs.get(step.name, ""), {})
        return sorted(known.values(), key=lambda pod: pod.created or datetime.min.replace(tzinfo=UTC))

    def server(self, cluster: str) -> ApiServer:
        """The API server of a cluster. Raises AccessError."""
        return self.clusters.server(cluster)

    def _read(self, cluster: str, now: datetime, trouble: list[str]) -> None:
        place = self._places.setdefault(cluster, _Cluster())
        if place.namespace is None and now.timestamp() < place.again:
            trouble.append(f"cluster {cluster}: {place.trouble}")
            return
        try:
            if place.namespace is None:
                name = self.plan.namespaces[cluster]
                place.namespace = Namespace(self.clusters.server(cluster), name)
            place.seen = replace(place.namespace.read(), at=now)
            place.trouble, place.missing = "", False
            trouble.extend(f"cluster {cluster}: {each}" for each in place.seen.trouble)
        except (AccessError, UnreadableError) as error:
            place.trouble = plain(error)
            place.missing = isinstance(error, AccessError)
            if place.missing:
                place.again = now.timestamp() + STATE_PAUSE
            stale = f"; shown is {place.seen.at.astimezone():%H:%M:%S}" if place.seen else ""
            trouble.append(f"cluster {cluster}: {place.trouble}{stale}")

    def _state(self, step: Expected, now: datetime) -> StepState:
        place = self._places.get(step.cluster, _Cluster())
        empty = StepState(step.name, step.job, step.cluster, step.pool, Phase.UNKNOWN, wanted=step.pods)
        if place.seen is None:
            phase = Phase.ABSENT if place.missing and "has not made it" in place.trouble else Phase.UNKNOWN
            what = f"its cluster {step.cluster} cannot be read"
            if phase is Phase.ABSENT:
                what = f"its cluster {step.cluster} is not there yet"
            return replace(empty, phase=phase, reason=Reason(what, words=place.trouble, kind="cluster"))
        job = next((each for each in place.seen.jobs if name_of(each) == step.job), None)
        return self._of_job(step, job, place.seen, now)

    def _of_job(self, step: Expected, job: Properties | None, seen: Observed, now: datetime) -> StepState:
        uid = uid_of(job) if job else ""
        self._jobs[step.name] = uid
        pods = [pod for pod in seen.pods if uid and job_uid(pod) == uid]
        there = {uid_of(pod) for pod in pods}
        gone = [each for key, each in self._pods.get(uid, {}).items() if key not in there]
        before = self._before.get(step.name)
        found = Seen(
            job,
            pods,
            seen.events,
            workload_of(job, seen.workloads) if job else None,
            seen.workloads,
            seen.autoscaler,
            seen.gone_nodes,
            gone,
            before if before and job and before.job == name_of(job) else None,
        )
        state = step_state(step, found)
        if not uid:
            return state
        self._remember(uid, step, [pod_of(pod, step, found) for pod in pods], now)
        stays = self._stays[uid].values()
        # Pods that ended before this began to look, and were deleted, held nodes that nobody knows of.
        unseen = bool(state.began) and not stays and state.phase not in {Phase.WAITING, Phase.CREATING}
        unseen = unseen or state.retries > max(len(self._pods[uid]) - state.wanted, 0)
        return replace(state, cost=cost(stays, now, least=unseen))

    def _remember(self, uid: str, step: Expected, pods: Sequence[PodState], now: datetime) -> None:
        known, stays = self._pods.setdefault(uid, {}), self._stays.setdefault(uid, {})
        for pod in pods:
            known[pod.uid] = pod
            if found := stay(pod, step):
                stays[pod.uid] = found
        there = {pod.uid for pod in pods}
        for key, each in list(stays.items()):
            if key not in there and each.ended is None:
                stays[key] = replace(each, ended=now)

    def _with_blockers(self, state: StepState, step: Expected, known: Mapping[str, StepState]) -> StepState:
        if state.phase is not Phase.ABSENT or state.reason.kind == "cluster":
            return state
        before = [known[name] for name in step.after if name in known]
        failed = [each.name for each in before if each.phase is Phase.FAILED]
        waits = [each.name for each in before if each.phase is not Phase.DONE]
        after = {each.name: set(each.after) for each in self.plan.steps}
        # Of those that wait for one another, the last says it all.
        waits = [name for name in waits if not any(name in after[other] for other in waits)]
        if failed:
            says = f"{_listed(failed)} failed"
        elif waits:
            says = f"{_listed(waits)} {'comes' if len(waits) == 1 else 'come'} before it"
        elif (state.cluster, self.plan.namespaces[state.cluster], state.job) in self._unfinished_jobs():
            return replace(state, reason=_DELETED)
        else:
            return state
        return replace(state, reason=Reason(says, kind="after"))

    def _unfinished_jobs(self) -> AbstractSet[tuple[str, str, str]]:
        now = self.clock().timestamp()
        if now >= self._state_again:
            self._state_again = now + UNFINISHED_PAUSE
            # Without the CLI, or without a login, the step is as one that `up` has not come to.
            with contextlib.suppress(CliError):
                self._unfinished = self.unfinished()
        return self._unfinished

    def _others(self, now: datetime) -> tuple[list[StepState], int]:
        """Jobs of the stack that are none of the plan's: those of another revision, or by the clock; and how many
        more of them have ended."""
        planned = {(step.cluster, step.job) for step in self.plan.steps}
        states: list[StepState] = []
        earlier = 0
        for cluster, place in self._places.items():
            if place.seen is None:
                continue
            newest_run = newest_runs(place.seen.jobs)
            for job in place.seen.jobs:
                if (cluster, name_of(job)) in planned or not self._ours(job):
                    continue
                by_clock = bool(owners(job) & newest_run) or uid_of(job) in newest_run
                if _over(job) and not by_clock:
                    earlier += 1
                    continue
                step = self._unplanned(cluster, job)
                remark = "by the clock" if by_clock or is_run(job) else ""
                state = self._of_job(step, job, place.seen, now)
                remark = (
                    remark or "not a Job that this checkout declares: of an earlier run, or of another revision"
                )
                states.append(replace(state, planned=False, remark=state.remark or remark))
        return states, earlier

    def _alarms(self) -> Iterator[str]:
        """The scheduled runs that failed last, and the services that do not come up."""
        for cluster, place in self._places.items():
            if (seen := place.seen) is None:
                continue

            def state_of(job: Properties, cluster: str = cluster, seen: Observed = seen) -> StepState:
                pods = [pod for pod in seen.pods if job_uid(pod) == uid_of(job)]
                return step_state(self._unplanned(cluster, job), Seen(job, pods, seen.events))

            yield from failing([pod for pod in seen.pods if self._ours(pod)])
            own = [job for job in seen.jobs if self._ours(job)]
            yield from (failed_run.says for failed_run in failed_runs(own, seen.cron_jobs, state_of))

    def _ours(self, job: Properties) -> bool:
        # Jobs that a CronJob's pod created have no label of a stack. The organization is not known here.
        found = labels_of(job).get(INSTANCE, "")
        return not found or found == self.plan.instance or found.endswith(f".{self.plan.instance}")

    def _unplanned(self, cluster: str, job: Properties) -> Expected:
        """A Job that the plan does not have, with what the plan knows of the step that it was made from."""
        labels = labels_of(job)
        name, step = labels.get(NAME, ""), labels.get(COMPONENT, "")
        like = next((each for each in self.plan.steps if (each.pipeline, each.step) == (name, step)), None)
        made = like or Expected(name_of(job), name_of(job), name, step, cluster, self.plan.namespaces[cluster])
        return replace(made, name=name_of(job), job=name_of(job), cluster=cluster)

    def _told(self, state: StepState, now: datetime) -> StepState:
        """The state with what its log says."""
        if not self.logs or not state.pods:
            return state
        step = next((each for each in self.plan.steps if each.name == state.name), None)
        started = [pod for pod in state.pods if pod.running_since is not None]
        chosen = started[: ITEM_LOGS if step and step.items else 1]
        if not chosen:
            return state
        namespace = self.plan.namespaces[state.cluster]
        server = self.clusters.server(state.cluster)
        read = [self._logs.setdefault(pod.uid, PodLog()) for pod in chosen]
        with ThreadPoolExecutor(READERS, "log") as pool:
            reading = [
                pool.submit(log.read_on, server, namespace, pod) for log, pod in zip(read, chosen, strict=True)
            ]
        wrong = [each.result() for each in reading]
        cut = any(each.cut for each in read) or len(chosen) < len(started)
        tail = list(read[0].reading.tail)[-KEPT:]
        if not tail and wrong[0]:
            tail = [f"its log cannot be read: {wrong[0]}"]
        last = read[0].last
        silent = (now - last).total_seconds() if last and state.phase is Phase.RUNNING else 0.0
        remark = state.remark or (f"its log is silent for {int(silent // 60)} min" if silent >= 600 else "")
        progress = together([each.reading for each in read], cut=cut)
        if progress and progress.wasted:
            remark = wasted(progress.idle, state.cost.dollars)
        found = replace(state, progress=progress, tail=tail, remark=remark)
        return _gathered(found) if progress and (progress.generation or progress.gathering) else found


def wasted(idle: float, dollars: float | None) -> str:
    """What is said of GPUs that are idle for that share of the time; ``dollars`` is what the nodes cost so far."""
    lost = "" if dollars is None else f": about ${idle * dollars:.2f} of ${dollars:.2f} bought nothing"
    return f"GPU IDLE {100 * idle:.0f} % of the time{lost}"


def _gathered(state: StepState) -> StepState:
    """A training on several nodes, of which the log of the first pod says whether the programs run."""
    assert state.progress is not None
    retries = max(state.retries, state.progress.generation - 1)
    if state.phase is Phase.RUNNING and state.progress.gathering:
        return replace(state, phase=Phase.MEETING, reason=Reason(state.progress.gathering), retries=retries)
    return replace(state, retries=retries)


def _over(job: Properties) -> bool:
    found = conditions(job)
    return bool(holds(found, "Complete") or holds(found, "Failed"))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _unpriced(steps: Sequence[Expected], states: Sequence[StepState]) -> list[str]:
    """The pools whose price is not known and that were used."""
    used = {state.name for state in states if state.began is not None}
    return list(
        dict.fromkeys(step.pool for step in steps if step.rate is None and step.name in used and step.pool)
    )


def looks(session: Session, pause: Callable[[], bool]) -> Iterator[View]:
    """One view after the other, until ``pause``, which waits in between, says that there are enough."""
    while True:
        yield session.look()
        if pause():
            return
