"""The policy pack says through Pulumi's own types what the preview says of the same stack."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pulumi_policy import (
    EnforcementLevel,
    PolicyProviderResource,
    PolicyResource,
    PolicyResourceOptions,
    StackValidationArgs,
)
from pulumi_policy.policy import PolicyCustomTimeouts
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from slipway.infra.review.stack import UNKNOWN, Resource, Secret, Unknown
from slipway.offline.policies.check import check, policies, suppressions_of
from slipway.offline.policies.crossguard import SUPPRESSIONS, stack_of, validations
from tests.offline.policies.samples import container, job, pod, resource
from tests.support.checkout import ROOT
from tests.support.reviewing import declared_stack
from tests.support.tree import write_tree

TODAY = date(2026, 11, 21)
PROJECT = "name: slipway\nstackConfigDir: stacks\n"
SUPPRESSING = (
    "config:\n  slipway:policies:\n    suppress:\n      {id}: {{reason: it is a toy, until: '2026-11-30'}}\n"
)


def as_float(value: Any) -> Any:
    """Numbers as protobuf hands them over, and what is unknown as the engine writes it."""
    if isinstance(value, Mapping):
        return {key: as_float(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_float(each) for each in value]
    if isinstance(value, Unknown):
        return UNKNOWN_STRING_VALUE
    if isinstance(value, Secret):
        return "in clear"
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def as_engine_has_it(declared: Resource) -> PolicyResource:
    options = PolicyResourceOptions(
        protect=declared.protect,
        ignore_changes=list(declared.ignore_changes),
        delete_before_replace=declared.delete_before_replace,
        aliases=list(declared.aliases),
        custom_timeouts=PolicyCustomTimeouts(0, 0, 0),
        additional_secret_outputs=[],
    )
    provider = None
    if declared.custom and not declared.type.startswith("pulumi:providers:"):
        type_ = f"pulumi:providers:{declared.package}"
        urn = declared.provider or f"urn:pulumi:test::slipway::{type_}::default_4_32_0"
        provider = PolicyProviderResource(type_, {}, urn, urn.rpartition("::")[2])
    properties = unknown_checking_proxy(as_float(declared.properties))
    return PolicyResource(declared.type, properties, declared.urn, declared.name, options, provider, None, [], {})


def engine_resources(*declared: Resource) -> list[PolicyResource]:
    """The same in the engine's own types."""
    made = {each.urn: as_engine_has_it(each) for each in declared}
    for each in declared:
        made[each.urn].parent = made.get(each.parent)
        made[each.urn].dependencies = [made[urn] for urn in sorted(each.dependencies) if urn in made]
        made[each.urn].property_dependencies = {
            key: [made[urn] for urn in sorted(urns) if urn in made]
            for key, urns in each.property_dependencies.items()
        }
    return list(made.values())


def violations(root: Path, *declared: Resource) -> dict[str, list[tuple[str, str | None]]]:
    """Messages and URNs by policy."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    args = StackValidationArgs(engine_resources(*declared), {}, {})
    for policy in validations(root, TODAY):
        policy.validate(
            args, lambda text, urn=None, name=policy.name: found.setdefault(name, []).append((text, urn))
        )
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_tree(tmp_path, {"Pulumi.yaml": PROJECT, "stacks/Pulumi.test.yaml": "config: {}\n"})


ROOT_JOB = job(pod(securityContext=None))


def test_errors_are_mandatory_and_warnings_advisory() -> None:
    levels = {policy.name: policy.enforcement_level for policy in validations(ROOT, TODAY)}
    assert set(levels) == {policy.id for policy in policies()} | {SUPPRESSIONS}
    assert levels["root-pod"] is EnforcementLevel.MANDATORY
    assert levels["privilege-escalation"] is EnforcementLevel.ADVISORY


def test_a_violation_names_the_resource_and_the_fix(project: Path) -> None:
    found = violations(project, ROOT_JOB)
    assert list(found) == ["root-pod"]
    [(message, urn)] = found["root-pod"]
    assert urn == ROOT_JOB.urn
    assert "can run as root" in message
    assert "Fix: set securityContext.runAsNonRoot: true" in message


def test_the_file_of_the_stack_that_the_urns_name_suppresses(project: Path) -> None:
    write_tree(project, {"stacks/Pulumi.test.yaml": SUPPRESSING.format(id="root-pod")})
    assert violations(project, ROOT_JOB) == {}


def test_a_misspelt_suppression_is_a_violation_of_its_own(project: Path) -> None:
    write_tree(project, {"stacks/Pulumi.test.yaml": SUPPRESSING.format(id="rot-pod")})
    assert set(violations(project, ROOT_JOB)) == {"root-pod", SUPPRESSIONS}


def test_a_stack_whose_file_is_elsewhere_is_checked_without_suppressions(tmp_path: Path) -> None:
    write_tree(tmp_path, {"Pulumi.yaml": PROJECT})
    assert set(violations(tmp_path, ROOT_JOB)) == {"root-pod"}


def test_a_finding_about_the_file_names_its_key(project: Path) -> None:
    write_tree(project, {"stacks/Pulumi.test.yaml": "config:\n  other:password: hunter2\n"})
    [(message, urn)] = violations(project, job(pod()))["secret-in-plain-config"]
    assert message.startswith("other:password: ")
    assert urn is None


def test_unknown_values_cause_no_findings(project: Path) -> None:
    declared = job(pod(container(image=UNKNOWN, resources={"requests": {"cpu": UNKNOWN}}), nodeSelector=UNKNOWN))
    assert violations(project, declared) == {}
    [seen] = stack_of(engine_resources(declared), project).resources.values()
    assert seen.properties["spec"]["template"]["spec"]["nodeSelector"] is UNKNOWN
    assert repr(seen.properties["spec"]["backoffLimit"]) == "3"


def test_a_default_provider_is_recognised(project: Path) -> None:
    stray = resource("kubernetes:core/v1:ConfigMap", "stray", {}, provider="")
    assert set(violations(project, stray)) == {"default-provider"}


def test_decrypted_secrets_are_not_reported_as_plain(project: Path) -> None:
    sealed = resource("kubernetes:core/v1:Secret", "keys", {"stringData": {"password": Secret("")}})
    assert violations(project, sealed) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcp-prod", "onprem"])
def test_the_pack_and_the_preview_agree(name: str) -> None:
    declared = declared_stack(name)
    unsuppressed, _ = check(declared, suppressions_of(declared.configuration), TODAY)
    assert set(violations(ROOT, *declared.resources.values())) == {each.policy for each in unsuppressed}
    seen = stack_of(engine_resources(*declared.resources.values()), ROOT)
    assert seen.name == name
    offline, _ = check(declared, {}, TODAY)
    through_engine, _ = check(seen, {}, TODAY)
    assert through_engine == offline


def test_standing_nodes_come_from_the_stack_file() -> None:
    seen = stack_of(engine_resources(*declared_stack("local").resources.values()), ROOT)
    assert [(pool.cluster, pool.name, pool.urn) for pool in seen.pools] == [("local", "cpu", "")]
