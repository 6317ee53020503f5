"""What a preview says of changed settings of stacks on clusters that are there already."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.previewing import findings


def let_in(name: str, changes: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    found = [finding for finding in findings(name, changes, base) if finding.policy == "lets-in"]
    assert all(each.harm for each in found)
    return "\n".join(each.reason for each in found)


@pytest.mark.parametrize("name", ["onprem", "openshift"])
def test_a_team_in_another_namespace_is_named_with_what_it_may_do(name: str) -> None:
    before, after = ({"teams": {"vision": {"namespace": each}}} for each in ("images", "vision"))
    assert "pods of vision/node-reader" in let_in(name, after, before)
    assert "pods of vision/node-reader" not in let_in(name, before, after)
