"""Jobs that outlast a login, lose their nodes together, or exceed limits of Kubernetes."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slipway.evaluated.phrasing import duration
from slipway.evaluated.places import MovedStep, is_held, is_moved, moved_steps
from slipway.evaluated.workloads import Workload, awaited, gpus_of, section_of, workloads
from slipway.infra.commands import page
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.pipelines.places import PLACES
from slipway.infra.placed import STORE_GATE
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    CONFIG_MAP,
    JOB,
    NodePool,
    Resource,
    Stack,
    at,
    known,
    mapping,
    mappings,
    number,
    strings,
    text,
    whole,
)

LOGIN = 21_000
"""Seconds that the login of the deploy pipeline lasts: `aws-seconds` and `timeout-minutes` of
.github/workflows/deploy.yml. A runner of GitHub's ends a job after 6 hours in any case
(docs.github.com/en/actions/concepts/security/github_token, seen November 2026)."""


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
            section = section_of(stack.step_of(step.job), mapping(stack.configuration.get("slipway:pipelines")))
            key, names = f"{section}.{PLACES}", step.pools(stack)
            bought = next((name for name, sure in zip(names, step.sure, strict=False) if sure), "")
            late = ", and nothing keeps its deadline" if step.deadline is not None and not any(step.sure) else ""
            yield Violation(
                step.job.urn,
                f"its last place, {names[-1] if names else 'the last'}, is not bought on demand: with no nodes at "
                f"any place the step waits until its time limit{late}",
                f"write `{bought}` last in `{key}`" if bought else f"add a pool on demand at the end of `{key}`",
            )


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


POLICIES = policies_of(
    Path(__file__).with_name("policies.toml"),
    {
        "longer-than-login": _find_outlasting,
        "spot-job-on-several-nodes": _find_together_on_spot,
        "last-place-not-sure": _find_never_sure,
        "slow-network-between-nodes": _find_slower,
        "configmap-too-large": _find_too_large,
        "configmap-near-limit": _find_large,
        "admission-too-long": _find_too_long,
        "count-over-quota": _find_too_many,
    },
)
