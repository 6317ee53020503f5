"""What a stack on AWS lacks beside its settings."""

import pytest

from slipway.infra.clouds.aws import platforms
from slipway.infra.schema.problems import Problem
from tests.support.clouds.aws import CLUSTER, changed, declare
from tests.support.recording import record


def problems(config: dict[str, str]) -> list[Problem]:
    return record(platforms.preflight_problems, config, preview=True).result


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("networks", "warned"),
    [
        ({"here": "203.0.113.0/24"}, True),
        ({"here": "198.51.100.7/32", "there": "192.0.2.0/25"}, True),
        ({"here": "203.0.113.0/24", "office": "18.4.0.0/16"}, False),
        ({"here": "203.0.112.0/23"}, False),
    ],
)
def test_a_cluster_that_nobody_reaches_is_said_but_stops_no_preview(
    networks: dict[str, str], warned: bool, warnings: list[str]
) -> None:
    recording = declare(changed(control_plane={"authorized_networks": networks}))
    assert recording.one(CLUSTER)
    assert len(warnings) == warned
    assert all("slipway:clusters.dev.control_plane.authorized_networks" in entry for entry in warnings)
    assert all(block in entry for entry in warnings for block in networks.values())
