"""What a stack declares of queues is what Kueue's API takes."""

from collections.abc import Mapping
from typing import Any

import pytest

from offline.engine.provider_outputs import kind_of
from offline.evaluated.queue_objects import CLASS, GROUP, SPECS, problems
from tests.support.previewing import previewed

FLEX: Mapping[str, Any] = {
    "clusters.dev.pools.predict.spot": False,
    "clusters.dev.pools.predict.flex_start": True,
    "clusters.dev.pools.predict.queued_provisioning": True,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [("gcp-dev", {}), ("gcp-dev", FLEX), ("gcp-platform", {"kueue": {"preemption": "shares"}})],
)
def test_declared_objects_are_taken(name: str, changes: Mapping[str, Any]) -> None:
    stack = previewed(name, {"kueue": {}, **changes})
    found = [resource for resource in stack.resources.values() if resource.type.startswith(f"kubernetes:{GROUP}/")]
    kinds = {kind_of(each.type) for each in found}
    assert {"ClusterQueue", "ResourceFlavor", CLASS} <= kinds <= {*SPECS, CLASS}
    assert ("AdmissionCheck" in kinds) is (changes is FLEX)
    refused = {each.name: problems(kind_of(each.type) or "", each.properties) for each in found}
    assert {name: why for name, why in refused.items() if why} == {}
