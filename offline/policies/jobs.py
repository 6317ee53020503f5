"""Time limits, retries and failure policies of Jobs."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import Any

from slipway.infra.commands import page
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.placed import MOVER, SCHEDULED_RUN, STORE_GATE
from slipway.infra.review.contract import Policy, Severity, Violation
from slipway.infra.review.stack import (
    CONFIG_MAP,
    JOB,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    known,
    leaves,
    mapping,
    mappings,
    number,
    strings,
    text,
    whole,
)
from slipway.offline.evaluated.phrasing import duration
from slipway.offline.evaluated.places import MovedStep, is_held, is_moved, moved_steps, section_of
from slipway.offline.evaluated.workloads import CRON_JOB, Workload, awaited, gpus_of, workloads

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


def _find_ttl(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, JOB):
        if (seconds := workload.job.get("ttlSecondsAfterFinished")) is not None:
            yield Violation(
                workload.resource.urn,
                f"ttlSecondsAfterFinished is {seconds}: Kubernetes deletes the finished Job behind Pulumi's back, "
                "and the `pulumi up` after a refresh runs it again",
                "leave ttlSecondsAfterFinished out; Pulumi deletes the Job once nothing declares it",
            )


def _find_without_limit(stack: Stack) -> Iterator[Violation]:
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


def _find_without_retries(stack: Stack) -> Iterator[Violation]:
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


def _find_without_checkpoints(stack: Stack) -> Iterator[Violation]:
    for workload, pools in _on_spot_alone(stack):
        limit = number(workload.job.get("activeDeadlineSeconds"))
        labels = mapping(mapping(workload.template.get("metadata")).get("labels"))
        short = limit is not None and limit <= SHORT
        if short or labels.get(NAME) in {STORE_GATE, SCHEDULED_RUN, MOVER} or _saves(workload):
            continue
        yield Violation(
            workload.resource.urn,
            "it mounts nothing that outlives its node and names no store: each Spot node that is taken away "
            f"({', '.join(pool.name for pool in pools)}) makes it start from the beginning",
            "mount the store, write checkpoints there and resume from the newest; or use a pool that is not Spot",
        )


def _find_together_on_spot(stack: Stack) -> Iterator[Violation]:
    for workload, pools in _on_spot_alone(stack):
        if workload.together:
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


def _on_spot_alone(stack: Stack) -> Iterator[tuple[Workload, Sequence[NodePool]]]:
    """The same without Jobs of steps that have another place, and of those that have none the first Job only."""
    alone = {
        step.places[0].resource.urn
        for step in moved_steps(stack).values()
        if all(pools and all(pool.spot for pool in pools) for pools in _pools_of(step, stack))
    }
    for workload, pools in _on_spot(stack):
        if not is_held(workload.resource) or workload.resource.urn in alone:
            yield workload, pools


def _pools_of(step: MovedStep, stack: Stack) -> Iterator[Sequence[NodePool]]:
    return (place.suitable_pools(stack) for place in step.places)


def _find_never_sure(stack: Stack) -> Iterator[Violation]:
    for step in moved_steps(stack).values():
        if step.sure and not step.sure[-1]:
            key, names = section_of(step.job), step.pools(stack)
            bought = next((name for name, sure in zip(names, step.sure, strict=False) if sure), "")
            late = ", and nothing keeps its deadline" if step.deadline is not None and not any(step.sure) else ""
            yield Violation(
                step.job.urn,
                f"its last place, {names[-1] if names else 'the last'}, is not bought on demand: with no nodes at "
                f"any place the step waits until its time limit{late}",
                f"write `{bought}` last in `{key}`" if bought else f"add a pool on demand at the end of `{key}`",
            )


def _on_disruption(job: Properties) -> str | None:
    """The action of the Job for a disrupted pod; None if no rule has one, "" if only the update can tell."""
    if not known(job.get("podFailurePolicy")):
        return ""
    for rule in mappings(mapping(job.get("podFailurePolicy")).get("rules")):
        if any(
            on_pod_condition.get("type") == "DisruptionTarget"
            for on_pod_condition in mappings(rule.get("onPodConditions"))
        ):
            return str(rule.get("action"))
    return None


def _saves(workload: Workload) -> bool:
    """Whether the pod can write to storage that outlives its node; true if that cannot be determined."""
    spec = workload.spec
    if not known(spec.get("volumes")):
        return True
    lasting = {str(volume.get("name")) for volume in workload.volumes if not volume.keys() <= LOST}
    for container in workload.containers:
        values = {key: container.get(key) for key in ("command", "args", "env")}
        if not known(values) or any(isinstance(leaf, str) and REMOTE.search(leaf) for _, leaf in leaves(values)):
            return True
        for mount in mappings(container.get("volumeMounts")):
            if mount.get("name") in lasting and not mount.get("readOnly"):
                return True
    return False


def _find_outlasting(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, JOB):
        limit = number(workload.job.get("activeDeadlineSeconds"))
        labels = strings(at(workload.template, "metadata", "labels"))
        # What a gate may take is no more than the step behind it, of which this is said.
        waits = awaited(workload.resource) and labels.get(NAME) != STORE_GATE
        if limit is not None and limit > LOGIN and waits:
            # A step with places has no other choice.
            moved = is_moved(workload.resource)
            in_cluster = "" if moved else "write `runs: cluster` for its pipeline, so that nobody waits; or "
            yield Violation(
                workload.resource.urn,
                f"it may run for {duration(limit)}, and the login of the deploy pipeline ends after "
                f"{duration(LOGIN)}: the state then does not learn how the Job ends, and may stay locked, while "
                "the Job goes on",
                f"{in_cluster}shorten its time_limit; or deploy from a runner of your own, whose login renews "
                f"itself, and suppress this ({page('ci.md')}, Longer than a login)",
            )


def _find_overlapping(stack: Stack) -> Iterator[Violation]:
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
        _find_ttl,
        "Leave ttlSecondsAfterFinished out.",
    ),
    Policy(
        "gpu-job-without-limit",
        Severity.WARNING,
        "A Job on GPUs has a time limit, its own or that of its nodes.",
        _find_without_limit,
        "Set activeDeadlineSeconds.",
    ),
    Policy(
        "spot-job-without-retries",
        Severity.ERROR,
        "A Job that only Spot nodes can take is tried again when one is taken away.",
        _find_without_retries,
        "Ignore DisruptionTarget in the Job's podFailurePolicy.",
    ),
    Policy(
        "spot-job-without-checkpoints",
        Severity.WARNING,
        "A Job that only Spot nodes can take has somewhere to keep its progress, "
        "unless it is limited to half an hour.",
        _find_without_checkpoints,
        "Mount the store, write checkpoints there and resume from them.",
    ),
    Policy(
        "longer-than-login",
        Severity.WARNING,
        f"No Job may run for longer than the login of the pipeline that waits for it, {duration(LOGIN)}.",
        _find_outlasting,
        "Write `runs: cluster`, shorten the step's time_limit, or deploy from your own runner and suppress it.",
    ),
    Policy(
        "spot-job-on-several-nodes",
        Severity.WARNING,
        "A Job whose pods work together is on nodes that nobody takes away.",
        _find_together_on_spot,
        "Use a pool that is not Spot, or save checkpoints every few minutes.",
    ),
    Policy(
        "last-place-not-sure",
        Severity.WARNING,
        "The last place of a step with places is one whose nodes are bought on demand.",
        _find_never_sure,
        "Add a pool that is bought on demand at the end of the step's places.",
    ),
    Policy(
        "schedule-overlaps",
        Severity.WARNING,
        "A CronJob has no two runs at a time.",
        _find_overlapping,
        "Set concurrencyPolicy: Forbid.",
    ),
)


# Jobs whose pods train together on nodes that could have a faster network between them.


def _find_slower(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, JOB):
        # Pods with a subdomain have names by which they find one another.
        together = workload.pods > 1 and bool(workload.spec.get("subdomain"))
        if not together or not gpus_of(workload):
            continue
        pools = workload.suitable_pools(stack)
        if pools and all(pool.faster for pool in pools):
            first = pools[0]
            yield Violation(
                workload.resource.urn,
                f"its {workload.pods} pods sum up gradients over the network between nodes, and nodes of "
                f"pool `{first.name}`{f' ({first.machine})' if first.machine else ''} could have a faster one",
                f"write `{first.faster}` in the pool, with the one zone that all its nodes are in",
            )


INTERCONNECT_POLICIES = (
    Policy(
        "slow-network-between-nodes",
        Severity.WARNING,
        "A Job on the GPUs of several nodes has the fastest network that their machine type can have.",
        _find_slower,
        "Switch the pool's fast network on.",
    ),
)


# Limits of Kubernetes: the sizes of ConfigMaps and of admission policies, and numbers of objects in quotas.


LIMIT = 1024 * 1024
"""Most bytes that the values of one ConfigMap may have together ("cannot exceed 1 MiB",
kubernetes.io/docs/concepts/configuration/configmap, seen November 2026)."""

ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"

LONGEST_EXPRESSION = 100_000
"""Characters that an expression of an admission policy may have (github.com/google/cel-go, parser/options.go, seen
November 2026)."""

NEAR = 0.9
"""The share of a limit from which on a warning is given."""

QUOTA = "kubernetes:core/v1:ResourceQuota"

PLAIN_COUNTS = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
"""Objects whose number a quota may limit without `count/`
(kubernetes.io/docs/concepts/policy/resource-quotas, November 2026)."""


GUARDS = ("count/services", "services")
"""Quotas that are there so that nothing else is made: the stack declares all that they allow."""


def _sizes(stack: Stack) -> Iterator[tuple[Resource, int]]:
    """The ConfigMaps whose values are known, with the bytes of these as Kubernetes counts them."""
    for config_map in stack.of_type(CONFIG_MAP):
        data, binary = config_map.properties.get("data"), config_map.properties.get("binaryData")
        if not known((data, binary)):
            continue
        try:
            decoded = [base64.b64decode(string) for string in strings(binary).values()]
        except binascii.Error:
            continue
        yield config_map, sum(len(string.encode()) for string in strings(data).values()) + sum(map(len, decoded))


def _find_too_large(stack: Stack) -> Iterator[Violation]:
    for config_map, size in _sizes(stack):
        if size > LIMIT:
            yield Violation(
                config_map.urn,
                f"its values have {size} bytes, and Kubernetes refuses more than {LIMIT}",
                "put less into it, or ship the files in an image",
            )


def _find_large(stack: Stack) -> Iterator[Violation]:
    for config_map, size in _sizes(stack):
        if NEAR * LIMIT <= size <= LIMIT:
            yield Violation(
                config_map.urn,
                f"its values have {size} of the {LIMIT} bytes that Kubernetes allows ({size * 100 // LIMIT} %)",
                "put less into it, or ship the files in an image",
            )


def _find_too_long(stack: Stack) -> Iterator[Violation]:
    for policy in stack.of_type(ADMISSION):
        longest = max(
            (
                len(text(variable.get("expression")))
                for variable in mappings(at(policy.properties, "spec", "variables"))
            ),
            default=0,
        )
        if longest > LONGEST_EXPRESSION:
            yield Violation(
                policy.urn,
                f"the pod of a step of the schedule has {longest} characters in it, and Kubernetes refuses more "
                f"than {LONGEST_EXPRESSION}: `pulumi up` fails half-way",
                "shorten the step's command or environment, for example by a file that ships with it",
            )


def _counts(stack: Stack) -> Iterator[tuple[Resource, str, int, int]]:
    """For each number of objects that a quota limits: the quota, its key, how many are declared, and the limit."""
    for quota in stack.of_type(QUOTA):
        for key, hard in mapping(at(quota.properties, "spec", "hard")).items():
            limit = whole(hard, -1)
            if (key.startswith("count/") or key in PLAIN_COUNTS) and limit >= 0 and known(_namespace(quota)):
                yield quota, key, _count_declared(stack, quota, key.removeprefix("count/")), limit


def _count_declared(stack: Stack, quota: Resource, counted: str) -> int:
    return sum(
        resource.custom
        and not resource.read
        and resource.provider == quota.provider
        and _namespace(resource) == _namespace(quota)
        and _plural(resource.type) == counted
        for resource in stack.resources.values()
    )


def _namespace(resource: Resource) -> Any:
    return at(resource.properties, "metadata", "namespace") or "default"


def _plural(type_: str) -> str:
    """The name of a kind in a quota: `jobs.batch` for `kubernetes:batch/v1:Job`."""
    match = re.fullmatch(r"kubernetes:([a-z0-9.]+)/v\w+:(\w+)", type_)
    if match is None:
        return ""
    group, kind = match[1], match[2].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("cy") else f"{kind}es" if kind.endswith("ss") else f"{kind}s"
    return plural if group == "core" else f"{plural}.{group}"


def _find_too_many(stack: Stack) -> Iterator[Violation]:
    for quota, key, count, limit in _counts(stack):
        if count > limit:
            yield Violation(
                quota.urn,
                f"the stack declares {count} objects of {key} in its namespace, and the quota allows {limit}",
                "raise the quota, or declare less",
            )


def _find_many(stack: Stack) -> Iterator[Violation]:
    for quota, key, count, limit in _counts(stack):
        if key not in GUARDS and count and NEAR * limit <= count <= limit:
            yield Violation(
                quota.urn,
                f"the stack declares {count} of the {limit} {key} that the quota of its namespace allows",
                "raise the quota before the next one is refused",
            )


LIMIT_POLICIES = (
    Policy(
        "configmap-too-large",
        Severity.ERROR,
        "The values of a ConfigMap have at most 1 MiB.",
        _find_too_large,
        "Put less into it, or ship the files in an image.",
    ),
    Policy(
        "configmap-near-limit",
        Severity.WARNING,
        "The values of a ConfigMap leave a tenth of the 1 MiB that it can hold.",
        _find_large,
        "Put less into it, or ship the files in an image.",
    ),
    Policy(
        "admission-too-long",
        Severity.ERROR,
        "The pods of a pipeline's schedule fit into the policy that admits its Jobs.",
        _find_too_long,
        "Shorten the step's command or environment.",
    ),
    Policy(
        "count-over-quota",
        Severity.ERROR,
        "No more objects are declared than the ResourceQuota of their namespace allows.",
        _find_too_many,
        "Raise the quota, or declare less.",
    ),
    Policy(
        "count-near-quota",
        Severity.WARNING,
        "The objects that are declared leave a tenth of what the ResourceQuota of their namespace allows.",
        _find_many,
        "Raise the quota.",
    ),
)
