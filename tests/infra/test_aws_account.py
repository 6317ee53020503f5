"""What a stack on AWS lacks beside its settings."""

import pytest

from infra.aws import account
from infra.settings.errors import Problem
from tests.support.recording import record


def problems(config: dict[str, str]) -> list[Problem]:
    return record(account.problems, config, preview=True).result


@pytest.fixture(autouse=True)
def _no_region_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_a_stack_with_a_region_has_no_problems() -> None:
    assert problems({"aws:region": "us-east-1"}) == []


def test_a_region_of_the_environment_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert problems({}) == []


def test_a_stack_without_a_region_says_how_to_name_one() -> None:
    (problem,) = problems({})
    assert problem.key == "aws:region"
    assert "pulumi config set aws:region" in problem.fix
