"""Time limits, retries and failure policies of Jobs."""

import re
from collections.abc import Iterator, Sequence

from infra.kubernetes.labels import NAME
from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import Properties, at, known, leaves, mapping, mappings, number, strings
from infra.review.stack import JOB, NodePool, Stack
from infra.step import GATES, SCHEDULED_RUN
from offline.policies.workloads import CRON_JOB, Workload, gpus_of, workloads
from offline.preview.phrasing import duration

SHORT = 1800
"""Jobs with at most this time limit, in seconds, may start over when they lose their node: it is about the time in
which a GPU node boots."""

LOST = frozenset(
    {
        "configMap",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "gitRepo",
        "hostPath",
        "image",
        "name",
        "projected",
        "secret",
    }
)
"""Kinds of volumes that are deleted with the pod's node, or that are read-only
(kubernetes.io/docs/concepts/storage/volumes, November 2026)."""

LOGIN = 21_000
"""Seconds that the login of the deploy pipeline lasts: `aws-seconds` and `timeout-minutes` of
.github/workflows/deploy.yml. A runner of GitHub's ends a job after 6 hours in any case
(docs.github.com/en/actions/concepts/security/github_token, seen November 2026)."""

REMOTE = re.compile(r"\b(?!https?:)[a-z][a-z0-9+.-]+://")
"""A URL of storage, such as a bucket."""


def _ttl(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, JOB):
        if (seconds := workload.job.get("ttlSecondsAfterFinished")) is not None:
            yield Violation(
                workload.resource.urn,
                f"ttlSecondsAfterFinished is {seconds}: Kubernetes deletes the finished Job behind Pulumi's back, "
                "and the `pulumi up` after a refresh runs it again",
                "leave ttlSecondsAfterFinished out; Pulumi deletes the Job once nothing declares it",
            )


def _without_limit(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        limits = (spec.get("activeDeadlineSeconds") for spec in (workload.job, workload.spec))
        if not workload.job or not gpus_of(workload) or any(limit is not None for limit in limits):
            continue
        unlimited = [pool for pool in workload.suitable_pools(stack) if pool.run_limit is None]
        if unlimited:
            yield Violation(
                workload.resource.urn,
                "it has no activeDeadlineSeconds: a Job that hangs holds its GPU node, and the bill grows",
                "set activeDeadlineSeconds, or a limit to how long the nodes of "
                f"{', '.join(f'`{pool.name}`' for pool in unlimited)} run",
            )


def _without_retries(stack: Stack) -> Iterator[Violation]:
    for workload, pools in _on_spot(stack):
        spec = workload.job
        action = _on_disruption(spec)
        if action == "FailJob":
            reason = "its podFailurePolicy fails the Job where a Spot node is taken away"
        elif action in {None, "Count"} and spec.get("backoffLimit") == 0:
            reason = "backoffLimit is 0, so the first Spot node that is taken away fails the Job"
        else:
            continue
        yield Violation(
            workload.resource.urn,
            f"{reason}, and its only pools are Spot ({', '.join(pool.name for pool in pools)})",
            "add a podFailurePolicy rule with action Ignore for the pod condition DisruptionTarget",
        )


def _without_checkpoints(stack: Stack) -> Iterator[Violation]:
    for workload, pools in _on_spot(stack):
        limit = number(workload.job.get("activeDeadlineSeconds"))
        labels = mapping(mapping(workload.template.get("metadata")).get("labels"))
        short = limit is not None and limit <= SHORT
        if short or labels.get(NAME) in {*GATES, SCHEDULED_RUN} or _saves(workload):
            continue
        yield Violation(
            workload.resource.urn,
            "it mounts nothing that outlives its node and names no store: each Spot node that is taken away "
            f"({', '.join(pool.name for pool in pools)}) makes it start from the beginning",
            "mount the store, write checkpoints there and resume from the newest; or use a pool that is not Spot",
        )


def _together_on_spot(stack: Stack) -> Iterator[Violation]:
    for workload, pools in _on_spot(stack):
        if workload.together and workload.labels.get(NAME) not in GATES:
            pods = workload.pods
            yield Violation(
                workload.resource.urn,
                f"it runs on {pods} Spot nodes at once ({', '.join(pool.name for pool in pools)}). When one is "
                f"taken away, {pods} times as often as on one node, the others wait, and are billed, until it is "
                "replaced; then all go back to the newest checkpoint",
                "save checkpoints every few minutes; or use a pool that is not Spot",
            )


def _on_spot(stack: Stack) -> Iterator[tuple[Workload, Sequence[NodePool]]]:
    """The Jobs that only Spot pools can take, with those pools."""
    for workload in workloads(stack):
        if workload.job and (pools := workload.suitable_pools(stack)) and all(pool.spot for pool in pools):
            yield workload, pools


def _on_disruption(job: Properties) -> str | None:
    """The action of the Job for a disrupted pod; None if no rule has one, "" if only the update can tell."""
    if not known(job.get("podFailurePolicy")):
        return ""
    for rule in mappings(mapping(job.get("podFailurePolicy")).get("rules")):
        if any(each.get("type") == "DisruptionTarget" for each in mappings(rule.get("onPodConditions"))):
            return str(rule.get("action"))
    return None


def _saves(workload: Workload) -> bool:
    """Whether the pod can write to storage that outlives its node; true if that cannot be determined."""
    spec = workload.spec
    if not known(spec.get("volumes")):
        return True
    lasting = {str(each.get("name")) for each in workload.volumes if not each.keys() <= LOST}
    for container in workload.containers:
        told = {key: container.get(key) for key in ("command", "args", "env")}
        if not known(told) or any(isinstance(each, str) and REMOTE.search(each) for _, each in leaves(told)):
            return True
        for mount in mappings(container.get("volumeMounts")):
            if mount.get("name") in lasting and not mount.get("readOnly"):
                return True
    return False


def _outlasting(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, JOB):
        limit = number(workload.job.get("activeDeadlineSeconds"))
        labels = strings(at(workload.template, "metadata", "labels"))
        # What a gate may take is no more than the step behind it, of which this is said.
        if limit is not None and limit > LOGIN and labels.get(NAME) not in GATES:
            yield Violation(
                workload.resource.urn,
                f"it may run for {duration(limit)}, and the login of the deploy pipeline ends after "
                f"{duration(LOGIN)}: the state then does not learn how the Job ends, and may stay locked, while "
                "the Job goes on",
                "shorten its time_limit, or deploy from a runner of your own, whose login renews itself "
                "(docs/ci.md, Longer than a login), and suppress this",
            )


def _overlapping(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, CRON_JOB):
        policy = at(workload.resource.properties, "spec", "concurrencyPolicy")
        if policy is None or policy == "Allow":
            yield Violation(
                workload.resource.urn,
                "a run that is still going on when the next is due gets it beside itself, and both write the same",
                "set concurrencyPolicy: Forbid",
            )


POLICIES = (
    Policy(
        "job-ttl",
        Severity.ERROR,
        "A Job that Pulumi manages is not deleted by a clock: no ttlSecondsAfterFinished.",
        _ttl,
        "Leave ttlSecondsAfterFinished out.",
    ),
    Policy(
        "gpu-job-without-limit",
        Severity.WARNING,
        "A Job on GPUs has a time limit, its own or that of its nodes.",
        _without_limit,
        "Set activeDeadlineSeconds.",
    ),
    Policy(
        "spot-job-without-retries",
        Severity.ERROR,
        "A Job that only Spot nodes can take is tried again when one is taken away.",
        _without_retries,
        "Ignore DisruptionTarget in the Job's podFailurePolicy.",
    ),
    Policy(
        "spot-job-without-checkpoints",
        Severity.WARNING,
        "A Job that only Spot nodes can take has somewhere to keep its progress, "
        "unless it is limited to half an hour.",
        _without_checkpoints,
        "Mount the store, write checkpoints there and resume from them.",
    ),
    Policy(
        "longer-than-login",
        Severity.WARNING,
        f"No Job may run for longer than the login of the pipeline that waits for it, {duration(LOGIN)}.",
        _outlasting,
        "Shorten the step's time_limit, or deploy from a runner of your own and suppress it.",
    ),
    Policy(
        "spot-job-on-several-nodes",
        Severity.WARNING,
        "A Job whose pods work together is on nodes that nobody takes away.",
        _together_on_spot,
        "Use a pool that is not Spot, or save checkpoints every few minutes.",
    ),
    Policy(
        "schedule-overlaps",
        Severity.WARNING,
        "A CronJob has no two runs at a time.",
        _overlapping,
        "Set concurrencyPolicy: Forbid.",
    ),
)
