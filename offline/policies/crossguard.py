"""The same policies as a CrossGuard policy pack, which gets the declared resources from Pulumi's engine.

The engine passes on less about a resource than the program has: a secret is plain text, so it cannot be
recognized, and a resource that is only read looks like one that is managed (pulumi-policy 1.21.0,
``AnalyzeStack``; read 2026-11-21).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from slipway.infra.clouds.registry import emulators, reviews
from slipway.infra.places import PROJECT
from slipway.infra.review.contract import Policy, Severity, reviewed
from slipway.infra.review.stack import UNKNOWN, NodePool, Resource, Secret, Stack
from slipway.infra.schema.problems import SettingsError, without_prefix
from slipway.infra.settings.loading import load
from slipway.offline.engine.stack_config import ConfigError, stack_config
from slipway.offline.evaluated.model import Finding
from slipway.offline.evaluated.scheduling import pool_of_nodes
from slipway.offline.policies.check import ABOUT_FILES, about_suppressions, judge, policies, suppressions_of
from slipway.offline.policies.security import SECRET_TYPE

LEVELS: Mapping[Severity, EnforcementLevel] = {
    Severity.ERROR: EnforcementLevel.MANDATORY,
    Severity.WARNING: EnforcementLevel.ADVISORY,
}
"""An error stops the preview or the update; a warning is only shown."""

SUPPRESSIONS = "suppressions"
"""The policy about the suppressions of the stack file, which offline are several findings."""


def pack(root: Path = PROJECT) -> PolicyPack:
    """Serves the policies to the engine, with suppressions from the stack files of the project at ``root``."""
    return PolicyPack("slipway", validations(root, datetime.now(UTC).date()))


def validations(root: Path, today: date) -> list[Any]:
    """The policies for the engine. Suppressions that end before ``today`` do not count."""
    stack_policies = [
        StackValidationPolicy(
            name=policy.id,
            description=policy.title,
            enforcement_level=LEVELS[policy.severity],
            remediation_steps=policy.fix or None,
            validate=partial(_validate, policy, root, today),
        )
        for policy in policies()
    ]
    about = StackValidationPolicy(
        name=SUPPRESSIONS,
        description=next(title for name, _, title, _ in ABOUT_FILES if name == "unknown-suppression"),
        enforcement_level=EnforcementLevel.MANDATORY,
        validate=partial(_validate_suppressions, root),
    )
    return [*stack_policies, about]


def stack_of(resources: Sequence[PolicyResource], root: Path) -> Stack:
    """The stack as the engine reports it, with the stack file that the URNs of its resources name."""
    name = _stack_name(resources)
    configuration, folder = _file(name, root)
    return reviewed(
        Stack(
            name=name,
            resources={resource.urn: _to_resource(resource) for resource in resources},
            configuration=configuration,
            pools=folder,
        ),
        reviews(),
    )


def _validate(
    policy: Policy, root: Path, today: date, args: StackValidationArgs, report_violation: ReportViolation
) -> None:
    stack = stack_of(args.resources, root)
    findings, _, _ = judge(policy, policy.check(stack), suppressions_of(stack.configuration).get(policy.id), today)
    for finding in findings:
        _report(finding, report_violation)


def _validate_suppressions(root: Path, args: StackValidationArgs, report_violation: ReportViolation) -> None:
    configuration, _ = _file(_stack_name(args.resources), root)
    for finding in about_suppressions(suppressions_of(configuration), used=None):
        _report(finding, report_violation)


def _report(finding: Finding, report_violation: ReportViolation) -> None:
    if finding.resource.startswith("urn:"):
        report_violation(f"{finding.reason}. Fix: {finding.fix}", finding.resource)
    else:
        report_violation(f"{finding.resource}: {finding.reason}. Fix: {finding.fix}", None)


def _stack_name(resources: Sequence[PolicyResource]) -> str:
    return resources[0].urn.split("::")[0].removeprefix("urn:pulumi:") if resources else ""


@cache
def _file(stack: str, root: Path) -> tuple[Mapping[str, Any], Sequence[NodePool]]:
    """The configuration in the stack file and the existing nodes; cached, because each policy asks."""
    try:
        configuration = stack_config(stack, root)
    except ConfigError:
        # The suppressions of a stack with another configuration file (`--config-file`) cannot be read.
        return {}, ()
    return configuration, _find_standing(configuration)


def _find_standing(configuration: Mapping[str, Any]) -> list[NodePool]:
    values = without_prefix(configuration)
    try:
        settings = load(values)
    except SettingsError:
        return []
    return [pool_of_nodes(node) for emulator in emulators(settings.request) for node in emulator.standing_nodes()]


def _to_resource(resource: PolicyResource) -> Resource:
    provider = resource.provider
    is_provider = resource.resource_type.startswith("pulumi:providers:")
    properties = _known_value(resource.props)
    if resource.resource_type == SECRET_TYPE:
        properties = {**properties, **{key: Secret("") for key in ("data", "stringData") if key in properties}}
    return Resource(
        urn=resource.urn,
        type=resource.resource_type,
        name=resource.name,
        properties=properties,
        custom=provider is not None or is_provider,
        parent=resource.parent.urn if resource.parent else "",
        provider=provider.urn if provider and not _is_default(provider.name) else "",
        dependencies=frozenset(dependency.urn for dependency in resource.dependencies),
        property_dependencies={
            key: frozenset(dependency.urn for dependency in needed)
            for key, needed in resource.property_dependencies.items()
        },
        protect=bool(resource.opts.protect),
        retain_on_delete=bool(getattr(resource.opts, "retain_on_delete", False)),
        delete_before_replace=bool(resource.opts.delete_before_replace),
        ignore_changes=tuple(resource.opts.ignore_changes),
        aliases=tuple(resource.opts.aliases),
    )


def _is_default(provider: str) -> bool:
    """Whether the engine made the provider itself: `default`, or `default_4_32_0`."""
    return provider == "default" or provider.startswith("default_")


def _known_value(value: Any) -> Any:
    """``value`` as the program sees it: integers, and `UNKNOWN` for values that raise on access."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {key: _read_item(mapping, key) for key in mapping}
    if isinstance(value, Sequence) and not isinstance(value, str):
        sequence = cast("Sequence[Any]", value)
        return [_read_item(sequence, index) for index in range(len(sequence))]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _read_item(holder: Any, key: Any) -> Any:
    try:
        return _known_value(holder[key])
    except UnknownValueError:
        return UNKNOWN
