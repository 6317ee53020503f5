"""A stack's configuration is what the Pulumi CLI would hand to the program, or one clear error."""

import json
from pathlib import Path

import pytest

from slipway.engine.stack_config import ConfigError, for_engine, load_stack
from slipway.infra.schema.secret_values import MASK
from tests.support.stack_values import stack_config

PROJECT = """
name: slipway
runtime: python
stackConfigDir: stacks
config:
  namespace: {type: string, default: runs}
  protect: {type: boolean, default: true}
  plain: text
  gcp:region: {value: us-central1}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text(PROJECT)
    return tmp_path


def write(project: Path, text: str, stack: str = "dev") -> None:
    (project / "stacks" / f"Pulumi.{stack}.yaml").write_text(text)


def test_defaults_of_the_project_stand_below_the_stack_and_are_replaced_whole(project: Path) -> None:
    write(project, "config:\n  slipway:protect: false\n  slipway:store: {kind: gcs}\n")
    assert stack_config("dev", project) == {
        "slipway:namespace": "runs",
        "slipway:protect": False,
        "slipway:plain": "text",
        "gcp:region": "us-central1",
        "slipway:store": {"kind": "gcs"},
    }


def test_a_stack_that_is_not_there_is_answered_with_those_that_are(project: Path) -> None:
    write(project, "", "dev")
    write(project, "", "prod")
    with pytest.raises(ConfigError, match=r"no stack 'staging' in .*; there is dev, prod"):
        stack_config("staging", project)


def test_a_mistyped_stack_is_answered_with_the_nearest(project: Path) -> None:
    write(project, "", "churn-dev")
    with pytest.raises(ConfigError, match="did you mean `churn-dev`"):
        stack_config("chrun-dev", project)


def test_what_stands_in_the_place_of_a_stack_file_is_told(project: Path) -> None:
    (project / "stacks" / "Pulumi.dev.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"Pulumi\.dev\.yaml cannot be read: it is a folder"):
        stack_config("dev", project)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"], ids=["too long for a file", "with a NUL"])
def test_a_name_that_no_file_can_have_is_of_no_stack(project: Path, name: str) -> None:
    write(project, "")
    with pytest.raises(ConfigError, match="there is no stack"):
        stack_config(name, project)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", r"Pulumi\.dev\.yaml: expected `key: value` lines, found a list"),
        ("text", r"Pulumi\.dev\.yaml: expected `key: value` lines, found text"),
        ("config: []", r"Pulumi\.dev\.yaml: config: expected `key: value` lines, found a list"),
        ("config: 0", r"Pulumi\.dev\.yaml: config: expected `key: value` lines, found a number"),
    ],
)
def test_a_file_without_keys_is_told(project: Path, text: str, says: str) -> None:
    write(project, text)
    with pytest.raises(ConfigError, match=says):
        stack_config("dev", project)


def test_a_value_that_the_project_requires_is_missed(project: Path) -> None:
    (project / "Pulumi.yaml").write_text("name: slipway\nconfig:\n  owner: {type: string}\n")
    (project / "Pulumi.dev.yaml").write_text("config: {}")
    with pytest.raises(ConfigError, match="missing configuration values: slipway:owner"):
        stack_config("dev", project)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("config:\n  slipway:a: 1\n  slipway:a: 2\n", 3, "'slipway:a' stands here twice"),
        (
            "config:\n  slipway:pools:\n    cpu: {x: 1}\n    gpu: {x: 1,\n          x: 2}\n",
            5,
            "'x' stands here twice",
        ),
        ("config:\n  a: [1, 2\n", 3, "expected"),
        ("config:\n\ta: 1\n", 2, "cannot start any token"),
    ],
)
def test_what_is_wrong_with_the_file_comes_with_its_line(project: Path, text: str, line: int, says: str) -> None:
    write(project, text)
    with pytest.raises(ConfigError, match=says) as raised:
        stack_config("dev", project)
    assert f"Pulumi.dev.yaml:{line}:" in str(raised.value)


def test_a_secret_becomes_a_placeholder_and_is_named(project: Path) -> None:
    write(
        project, "config:\n  slipway:a: {secure: v1:xyz}\n  slipway:b:\n    list:\n    - {key: {secure: v1:abc}}\n"
    )
    loaded = load_stack("dev", project)
    assert loaded.values["slipway:a"] == MASK
    assert loaded.values["slipway:b"] == {"list": [{"key": MASK}]}
    assert loaded.secrets == ["slipway:a", "slipway:b.list[0].key"]
    assert "v1:" not in repr(loaded.values)


def test_an_environment_that_only_the_cli_can_open_is_refused(project: Path) -> None:
    write(project, "environment: [shared]\n")
    with pytest.raises(ConfigError, match="Pulumi ESC"):
        stack_config("dev", project)


def test_the_engine_hands_over_text_as_it_is_and_the_rest_as_json() -> None:
    given = for_engine({"a": "text", "b": True, "c": {"0": 0.5}, "d": 3})
    assert given == {"a": "text", "b": "true", "c": json.dumps({"0": 0.5}), "d": "3"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ["the file is empty; write the settings below `config:`"]),
        ("# nothing yet\n", ["the file is empty"]),
        ("confg:\n  slipway:store: {kind: gcs}\n", ["confg: no key of a stack file; did you mean `config`?"]),
        ("slipway:store: {kind: gcs}\n", ["slipway:store: no key of a stack file; indent it below `config:`"]),
        ("store: {kind: gcs}\n", ["store: no key of a stack file; indent it below `config:`, as `slipway:store`"]),
        (
            "x-pool: &pool {machine_type: e2-medium}\nconfig: {slipway:store: *pool}\n",
            ["x-pool: no key of a stack file; remove it; an anchor (`&name`) stands where its value is used"],
        ),
        (
            "config:\n  clusters: {}\n  stor: {kind: gcs}\n  color: 1\n",
            [
                "config.clusters: the key does not say whose it is; did you mean `slipway:clusters`?",
                "config.stor: the key does not say whose it is; did you mean `slipway:store`?",
                "config.color: the key does not say whose it is; write `slipway:<key>`",
            ],
        ),
        ('config:\n  "\\e[1m": 1\n', ["config.\\x1b[1m: the key does not say whose it is"]),
        ('"\\e[1m": 1\n', ["\\x1b[1m: no key of a stack file"]),
    ],
)
def test_keys_that_nobody_reads_are_named_with_what_was_meant(project: Path, text: str, says: list[str]) -> None:
    write(project, text)
    with pytest.raises(ConfigError) as raised:
        stack_config("dev", project)
    for words in says:
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("confg:\n  slipway:store: {kind: gcs}\n", "confg: no key of a stack file; did you mean `config`?"),
        ("slipway:store: {kind: gcs}\n", "slipway:store: no key of a stack file; indent it below `config:`"),
    ],
)
def test_they_are_named_in_a_project_of_another_name_too(project: Path, text: str, says: str) -> None:
    (project / "Pulumi.yaml").write_text("name: acme\nruntime: python\nstackConfigDir: stacks\n")
    write(project, text)
    with pytest.raises(ConfigError) as raised:
        stack_config("dev", project)
    assert says in str(raised.value)


def test_other_keys_of_other_projects_are_theirs(project: Path) -> None:
    (project / "Pulumi.yaml").write_text("name: acme\nruntime: python\nstackConfigDir: stacks\n")
    write(project, "x-common: {a: 1}\nconfig:\n  size: 3\n")
    assert stack_config("dev", project) == {"acme:size": 3}
