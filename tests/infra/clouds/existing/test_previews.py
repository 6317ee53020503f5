"""What a preview says of changed settings of stacks on clusters that are there already."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.previewing import findings


def let_in(name: str, changes: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    matching = [finding for finding in findings(name, changes, base) if finding.policy == "lets-in"]
    assert all(finding.harm for finding in matching)
    return "\n".join(finding.reason for finding in matching)


@pytest.mark.parametrize("name", ["onprem", "openshift"])
def test_a_team_in_another_namespace_is_named_with_what_it_may_do(name: str) -> None:
    before, after = ({"teams": {"vision": {"namespace": entry}}} for entry in ("images", "vision"))
    assert "pods of vision/node-reader" in let_in(name, after, before)
    assert "pods of vision/node-reader" not in let_in(name, before, after)
