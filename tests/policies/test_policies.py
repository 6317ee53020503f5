"""Each policy finds what it is for, and is silent about what looks like it."""

import re
import subprocess
import sys
from datetime import date

import pytest

from slipway.command.reference import policies as reference
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Stack
from slipway.policies.check import ABOUT_FILES, CHANGE_POLICIES, EVERYWHERE, check, cloud_policies, policies
from tests.policies.cases import PASSES, TRIPS
from tests.policies.samples import asking, container, job, pod, pool, stack
from tests.support.checkout import ROOT

TODAY = date(2026, 11, 21)


def found(stack: Stack) -> list[str]:
    findings, _ = check(stack, {}, TODAY)
    return [finding.policy for finding in findings]


def every(cases: dict[str, list[Stack]]) -> list[object]:
    return [
        pytest.param(policy, each, id=f"{policy}-{index}")
        for policy, stacks in cases.items()
        for index, each in enumerate(stacks)
    ]


@pytest.mark.parametrize(("policy", "stack"), every(TRIPS))
def test_each_bad_example_breaks_its_policy_once_and_no_other(policy: str, stack: Stack) -> None:
    assert found(stack) == [policy]


@pytest.mark.parametrize(("policy", "stack"), every(PASSES))
def test_each_good_example_breaks_no_policy(policy: str, stack: Stack) -> None:
    assert policy not in found(stack)


def test_every_policy_is_tested_both_ways() -> None:
    ids = {policy.id for policy in EVERYWHERE}
    assert ids == set(TRIPS) == set(PASSES)
    tested = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "infra").rglob("test_*.py"))
    assert [policy.id for _, policy in cloud_policies() if f'"{policy.id}"' not in tested] == []


def test_ids_are_unique_and_can_be_written_in_a_stack_file() -> None:
    ids = [policy.id for policy in policies()]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", each)] == []


def test_an_unschedulable_pod_has_kube_schedulers_reasons() -> None:
    [finding], _ = check(stack(job(pod(container(resources=asking(cpu="8"))))), {}, TODAY)
    assert finding.severity is Severity.ERROR
    assert finding.name == "train (Job)"
    assert finding.reason.endswith(
        "cpu: 1 Insufficient cpu (requested 8000m, allocatable 4000m); "
        "t4: 1 node(s) had untolerated taint {nvidia.com/gpu: present}"
    )


def test_the_fix_of_a_pool_that_is_always_on_names_its_key() -> None:
    clusters = {"dev": {"pools": {"t4": {"accelerator": "nvidia-tesla-t4", "nodes": {"count": 2}}}}}
    pools = [pool("cpu"), pool("t4", gpus=1, min_nodes=2)]
    declared = stack(job(pod()), pools=pools, configuration={"slipway:clusters": clusters})
    [finding], _ = check(declared, {}, TODAY)
    assert finding.resource == pools[1].urn
    assert "`slipway:clusters.dev.pools.t4.nodes`" in finding.fix


def test_no_finding_shows_the_secret_that_it_found() -> None:
    for policy in ("secret-in-plain-config", "secret-in-plain-object"):
        for each in TRIPS[policy]:
            findings, _ = check(each, {}, TODAY)
            text = " ".join(finding.model_dump_json() for finding in findings)
            assert not re.search("hunter2|abc123|MIIE|AKIA", text)


def test_a_secret_in_clear_is_the_same_finding_in_every_variant_of_a_step() -> None:
    clear = [{"name": "API_TOKEN", "value": "abc123abc123"}]
    variants = [job(pod({**container(env=clear), "name": name}), name) for name in ("train-1", "train-2")]
    findings, _ = check(stack(*variants), {}, TODAY)
    assert [finding.policy for finding in findings] == ["secret-in-plain-object"] * 2
    assert len({finding.reason for finding in findings}) == 1, "a preview says one reason once"


@pytest.mark.slow
def test_checking_needs_no_sdk() -> None:
    """Reading a stack that was evaluated elsewhere has to be quick, and these take longer than all the rest."""
    script = "import sys, slipway.policies.check as it; it.policies(); print({*sys.modules} & {'pulumi'})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_the_page_lists_every_policy_with_what_to_do() -> None:
    assert reference.main(["--check"]) == 0
    rows = [line for line in reference.page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(policies()) + len(CHANGE_POLICIES) + len(ABOUT_FILES)
    assert [row for row in rows if not row.split(" | ")[-1].strip(" |")] == []
