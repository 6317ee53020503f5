"""The repository's own stacks on AWS."""

import pytest

from slipway.infra.settings.model import Settings
from tests.support.checkout import ROOT
from tests.support.clouds.aws import ADDON, CLUSTER, NODE_GROUP, declare
from tests.support.stack_values import stack_settings

LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"

STACKS = ["aws-dev", "aws-prod"]


@pytest.fixture(scope="module", params=STACKS)
def settings(request: pytest.FixtureRequest) -> Settings:
    return stack_settings(request.param)


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
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_they_can_be_declared(settings: Settings, preview: bool) -> None:
    recording = declare(settings, preview=preview)
    assert set(recording.result) == set(settings.clusters)
    assert len(recording.of(NODE_GROUP)) == sum(len(cluster.pools) for cluster in settings.clusters.values())
