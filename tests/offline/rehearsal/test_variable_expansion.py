"""References and paths are replaced as Kubernetes and a pod's mounts would have it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.rehearsal.variable_expansion import expand, localize


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        # kubernetes/third_party/forked/golang/expansion/expand_test.go has these and more.
        ("$(A)", "a"),
        ("___$(B)___", "___b___"),
        ("$(A)$(B)", "ab"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(A", "$(A"),
        ("$A ${A}", "$A ${A}"),
        ("foo$", "foo$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(A)$(", "a$("),
        ("$(EMPTY)!", "!"),
    ],
)
def test_references(text: str, expanded: str) -> None:
    assert expand(text, {"A": "a", "B": "b", "EMPTY": ""}) == expanded


@given(st.text())
def test_escaped_text_survives(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "a"}) == text


@given(st.text(), st.text(alphabet="$()AB"))
def test_a_value_is_not_looked_into_again(value: str, around: str) -> None:
    assert expand("$(A)", {"A": value, "B": around}) == value


MOUNTS = {"/store": Path("/here/store"), "/store/inner": Path("/here/inner"), "/tmp": Path("/here/tmp")}


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("/store", "/here/store"),
        ("/store/a/b.txt", "/here/store/a/b.txt"),
        ("/store/inner/b", "/here/inner/b"),
        ("--output=/store/x", "--output=/here/store/x"),
        ("/bin:/store:/tmp/x", "/bin:/here/store:/here/tmp/x"),
        ("/storehouse /store-2 /store.d", "/storehouse /store-2 /store.d"),
        ("gs://bucket/store", "gs://bucket/store"),
        ("/var/tmp", "/var/tmp"),
        ("store", "store"),
        ("cat '/tmp/a' \"/store\"", "cat '/here/tmp/a' \"/here/store\""),
    ],
)
def test_paths_below_mounts(text: str, local: str) -> None:
    assert localize(text, MOUNTS) == local


def test_a_replaced_path_is_not_replaced_again() -> None:
    assert (
        localize("/store/x", {"/store": Path("/tmp/run/store"), "/tmp": Path("/elsewhere")}) == "/tmp/run/store/x"
    )
