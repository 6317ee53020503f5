"""How a test states what a stack file may not say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.settings.loading import load
from tests.support.stack_values import changed

Case = tuple[dict[str, Any], str, str, str]
"""Changes to a valid stack, the key of the one problem they make, and words of its reason and its fix."""

POOL = "clusters.dev.pools"
TRAIN = f"{POOL}.train"
PREDICT = f"{POOL}.predict"
CPU = f"{POOL}.cpu"
STEPS = "pipelines.mnist.steps"

SECOND: Mapping[str, Any] = {
    "cloud": "gcp",
    "location": "us-west4-a",
    "pools": {"other": {"machine_type": "e2-standard-4"}},
}
FREE_NETWORK = {
    "nodes_cidr": "10.32.0.0/20",
    "pods_cidr": "10.36.0.0/14",
    "services_cidr": "10.40.0.0/20",
    "control_plane_cidr": "172.16.0.16/28",
}


def problems(values: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The problems of a wrong stack; fails where it is not refused."""
    with pytest.raises(SettingsError) as caught:
        load(values)
    return caught.value.problems


def the_problem(values: Mapping[str, Any]) -> Problem:
    """The only problem of a wrong stack."""
    caught = problems(values)
    assert len(caught) == 1, "\n".join(map(str, caught))
    return caught[0]


def named(cases: Sequence[Case]) -> list[Any]:
    """The cases as parameters, with their keys as names."""
    return [pytest.param(*case, id=f"{index}-{case[1]}") for index, case in enumerate(cases)]


@dataclass(frozen=True)
class Refusal:
    """Changes to a valid stack that make one problem: its key, and values that its reason and its fix name."""

    changes: Mapping[str, Any]
    key: str
    names: tuple[str, ...]

    def check(self, valid: Mapping[str, Any]) -> None:
        """Fails where ``valid``, so changed, has another problem than this one."""
        problem = the_problem(changed(valid, self.changes))
        assert problem.key == f"slipway:{self.key}"
        assert problem.fix
        missing = [name for name in self.names if name not in f"{problem.reason}\n{problem.fix}"]
        assert not missing, problem


def wrong(key: str, value: Any, *names: str) -> Any:
    """A case: the problem of ``value`` in the place of ``key``, which names ``names``."""
    return elsewhere({key: value}, key, *names)


def elsewhere(changes: Mapping[str, Any], key: str, *names: str) -> Any:
    """A case: the problem of ``key`` that ``changes`` make."""
    return pytest.param(Refusal(changes, key, names), id=key)
