"""From a Job, its pods, its place in a queue and what was said of them to where the step stands."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property

from slipway.command.watch.observed import (
    LONG_AGO,
    Event,
    Observed,
    annotations_of,
    conditions,
    creation_time,
    deletion_time,
    holds,
    labels_of,
    name_of,
    newest,
    owners,
    selection_of,
    since,
    time_of,
    uid_of,
)
from slipway.command.watch.plan import Expected
from slipway.command.watch.pod_states import Around, pod_state, recognise, seen, waiting_claims
from slipway.command.watch.states import NOTHING, Hold, Phase, PodState, Reason, StepState, duration, times
from slipway.evaluated.pod_rules import wait_after
from slipway.evaluated.scheduling import amount
from slipway.infra.features import parts
from slipway.infra.kubernetes.labels import COMPONENT, NAME, RUNS_ANNOTATION, SERVICE
from slipway.infra.placed import CLUSTER_RUN, SCHEDULED_RUN
from slipway.infra.review.stack import Properties, at, items, mapping, mappings, text, whole
from slipway.runtime.failures import explain, known


def why_held(job: Properties) -> Reason | None:
    """Why a Job is suspended that `up` does not wait for, or what lets these run; None for others."""
    if RUNS_ANNOTATION in annotations_of(job):
        return seen("held")
    if labels_of(job).get(NAME) == CLUSTER_RUN:
        return seen("stopped")
    return None


def failing_services(pods: Sequence[Properties]) -> Iterator[str]:
    """Of each service whose program has ended and is not ready again: how often, and its own last words."""
    for pod in pods:
        labels = labels_of(pod)
        if SERVICE not in labels or deletion_time(pod) or holds(conditions(pod), "Ready"):
            continue
        for status in mappings(at(pod, "status", "containerStatuses")):
            ended = mapping(at(status, "state", "terminated")) or mapping(at(status, "lastState", "terminated"))
            if not ended:
                continue
            name = f"{labels.get(NAME, '')}.{labels.get(COMPONENT, '')}"
            failure = explain(text(ended.get("message")))
            words = failure.line or failure.last or text(ended.get("reason"))
            yield (
                f"service {name} is not ready: its program has ended "
                f"{times(max(whole(status.get('restartCount')), 1))}, "
                f"with exit code {whole(ended.get('exitCode'))}: {words}"
            )


TIME_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""The annotation of a CronJob's Job with the time for which it was scheduled
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""


def is_run(job: Properties) -> bool:
    """Whether the Job is a run by the clock, which starts the Jobs of its pipeline."""
    return labels_of(job).get(NAME) == SCHEDULED_RUN


def newest_runs(jobs: Sequence[Properties]) -> set[str]:
    """The UIDs of the newest run by the clock of each pipeline."""
    return {uid_of(runs[-1]) for runs in _runs_by_pipeline(jobs).values()}


def failed_runs(
    jobs: Sequence[Properties], cron_jobs: Sequence[Properties], state_of: Callable[[Properties], StepState]
) -> Iterator[str]:
    """Of each pipeline whose last finished run by the clock failed: when, how many in a row, which step, and why.

    ``state_of`` says where a Job stands.
    """
    for pipeline, runs in _runs_by_pipeline(jobs).items():
        failed: list[Properties] = []
        for run in runs:
            if holds(conditions(run), "Complete"):
                failed = []
            elif holds(conditions(run), "Failed"):
                failed.append(run)
        if not failed:
            continue
        schedules = [cron_job for cron_job in cron_jobs if labels_of(cron_job).get(COMPONENT) == pipeline]
        successes = [time_of(at(schedule, "status", "lastSuccessfulTime")) for schedule in schedules]
        success = max(filter(None, successes), default=None)
        scheduled = time_of(annotations_of(failed[-1]).get(TIME_ANNOTATION)) or creation_time(failed[-1])
        yield (
            f"the scheduled run of {pipeline}"
            + (f" of {scheduled.astimezone():%Y-%m-%d %H:%M}" if scheduled else "")
            + " failed"
            + (f", the last {len(failed)} in a row" if len(failed) > 1 else "")
            + (f"; the last good one ended {success.astimezone():%Y-%m-%d %H:%M}" if success else "")
            + f": {_why(failed[-1], jobs, state_of)}"
        )


def _why(run: Properties, jobs: Sequence[Properties], state_of: Callable[[Properties], StepState]) -> str:
    """The step that failed and its reason; those of the run itself where none of its Jobs failed."""
    states = [(labels_of(job).get(COMPONENT, ""), state_of(job)) for job in jobs if uid_of(run) in owners(job)]
    failed = [f"{step}: {state.reason.says}" for step, state in states if state.phase is Phase.FAILED]
    return "; ".join(failed) or state_of(run).reason.says


def _runs_by_pipeline(jobs: Sequence[Properties]) -> dict[str, list[Properties]]:
    """The runs of each pipeline, the newest last."""
    runs: dict[str, list[Properties]] = {}
    for job in sorted(filter(is_run, jobs), key=lambda job: creation_time(job) or LONG_AGO):
        runs.setdefault(labels_of(job).get(COMPONENT, ""), []).append(job)
    return runs


NEIGHBOUR_FAILED = 15
"""Exit code of a pod of several nodes that ended because another one failed."""

LOST_CODES = frozenset({137, 143})
"""Exit codes of a pod that was killed or told to stop."""

_FIRST = (
    Phase.WAITING,
    Phase.PULLING,
    Phase.STARTING,
    Phase.LOST,
    Phase.ENDING,
    Phase.RUNNING,
)
"""Of the pods of a step, the one that holds up the others says where the step stands."""

_EVICTED = frozenset({"disk", "memory", "resources", "disk limit", "evicted"})
"""Kinds of reasons for which a node evicts a pod that the pod's requests decide about."""


@dataclass(frozen=True)
class Snapshot:
    """What a cluster has of one step: its Job, the pods of that, and all else that was ``observed``.

    ``gone`` are pods that were seen before and are deleted since; ``before`` is the step's state at the last look.
    """

    job: Properties | None = None
    pods: Sequence[Properties] = ()
    observed: Observed = field(default_factory=Observed)
    gone: Sequence[PodState] = ()
    before: StepState | None = None

    @cached_property
    def hold(self) -> Hold | None:
        """What the first feature that holds the Job back knows of it."""
        holds: Iterator[Hold | None] = (
            hold(self.job, self.observed) for hold in parts("live", "hold") if self.job
        )
        return next((hold for hold in holds if hold), None)

    @property
    def job_events(self) -> Sequence[Event]:
        """What was said of the Job itself."""
        return self.observed.events.get(uid_of(self.job), ()) if self.job else ()


def step_state(step: Expected, snapshot: Snapshot) -> StepState:
    """Where the step stands."""
    state = StepState(step.name, step.job, step.cluster, step.pool, Phase.ABSENT, wanted=step.pods)
    job = snapshot.job
    if job is None:
        return replace(state, reason=seen("no job"))
    pods = [pod_of(pod, step, snapshot) for pod in snapshot.pods]
    current = newest_of_each_index(pods)
    wanted = max(whole(at(job, "spec", "parallelism"), 1), 1)
    retries, retried = _retries(job, pods, snapshot, wanted)
    began = time_of(at(job, "status", "startTime"))
    limit = whole(at(job, "spec", "activeDeadlineSeconds"))
    state = replace(
        state,
        job=name_of(job),
        began=began,
        ended=time_of(at(job, "status", "completionTime")),
        deadline=began + timedelta(seconds=limit) if began and limit else None,
        pods=current,
        running=sum(pod.phase is Phase.RUNNING for pod in current),
        wanted=wanted,
        retries=retries,
        retried=retried,
    )
    return _judge(state, step, snapshot, job, pods)


def newest_of_each_index(pods: Sequence[PodState]) -> list[PodState]:
    """The newest pod of each completion index; of a Job without any, the newest of all that are not replaced."""
    ordered = sorted(pods, key=lambda pod: pod.created or LONG_AGO)
    if any(pod.index is not None for pod in ordered):
        by_index = {pod.index: pod for pod in ordered if pod.index is not None}
        return [by_index[index] for index in sorted(by_index)]
    active = [pod for pod in ordered if not pod.over]
    return active or ordered[-1:]


def pod_of(pod: Properties, step: Expected, snapshot: Snapshot) -> PodState:
    """Where one of the step's pods stands."""
    observed = snapshot.observed
    events = observed.events.get(uid_of(pod), ())
    nodes = replace(step.nodes, pool=step.pool)
    around = Around(
        events=events,
        nodes=nodes,
        autoscaler=observed.autoscaler,
        gone_nodes=observed.gone_nodes,
        own_nodes=observed.own_nodes.get(selection_of(pod)),
        claims=waiting_claims(observed),
        hold=snapshot.hold,
        at=observed.at,
        section=step.section,
    )
    return pod_state(pod, around)


def _judge(
    state: StepState, step: Expected, snapshot: Snapshot, job: Properties, pods: Sequence[PodState]
) -> StepState:
    job_conditions = conditions(job)
    if complete := holds(job_conditions, "Complete"):
        return replace(state, phase=Phase.DONE, since=since(complete), ended=state.ended or since(complete))
    if failed := holds(job_conditions, "Failed") or holds(job_conditions, "FailureTarget"):
        before = snapshot.before
        if before and before.phase is Phase.FAILED and before.since == since(failed):
            # What it did before it failed was known then.
            reason = before.reason
        else:
            reason = _failure(step, snapshot, failed, state, pods)
        return replace(state, phase=Phase.FAILED, reason=reason, since=since(failed), ended=since(failed))
    if deletion := deletion_time(job):
        return replace(state, phase=Phase.ENDING, reason=Reason("its Job is being deleted"), since=deletion)
    if at(job, "spec", "suspend") is True:
        reason = why_held(job) or (snapshot.hold.reason if snapshot.hold else seen("suspended"))
        waiting = Phase.HELD if RUNS_ANNOTATION in annotations_of(job) else Phase.QUEUED
        phase = waiting if all(pod.over for pod in state.pods) else Phase.ENDING
        suspension = since(holds(job_conditions, "Suspended")) or creation_time(job)
        return replace(state, phase=phase, reason=reason, since=suspension, began=None, deadline=None)
    return _judge_active(state, step, job, snapshot.job_events)


def _judge_active(state: StepState, step: Expected, job: Properties, events: Sequence[Event]) -> StepState:
    active = [pod for pod in state.pods if not pod.over]
    done = sum(pod.phase is Phase.DONE for pod in state.pods)
    if not active:
        return _judge_without_pods(state, job, events, done)
    slowest = min(active, key=lambda pod: (_FIRST.index(pod.phase), pod.index or 0))
    waits = state.wanted - done - state.running
    if step.items and state.running:
        # Each worker has its own share of the items: those that run are at work whatever the others do.
        running = next(pod for pod in active if pod.phase is Phase.RUNNING)
        state = replace(state, phase=Phase.RUNNING, reason=running.reason, since=running.since)
        if state.wanted == 1 or not waits:
            return state
        why = f", {slowest.reason.says}" if slowest.reason.says else ""
        return replace(state, remark=f"{waits} of {state.wanted} workers not yet: {slowest.phase}{why}")
    phase, reason = slowest.phase, slowest.reason
    if state.wanted > len(active) + done and phase is Phase.RUNNING:
        phase, reason = Phase.CREATING, _creation_problem(events)
        if state.retries or state.retried:
            phase, reason = Phase.RETRYING, _retry_reason(state, job)
    if state.wanted > 1 and waits and phase is not Phase.RUNNING:
        who = f"{waits} of {state.wanted} pods"
        others = f", the {'others wait' if state.running > 1 else 'other waits'} for it" if state.running else ""
        reason = replace(reason, says=f"{who}{others}" + (f": {reason.says}" if reason.says else ""))
    return replace(state, phase=phase, reason=reason, since=slowest.since)


def _judge_without_pods(state: StepState, job: Properties, events: Sequence[Event], done: int) -> StepState:
    if done >= state.wanted:
        return replace(
            state, phase=Phase.ENDING, reason=Reason("its pods have ended well"), since=creation_time(job)
        )
    failed = [pod for pod in state.pods if pod.phase is Phase.FAILED]
    last = max((pod.ended for pod in failed if pod.ended), default=None)
    if last and state.deadline and last >= state.deadline and all(pod.code in LOST_CODES for pod in failed):
        # The Job is not told to have failed yet. What its program says of going on is for another end.
        return replace(state, phase=Phase.ENDING, reason=Reason("its time limit is over"), since=last)
    if causes := [pod for pod in failed if not is_replaced(job, pod)]:
        # The Job is not told to have failed yet, and makes no further pod.
        return replace(state, phase=Phase.ENDING, reason=causes[0].reason, since=last)
    if failed or state.retries or state.retried:
        return replace(state, phase=Phase.RETRYING, reason=_retry_reason(state, job), since=last)
    return replace(state, phase=Phase.CREATING, reason=_creation_problem(events), since=creation_time(job))


def is_replaced(job: Properties, pod: PodState) -> bool:
    """Whether the Job makes another pod in place of one that failed."""
    if pod.disrupted or whole(at(job, "spec", "backoffLimit")):
        return True
    rules = mappings(at(job, "spec", "podFailurePolicy", "rules"))
    ignored = [rule for rule in rules if rule.get("action") == "Ignore"]
    if pod.code is None:
        # Its node did not start it.
        conditions_ = (pattern for rule in ignored for pattern in mappings(rule.get("onPodConditions")))
        return any(pattern.get("type") == "PodScheduled" for pattern in conditions_)
    return any(pod.code in items(at(rule, "onExitCodes", "values")) for rule in ignored)


def _retry_reason(state: StepState, job: Properties) -> Reason:
    """Why the next pod is not there yet; the fix keeps it from being taken away once more."""
    failed = [pod for pod in state.pods if pod.phase is Phase.FAILED and pod.disrupted == state.retried]
    fix = next((pod.reason.fix for pod in failed if pod.reason.kind in _EVICTED), "")
    why = f"{state.retried}; " if state.retried else ""
    return replace(seen("retry", why=why, when=_next_pod(state, job)), fix=fix)


def _next_pod(state: StepState, job: Properties) -> str:
    """When the Job controller makes the next pod: it counts lost pods too, of each index or of all together."""
    failed = [pod for pod in state.pods if pod.phase is Phase.FAILED and pod.ended]
    last = max(failed, key=lambda pod: pod.ended or LONG_AGO, default=None)
    if last is None or last.ended is None:
        return "after a wait that grows from 10 s to ten minutes"
    by_index = at(job, "spec", "backoffLimitPerIndex") is not None
    lost = sum(not by_index or pod.index == last.index for pod in failed)
    wait = wait_after(lost)
    comes = last.ended + timedelta(seconds=wait)
    return f"at {comes.astimezone():%H:%M:%S}, {wait:.0f} s after the last one ended"


def _creation_problem(events: Sequence[Event]) -> Reason:
    """Why the Job has no pod, or fewer than it should."""
    refusal = newest(events, "FailedCreate")
    if refusal is None:
        return NOTHING
    words = refusal.message
    reason = recognise(words, "creation", words, kind="refused")
    if reason.kind == "namespace quota" and (beyond := beyond_quota(words)):
        return seen("quota too small", words, quota=reason.says, beyond=beyond)
    return reason


def beyond_quota(words: str) -> str:
    """The resources of which a refused pod alone asks for more than a ResourceQuota has at all.

    ``exceeded quota: q, requested: requests.cpu=4,pods=1, used: …, limited: requests.cpu=2,pods=9`` (kubernetes/
    staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go, Kubernetes 1.34).
    """
    match = re.search(r"requested: (\S+?), used: .*?limited: (\S+)", words)
    if match is None:
        return ""
    requested, limited = (dict(re.findall(r"([^=,\s]+)=([^=,\s]+)", amounts)) for amounts in match.groups())
    beyond: list[str] = []
    for name in requested.keys() & limited.keys():
        resource = name.removeprefix("requests.").removeprefix("limits.")
        with contextlib.suppress(ValueError):
            if amount(resource, requested[name]) > amount(resource, limited[name]):
                beyond.append(name)
    return ", ".join(sorted(beyond))


def _retries(job: Properties, pods: Sequence[PodState], snapshot: Snapshot, wanted: int) -> tuple[int, str]:
    """How many pods were started in place of others, and why the last of these went.

    What a feature stops and lets in again counts once, however many pods the step has.
    """
    known = {pod.uid: pod for pod in [*snapshot.gone, *pods]}
    gone = {pod.uid for pod in snapshot.gone if not pod.over}
    replaced = [
        pod for pod in known.values() if pod.uid in gone or (pod.phase is Phase.FAILED and is_replaced(job, pod))
    ]
    if holds(conditions(job), "Failed") or holds(conditions(job), "FailureTarget"):
        # The pods that the Job failed by were not replaced.
        replaced = [pod for pod in replaced if pod.disrupted]
    names = {pod.name for pod in known.values()} | {
        event.message.removeprefix("Created pod: ")
        for event in snapshot.job_events
        if event.reason == "SuccessfulCreate"
    }
    stops = snapshot.hold.stops if snapshot.hold else 0
    if stops and at(job, "spec", "suspend") is True:
        stops -= 1
    last = max(replaced, key=lambda pod: pod.ended or pod.created or LONG_AGO, default=None)
    why = last.disrupted or last.reason.says or "it was deleted" if last else ""
    return stops + max(len(names) - wanted - stops * wanted, 0), (snapshot.hold and snapshot.hold.why) or why


def _failure(
    step: Expected, snapshot: Snapshot, condition: Properties, state: StepState, pods: Sequence[PodState]
) -> Reason:
    """Why the Job failed: the words of the pod that was the cause."""
    words, before = text(condition.get("message")), snapshot.before
    failed = [pod for pod in pods if pod.phase is Phase.FAILED]
    if condition.get("reason") == "DeadlineExceeded":
        seconds = whole(at(snapshot.job, "spec", "activeDeadlineSeconds"))
        ending = {Phase.ENDING, Phase.RETRYING}
        last = before.says if before and not before.phase.over and before.phase not in ending else ""
        over = known(f"DeadlineExceeded: {duration(seconds)}{f'; before that it {last}' if last else ''}")
        waited = before and before.phase in {Phase.WAITING, Phase.PULLING}
        fix = before.reason.fix if before and waited else ""
        return Reason(over.says, fix or over.advice(step.section), words, over.kind)
    causes = [pod for pod in failed if not pod.disrupted and pod.code not in {NEIGHBOUR_FAILED, *LOST_CODES}]
    causes = causes or [pod for pod in failed if not pod.disrupted and pod.code != NEIGHBOUR_FAILED] or failed
    cause = min(causes, key=lambda pod: (pod.ended or LONG_AGO, pod.index or 0), default=None)
    if cause is None:
        return seen("pods gone", words, last=words)
    who = f"pod {cause.index}: " if state.wanted > 1 and cause.index is not None else ""
    return replace(cause.reason, says=f"{who}{cause.reason.says}")
