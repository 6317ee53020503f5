"""Node groups on EKS: every key of a pool reaches its resource, and GPU pools are what their pods need."""

import base64
import email
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.aws.nodes import node_resources
from tests.support.clouds.aws import LAUNCH_TEMPLATE, NODE_GROUP, declare, with_pool
from tests.support.recording import Recording

pytestmark = pytest.mark.slow

CPU = {"instance_type": "m6i.xlarge"}
T4 = {"instance_type": "g4dn.xlarge"}


def inputs(recording: Recording, name: str = "dev-extra") -> dict[str, Any]:
    """What a pool's group and launch template are declared with; the latter below ``template``."""
    group, template = recording.one(NODE_GROUP, name), recording.one(LAUNCH_TEMPLATE, name)
    return {**group.inputs, "template": template.inputs}


def declared(pool: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return inputs(declare(with_pool(pool, **cluster)))


def at(given: Any, path: str) -> Any:
    """The value at a dotted path; None where any part of it is missing."""
    for key in path.split("."):
        if given is None:
            return None
        given = given[int(key)] if key.isdigit() else given.get(key)
    return given


def test_an_instance_store_is_the_disk_of_pods() -> None:
    made = declare(with_pool({**T4, "instance_store": True}))
    pool = made.result["dev"].pools["extra"]
    group, template = (made.one(kind, "dev-extra").inputs for kind in (NODE_GROUP, LAUNCH_TEMPLATE))
    assert node_resources(group, template) == pool.allocatable, "as a preview reads the declaration"
    assert pool.allocatable.ephemeral_storage > 100_000, "g4dn.xlarge has 125 GB beside its root disk of 50 GiB"
    assert "userData" not in declare(with_pool(T4)).one(LAUNCH_TEMPLATE, "dev-extra").inputs
    (part,) = email.message_from_bytes(base64.b64decode(template["userData"])).get_payload()
    told = yaml.safe_load(part.get_payload())
    assert (part.get_content_type(), told["kind"]) == ("application/node.eks.aws", "NodeConfig")
    assert told["spec"]["instance"]["localStorage"] == {"strategy": "RAID0"}


NODES = [
    ({}, {"minSize": 1, "maxSize": 1, "desiredSize": 1}),
    ({"count": 0}, {"minSize": 0, "maxSize": 1, "desiredSize": 0}),
    ({"min": 1, "max": 3}, {"minSize": 1, "maxSize": 3, "desiredSize": 1}),
    ({"min": 0, "max": 4}, {"minSize": 0, "maxSize": 4, "desiredSize": 0}),
    ({"max": 4}, {"minSize": 0, "maxSize": 4, "desiredSize": 0}),
]
