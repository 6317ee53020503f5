"""The emulated AWS: it answers for everything declared, and its nodes are those that pods are sent to."""

import base64
from typing import Any

import pytest

from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.emulator import EMULATED_CA_CERTIFICATE
from slipway.infra.platform import Node
from tests.support.clouds.aws import LAUNCH_TEMPLATE, NODE_GROUP, changed, declare, with_pool, with_store
from tests.support.clouds.emulation import NoFiles, assert_nodes_are_as_promised, nodes_of

VARIANTS: dict[str, dict[str, Any]] = {
    "cpu": {"instance_type": "m6i.2xlarge", "nodes": {"count": 2}, "labels": {"role": "cpu"}},
    "t4": {"instance_type": "g4dn.xlarge", "nodes": {"min": 0, "max": 2}},
    "block": {
        "instance_type": "p5.48xlarge",
        "capacity_block": "cr-0123456789abcdef0",
        "zones": ["us-east-1a"],
        "efa": True,
    },
    "shared": {"instance_type": "g4dn.2xlarge", "gpu_sharing": {"clients": 3}},
    "disk": {"instance_type": "m6i.xlarge", "disk_size_gb": 500},
    "tainted": {"instance_type": "m6i.xlarge", "taints": [{"key": "team", "value": "a"}]},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
def test_nodes_are_what_the_platform_promises_of_its_pools(variant: dict[str, Any]) -> None:
    assert_nodes_are_as_promised(declare(with_pool(variant)), "dev")


@pytest.mark.slow
def test_nodes_have_the_labels_that_eks_adds() -> None:
    settings = with_pool({**VARIANTS["t4"], "spot": True})
    labels = nodes_of(declare(settings))["extra"].labels
    expected = {
        "eks.amazonaws.com/nodegroup": "extra",
        "eks.amazonaws.com/capacityType": "SPOT",
        "node.kubernetes.io/instance-type": "g4dn.xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "nvidia.com/gpu.present": "true",
    }
    assert expected.items() <= labels.items()


def test_a_mistake_in_a_declaration_shows_in_its_nodes() -> None:
    settings = changed()
    recording = declare(settings)
    group = recording.one(NODE_GROUP, "dev-train").inputs
    template = recording.one(LAUNCH_TEMPLATE, "dev-train").inputs

    def node(**wrong: Any) -> Node:
        emulator = AwsEmulator(settings.request)
        emulator.outputs(LAUNCH_TEMPLATE, "dev-train", {**template, **wrong})
        (result,) = emulator.nodes(NODE_GROUP, "dev-train", {**group, "taints": []} if wrong else group)
        return result

    wrong, right = node(instanceType="g4dn.2xlarge"), node()
    assert wrong.taints == []
    assert right.taints
    assert wrong.allocatable.cpu > right.allocatable.cpu


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "efs"])
def test_every_resource_on_aws_has_an_answer(kind: str) -> None:
    settings = with_store(kind=kind)
    recordings = [
        declare(settings),
        declare(with_pool(VARIANTS["block"], admins=[f"arn:aws:iam::{'1' * 12}:role/a"])),
    ]
    emulator = AwsEmulator(settings.request)
    for resource in (resource for recording in recordings for resource in recording.resources):
        outputs = emulator.outputs(resource.type, resource.name, resource.inputs)
        if resource.type.startswith("aws:"):
            assert outputs is not None, f"no answer for {resource.type}"
            assert outputs["id"]
        else:
            assert outputs is None


def test_ids_and_arns_are_told_apart() -> None:
    recording = declare(changed())
    emulator = AwsEmulator(changed().request)
    ids = [
        (resource.type, outputs["id"])
        for resource in recording.resources
        if (outputs := emulator.outputs(resource.type, resource.name, resource.inputs))
    ]
    assert len(set(ids)) == len(ids)


def test_what_it_makes_up_is_well_formed_and_clearly_fake() -> None:
    recording = declare(changed())
    pem = base64.b64decode(EMULATED_CA_CERTIFICATE, validate=True).decode()
    assert pem.startswith("-----BEGIN CERTIFICATE-----\n")
    assert pem.endswith("-----END CERTIFICATE-----\n")
    assert ".eks.amazonaws.com.invalid" in recording.exports["dev-kubeconfig"]


def test_nobody_else_is_asked_for() -> None:
    emulator = AwsEmulator(changed().request)
    result = emulator.call("aws:index/getCallerIdentity:getCallerIdentity", {}, NoFiles())
    assert result
    assert result["accountId"] == "000000000000"
    assert emulator.call("aws:ec2/getAmi:getAmi", {}, NoFiles()) is None
