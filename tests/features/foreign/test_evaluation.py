"""Projects that are not Slipway's: their own program, configuration, files and modules."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.engine.evaluation.__main__ import evaluate_stack
from slipway.engine.evaluation.encoding import Secrets
from slipway.engine.evaluation.worker import evaluate_or_fail
from tests.support.tree import write_tree

PROGRAM = """
import pulumi
import network

config = pulumi.Config()
network.declare(config.require("cidr"))
pulumi.CustomResource("cloud:index:Function", "function", {
    "code": pulumi.AssetArchive({".": pulumi.FileArchive("./app"), "notes": pulumi.StringAsset("a")}),
    "password": config.require_secret("password"),
    "zones": config.get_object("zones"),
})
pulumi.export("network", pulumi.Output.secret("x"))
"""

FILES = {
    "Pulumi.yaml": "name: acme\nruntime: {name: python}\nmain: src\nconfig:\n  cidr: 10.0.0.0/16\n",
    "Pulumi.dev.yaml": "config:\n  zones: [a, b]\n  acme:password:\n    secure: v1:abc\n",
    "Pulumi.prod.yaml": "config:\n  cidr: 10.1.0.0/16\n  acme:password:\n    secure: v1:def\n",
    "src/__main__.py": PROGRAM,
    "src/network.py": """
import pulumi

SEEN = []

def declare(cidr):
    SEEN.append(cidr)
    pulumi.CustomResource("cloud:index:Network", "network", {"cidrs": SEEN})
""",
    "src/app/index.py": "one",
}


def evaluated(tree: Path, stack: str = "dev", key: bytes = b"k") -> dict[str, Any]:
    return evaluate_or_fail(stack, tree, Secrets(key), evaluate_stack)


def properties(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    assert "failure" not in document, document["failure"]
    return {resource["name"]: resource["properties"] for resource in document["resources"]}


def test_a_project_of_another_layout_is_evaluated_with_its_configuration(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "acme", FILES)
    before = Path.cwd()
    first, second = evaluated(tree), evaluated(tree, "prod")
    assert properties(first)["network"] == {"cidrs": ["10.0.0.0/16"]}
    # Its modules are imported anew for each stack.
    assert properties(second)["network"] == {"cidrs": ["10.1.0.0/16"]}
    assert properties(first)["function"]["zones"] == ["a", "b"]
    assert properties(first)["function"]["password"] == {"$slipway": "unknown", "of": "acme:password"}
    assert first["configuration"]["acme:password"]["digest"] != second["configuration"]["acme:password"]["digest"]
    assert first["outputs"] == {"network": True}
    assert Path.cwd() == before


def test_another_content_of_a_file_that_is_uploaded_is_another_value(tmp_path: Path) -> None:
    base = write_tree(tmp_path / "base", FILES)
    head = write_tree(tmp_path / "head", {**FILES, "src/app/index.py": "two"})
    same = write_tree(tmp_path / "elsewhere" / "base", FILES)
    code = [properties(evaluated(tree))["function"]["code"] for tree in (base, head, same)]
    assert code[0] == code[2] != code[1]
    assert "StringAsset(a)" in code[0].values()


def test_a_dynamic_provider_is_no_property_and_is_not_run(tmp_path: Path) -> None:
    program = """
import pulumi
from pulumi import dynamic

class Provider(dynamic.ResourceProvider):
    def create(self, props):
        raise AssertionError("a preview creates nothing")

class Table(dynamic.Resource):
    rows: pulumi.Output[int]

    def __init__(self):
        super().__init__(Provider(), "table", {"name": "votes", "rows": None})

pulumi.export("rows", Table().rows)
"""
    tree = write_tree(
        tmp_path, {"Pulumi.yaml": "name: a\nruntime: python\n", "Pulumi.dev.yaml": "", "__main__.py": program}
    )
    assert properties(evaluated(tree)) == {"table": {"name": "votes"}}


def test_a_callback_that_fails_on_an_unknown_value_is_told_with_its_place(tmp_path: Path) -> None:
    program = """
import pulumi

def part(text):
    raise LookupError(f"no part in {text}")

role = pulumi.CustomResource("cloud:index:Role", "role", {})
pulumi.export("part", role.id.apply(part))
"""
    tree = write_tree(
        tmp_path, {"Pulumi.yaml": "name: a\nruntime: python\n", "Pulumi.dev.yaml": "", "__main__.py": program}
    )
    (remark,) = evaluated(tree)["remarks"]
    assert "LookupError: no part in [role.id] (__main__.py:5)" in remark


def test_everything_that_the_configuration_lacks_is_told_at_once(tmp_path: Path) -> None:
    program = """
import pulumi

config = pulumi.Config()
for zone in config.require_object("zones")[: config.require_int("count") and 2]:
    pulumi.CustomResource("cloud:index:Network", f"in-{zone}", {"size": pulumi.Config("cloud").require("size")})
pulumi.export("password", config.require_secret("password"))
raise ValueError("a stand-in is no such value")
"""
    tree = write_tree(
        tmp_path, {"Pulumi.yaml": "name: a\nruntime: python\n", "Pulumi.dev.yaml": "", "__main__.py": program}
    )
    problems = evaluated(tree)["failure"]["problems"]
    assert [problem["key"] for problem in problems] == ["a:zones", "a:count", "cloud:size", "a:password"]
    assert "--secret" in problems[-1]["fix"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"Pulumi.yaml": "name: a\nruntime: nodejs\n"}, ["nodejs", "Pulumi.yaml"]),
        ({"__main__.py": "import pulumi\n\nraise LookupError('gone')\n"}, ["LookupError", "gone"]),
        ({"__main__.py": "import no_such_package\n"}, ["no_such_package"]),
    ],
)
def test_a_program_that_cannot_be_evaluated_says_why(
    tmp_path: Path, files: Mapping[str, str], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    project = {"Pulumi.yaml": "name: a\nruntime: python\n", "Pulumi.dev.yaml": "", "__main__.py": ""}
    tree = write_tree(tmp_path, {**project, **files})
    with caplog.at_level(logging.CRITICAL):
        failure = evaluated(tree)["failure"]
    assert [word for word in words if word not in failure["message"]] == []
    assert failure["where"].startswith("__main__.py") is ("__main__.py" in files)
