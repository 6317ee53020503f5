"""Secrets of a stack: what is refused, and that no message has one."""

from typing import Any

import pytest
from pulumi.runtime.config import set_all_config

from slipway.engine.stack_config import for_engine
from slipway.infra.schema.problems import SettingsError
from slipway.infra.schema.secret_values import MASK, protected
from slipway.infra.settings.loading import load
from slipway.infra.stack.configuration import configured
from tests.support.refusals import problems, the_problem
from tests.support.stack_values import GCP, changed

PLANTED = "plantedvalue7f3a"


def test_a_value_that_is_a_secret_is_taken_and_never_shown() -> None:
    settings = load(changed(GCP, {"secrets": protected({"wandb-key": PLANTED})}))

    assert settings.secrets["wandb-key"].get_secret_value() == PLANTED
    assert PLANTED not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_without_the_key_to_the_secrets_a_mask_stands_for_each() -> None:
    assert load(changed(GCP, {"secrets": {"wandb-key": MASK}})).secrets["wandb-key"].get_secret_value() == MASK


def test_a_value_in_clear_is_refused_with_the_command_that_encrypts_it() -> None:
    problem = the_problem(changed(GCP, {"secrets": {"wandb-key": PLANTED}}))

    assert (problem.key, problem.shown) == ("slipway:secrets.wandb-key", MASK)
    assert "in clear" in problem.reason
    assert "`pulumi config set --secret --path 'slipway:secrets.wandb-key'`" in problem.fix


def test_an_empty_value_and_a_name_that_kubernetes_refuses_are_reported_together() -> None:
    refusals = problems(changed(GCP, {"secrets": protected({"wandb-key": "", "HF_TOKEN": PLANTED})}))

    assert [(problem.key, problem.reason) for problem in refusals] == [
        ("slipway:secrets.wandb-key", "empty"),
        ("slipway:secrets.HF_TOKEN", "not a Kubernetes name"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"secrets": PLANTED},
        {"secrets": [PLANTED]},
        {"secrets": {"a": {"b": PLANTED}}},
        {"secrets": {"a": [PLANTED]}},
        {"secrets": {"a": f"{PLANTED}\u200b"}},
        {"secret": {"a": PLANTED}},
        {"secrts": {"a": PLANTED}},
        {"rehearsal": {"secrets": {"a": PLANTED}}},
        {"secrets": protected({"A": PLANTED})},
        {"anything": protected({"A": PLANTED})},
    ],
)
def test_no_error_about_a_malformed_section_has_a_value_of_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        load(changed(GCP, wrong))

    assert PLANTED not in f"{caught.value} {caught.value!r} {caught.value.problems!r}"
    assert not any(PLANTED in problem.shown for problem in caught.value.problems)


@pytest.mark.parametrize("written", [f"{PLANTED}-Aa", f"{PLANTED * 3}"])
def test_a_secret_in_place_of_its_name_is_not_shown(written: str) -> None:
    schedule = {"cron": "0 3 * * *", "notify": {"secret": written}}
    with pytest.raises(SettingsError) as caught:
        load(changed(GCP, {"pipelines.mnist.schedule": schedule}))

    assert [problem.key for problem in caught.value.problems] == ["slipway:secrets"]
    assert PLANTED not in str(caught.value)


def test_a_value_of_several_lines_is_taken() -> None:
    assert load(changed(GCP, {"secrets": protected({"key": "-----BEGIN KEY-----\nx\n"})})).secrets


def test_what_pulumi_decrypted_is_protected_before_anything_reads_it() -> None:
    values = {"slipway:secrets": {"wandb-key": PLANTED}, "slipway:sekrets": {"x": PLANTED}, "slipway:store": {}}
    set_all_config(for_engine(values), ["slipway:secrets", "slipway:sekrets"])

    assert PLANTED not in repr(configured())
    assert configured()["secrets"]["wandb-key"].get_secret_value() == PLANTED


def test_what_is_no_secret_of_pulumis_stays_in_clear_and_is_refused() -> None:
    set_all_config(for_engine({"slipway:secrets": {"wandb-key": PLANTED}}), [])

    assert "in clear" in the_problem(changed(GCP, {"secrets": configured()["secrets"]})).reason
