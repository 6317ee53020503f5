"""The same run on every cloud: what may differ between stacks above the platform contract, and what may not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.program import ROOT
from offline.engine.stack_config import stack_config
from tests.support.checkout import copy_checkout
from tools.reference import clouds, shipped
from tools.reference.clouds import Comparison, compare, page


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(shipped.stacks())


@pytest.mark.slow
def test_stacks_differ_only_in_selectors_volumes_annotations_network_identity_and_what_their_pools_have(
    comparison: Comparison,
) -> None:
    assert set(comparison.stacks) >= {"local", "gcp-dev", "gcp-prod", "aws-dev", "aws-prod", "openshift", "onprem"}
    unexplained = [
        f"{each.objects} {each.field}: {each.values}" for each in comparison.differences if not each.category
    ]
    assert unexplained == []


@pytest.mark.slow
def test_every_step_is_compared_in_every_stack(comparison: Comparison) -> None:
    partly_there = {name for each in comparison.differences if not each.field for name in each.objects}
    assert not {name for name in partly_there if name.startswith(("Job mnist", "ConfigMap mnist"))}


@pytest.mark.slow
def test_the_page_shows_todays_differences(comparison: Comparison) -> None:
    assert clouds.PAGE.read_text(encoding="utf-8") == page(comparison), "run: python -m tools.reference.clouds"


@pytest.mark.slow
def test_the_page_lists_each_difference_once_with_each_of_its_values(comparison: Comparison) -> None:
    rows = [line for line in page(comparison).splitlines() if line.startswith("|")]
    values = [line for line in rows if not line.startswith(("| objects", "| ---"))]
    fields = sorted(line.split(" | ")[1].strip("`") for line in values if not line.startswith("|  |"))
    assert fields == sorted(each.field or "the object" for each in comparison.differences)
    assert len(values) == sum(len(each.values) for each in comparison.differences)


def test_another_difference_is_found(tmp_path: Path) -> None:
    root = copy_checkout(tmp_path / "slipway")
    file = root / "stacks" / "Pulumi.gcp-dev.yaml"
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    content["config"]["slipway:namespace"] = "elsewhere"
    (root / "stacks" / "Pulumi.moved.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    found = compare(["gcp-dev", "moved"], root).differences
    assert {each.field for each in found if each.category is None} >= {"metadata.namespace"}


def test_moving_a_stack_to_another_cloud_changes_only_its_clusters_and_its_store() -> None:
    here, there = (stack_config(name, ROOT) for name in ("gcp-dev", "aws-dev"))
    assert {key for key in here | there if here.get(key) != there.get(key)} == {
        "slipway:clusters",
        "slipway:store",
    }
