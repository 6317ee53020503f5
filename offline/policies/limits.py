"""Limits of Kubernetes: the sizes of ConfigMaps and of admission policies, and numbers of objects in quotas."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import at, known, mapping, mappings, strings, text, whole
from infra.review.stack import CONFIG_MAP, Resource, Stack

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
            decoded = [base64.b64decode(each) for each in strings(binary).values()]
        except binascii.Error:
            continue
        yield config_map, sum(len(each.encode()) for each in strings(data).values()) + sum(map(len, decoded))


def _too_large(stack: Stack) -> Iterator[Violation]:
    for config_map, size in _sizes(stack):
        if size > LIMIT:
            yield Violation(
                config_map.urn,
                f"its values have {size} bytes, and Kubernetes refuses more than {LIMIT}",
                "put less into it, or ship the files in an image",
            )


def _large(stack: Stack) -> Iterator[Violation]:
    for config_map, size in _sizes(stack):
        if NEAR * LIMIT <= size <= LIMIT:
            yield Violation(
                config_map.urn,
                f"its values have {size} of the {LIMIT} bytes that Kubernetes allows ({size * 100 // LIMIT} %)",
                "put less into it, or ship the files in an image",
            )


def _too_long(stack: Stack) -> Iterator[Violation]:
    for policy in stack.of_type(ADMISSION):
        longest = max(
            (len(text(each.get("expression"))) for each in mappings(at(policy.properties, "spec", "variables"))),
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
                yield quota, key, _declared(stack, quota, key.removeprefix("count/")), limit


def _declared(stack: Stack, quota: Resource, counted: str) -> int:
    return sum(
        each.custom
        and not each.read
        and each.provider == quota.provider
        and _namespace(each) == _namespace(quota)
        and _plural(each.type) == counted
        for each in stack.resources.values()
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


def _too_many(stack: Stack) -> Iterator[Violation]:
    for quota, key, count, limit in _counts(stack):
        if count > limit:
            yield Violation(
                quota.urn,
                f"the stack declares {count} objects of {key} in its namespace, and the quota allows {limit}",
                "raise the quota, or declare less",
            )


def _many(stack: Stack) -> Iterator[Violation]:
    for quota, key, count, limit in _counts(stack):
        if key not in GUARDS and count and NEAR * limit <= count <= limit:
            yield Violation(
                quota.urn,
                f"the stack declares {count} of the {limit} {key} that the quota of its namespace allows",
                "raise the quota before the next one is refused",
            )


POLICIES = (
    Policy(
        "configmap-too-large",
        Severity.ERROR,
        "The values of a ConfigMap have at most 1 MiB.",
        _too_large,
        "Put less into it, or ship the files in an image.",
    ),
    Policy(
        "configmap-near-limit",
        Severity.WARNING,
        "The values of a ConfigMap leave a tenth of the 1 MiB that it can hold.",
        _large,
        "Put less into it, or ship the files in an image.",
    ),
    Policy(
        "admission-too-long",
        Severity.ERROR,
        "The pods of a pipeline's schedule fit into the policy that admits its Jobs.",
        _too_long,
        "Shorten the step's command or environment.",
    ),
    Policy(
        "count-over-quota",
        Severity.ERROR,
        "No more objects are declared than the ResourceQuota of their namespace allows.",
        _too_many,
        "Raise the quota, or declare less.",
    ),
    Policy(
        "count-near-quota",
        Severity.WARNING,
        "The objects that are declared leave a tenth of what the ResourceQuota of their namespace allows.",
        _many,
        "Raise the quota.",
    ),
)
