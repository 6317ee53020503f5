"""Paths and differences of property values."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.infra.review.property_diff import (
    LIMIT,
    Difference,
    Path,
    covers,
    differences,
    parse_path,
    path_text,
    shorten,
    shorten_both,
    unknown_paths,
)
from slipway.infra.review.stack import UNKNOWN, Secret

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.just(UNKNOWN) | st.builds(Secret, st.text())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner), max_leaves=20
)
MAPPINGS = st.recursive(
    st.booleans() | st.integers() | st.text() | st.just(UNKNOWN),
    lambda inner: st.dictionaries(st.text(min_size=1), inner, min_size=1),
    max_leaves=8,
)
KEYS = st.text(min_size=1).filter(lambda key: key != "*")
PATHS = st.tuples(KEYS) | st.lists(KEYS | st.integers(min_value=0, max_value=99), min_size=1).map(
    lambda steps: (str(steps[0]), *steps[1:])
)


def found(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    return {
        path_text(difference.path): (difference.before, difference.after)
        for difference in differences(before, after)
    }


@settings(max_examples=20)
@given(VALUES)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert list(differences(value, value)) == []


@pytest.mark.slow
@settings(max_examples=50)
@given(VALUES, VALUES)
def test_differences_are_the_same_from_the_other_side(before: Any, after: Any) -> None:
    forth = {(repr(difference.before), repr(difference.after)) for difference in differences(before, after)}
    back = {(repr(difference.after), repr(difference.before)) for difference in differences(after, before)}
    assert bool(forth) == bool(back)


def put(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    step, *rest = path
    made: dict[Any, Any] = dict(cast("dict[Any, Any]", value)) if isinstance(value, dict) else {}
    inner = put(made.get(step), tuple(rest), new)
    if inner is None:
        made.pop(step, None)
    else:
        made[step] = inner
    return made


@pytest.mark.slow
@settings(max_examples=40)
@given(st.dictionaries(st.text(min_size=1), MAPPINGS), st.dictionaries(st.text(min_size=1), MAPPINGS))
def test_applying_all_differences_gives_the_other_side(before: dict[str, Any], after: dict[str, Any]) -> None:
    value: Any = before
    for difference in differences(before, after):
        value = put(value, difference.path, difference.after)
    assert list(differences(value, after)) == []


@given(PATHS)
def test_a_written_path_can_be_read_again(path: Path) -> None:
    assert parse_path(path_text(path)) == path


@settings(max_examples=50)
@given(VALUES, VALUES)
def test_every_shown_value_is_short_and_plain(before: Any, after: Any) -> None:
    for value in (shorten(before), *shorten_both(before, after)):
        assert len(str(value)) <= 4 * LIMIT
        assert "Secret" not in str(value)


def test_paths_are_written_as_pulumi_writes_them() -> None:
    assert path_text(("spec", "containers", 0, "args", 3)) == "spec.containers[0].args[3]"
    assert path_text(("data", "train.py")) == 'data["train.py"]'
    label = "app.kubernetes.io/name"
    assert parse_path(f'metadata.labels["{label}"]') == ("metadata", "labels", label)
    assert parse_path("rules[*].ports[2]") == ("rules", "*", "ports", 2)


def test_a_pattern_covers_what_is_below_it() -> None:
    assert covers(parse_path("rules[*].port"), ("rules", 3, "port", "name"))
    assert not covers(parse_path("rules[*].port"), ("rules", 3))
    assert not covers(parse_path("rules.port"), ("rules", 3, "port"))


def test_list_elements_are_matched_by_name() -> None:
    a, b, c = ({"name": name, "size": 1} for name in "abc")
    assert found([a, b], [b]) == {"[0]": (a, None)}
    assert found([a, b], [a, {**b, "size": 2}, c]) == {"[1].size": (1, 2), "[2]": (None, c)}
    assert found([a, b], [b, a]) == {"": (["a", "b"], ["b", "a"])}


def test_list_elements_with_duplicate_names_are_matched_by_index() -> None:
    one, other = {"key": "gpu", "effect": "a"}, {"key": "gpu", "effect": "b"}
    assert found([one, other], [one]) == {"[1]": (other, None)}


def test_an_added_argument_changes_no_other() -> None:
    assert found(["a", "b"], ["new", "a", "b"]) == {"[0]": (None, "new")}
    assert found(["a", "b", "c"], ["a", "c"]) == {"[1]": ("b", None)}
    assert found(["a", "b"], ["a", "c"]) == {"[1]": ("b", "c")}


def test_numbers_and_booleans_differ() -> None:
    assert found(1, True) == {"": (1, True)}
    assert found([1], [True]) == {"[0]": (1, True)}
    assert found(1, 1.0) == {}


def test_missing_values_equal_null() -> None:
    assert found({"a": None}, {}) == {}
    assert found({}, {"a": {"b": 1}}) == {"a": (None, {"b": 1})}


def test_a_value_unknown_on_one_side_differs() -> None:
    assert found({"a": UNKNOWN}, {"a": 1}) == {"a": (UNKNOWN, 1)}
    assert list(unknown_paths({"a": [1, UNKNOWN], "b": {"c": UNKNOWN}}, ())) == [("a", 1), ("b", "c")]


def test_a_difference_lists_all_paths_below_it() -> None:
    difference = Difference(("a",), None, {"b": [{"c": 1}]})
    assert difference.leaves == [("a",), ("a", "b"), ("a", "b", 0), ("a", "b", 0, "c")]


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("a\nb\n", "2 lines"),
        ("a\n", "a\n"),
        ("", ""),
        (True, True),
        (UNKNOWN, "[unknown]"),
        ([Secret("x")], ["[secret]"]),
    ],
)
def test_shown(value: Any, short: Any) -> None:
    assert shorten(value) == short
