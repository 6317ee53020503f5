"""The repository's own stacks on AWS."""

from typing import Any

import pytest

from slipway.infra.settings.model import Settings
from tests.support.checkout import ROOT
from tests.support.clouds.aws import ADDON, BUCKET, CLUSTER, LAUNCH_TEMPLATE, NODE_GROUP, declare
from tests.support.recording import Recording
from tests.support.stack_values import stack_settings

LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"

STACKS = ["aws-dev", "aws-prod"]


@pytest.fixture(scope="module", params=STACKS)
def settings(request: pytest.FixtureRequest) -> Settings:
    return stack_settings(request.param)


def gpu_pools(recording: Recording) -> dict[str, dict[str, Any]]:
    """Node groups with GPUs, by instance type."""
    return {
        recording.one(LAUNCH_TEMPLATE, group.name).inputs["instanceType"]: dict(group.inputs)
        for group in recording.of(NODE_GROUP)
        if group.inputs["amiType"].endswith("NVIDIA")
    }


@pytest.mark.slow
def test_dev_starts_with_no_gpu_and_can_be_destroyed_whole() -> None:
    recording = declare(stack_settings("aws-dev"))
    pools = gpu_pools(recording)
    assert set(pools) == {"g4dn.xlarge", "p5.4xlarge"}
    for pool in pools.values():
        assert pool["capacityType"] == "SPOT"
        assert pool["scalingConfig"] == {"minSize": 0, "maxSize": 1, "desiredSize": 0}
    assert not any(resource.protect for resource in recording.resources)
    assert recording.one(BUCKET).inputs["forceDestroy"] is True


@pytest.mark.slow
def test_the_page_names_what_eks_may_leave_of_dev() -> None:
    recording = declare(stack_settings("aws-dev"), stack="aws-dev")
    group = recording.one(LOG_GROUP).inputs
    assert f"--region {group['region']} --log-group-name {group['name']}\n" in (ROOT / "docs/aws.md").read_text()


def test_people_are_told_how_to_raise_the_least_number_of_nodes() -> None:
    recording = declare(stack_settings("aws-dev"), stack="aws-dev")
    group = recording.one(NODE_GROUP, "dev-train").inputs
    named = f"--cluster-name {recording.one(CLUSTER).inputs['name']} --nodegroup-name {group['nodeGroupName']} "
    assert named in (ROOT / "docs/troubleshooting.md").read_text()


@pytest.mark.slow
def test_prod_is_protected_keeps_its_nodes_and_no_zone_depends_on_another() -> None:
    recording = declare(stack_settings("aws-prod"))
    pools = gpu_pools(recording)
    assert set(pools) == {"g4dn.xlarge", "p5.48xlarge"}
    for pool in pools.values():
        assert pool["scalingConfig"] == {"minSize": 1, "maxSize": 1, "desiredSize": 1}
    groups = recording.of(LOG_GROUP)
    assert len(groups) == 2
    protected = (recording.one(CLUSTER), *recording.of(BUCKET), *recording.of(NODE_GROUP), *groups)
    assert all(resource.protect for resource in protected)
    assert len(recording.of("aws:ec2/natGateway:NatGateway")) == len(recording.of(CLUSTER)) * 3


@pytest.mark.slow
def test_the_storage_driver_and_core_dns_find_a_node(settings: Settings) -> None:
    recording = declare(settings)
    ordinary = [
        resource for resource in recording.of(NODE_GROUP) if not resource.inputs["amiType"].endswith("NVIDIA")
    ]
    assert sum(resource.inputs["scalingConfig"]["desiredSize"] for resource in ordinary) >= 1
    assert all(not resource.inputs.get("taints") for resource in ordinary)
    for addon in recording.of(ADDON):
        if addon.inputs["addonName"] in {"coredns", "aws-efs-csi-driver"}:
            assert {resource.urn for resource in ordinary} <= recording.waits_for(addon)


@pytest.mark.slow
def test_nobody_reaches_the_control_plane_until_a_network_is_named(settings: Settings) -> None:
    """203.0.113.0/24 is set aside for examples (RFC 5737): nobody comes from there."""
    access = declare(settings).one(CLUSTER).inputs["vpcConfig"]
    assert access["publicAccessCidrs"] == ["203.0.113.0/24"]


@pytest.mark.slow
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_they_can_be_declared(settings: Settings, preview: bool) -> None:
    recording = declare(settings, preview=preview)
    assert set(recording.result) == set(settings.clusters)
    assert len(recording.of(NODE_GROUP)) == sum(len(cluster.pools) for cluster in settings.clusters.values())
