"""The outputs of another stack are those that its file in the same checkout declares, or it is said why not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.engine.other_stacks import OtherStacks
from slipway.engine.stack_config import find_referring, references
from slipway.infra.platform_output import UnreadableStackError
from tests.support.stack_values import EXISTING, changed
from tests.support.tree import write_tree

HERE = {**EXISTING, "clusters": changed(EXISTING["clusters"], {"here.kubeconfig": "/nowhere"})}
TEAM = {"clusters": {"dev": {"stack": "platform", "cluster": "here"}}}


class Platform:
    """A program that exports what a platform's would, and counts how often it runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1
        pulumi.export("platform", {"version": 1, "protect": pulumi.Config("slipway").get("protect")})
        pulumi.export("kubeconfig", {"here": pulumi.Output.secret("a secret kubeconfig")})


def stacks(root: Path, preview: bool = True, **files: Mapping[str, Any]) -> OtherStacks:
    contents = {
        f"stacks/Pulumi.{name}.yaml": json.dumps({"config": {f"slipway:{key}": each[key] for key in each}})
        for name, each in files.items()
    }
    write_tree(root, {"Pulumi.yaml": "name: slipway\nruntime: python\nstackConfigDir: stacks\n", **contents})
    return OtherStacks(root, Platform(), preview)


def refusal(found: OtherStacks, reference: str = "platform") -> tuple[str, str]:
    with pytest.raises(UnreadableStackError) as caught:
        found.resolve(reference)
    return caught.value.reason, caught.value.fix


@pytest.mark.parametrize("reference", ["platform", "acme/slipway/platform"])
def test_outputs_are_those_of_the_other_file_without_secrets(tmp_path: Path, reference: str) -> None:
    found = stacks(tmp_path, platform={**HERE, "protect": True}, team=TEAM).of("team")
    assert found.resolve(reference) == {"platform": {"version": 1, "protect": "true"}}
    (name,) = found.exported
    assert name.endswith("/slipway/platform")
    assert "a secret kubeconfig" in str(found.exported[name]["kubeconfig"])


def test_a_stack_is_evaluated_once_for_all_that_refer_to_it(tmp_path: Path) -> None:
    found = stacks(tmp_path, platform=HERE, one=TEAM, two=TEAM)
    for name in ("one", "two", "one"):
        found.of(name).resolve("platform")
    assert isinstance(found.program, Platform)
    assert found.program.runs == 1


@pytest.mark.parametrize(("preview", "protect"), [(True, None), (False, "true")])
def test_a_rehearsal_reads_the_other_file_with_its_settings_for_rehearsals(
    tmp_path: Path, preview: bool, protect: str | None
) -> None:
    found = stacks(tmp_path, preview, platform={**HERE, "rehearsal": {"protect": True}})
    assert found.resolve("platform")["platform"].get("protect") == protect


def test_a_stack_of_another_project_cannot_be_read(tmp_path: Path) -> None:
    reason, fix = refusal(stacks(tmp_path, platform=HERE), "acme/network/platform")
    assert "a stack of another project" in reason
    assert "`slipway`" in fix


def test_a_stack_without_a_file_is_answered_with_those_that_have_one(tmp_path: Path) -> None:
    reason, fix = refusal(stacks(tmp_path, platform=HERE, team=TEAM).of("team"), "acme/slipway/plattform")
    assert reason.startswith("this checkout has no file of that stack")
    assert fix.endswith("there is `platform`")


def test_what_is_wrong_with_the_other_file_is_told_as_its_own(tmp_path: Path) -> None:
    wrong = changed(HERE, {"protect": "perhaps", "clusters.here.pols": {}})
    reason, fix = refusal(stacks(tmp_path, platform=wrong))
    assert reason.startswith("the file of the stack `platform` has 2 problems of its own: ")
    assert "slipway:protect: 'perhaps': " in reason
    assert "slipway:clusters.here.pols" in reason
    assert "make preview STACK=platform" in fix


def test_a_file_that_cannot_be_read_is_told_as_its_own(tmp_path: Path) -> None:
    found = stacks(tmp_path, platform=HERE)
    (tmp_path / "stacks" / "Pulumi.platform.yaml").write_text("config: [")
    assert refusal(found)[0].startswith("the file of the stack `platform` cannot be evaluated: ")


def test_stacks_that_refer_to_one_another_are_refused(tmp_path: Path) -> None:
    circle = {"clusters": {"x": {"stack": "team", "cluster": "dev"}}}
    found = stacks(tmp_path, platform=circle, team=TEAM).of("team")
    reason, _ = refusal(found)
    assert "the stacks refer to one another in a circle: team → platform → team" in reason


def test_references_are_found_in_files_with_mistakes(tmp_path: Path) -> None:
    wrong = {"clusters": {"dev": {"stack": "acme/slipway/platform"}, "own": {"cloud": "gcp"}, "none": 1}, "x": 1}
    (found,) = references(wrong)
    assert (found.name, found.stack, found.cluster) == ("dev", "platform", "")
    assert references({"clusters": []}) == []
    stacks(tmp_path, platform=HERE, wrong=wrong, other=TEAM)
    (tmp_path / "stacks" / "Pulumi.broken.yaml").write_text("config: [")
    assert find_referring(tmp_path, ["platform"]) == ["other", "wrong"]
