"""The Job controller: retries, deadlines and pod failure policies, as ``batch/v1`` has them."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.review.properties import Properties, items, mapping, mappings
from infra.review.stack import Resource
from offline.engine.provider_outputs import namespace_of, object_name
from offline.rehearsal.cluster_objects import RefusedError, cluster_of
from offline.rehearsal.kubelet import PodResult
from offline.rehearsal.pods import PodSpec, UnsupportedError, pod_spec
from offline.rehearsal.processes import Stop
from offline.rehearsal.scheduler import CancelledError

JOB_KEYS = frozenset(
    {
        "activeDeadlineSeconds",
        "backoffLimit",
        "completionMode",
        "completions",
        "parallelism",
        "podFailurePolicy",
        "podReplacementPolicy",
        "suspend",
        "template",
        "ttlSecondsAfterFinished",
    }
)

REPLACED_BY = ("completions", "parallelism", "selector", "template")
"""Fields of a Job's spec whose change replaces it; all others are updated in place, and nothing runs again
(pulumi-kubernetes, provider/pkg/provider/diff.go, seen November 2026)."""

BACKOFF = 10.0
LONGEST_BACKOFF = 600.0
"""Seconds before the second pod after a counted failure, doubled for each further one up to the longest
(kubernetes.io/docs/concepts/workloads/controllers/job, seen November 2026)."""

DEFAULT_BACKOFF_LIMIT = 6

INTERRUPTED = "Interrupted"
"""Reason of a Job that the rehearsal itself ended; no condition of Kubernetes."""


@dataclass(frozen=True)
class Rule:
    """One rule of a podFailurePolicy. It matches exit codes, or pods with the condition DisruptionTarget."""

    action: str
    container: str | None = None
    operator: str = ""
    exit_codes: frozenset[int] = frozenset()
    on_disruption: bool = False

    def matches(self, pod: PodResult) -> bool:
        """Whether this rule decides what becomes of ``pod``, which failed."""
        if self.on_disruption:
            return pod.disrupted
        if not self.operator or (self.container is not None and self.container != pod.container):
            return False
        return (pod.exit_code in self.exit_codes) == (self.operator == "In")


@dataclass(frozen=True)
class JobSpec:
    """A Job as far as a rehearsal runs it: one pod at a time, until one succeeds. ``deadline`` is in seconds."""

    name: str
    namespace: str
    cluster: str
    template: Properties
    pod: PodSpec
    backoff_limit: int
    deadline: int | None
    rules: Sequence[Rule]
    suspended: bool

    def action(self, pod: PodResult) -> str:
        """What the first rule that matches a failed pod says; without one it counts."""
        return next((rule.action for rule in self.rules if rule.matches(pod)), "Count")


@dataclass(frozen=True)
class JobResult:
    """How a Job ended. ``reason`` is the Job condition's; ``message`` says more; ``pod`` is the last one."""

    succeeded: bool
    reason: str
    message: str
    attempts: int
    pod: PodResult | None


def job_spec(job: Resource) -> JobSpec:
    """What ``job`` (a ``kubernetes:batch/v1:Job``) declares. Raises UnsupportedError and RefusedError."""
    spec = mapping(job.inputs.get("spec"))
    if unknown := sorted(spec.keys() - JOB_KEYS):
        raise UnsupportedError(f"a rehearsal does not act on {', '.join(unknown)} of a Job")
    for key, only in (("completions", 1), ("parallelism", 1), ("completionMode", "NonIndexed")):
        if spec.get(key, only) != only:
            raise UnsupportedError(f"{key} {spec[key]}: a rehearsal knows {only}")
    limit = int(spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT))
    if limit < 0:
        raise RefusedError(f"spec.backoffLimit: Invalid value: {limit}: must be greater than or equal to 0")
    deadline = spec.get("activeDeadlineSeconds")
    policy = mapping(spec.get("podFailurePolicy"))
    return JobSpec(
        name=object_name(job),
        namespace=namespace_of(job),
        cluster=cluster_of(job),
        template=mapping(spec.get("template")),
        pod=pod_spec(mapping(spec.get("template"))),
        backoff_limit=limit,
        deadline=None if deadline is None else int(deadline),
        rules=[_rule(each) for each in mappings(policy.get("rules"))],
        suspended=bool(spec.get("suspend")),
    )


def identity(job: Resource) -> str:
    """A digest that changes exactly when `pulumi up` would replace the Job."""
    spec = mapping(job.inputs.get("spec"))
    decisive = {
        "name": object_name(job),
        "namespace": namespace_of(job),
        "provider": job.provider,
        "spec": {key: spec.get(key) for key in REPLACED_BY},
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def run(
    job: JobSpec,
    stop: Stop,
    start_pod: Callable[[int, Stop], PodResult],
    note: Callable[[str], None] = lambda _: None,
    backoff: float = BACKOFF,
) -> JobResult:
    """Runs ``job`` until it is complete or failed.

    ``start_pod`` runs the pod with that number (from 1) to its end, and may raise what makes the whole Job fail.
    ``stop`` ends it from outside; ``note`` is told of each retry.
    """
    if job.suspended:
        return JobResult(
            False, "Suspended", "spec.suspend is true; `pulumi up` would wait out its time-out", 0, None
        )
    timer = _at_deadline(job, stop)
    failures = attempts = 0
    pod = None
    try:
        while True:
            attempts += 1
            pod = start_pod(attempts, _Linked(stop))
            action = "Complete" if pod.succeeded else job.action(pod)
            failures += action == "Count"
            reason = {"Complete": "Complete", "FailJob": "PodFailurePolicy"}.get(action, "")
            if action == "Count" and failures > job.backoff_limit:
                reason = "BackoffLimitExceeded"
            if stop.requested and not pod.succeeded:
                return _stopped(job, stop, attempts, pod)
            if reason:
                return JobResult(pod.succeeded, reason, _explain(reason, pod), attempts, pod)
            pause = 0.0 if action == "Ignore" else min(backoff * 2 ** (failures - 1), LONGEST_BACKOFF)
            counted = "not counted" if action == "Ignore" else f"failure {failures} of {job.backoff_limit} allowed"
            note(f"{pod.ending}; {counted}, trying again" + (f" in {pause:g} s" if pause else ""))
            _sleep(stop, pause)
    except CancelledError:
        return _stopped(job, stop, attempts, pod)
    finally:
        timer.cancel()


class _Linked(Stop):
    """The stop of one pod: its own (an eviction), or its Job's."""

    def __init__(self, job: Stop) -> None:
        super().__init__()
        self._job = job

    @property
    def requested(self) -> bool:
        if self._job.requested and self._job.grace < (self.grace if self.kind else float("inf")):
            self.request(self._job.kind, self._job.grace)
        return bool(self.kind)


def _at_deadline(job: JobSpec, stop: Stop) -> threading.Timer:
    timer = threading.Timer(
        job.deadline if job.deadline is not None else threading.TIMEOUT_MAX,
        lambda: stop.request("deadline", job.pod.grace_period),
    )
    timer.daemon = True
    if job.deadline is not None:
        timer.start()
    return timer


def _stopped(job: JobSpec, stop: Stop, attempts: int, pod: PodResult | None) -> JobResult:
    if stop.kind == "interrupted":
        return JobResult(False, INTERRUPTED, "", attempts, pod)
    return JobResult(False, "DeadlineExceeded", f"it was active longer than its {job.deadline} s", attempts, pod)


def _explain(reason: str, pod: PodResult) -> str:
    if pod.succeeded:
        return ""
    unseen = "; `pulumi up` does not recognise this failure and waits out its time-out"
    return pod.ending + (unseen if reason == "PodFailurePolicy" else "")


def _sleep(stop: Stop, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop.requested:
        time.sleep(0.05)
    if stop.requested:
        raise CancelledError


def _rule(rule: Properties) -> Rule:
    action = str(rule.get("action"))
    if action not in {"Ignore", "FailJob", "Count"}:
        raise UnsupportedError(f"podFailurePolicy action {action}: a rehearsal knows Ignore, FailJob and Count")
    codes = mapping(rule.get("onExitCodes"))
    return Rule(
        action=action,
        container=codes.get("containerName"),
        operator=str(codes.get("operator") or ""),
        exit_codes=frozenset(map(int, items(codes.get("values")))),
        on_disruption=any(
            each.get("type") == "DisruptionTarget" and each.get("status", "True") == "True"
            for each in mappings(rule.get("onPodConditions"))
        ),
    )
