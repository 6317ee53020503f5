"""What is said of an update that takes versions of models or Kueue away."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Resource, Stack
from slipway.offline.evaluated.model import Finding
from slipway.offline.evaluated.operations import compare_resources
from slipway.offline.policies.app_changes import RELEASE
from slipway.offline.policies.changes import Change
from slipway.offline.policies.check import check_change
from tests.support.reviewing import declared, declared_stack


def found(before: Stack, after: Stack) -> list[Finding]:
    change = Change(before, after, compare_resources(before, after))
    return check_change(change, {}, date(2026, 11, 22))[0]


def keeping(stack: Stack, number: int) -> Stack:
    """The stack as it would be with another `keep`."""
    resources: dict[str, Resource] = {}
    for urn, each in stack.resources.items():
        properties = each.properties
        if each.name == "mnist-serving-publish" and each.type.endswith(":Job"):
            properties = _replaced(properties, lambda words: _with_keep(words, number))
        resources[urn] = declared(each.type, each.name, properties)
    return Stack(stack.name, resources)


def _replaced(value: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(each, change) for key, each in value.items()}  # pyright: ignore
    if isinstance(value, list):
        return change([_replaced(each, change) for each in value])  # pyright: ignore
    return value


def _with_keep(words: list[Any], number: int) -> list[Any]:
    return [str(number) if words[max(at - 1, 0)] == "--keep" else word for at, word in enumerate(words)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "said"), [(5, 1, "all but the newest and"), (5, 3, "the newest 3 and")]
)
def test_versions_that_are_kept_no_longer_are_lost(before: int, after: int, said: str) -> None:
    demo = declared_stack("demo")
    [finding] = [each for each in found(keeping(demo, before), keeping(demo, after)) if "versions" in each.reason]
    assert (finding.policy, finding.severity, finding.harm) == ("deletes-model-versions", Severity.WARNING, True)
    assert said in finding.reason
    assert not [each for each in found(keeping(demo, after), keeping(demo, before)) if "versions" in each.reason]


def test_kueue_takes_the_queues_of_all_with_it() -> None:
    release = declared(RELEASE, "here-kueue-release", {"name": "kueue", "chart": "/charts/kueue.tgz"})
    other = declared(RELEASE, "here-plugin", {"name": "device-plugin"})
    there = Stack("test", {each.urn: each for each in (release, other)})
    [finding] = found(there, Stack("test", {}))
    assert (finding.policy, finding.severity, finding.harm) == ("deletes-queue-api", Severity.WARNING, True)
    assert "everybody's queues on that cluster: the stack no longer has it" in finding.reason
