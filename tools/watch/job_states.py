"""From a Job, its pods and what was said of them to where the step stands."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from infra.review.stack import Properties, at, items, mappings, strings, text, whole
from offline.evaluated.scheduling import amount
from tools.watch.observed import (
    Event,
    conditions,
    created,
    deleted,
    holds,
    name_of,
    newest,
    since,
    time_of,
    uid_of,
)
from tools.watch.plan import Expected
from tools.watch.pod_states import Around, explained, pod_state, table
from tools.watch.queue_states import evictions, flavor_of, queued
from tools.watch.states import NOTHING, Phase, PodState, Reason, StepState, duration

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

_KEYS = {
    "memory": "memory",
    "disk": "ephemeral_storage",
    "disk limit": "ephemeral_storage",
    "time limit": "time_limit",
}
"""The key of a step's settings that mends a failure of that kind."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Seen:
    """What its cluster has of a step. ``events`` are by the UID of what they are about.

    ``gone`` are pods that were seen before and are deleted since; ``before`` is the step's state at the last look.
    """

    job: Properties | None = None
    pods: Sequence[Properties] = ()
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict[str, Sequence[Event]])
    workload: Properties | None = None
    workloads: Sequence[Properties] = ()
    autoscaler: str = ""
    gone_nodes: frozenset[str] = frozenset()
    gone: Sequence[PodState] = ()
    before: StepState | None = None


def step_state(step: Expected, seen: Seen, blockers: Sequence[str] = ()) -> StepState:
    """Where the step stands. ``blockers`` say what keeps its Job from being created."""
    empty = StepState(step.name, step.job, step.cluster, step.pool, Phase.ABSENT, wanted=step.pods)
    job = seen.job
    if job is None:
        return replace(empty, reason=_absent(blockers))
    pods = [pod_of(each, step, seen) for each in seen.pods]
    current = newest_of_each(pods)
    wanted = max(whole(at(job, "spec", "parallelism"), 1), 1)
    retries, retried = _retries(job, pods, seen, wanted)
    began = time_of(at(job, "status", "startTime"))
    limit = whole(at(job, "spec", "activeDeadlineSeconds"))
    state = replace(
        empty,
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
    return _judged(state, step, seen, pods)


def newest_of_each(pods: Sequence[PodState]) -> list[PodState]:
    """The newest pod of each completion index; of a Job without any, the newest of all that are not replaced."""
    ordered = sorted(pods, key=lambda pod: pod.created or _LONG_AGO)
    if any(pod.index is not None for pod in ordered):
        by_index = {pod.index: pod for pod in ordered if pod.index is not None}
        return [by_index[each] for each in sorted(by_index)]
    active = [pod for pod in ordered if not pod.over]
    return active or ordered[-1:]


def pod_of(pod: Properties, step: Expected, seen: Seen) -> PodState:
    """Where one of the step's pods stands."""
    flavor, selected = flavor_of(seen.workload)
    selects = strings(at(pod, "spec", "nodeSelector"))
    added = {key: value for key, value in selects.items() if flavor and key not in selected}
    events = seen.events.get(uid_of(pod), ())
    return pod_state(pod, Around(events, step.pool, seen.autoscaler, seen.gone_nodes, flavor, added))


def _absent(blockers: Sequence[str]) -> Reason:
    if blockers:
        return Reason("; ".join(blockers), kind="after")
    return Reason("nothing is in its way: `pulumi up` has not come to it, or does not run", kind="up")


def _judged(state: StepState, step: Expected, seen: Seen, pods: Sequence[PodState]) -> StepState:
    job = seen.job
    assert job is not None
    found = conditions(job)
    if complete := holds(found, "Complete"):
        return replace(state, phase=Phase.DONE, since=since(complete), ended=state.ended or since(complete))
    if failed := holds(found, "Failed") or holds(found, "FailureTarget"):
        before = seen.before
        if before and before.phase is Phase.FAILED and before.since == since(failed):
            # What it did before it failed was known then.
            reason = before.reason
        else:
            reason = _failure(job, failed, state, pods, before)
        reason = replace(reason, fix=_with_key(reason, step))
        return replace(state, phase=Phase.FAILED, reason=reason, since=since(failed), ended=since(failed))
    if going := deleted(job):
        return replace(state, phase=Phase.ENDING, reason=Reason("its Job is being deleted"), since=going)
    own = seen.events.get(uid_of(job), ())
    if at(job, "spec", "suspend") is True:
        reason = queued(job, seen.workload, seen.workloads, own)
        going_on = [pod for pod in state.pods if not pod.over]
        phase = Phase.ENDING if going_on else Phase.QUEUED
        held = since(holds(found, "Suspended")) or created(job)
        return replace(state, phase=phase, reason=reason, since=held, began=None, deadline=None)
    return _active(state, step, job, own)


def _active(state: StepState, step: Expected, job: Properties, own: Sequence[Event]) -> StepState:
    """Of a Job that goes on."""
    active = [pod for pod in state.pods if not pod.over]
    done = sum(pod.phase is Phase.DONE for pod in state.pods)
    missing = state.wanted - len(active) - done
    if not active:
        return _without_pods(state, job, own, created(job), done)
    slowest = min(active, key=lambda pod: (_FIRST.index(pod.phase), pod.index or 0))
    if step.items and state.running:
        # Each worker has its own share of the items: those that run are at work whatever the others do.
        slowest = next(pod for pod in active if pod.phase is Phase.RUNNING)
    phase, reason = slowest.phase, slowest.reason
    if missing > 0 and phase is Phase.RUNNING and not step.items:
        phase, reason = Phase.CREATING, _created(own)
        if state.retries or state.retried:
            phase, reason = Phase.RETRYING, Reason(_again(state), _fix(state))
    waits = state.wanted - done - state.running
    if state.wanted > 1 and waits and phase is not Phase.RUNNING:
        who = f"{waits} of {state.wanted} pods" if waits > 1 else f"1 of {state.wanted} pods"
        others = f", the {'others wait' if state.running > 1 else 'other waits'} for it" if state.running else ""
        says = f"{who}{others}: {reason.says}" if reason.says else f"{who}{others}"
        reason = replace(reason, says=says)
    elif state.wanted > 1 and waits and step.items:
        worst = min(active, key=lambda pod: _FIRST.index(pod.phase))
        return replace(
            state,
            phase=phase,
            since=slowest.since,
            remark=f"{waits} of {state.wanted} workers not yet: {worst.phase}"
            + (f", {worst.reason.says}" if worst.reason.says else ""),
        )
    return replace(state, phase=phase, reason=reason, since=slowest.since)


def ignored(job: Properties, pod: PodState) -> bool:
    """Whether the Job makes another pod in place of one that failed."""
    if pod.disrupted or whole(at(job, "spec", "backoffLimit")):
        return True
    rules = mappings(at(job, "spec", "podFailurePolicy", "rules"))
    codes = [items(at(rule, "onExitCodes", "values")) for rule in rules if rule.get("action") == "Ignore"]
    return any(pod.code in code for code in codes)


def _without_pods(
    state: StepState, job: Properties, own: Sequence[Event], born: datetime | None, done: int
) -> StepState:
    if done >= state.wanted:
        return replace(state, phase=Phase.ENDING, reason=Reason("its pods have ended well"), since=born)
    taken = [pod for pod in state.pods if pod.phase is Phase.FAILED]
    last = max((pod.ended for pod in taken if pod.ended), default=None)
    if last and state.deadline and last >= state.deadline and all(pod.code in LOST_CODES for pod in taken):
        # The Job is not told to have failed yet. What its program says of going on is for another end.
        return replace(state, phase=Phase.ENDING, reason=Reason("its time limit is over"), since=last)
    if refused := [pod for pod in taken if not ignored(job, pod)]:
        # The Job is not told to have failed yet, and makes no further pod.
        return replace(state, phase=Phase.ENDING, reason=refused[0].reason, since=last)
    if taken or state.retries or state.retried:
        return replace(state, phase=Phase.RETRYING, reason=Reason(_again(state), _fix(state)), since=last)
    return replace(state, phase=Phase.CREATING, reason=_created(own), since=born)


def _again(state: StepState) -> str:
    why = f"{state.retried}; " if state.retried else ""
    return f"{why}Kubernetes makes the next pod, after a wait that grows from 10 s to ten minutes"


def _fix(state: StepState) -> str:
    """What keeps the step's pods from being taken away once more; empty where there is only waiting."""
    taken = [pod for pod in state.pods if pod.phase is Phase.FAILED and pod.disrupted == state.retried]
    return next((pod.reason.fix for pod in taken if pod.reason.kind in _EVICTED), "")


def _created(own: Sequence[Event]) -> Reason:
    """Why the Job has no pod, or fewer than it should."""
    refused = newest(own, "FailedCreate")
    if refused is None:
        return NOTHING
    found = explained(refused.message, table("creation"))
    if found and found.kind == "namespace quota" and (beyond := beyond_quota(refused.message)):
        return Reason(
            f"{found.says}. It alone asks for more {beyond} than the quota has: this wait has no end",
            "raise the quota, or ask for less in the step",
            refused.message,
            "never",
        )
    return found or Reason(refused.message, "", refused.message, "refused")


def beyond_quota(words: str) -> str:
    """The resources of which a refused pod alone asks for more than a ResourceQuota has at all.

    ``exceeded quota: q, requested: requests.cpu=4,pods=1, used: …, limited: requests.cpu=2,pods=9`` (kubernetes/
    staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go, Kubernetes 1.34).
    """
    found = re.search(r"requested: (?P<asked>\S+?), used: .*?limited: (?P<most>\S+)", words)
    if found is None:
        return ""
    asked, most = (dict(re.findall(r"([^=,\s]+)=([^=,\s]+)", found[name])) for name in ("asked", "most"))
    beyond: list[str] = []
    for name in asked.keys() & most.keys():
        resource = name.removeprefix("requests.").removeprefix("limits.")
        with contextlib.suppress(ValueError):
            if amount(resource, asked[name]) > amount(resource, most[name]):
                beyond.append(name)
    return ", ".join(sorted(beyond))


def _retries(job: Properties, pods: Sequence[PodState], seen: Seen, wanted: int) -> tuple[int, str]:
    """How many pods were started in place of others, and why the last of these went.

    What Kueue stops and lets in again counts once, however many pods the step has.
    """
    known = {pod.uid: pod for pod in [*seen.gone, *pods]}
    gone = {each.uid for each in seen.gone if not each.over}
    replaced = [
        pod for pod in known.values() if pod.uid in gone or (pod.phase is Phase.FAILED and ignored(job, pod))
    ]
    if holds(conditions(job), "Failed") or holds(conditions(job), "FailureTarget"):
        # The pods that the Job failed by were not replaced.
        replaced = [pod for pod in replaced if pod.disrupted]
    made = {
        event.message.removeprefix("Created pod: ")
        for event in seen.events.get(uid_of(job), ())
        if event.reason == "SuccessfulCreate"
    }
    by_kueue, kueue_says = evictions(seen.workload)
    if by_kueue and at(job, "spec", "suspend") is True:
        by_kueue -= 1
    more = len(made | {pod.name for pod in known.values()}) - wanted
    last = max(replaced, key=lambda pod: pod.ended or pod.created or _LONG_AGO, default=None)
    why = last.disrupted or last.reason.says or "it was deleted" if last else ""
    return by_kueue + max(more - by_kueue * wanted, 0), kueue_says or why


def _with_key(reason: Reason, step: Expected) -> str:
    """The fix of a failure with the key in the stack file that mends it, where the step has a section there."""
    key = _KEYS.get(reason.kind)
    if not key or not step.section or f"`{key}`" not in reason.fix:
        return reason.fix
    return reason.fix.replace(f"the step's `{key}`", f"`{step.section}.{key}`")


def _failure(
    job: Properties, condition: Properties, state: StepState, pods: Sequence[PodState], before: StepState | None
) -> Reason:
    """Why the Job failed: the words of the pod that was the cause."""
    words = text(condition.get("message"))
    failed = [pod for pod in pods if pod.phase is Phase.FAILED]
    if condition.get("reason") == "DeadlineExceeded":
        seconds = whole(at(job, "spec", "activeDeadlineSeconds"))
        ending = {Phase.ENDING, Phase.RETRYING}
        last = before.says if before and not before.phase.over and before.phase not in ending else ""
        doing = f"; before that it {last}" if last else ""
        fix = (
            "raise the step's `time_limit`; the next `pulumi up` starts it again, and what it has published and "
            "its newest checkpoint are still there"
        )
        if before and before.phase in {Phase.WAITING, Phase.PULLING} and before.reason.fix:
            fix = before.reason.fix
        return Reason(f"ended by its time limit of {duration(seconds)}{doing}", fix, words, "time limit")
    causes = [pod for pod in failed if not pod.disrupted and pod.code not in {NEIGHBOUR_FAILED, *LOST_CODES}]
    causes = causes or [pod for pod in failed if not pod.disrupted and pod.code != NEIGHBOUR_FAILED] or failed
    cause = min(causes, key=lambda pod: (pod.ended or _LONG_AGO, pod.index or 0), default=None)
    if cause is None:
        return Reason(f"its pods are gone, and with them their words: {words}", "", words, "gone")
    who = f"pod {cause.index}: " if state.wanted > 1 and cause.index is not None else ""
    return replace(cause.reason, says=f"{who}{cause.reason.says}")
