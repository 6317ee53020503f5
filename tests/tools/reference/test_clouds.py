"""The same run on every cloud: what may differ between stacks above the platform contract, and what may not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.offline.engine.stack_config import stack_config
from slipway.tools.reference import clouds, shipped
from slipway.tools.reference.clouds import Comparison, Difference, compare, comparisons, page
from tests.support.checkout import ROOT, copy_checkout


@pytest.fixture(scope="module")
def found() -> list[Comparison]:
    return comparisons(shipped.stacks())


@pytest.mark.slow
def test_stacks_differ_only_in_selectors_volumes_annotations_network_identity_and_what_their_pools_have(
    found: list[Comparison],
) -> None:
    first, batch = found
    assert set(first.stacks) >= {"local", "gcp-dev", "gcp-prod", "aws-dev", "aws-prod", "openshift", "onprem"}
    assert set(batch.stacks) >= {"gcp-batch", "aws-batch", "onprem-batch"}
    assert batch.pipelines == ["fraud", "forecast"]
    unexplained = [
        f"{difference.objects} {difference.field}: {difference.values}"
        for comparison in found
        for difference in comparison.differences
        if not difference.category
    ]
    assert unexplained == []


@pytest.mark.slow
def test_every_step_and_service_is_compared_in_every_stack(found: list[Comparison]) -> None:
    partly_there = {name for each in found for row in each.differences if not row.field for name in row.objects}
    kinds = ("Job", "ConfigMap", "StatefulSet", "CronJob")
    ours = tuple(f"{kind} {name}" for kind in kinds for name in ("mnist", "fraud", "forecast"))
    assert not {name for name in partly_there if name.startswith(ours)}


@pytest.mark.slow
def test_the_page_shows_todays_differences(found: list[Comparison]) -> None:
    assert clouds.PAGE.read_text(encoding="utf-8") == page(found), "run: python -m slipway.tools.reference.clouds"


@pytest.mark.slow
def test_the_page_names_each_difference_with_each_of_its_values(found: list[Comparison]) -> None:
    rows = [line for line in page(found).splitlines() if line.startswith("|")]
    unnamed = [
        f"{difference.objects} {difference.field}"
        for comparison in found
        for difference in comparison.differences
        if not any(is_named(difference, row) for row in rows)
    ]
    assert unnamed == []


def is_named(difference: Difference, row: str) -> bool:
    names = [f"`{thing.partition(' ')[2]}`" for thing in difference.objects]
    field = f"`{difference.field}`" if difference.field else "| the object |"
    values = [clouds.show(difference.field, value) for value in difference.values] if difference.field else []
    shown = [] if difference.category in clouds.OF_POOLS else [value.replace("|", r"\|") for value in values]
    return all(part in row for part in [*names, field, *shown])


@pytest.mark.slow
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
