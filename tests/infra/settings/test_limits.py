"""Values that the Pulumi CLI hands over as JSON are held to the limits of a stack file, too."""

import time
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import pytest

from slipway.infra.schema import yaml_files
from slipway.infra.stack.configuration import configured
from tests.support.refusals import problems, the_problem
from tests.support.stack_values import EXISTING, GCP, changed


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (
            nested(yaml_files.DEPTH + 1),
            "slipway:store.location[0]…",
            "more than 50 sections or lists inside one another",
        ),
        (nested(100_000), "slipway:store.location[0]…", "more than 50 sections or lists inside one another"),
        (["x"] * yaml_files.VALUES, "slipway", "more than 20,000 values"),
        (["x" * yaml_files.CHARACTERS] * 17, "slipway", "more than 1,048,576 characters"),
        ("x" * (yaml_files.CHARACTERS + 1), "slipway:store.location", "a value of 65,537 characters"),
        ({"x" * (yaml_files.CHARACTERS + 1): 1}, "slipway:store.location", "a key of 65,537 characters"),
    ],
    ids=["deep", "very deep", "many", "much", "long value", "long key"],
)
def test_what_exceeds_a_limit_is_one_problem_at_once(value: Any, key: str, reason: str) -> None:
    began = time.process_time()
    values = {**GCP, "store": {**GCP["store"], "location": value}}
    problem = the_problem(values)
    assert (problem.key, problem.reason) == (key, reason)
    assert problem.fix
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("namespace", "a\0b", "the value has the control character U+0000"),
        ("store.bucket", "\x1b[31mred", "the value has the control character U+001B"),
        ("service_account", "a\x85", "the value has the control character U+0085"),
        ("store.location", "\ud800", "the value has U+D800, half of a surrogate pair"),
        ("clusters.dev.pools.cpu.labels.a\nb", "x", "the key has the control character U+000A"),
    ],
)
def test_a_character_that_no_setting_has_is_named_once(path: str, value: str, reason: str) -> None:
    problem = the_problem(changed(GCP, {path: value}))
    assert problem.reason == reason
    assert problem.key.isprintable()


def test_such_characters_are_told_with_all_other_problems() -> None:
    refusals = problems(changed(GCP, {"namespace": "a\0b", "store.location": "Iowa"}))
    assert [problem.key for problem in refusals] == ["slipway:store.location", "slipway:namespace"]


def test_lines_may_break_in_values() -> None:
    problem = the_problem(changed(GCP, {"policies.suppress.P1": {"reason": "two\nlines\n"}, "namespace": "Bad"}))
    assert problem.key == "slipway:namespace"


def test_more_nodes_than_kubernetes_can_have_are_refused() -> None:
    problem = the_problem(changed(EXISTING, {"clusters.here.pools.cpu.nodes": 4294967296}))
    assert problem.key == "slipway:clusters.here.pools.cpu.nodes"
    assert problem.fix == "write 5000 or less"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"kind": "gcs", "location": "us-central1", "bucket": ' + "9" * 5000 + "}", "slipway:store.bucket"),
        ("[" * 100_000 + "]" * 100_000, "slipway:store"),
    ],
    ids=["digits", "levels"],
)
def test_json_that_python_cannot_read_is_refused_by_its_key(
    monkeypatch: pytest.MonkeyPatch, text: str, key: str
) -> None:
    monkeypatch.setattr(
        "slipway.infra.stack.configuration.CONFIG",
        ContextVar("config", default=MappingProxyType({"slipway:store": text})),
    )
    refusals = problems({**GCP, **configured()})
    assert [problem.key for problem in refusals] == [key]
