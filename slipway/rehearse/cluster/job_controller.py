"""The Job controller: retries, deadlines and pod failure policies, as ``batch/v1`` has them."""

import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from slipway.engine.provider_outputs import namespace_of, object_name
from slipway.evaluated.pod_rules import BACKOFF, wait_after
from slipway.evaluated.scheduling import selector_picks
from slipway.infra.kubernetes.labels import RUNS_ANNOTATION
from slipway.infra.review.stack import Properties, Resource, items, mapping, mappings
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT
from slipway.infra.schema.quantities import seconds
from slipway.rehearse.cluster.cluster_objects import RefusedError, cluster_of
from slipway.rehearse.cluster.kubelet import EVICTED, PodResult
from slipway.rehearse.cluster.pods import PodSpec, UnsupportedError, pod_spec
from slipway.rehearse.machine.processes import CancelledError, Stop

JOB_KEYS = frozenset(
    {
        "activeDeadlineSeconds",
        "backoffLimit",
        "backoffLimitPerIndex",
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

POLL = 0.1
"""Seconds between two looks at how long a pause is."""

SPEED = 60.0
"""Seconds of a cluster that pass in a pause of one second of a rehearsal."""

DEFAULT_BACKOFF_LIMIT = 6

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""The reason of a Job that was active for longer than its time limit."""

INTERRUPTED = "Interrupted"
"""Reason of a Job that the rehearsal itself ended; no condition of Kubernetes."""

SUSPENDED = "Suspended"
"""Reason of a Job that was suspended while it ran, and of its pods' end. It starts again once it is let run."""

TERMINATED = 143
"""Exit code of a program that SIGTERM ended."""

JOB_FAILED = "job failed"
"""Why the other pods of a Job that has failed are stopped."""

INDEXED = "Indexed"

CONTROLLER_UID, JOB_NAME, COMPLETION_INDEX = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
)
"""What the Job controller adds to the labels of pods; the index of an Indexed Job's is an annotation, too
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The environment variable in which the containers of an Indexed Job find the pod's index."""


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
    """A Job as far as a rehearsal runs it: of each index one pod at a time, until one succeeds.

    ``workers`` are its completions, all of which may run at once; only an ``indexed`` Job has more than one.
    ``deadline`` is in seconds. Where ``by_index`` says how many pods of each index may fail, each index waits by
    its own failures, and else all by those of all.
    """

    name: str
    namespace: str
    cluster: str
    template: Properties
    pod: PodSpec
    backoff_limit: int
    by_index: int | None
    deadline: int | None
    rules: Sequence[Rule]
    suspended: bool
    workers: int = 1
    indexed: bool = False

    @property
    def together(self) -> bool:
        """Whether its pods work together: they find one another by name."""
        return self.workers > 1 and bool(self.pod.subdomain)

    def who(self, index: int) -> str:
        """The name of the pod with this index in messages; empty if it is the Job's only one."""
        return "" if self.workers == 1 else f"{'pod' if self.together else 'worker'} {index}"

    def action(self, pod: PodResult) -> str:
        """What the first rule that matches a failed pod says; without one it counts."""
        return next((rule.action for rule in self.rules if rule.matches(pod)), "Count")


@dataclass(frozen=True)
class JobResult:
    """How a Job ended. ``reason`` is the Job condition's; ``message`` says more.

    ``attempts`` are all pods that ran, and ``pod`` is the one that decided, or the last. ``index`` is that of the
    one that decided.
    """

    succeeded: bool
    reason: str
    message: str
    attempts: int
    pod: PodResult | None
    index: int | None = None


def job_spec(job: Resource) -> JobSpec:
    """What ``job`` (a ``kubernetes:batch/v1:Job``) declares. Raises UnsupportedError and RefusedError."""
    spec = mapping(job.inputs.get("spec"))
    if unknown := sorted(spec.keys() - JOB_KEYS):
        raise UnsupportedError(f"a rehearsal does not act on {', '.join(unknown)} of a Job")
    indexed, name = spec.get("completionMode") == INDEXED, object_name(job)
    workers = int(spec.get("completions", 1))
    if workers != int(spec.get("parallelism", 1)) or workers < 1 or (workers > 1 and not indexed):
        raise UnsupportedError(
            f"completions {workers}, parallelism {spec.get('parallelism', 1)}, completionMode "
            f"{spec.get('completionMode', 'NonIndexed')}: a rehearsal knows one pod, or Indexed Jobs whose "
            "pods all run at once"
        )
    if indexed and len(last := host_name(name, workers - 1)) > KUBERNETES_NAME_LIMIT:
        raise RefusedError(f"metadata.name: will not able to create pod with invalid DNS label: {last}")
    limit = int(spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT))
    if limit < 0:
        raise RefusedError(f"spec.backoffLimit: Invalid value: {limit}: must be greater than or equal to 0")
    by_index = None if spec.get("backoffLimitPerIndex") is None else int(spec["backoffLimitPerIndex"])
    if by_index is not None and not indexed:
        raise RefusedError(
            f"spec.backoffLimitPerIndex: Invalid value: {by_index}: requires indexed completion mode"
        )
    if by_index is not None and (spec.get("backoffLimit") is None or limit > by_index):
        raise UnsupportedError(
            "a rehearsal knows backoffLimitPerIndex beside a backoffLimit that ends the Job no later"
        )
    deadline = spec.get("activeDeadlineSeconds")
    policy = mapping(spec.get("podFailurePolicy"))
    return JobSpec(
        name=name,
        namespace=namespace_of(job),
        cluster=cluster_of(job),
        template=mapping(spec.get("template")),
        pod=pod_spec(mapping(spec.get("template"))),
        backoff_limit=limit,
        by_index=by_index,
        deadline=None if deadline is None else int(deadline),
        rules=[_rule(rule) for rule in mappings(policy.get("rules"))],
        suspended=bool(spec.get("suspend")) and RUNS_ANNOTATION not in mapping(job.metadata.get("annotations")),
        workers=workers,
        indexed=indexed,
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


def host_name(job: str, index: int) -> str:
    """The host name of the pod with this index of the Indexed Job called ``job``
    (kubernetes.io/docs/concepts/workloads/controllers/job, seen November 2026)."""
    return f"{job}-{index}"


def pod_of(job: JobSpec, uid: str, index: int) -> PodSpec:
    """The pod of ``job`` with this index, with what the Job controller adds to the template.

    ``uid`` is that of the Job: every run of it has one of its own.
    """
    labels = {**job.pod.labels, CONTROLLER_UID: uid, JOB_NAME: job.name}
    if not job.indexed:
        return replace(job.pod, labels=labels)
    variable: Properties = {"name": INDEX_VARIABLE, "value": str(index)}
    return replace(
        job.pod,
        labels={**labels, COMPLETION_INDEX: str(index)},
        annotations={**job.pod.annotations, COMPLETION_INDEX: str(index)},
        hostname=host_name(job.name, index),
        init_containers=[
            replace(init_container, env=[*init_container.env, variable])
            for init_container in job.pod.init_containers
        ],
        container=replace(job.pod.container, env=[*job.pod.container.env, variable]),
    )


def keep_apart(job: JobSpec) -> bool:
    """Whether each pod of ``job`` needs a node that no other of them is on."""
    labels = pod_of(job, "", 0).labels
    return job.workers > 1 and any(selector_picks(term, labels) for term in job.pod.apart)


def new_uid() -> str:
    """A uid for a Job that is created."""
    return str(uuid.uuid4())


StartPod = Callable[[int, int, Stop], PodResult]
"""Runs a pod to its end: that with a number (from 1) of those with an index (from 0). It may raise what makes the
whole Job fail."""


def run(
    job: JobSpec,
    stop: Stop,
    start_pod: StartPod,
    note: Callable[[str], None] = lambda _: None,
    *,
    backoff: float = BACKOFF,
    speed: float = 1.0,
) -> JobResult:
    """Runs ``job`` until it is complete or failed.

    ``stop`` ends it from outside; ``note`` gets a remark for each retry. ``backoff`` are the seconds of a cluster
    before the first of them, of which ``speed`` pass in a second here.
    """
    if job.suspended:
        return JobResult(
            False, "Suspended", "spec.suspend is true; `pulumi up` would wait out its time-out", 0, None
        )
    timer = _at_deadline(job, stop)
    running = _Running(job, stop, start_pod, note, backoff, speed)
    try:
        return running.result()
    finally:
        timer.cancel()


@dataclass
class _Running:
    """A Job while its pods run: those of all indexes share what may fail."""

    job: JobSpec
    stop: Stop
    start_pod: StartPod
    note: Callable[[str], None]
    backoff: float
    speed: float
    failures: int = 0
    lost: int = 0
    """How many pods failed in a row, ignored ones among them."""
    attempts: int = 0
    verdict: JobResult | None = None
    """How the Job failed, as soon as it has."""
    raised: Exception | None = None
    last: PodResult | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._pods = LinkedStop(self.stop)

    def result(self) -> JobResult:
        """Runs every index to its end."""
        if self.job.workers == 1:
            self._run_index(0)
        else:
            with ThreadPoolExecutor(self.job.workers, "worker") as threads:
                list(threads.map(self._run_index, range(self.job.workers)))
        if self.raised is not None:
            raise self.raised
        if self.verdict is not None:
            return replace(self.verdict, attempts=self.attempts)
        return JobResult(True, "Complete", "", self.attempts, self.last)

    def _run_index(self, index: int) -> None:
        try:
            self._until_complete(index)
        except CancelledError:
            self._fail(_stopped_result(self.job, self.stop, self.last))
        except Exception as error:
            with self._lock:
                self.raised = self.raised or error
            self._pods.request(JOB_FAILED, self.job.pod.grace_period)

    def _until_complete(self, index: int) -> None:
        who = f"{self.job.who(index)}: " if self.job.workers > 1 else ""
        number, lost = 0, 0
        while True:
            number += 1
            with self._lock:
                self.attempts += 1
            pod = self._run_pod(number, index)
            with self._lock:
                self.last = pod
                action = "Complete" if pod.succeeded else self.job.action(pod)
                self.failures += action == "Count" and not self._pods.requested
                self.lost = 0 if pod.succeeded else self.lost + 1
                failures = self.failures
            if pod.succeeded:
                return
            lost += 1
            ended = time.monotonic()
            if self._pods.requested:
                raise CancelledError
            reason = "PodFailurePolicy" if action == "FailJob" else ""
            if action == "Count" and failures > self.job.backoff_limit:
                reason = "BackoffLimitExceeded"
            if reason:
                self._fail(JobResult(False, reason, who + _explain(reason, pod), 0, pod, index))
                return
            counted = (
                "not counted" if action == "Ignore" else f"failure {failures} of {self.job.backoff_limit} allowed"
            )
            pause = self._pause(lost)
            self.note(f"{who}{pod.ending}; {counted}, trying again" + (f" in {pause:g} s" if pause else ""))
            # Another index that fails meanwhile makes it longer.
            while (left := ended + self._pause(lost) / self.speed - time.monotonic()) > 0:
                if self._pods.requested:
                    break
                self._pods.wait(min(left, POLL))
            if self._pods.requested:
                raise CancelledError

    def _pause(self, lost: int) -> float:
        """Seconds of a cluster between a pod of an index that ``lost`` so many and the next one."""
        return wait_after(self.lost if self.job.by_index is None else lost, self.backoff)

    def _run_pod(self, number: int, index: int) -> PodResult:
        stop = LinkedStop(self._pods)
        try:
            return self.start_pod(number, index, stop)
        except CancelledError:
            if stop.kind != EVICTED:
                raise
            # Its node went before its program began.
            return PodResult(False, self.job.pod.container.name, TERMINATED, "Error", "", True, 0)

    def _fail(self, verdict: JobResult) -> None:
        """The first failure is the Job's; it ends the pods of all indexes."""
        with self._lock:
            self.verdict = self.verdict or verdict
        self._pods.request(JOB_FAILED, self.job.pod.grace_period)


class LinkedStop(Stop):
    """The stop of one pod: its own (an eviction), or that of its Job; or of a Job: its own, or the rehearsal's."""

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


def _stopped_result(job: JobSpec, stop: Stop, pod: PodResult | None) -> JobResult:
    if reason := {"interrupted": INTERRUPTED, SUSPENDED: SUSPENDED}.get(stop.kind):
        return JobResult(False, reason, "", 0, pod)
    return JobResult(False, DEADLINE_EXCEEDED, f"it was active longer than its {job.deadline} s", 0, pod)


def _explain(reason: str, pod: PodResult) -> str:
    unseen = "; `pulumi up` does not recognise this failure and waits out its time-out"
    return pod.ending + (unseen if reason == "PodFailurePolicy" else "")


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
            on_pod_condition.get("type") == "DisruptionTarget" and on_pod_condition.get("status", "True") == "True"
            for on_pod_condition in mappings(rule.get("onPodConditions"))
        ),
    )


EPOCH = "epoch"
"""The unit of progress that counts most: within one there are steps."""

PROGRESS = re.compile(
    rb"(?i)(?:^|[\s\[({,'\"])(?P<unit>epoch|step|iteration|iter|batch)['\"]?[\s:=#\[]*(?P<done>\d+)\s*(?:/|of)\s*(?P<all>\d+)"
)
"""How far a program says that it is: `Epoch 3/12`, `step 20/200`, `[iter 20 of 200]`."""

EVICT_AFTER = 3
"""A pod that is to be disrupted is evicted after one in this many of its epochs or steps."""

EVICT_WORKER_AFTER = 1.0
"""Seconds between the first line of a worker that is to be disrupted and its eviction."""

EVICT_NODE_AFTER = 40.0
"""Seconds between the moment when all of several nodes have written a line and the eviction of one, where none has
told of an epoch by then."""

FIRST, SECOND = 0, 1


@dataclass(frozen=True)
class Target:
    """The pod that is to be evicted: with this index of the Job called ``name``, or so at its end.

    By default it is the first pod; in a group the second, which others miss. With ``after`` it is evicted that
    many seconds after its program was started.
    """

    name: str
    index: int | None = None
    after: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Target":
        """What ``NAME``, ``NAME:1``, ``NAME:after=20s`` and ``NAME:1:after=20s`` say. Raises ValueError."""
        match = re.fullmatch(r"([^:]+)(?::(\d+))?(?::after=(\w+))?", text, re.ASCII)
        if match is None:
            raise ValueError(text)
        name, index, after = match.groups()
        return cls(name, int(index) if index else None, float(seconds(after)) if after else None)

    def is_of(self, job: str) -> bool:
        """Whether the Job with this logical name is meant."""
        return job == self.name or job.endswith(f"-{self.name}")


@dataclass
class Disruption:
    """Evicts the first pod of ``job`` that has the index ``target``, once. Usable from several threads.

    Without ``after``, a training's pod is evicted after some of its epochs or steps, a worker's pod soon after it
    began. Of a training on several nodes one pod is evicted, after some epochs of the whole training, which one of
    the pods prints. ``evicted`` gets a sentence on it.
    """

    job: JobSpec
    target: int
    evicted: Callable[[str], None]
    after: float | None = None
    _stop: Stop | None = None
    _over: bool = False
    _began: set[int] = field(default_factory=set[int])
    _timer: threading.Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, job: JobSpec, target: Target, evicted: Callable[[str], None]) -> "Disruption":
        """The eviction of the pod of ``job`` that is meant."""
        default = SECOND if job.together else FIRST
        return cls(job, default if target.index is None else target.index, evicted, target.after)

    def starts(self, index: int, number: int, stop: Stop) -> None:
        """The pod with this number, from 1, of those with an index starts; ``stop`` is what ends it."""
        if (index, number) == (self.target, 1):
            with self._lock:
                self._stop = None if self._over else stop

    def launches(self, index: int) -> None:
        """A container of a pod with this index is about to be started; the last one runs its program."""
        with self._lock:
            if index == self.target and self.after is not None and self._stop is not None:
                self._evict_in(self.after, f" {self.after:g} s after its program was started")

    def ended(self, index: int) -> None:
        """A pod with this index ended."""
        if index == self.target:
            with self._lock:
                self._forget()

    def wrote(self, index: int) -> None:
        """A pod with this index wrote a line."""
        if not self.job.indexed or self.after is not None:
            return
        with self._lock:
            new = index not in self._began
            self._began.add(index)
            waits = len(self._began) < self.job.workers if self.job.together else index != self.target
            if self._stop is not None and new and not waits:
                self._evict_in(EVICT_NODE_AFTER if self.job.together else EVICT_WORKER_AFTER)

    def trained(self, done: int, every: int, unit: str = EPOCH) -> None:
        """That many of a training's epochs or steps are done."""
        if self.after is not None or not done:
            return
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
        if done * EVICT_AFTER >= every:
            self._evict(f" after {unit} {done}")

    def _evict_in(self, seconds: float, when: str = "") -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._evict, [when])
        self._timer.daemon = True
        self._timer.start()

    def _evict(self, when: str) -> None:
        """Evicts it as the Kubernetes API does. Prints nothing if the pod has ended."""
        with self._lock:
            stop = self._stop
            self._over = self._over or stop is not None
            self._forget()
        if stop is not None and not stop.requested:
            stop.request(EVICTED, self.job.pod.grace_period)
            self.evicted(f"{self.job.who(self.target) or 'pod'} evicted{when} (DisruptionTarget)")

    def _forget(self) -> None:
        self._stop = None
        if self._timer is not None:
            self._timer.cancel()
