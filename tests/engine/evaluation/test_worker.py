"""``python -m slipway.engine.evaluation`` prints what each stack of the tree declares, and no secret."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from slipway.engine.evaluation.worker import KEY
from slipway.preview.revisions import stacks_of
from tests.preview.tree import make_tree


def run(tree: Path, *stacks: str, key: str = "k") -> str:
    command = [sys.executable, "-m", "slipway.engine.evaluation"]
    for name in stacks or stacks_of(tree):
        command += ["--stack", name]
    environment = {KEY: key, "HOME": "/nowhere"}
    done = subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def parsed(output: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in output.splitlines()]
    assert {line["format"] for line in lines} == {1}
    assert [line["begun"] for line in lines[::2]] == [line["stack"] for line in lines[1::2]]
    return {line["stack"]: line["document"] for line in lines[1::2]}


def evaluated_dev(tree: Path, key: str = "k") -> dict[str, Any]:
    return parsed(run(tree, key=key))["dev"]


def properties(stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {resource["name"]: resource["properties"] for resource in stack["resources"]}


ORDER = """
parent = pulumi.ComponentResource("slipway:test:Group", "group")
late = thing("late", metadata={"name": "fixed"}, opts=pulumi.ResourceOptions(
    parent=parent, protect=True, retain_on_delete=True))
early = thing("early", data={"name": late.urn, "uid": late.id}, opts=pulumi.ResourceOptions(
    depends_on=[late], delete_before_replace=True, ignore_changes=["data.name"], aliases=[pulumi.Alias(name="x")],
    replace_on_changes=["data.uid"]))
aaa = thing("aaa", number=1, ratio=0.5, yes=True, some=[1, None])
pulumi.export("open", "x")
pulumi.export("hidden", pulumi.Output.secret(late.id))
pulumi.export("below", {"known": 1, "unknown": late.id})
pulumi.export("password", pulumi.Output.secret({"of": "x"}))
"""

WARNING = """
import os
print("printed")
os.write(1, b"written")
pulumi.log.warn("beware")
pulumi.log.warn("beware")
pulumi.log.info("never mind")
"""

SECRETS = """
thing("one", stringData=pulumi.Output.secret({"password": "hunter2-and-more"}))
thing("two", stringData=pulumi.Output.secret({"password": "hunter2-and-more"}))
thing("three", stringData=pulumi.Output.secret({"password": "another"}), open="here")
"""

FAILING: Mapping[str, tuple[str, str]] = {
    "failing": ('raise LookupError("no such thing")', "LookupError: no such thing"),
    "applying": (
        'pulumi.export("x", pulumi.Output.from_input(1).apply(lambda n: {}["gone"]))',
        "KeyError: 'gone'",
    ),
    "leaving": ("import sys; sys.exit('enough')", "enough"),
    "importing": ("import not_there", "No module named 'not_there'"),
    "revealing": (
        'pulumi.export("x", pulumi.Output.secret("hunter2-and-more").apply(lambda text: int(text)))',
        "[secret]",
    ),
}
"""Lines that fail, each with a part of what is said of them."""

CLUSTER = {
    "cloud": "gcp",
    "location": "us-central1",
    "pools": {"cpu": {"machine_type": "e2-standard-4", "nodes": {"total_min": 0, "total_max": 1}}},
}

STACKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (line, {}) for name, (line, _) in FAILING.items()},
    "wrong": ("pass", {"slipway:namespace": "Not A Name"}),
    "order": (ORDER, {}),
    "warning": (WARNING, {}),
    "secrets": (SECRETS, {}),
    "plain": (
        'pulumi.Output.secret("~/.kube/config")\npulumi.log.warn("~/.kube/config is not there")',
        {"other:path": "~/.kube/config"},
    ),
    "abc": ("pass", {"other:key": {"deep": [{"secure": "v1:abc"}]}, "other:plain": "x"}),
    "def": ("pass", {"other:key": {"deep": [{"secure": "v1:def"}]}, "other:plain": "x"}),
    "marked": ('thing("a", data={"$slipway": "unknown"})', {}),
    "standing": (
        "pass",
        {"slipway:clusters": {"dev": CLUSTER}, "slipway:store": {"kind": "gcs", "location": "us-central1"}},
    ),
    "overlay": (
        'thing(pulumi.Config("slipway").require("namespace"))',
        {"slipway:namespace": "real", "slipway:rehearsal": {"namespace": "rehearsed"}},
    ),
    "good": ('thing("a")', {}),
}
"""Stacks with the program and the configuration of each."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cases = (f'    case "{name}":\n{indent(body.strip(), 8 * " ")}\n' for name, (body, _) in STACKS.items())
    body = f"match pulumi.get_stack():\n{''.join(cases)}"
    return make_tree(
        tmp_path_factory.mktemp("trees") / "tree", body, {name: config for name, (_, config) in STACKS.items()}
    )


@pytest.fixture(scope="module")
def output(tree: Path) -> str:
    """What one process prints of all of them, and of a stack that is not there."""
    return run(tree, "missing", *STACKS)


@pytest.fixture(scope="module")
def found(output: str) -> dict[str, Any]:
    return parsed(output)


@pytest.mark.slow
def test_resources_are_printed_in_the_order_of_declaration(found: dict[str, Any]) -> None:
    order = found["order"]
    assert [resource["name"] for resource in order["resources"]] == ["group", "late", "early", "aaa"]
    group, late, early, aaa = order["resources"]
    assert (group["custom"], late["custom"], late["parent"], late["protect"]) == (False, True, group["urn"], True)
    assert late["urn"] == "urn:pulumi:order::slipway::slipway:test:Group$kubernetes:core/v1:ConfigMap::late"
    assert (late["retain_on_delete"], early["retain_on_delete"]) == (True, False)
    assert early["dependencies"] == [late["urn"]]
    assert early["property_dependencies"] == {"data": [late["urn"]]}
    assert early["properties"] == {"data": {"name": late["urn"], "uid": {"$slipway": "unknown", "of": "late.id"}}}
    assert (early["delete_before_replace"], early["ignore_changes"]) == (True, ["data.name"])
    assert (early["replace_on_changes"], early["aliases"]) == (["data.uid"], ["x"])
    assert aaa["properties"] == {"number": 1, "ratio": 0.5, "yes": True, "some": [1, None]}
    assert order["outputs"] == {
        "open": False,
        "hidden": True,
        "below.known": False,
        "below.unknown": False,
        "password": True,
    }
    assert [(each["pool"], each["allocatable"]["cpu"]) for each in order["standing"]] == [("cpu", 4000)]


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes_wherever_the_tree_is(tmp_path: Path) -> None:
    body = """
import pathlib, warnings
warnings.warn(f"in {pathlib.Path.cwd()}")
things = {thing(f"t{n}", path=str(pathlib.Path.cwd() / "file")) for n in range(20)}
thing("last", opts=pulumi.ResourceOptions(depends_on=list(things)))
"""
    output = run(make_tree(tmp_path / "here", body))
    assert output == run(make_tree(tmp_path / "further" / "there", body))
    assert properties(parsed(output)["dev"])["t0"] == {"path": "./file"}


def test_warnings_are_remarks_and_stdout_has_only_the_format(found: dict[str, Any]) -> None:
    assert found["warning"]["remarks"] == ["beware"]


def test_a_secret_is_a_digest(output: str, found: dict[str, Any]) -> None:
    assert "hunter2" not in output
    secrets = properties(found["secrets"])
    assert secrets["one"] == secrets["two"]
    assert secrets["one"]["stringData"].keys() == {"$slipway", "digest"}
    assert secrets["one"]["stringData"] != secrets["three"]["stringData"]
    assert secrets["three"]["open"] == "here"


@pytest.mark.slow
def test_only_the_key_of_a_digest_can_compute_it(tree: Path, found: dict[str, Any]) -> None:
    def one(key: str) -> Any:
        return properties(parsed(run(tree, "secrets", key=key))["secrets"])["one"]

    known = properties(found["secrets"])["one"]
    assert one("k") == known
    assert one("another") != known
    assert one("") != one("")


def test_plain_values_of_the_stack_file_are_not_hidden(found: dict[str, Any]) -> None:
    assert found["plain"]["remarks"] == ["~/.kube/config is not there"]


def test_a_changed_encrypted_value_has_another_digest(found: dict[str, Any]) -> None:
    first, second = found["abc"]["configuration"], found["def"]["configuration"]
    assert first["other:plain"] == "x"
    assert first["other:key"]["deep"][0]["$slipway"] == "secret"
    assert first["other:key"] != second["other:key"]
    assert "v1:" not in json.dumps(first)


def test_a_stack_that_fails_does_not_stop_the_others(found: dict[str, Any]) -> None:
    assert list(found) == ["missing", *STACKS]
    assert {name for name, each in found.items() if "failure" in each} == {"missing", "wrong", *FAILING}
    assert list(properties(found["good"])) == ["a"]
    assert found["failing"]["failure"]["kind"] == "LookupError"
    (problem,) = found["wrong"]["failure"]["problems"]
    assert (problem["key"], problem["value"]) == ("slipway:namespace", "'Not A Name'")
    assert problem["reason"]
    assert problem["fix"]
    assert "there is no stack 'missing' in stacks" in found["missing"]["failure"]["message"]


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_names_the_line_of_the_program(name: str, tree: Path, found: dict[str, Any]) -> None:
    line, message = FAILING[name]
    failure = found[name]["failure"]
    assert message in failure["message"]
    assert "\n" not in failure["message"]
    lines = [each.strip() for each in (tree / "slipway/infra/program.py").read_text(encoding="utf-8").splitlines()]
    assert failure["where"] == f"slipway/infra/program.py:{lines.index(line) + 1}"


@pytest.mark.slow
def test_a_program_that_python_cannot_read_names_its_line(tmp_path: Path) -> None:
    failure = evaluated_dev(make_tree(tmp_path / "tree", "pass\nx = 'this is ' 1"))["failure"]
    assert "invalid syntax" in failure["message"]
    assert "\n" not in failure["message"]
    assert failure["where"] == "slipway/infra/program.py:9"


def test_a_mapping_that_looks_like_a_mark_is_escaped(found: dict[str, Any]) -> None:
    assert properties(found["marked"])["a"]["data"] == {"$slipway": "mapping", "value": {"$slipway": "unknown"}}


def test_a_stand_in_for_missing_configuration_is_remarked(found: dict[str, Any]) -> None:
    assert found["standing"]["remarks"] == ["gcp:project is not set; 'emulated-project' stands in"]
    assert "gcp:project" not in found["standing"]["configuration"]


def test_the_rehearsal_overlay_is_ignored(found: dict[str, Any]) -> None:
    assert list(properties(found["overlay"])) == ["real"]
