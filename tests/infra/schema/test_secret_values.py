"""No error about a stack file shows a secret of it, wherever it is shown."""

import itertools
from typing import Any

import pytest

from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.schema.secret_values import hidden, shown

GITHUB = "github_pat_" + "a1B2" * 20
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" * 5 + "." + "c2lnbmF0dXJl" * 6


@pytest.mark.parametrize(
    ("place", "value", "written"),
    [
        ("slipway:store.kind", "gsc", "'gsc'"),
        ("slipway:store.kind", None, "not set"),
        ("slipway:api_token", "hunter2", "[secret]"),
        ("slipway:password", 1234, "[secret]"),
        ("slipway:store.kind", GITHUB, "[secret]"),
        ("slipway:store.kind", JWT, "[secret]"),
        ("slipway:store", {"kind": "gcs", "token": "hunter2"}, "{'kind': 'gcs', 'token': [secret]}"),
        ("slipway:store", [{"args": [GITHUB]}], "[{'args': [[secret]]}]"),
        ("slipway:store", {"secret": "my-nfs"}, "{'secret': 'my-nfs'}"),
        ("slipway:store.secret", "my-nfs", "'my-nfs'"),
        ("slipway:address", "redis://:hunter2@host", "[secret]"),
        ("slipway:address", "redis://me:hunter:2@host", "[secret]"),
        ("slipway:address", "redis://:$(PASSWORD)@host", "'redis://:$(PASSWORD)@host'"),
        ("slipway:address", "host=db password=hunter2", "[secret]"),
        ("slipway:address", {"password": {"is": "hunter2"}}, "{'password': {'is': [secret]}}"),
        ("slipway:address.password.is", "hunter2", "[secret]"),
        ("slipway:run", ["--token", "hunter2", "--token=hunter2", "x"], "['--token', [secret], [secret], 'x']"),
        ("slipway:dbpassword", "hunter2", "[secret]"),
        ("steps.a.secrets.WANDB", "Hunter2", "[secret]"),
        ("steps.a.secrets.WANDB", "wandb-key", "'wandb-key'"),
        ("slipway:store.kind", "a token of love", "'a token of love'"),
    ],
)
def test_a_value_is_shown_without_its_secrets(place: str, value: object, written: str) -> None:
    assert shown(place, value) == written


def test_a_long_token_is_hidden_before_it_is_shortened() -> None:
    assert "a1B2" not in shown("slipway:namespace", GITHUB)
    assert "eyJ" not in shown("slipway:namespace", {"a": {"b": JWT}})


def test_what_would_be_endless_is_shown_in_a_moment() -> None:
    bomb: list[Any] = ["x"]
    for _ in range(40):
        bomb = [bomb] * 9
    assert len(shown("slipway:store", bomb)) < 2000
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert "again" in shown("slipway:store", endless)


def test_a_reason_and_a_fix_do_not_quote_the_secret_either() -> None:
    assert hidden(f"{GITHUB} is no name", "slipway:namespace", GITHUB) == "[secret] is no name"
    problem = Problem("slipway:token", "hunter2", "hunter2 is not known", "write `hunter2` elsewhere")
    error = SettingsError([problem])
    texts = [str(error), *(itertools.chain.from_iterable((p.shown, p.reason, p.fix) for p in error.problems))]
    assert "hunter2" not in " ".join(texts)


def test_nothing_in_the_error_moves_a_cursor() -> None:
    problem = Problem('slipway:clusters["\x1b[2J\n"]', "\x1b]0;x\x07", "\u202eno\n::error::", "\x9b1m")
    error = SettingsError([problem])
    assert all(line.isprintable() for line in str(error).split("\n"))
    assert error.problems[0].key == r'slipway:clusters["\x1b[2J\n"]'
    assert error.problems[0].reason == r"\u202eno\n::error::"
