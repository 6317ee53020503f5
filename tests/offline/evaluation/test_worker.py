"""``python -m offline.evaluation`` prints what each stack of the tree declares, and no secret."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offline.evaluation.worker import KEY
from offline.preview.revisions import stacks_of
from tests.offline.preview.tree import make_tree


def run(tree: Path, *stacks: str, key: str = "k") -> str:
    command = [sys.executable, "-m", "offline.evaluation"]
    for name in stacks or stacks_of(tree):
        command += ["--stack", name]
    environment = {KEY: key, "HOME": "/nowhere"}
    done = subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def evaluated(tree: Path, *stacks: str, key: str = "k") -> dict[str, Any]:
    return parsed(run(tree, *stacks, key=key))


def parsed(output: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in output.splitlines()]
    assert {line["format"] for line in lines} == {1}
    assert [line["begun"] for line in lines[::2]] == [line["stack"] for line in lines[1::2]]
    return {line["stack"]: line["document"] for line in lines[1::2]}


def evaluated_dev(tree: Path, key: str = "k") -> dict[str, Any]:
    return evaluated(tree, key=key)["dev"]


def properties(stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each["properties"] for each in stack["resources"]}


def test_resources_are_printed_in_the_order_of_declaration(tmp_path: Path) -> None:
    body = """
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
    found = evaluated_dev(make_tree(tmp_path / "tree", body))
    assert [each["name"] for each in found["resources"]] == ["group", "late", "early", "aaa"]
    group, late, early, aaa = found["resources"]
    assert (group["custom"], late["custom"], late["parent"], late["protect"]) == (False, True, group["urn"], True)
    assert late["urn"] == "urn:pulumi:dev::slipway::slipway:test:Group$kubernetes:core/v1:ConfigMap::late"
    assert (late["retain_on_delete"], early["retain_on_delete"]) == (True, False)
    assert early["dependencies"] == [late["urn"]]
    assert early["property_dependencies"] == {"data": [late["urn"]]}
    assert early["properties"] == {"data": {"name": late["urn"], "uid": {"$slipway": "unknown", "of": "late.id"}}}
    assert (early["delete_before_replace"], early["ignore_changes"]) == (True, ["data.name"])
    assert (early["replace_on_changes"], early["aliases"]) == (["data.uid"], ["x"])
    assert aaa["properties"] == {"number": 1, "ratio": 0.5, "yes": True, "some": [1, None]}
    assert found["outputs"] == {
        "open": False,
        "hidden": True,
        "below.known": False,
        "below.unknown": False,
        "password": True,
    }
    assert [(each["pool"], each["allocatable"]["cpu"]) for each in found["standing"]] == [("cpu", 4000)]


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes_wherever_the_tree_is(tmp_path: Path) -> None:
    body = """
import pathlib, warnings
warnings.warn(f"in {pathlib.Path.cwd()}")
things = {thing(f"t{n}", path=str(pathlib.Path.cwd() / "file")) for n in range(20)}
thing("last", opts=pulumi.ResourceOptions(depends_on=list(things)))
"""
    here, there = make_tree(tmp_path / "here", body), make_tree(tmp_path / "further" / "there", body)
    assert run(here) == run(there)
    assert properties(evaluated_dev(here))["t0"] == {"path": "./file"}


def test_warnings_are_remarks_and_stdout_has_only_the_format(tmp_path: Path) -> None:
    body = """
import os
print("printed")
os.write(1, b"written")
pulumi.log.warn("beware")
pulumi.log.warn("beware")
pulumi.log.info("never mind")
"""
    assert evaluated_dev(make_tree(tmp_path / "tree", body))["remarks"] == ["beware"]


SECRETS = """
thing("one", stringData=pulumi.Output.secret({"password": "hunter2-and-more"}))
thing("two", stringData=pulumi.Output.secret({"password": "hunter2-and-more"}))
thing("three", stringData=pulumi.Output.secret({"password": "another"}), open="here")
"""


def test_a_secret_is_a_digest_that_only_its_key_can_compare(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", SECRETS)
    output = run(tree)
    assert "hunter2" not in output
    found = properties(parsed(output)["dev"])
    assert found["one"] == found["two"]
    assert found["one"]["stringData"].keys() == {"$slipway", "digest"}
    assert found["one"]["stringData"] != found["three"]["stringData"]
    assert found["three"]["open"] == "here"
    assert properties(evaluated_dev(tree, key="another"))["one"] != found["one"]
    assert properties(evaluated_dev(tree, key=""))["one"] != properties(evaluated_dev(tree, key=""))["one"]


def test_errors_hide_secrets(tmp_path: Path) -> None:
    body = SECRETS + 'pulumi.export("x", pulumi.Output.secret("hunter2-and-more").apply(lambda text: int(text)))'
    tree = make_tree(tmp_path / "tree", body)
    output = run(tree)
    assert "[secret]" in parsed(output)["dev"]["failure"]["message"]
    assert "hunter2" not in output


def test_plain_values_of_the_stack_file_are_not_hidden(
    tmp_path: Path,
) -> None:
    body = 'pulumi.Output.secret("~/.kube/config")\npulumi.log.warn("~/.kube/config is not there")'
    tree = make_tree(tmp_path / "tree", body, {"dev": {"other:path": "~/.kube/config"}})
    assert evaluated_dev(tree)["remarks"] == ["~/.kube/config is not there"]


def test_a_changed_encrypted_value_has_another_digest(tmp_path: Path) -> None:
    def of(ciphertext: str) -> dict[str, Any]:
        tree = tmp_path / ciphertext
        make_tree(tree, "pass", {"dev": {"other:key": {"deep": [{"secure": ciphertext}]}, "other:plain": "x"}})
        return evaluated_dev(tree)["configuration"]

    first, second = of("v1:abc"), of("v1:def")
    assert first["other:plain"] == "x"
    assert first["other:key"]["deep"][0]["$slipway"] == "secret"
    assert first["other:key"] != second["other:key"]
    assert "v1:" not in json.dumps(first)


def test_a_stack_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    body = """
if pulumi.get_stack() == "bad":
    raise LookupError("no such thing")
thing("a")
"""
    tree = make_tree(
        tmp_path / "tree", body, {"good": {}, "bad": {}, "wrong": {"slipway:namespace": "Not A Name"}}
    )
    found = evaluated(tree, "bad", "wrong", "missing", "good")
    assert list(properties(found["good"])) == ["a"]
    bad = found["bad"]["failure"]
    line = (tree / "infra/program.py").read_text().splitlines().index('        raise LookupError("no such thing")')
    assert (bad["kind"], bad["message"], bad["where"]) == (
        "LookupError",
        "LookupError: no such thing",
        f"infra/program.py:{line + 1}",
    )
    (problem,) = found["wrong"]["failure"]["problems"]
    assert (problem["key"], problem["value"]) == ("slipway:namespace", "'Not A Name'")
    assert problem["reason"]
    assert problem["fix"]
    assert "there is no stack 'missing' in stacks" in found["missing"]["failure"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('pulumi.export("x", pulumi.Output.from_input(1).apply(lambda n: {}["gone"]))', "KeyError: 'gone'"),
        ("import sys; sys.exit('enough')", "enough"),
        ("x = 'this is ' 1", "invalid syntax"),
        ("import not_there", "No module named 'not_there'"),
    ],
)
def test_a_failure_names_the_line_of_the_program(body: str, message: str, tmp_path: Path) -> None:
    failure = evaluated_dev(make_tree(tmp_path / "tree", f"pass\n{body}"))["failure"]
    assert message in failure["message"]
    assert "\n" not in failure["message"]
    assert failure["where"] == "infra/program.py:9"


def test_a_mapping_that_looks_like_a_mark_is_escaped(tmp_path: Path) -> None:
    found = properties(evaluated_dev(make_tree(tmp_path / "tree", 'thing("a", data={"$slipway": "unknown"})')))
    assert found["a"]["data"] == {"$slipway": "mapping", "value": {"$slipway": "unknown"}}


def test_a_stand_in_for_missing_configuration_is_remarked(tmp_path: Path) -> None:
    cluster = {
        "cloud": "gcp",
        "location": "us-central1",
        "pools": {"cpu": {"machine_type": "e2-standard-4", "nodes": {"total_min": 0, "total_max": 1}}},
    }
    config = {"slipway:clusters": {"dev": cluster}, "slipway:store": {"kind": "gcs", "location": "us-central1"}}
    found = evaluated_dev(make_tree(tmp_path / "tree", "pass", {"dev": config}))
    assert found["remarks"] == ["gcp:project is not set; 'emulated-project' stands in"]
    assert "gcp:project" not in found["configuration"]


def test_the_rehearsal_overlay_is_ignored(tmp_path: Path) -> None:
    body = 'thing(pulumi.Config("slipway").require("namespace"))'
    config = {"slipway:namespace": "real", "slipway:rehearsal": {"namespace": "rehearsed"}}
    assert list(properties(evaluated_dev(make_tree(tmp_path / "tree", body, {"dev": config})))) == ["real"]
