"""EKS clusters: their control plane, who reaches and destroys what, add-ons and their order."""

import json
from typing import Any

import pytest

from slipway.infra.clouds.aws.settings import ControlPlane
from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    BUCKET,
    CLUSTER,
    LAUNCH_TEMPLATE,
    REPOSITORY,
    ROLE,
    VOLUME,
    changed,
    declare,
    with_pool,
)
from tests.support.clouds.stacks import assert_names_fit
from tests.support.recording import Recording

pytestmark = pytest.mark.slow


def control_plane(**keys: Any) -> Settings:
    networks = {"authorized_networks": {"office": "198.51.100.0/24"}}
    return changed(control_plane={**networks, **keys})


def test_no_network_is_not_the_whole_internet() -> None:
    """EKS takes an empty list for that. A stack file that says so is refused; this is what stands behind it."""
    settings = changed()
    cluster = settings.clusters["dev"].model_copy(update={"control_plane": ControlPlane()})
    inputs = declare(settings.model_copy(update={"clusters": {"dev": cluster}})).one(CLUSTER).inputs
    assert inputs["vpcConfig"]["endpointPublicAccess"] is False


def test_another_cluster_of_the_same_name_is_another_cluster() -> None:
    recording = declare(changed())
    identifier = recording.one("pulumi:providers:kubernetes").inputs["clusterIdentifier"]
    assert identifier.startswith("https://"), "the endpoint: a name and an ARN come again"


def test_every_kubernetes_resource_names_its_provider() -> None:
    recording = declare(changed())
    provider = recording.one("pulumi:providers:kubernetes").urn
    ours = [resource for resource in recording.resources if resource.type.startswith("kubernetes:")]
    assert ours
    assert all(resource.provider.startswith(provider) for resource in ours)


def test_names_fit_awss_limits_and_stay_apart() -> None:
    stack = "a-stack-whose-name-is-much-longer-than-anything-that-aws-would-take-for-the-name-of-a-role"
    settings = with_pool({"instance_type": "p5.48xlarge", "zones": ["us-east-1a"], "efa": True})
    recordings = [declare(settings, stack=f"{stack}-{suffix}") for suffix in "ab"]
    limits = {
        CLUSTER: ("name", 100),
        ROLE: ("name", 64),
        BUCKET: ("bucket", 63),
        LAUNCH_TEMPLATE: ("name", 128),
        REPOSITORY: ("name", 256),
        "aws:ec2/securityGroup:SecurityGroup": ("name", 255),
        "aws:ec2/placementGroup:PlacementGroup": ("name", 255),
        VOLUME: ("metadata", 63),
    }
    assert_names_fit(recordings, limits)


def test_declaring_twice_declares_the_same() -> None:
    def told(recording: Recording) -> list[tuple[str, str, str]]:
        return sorted(
            (resource.type, resource.name, json.dumps(resource.inputs, sort_keys=True, default=str))
            for resource in recording.resources
        )

    first, second = (declare(changed(), then=lambda _: None) for _ in range(2))
    assert told(first) == told(second)
    assert len(told(first)) > 50
