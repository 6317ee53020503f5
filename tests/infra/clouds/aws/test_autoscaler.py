"""The Cluster Autoscaler: what it is, what it may do, and what it is told of groups that have no node."""

import json
import re
from typing import Any

import pytest

from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    ACCOUNT,
    ASSOCIATION,
    GROUP_TAG,
    NODE_GROUP,
    RELEASE,
    ROLE_POLICY,
    changed,
    declare,
    with_pool,
)
from tests.support.recording import Recording

PREFIX = "k8s.io/cluster-autoscaler/node-template"


def fixed() -> Settings:
    return changed(pools={"cpu": {"instance_type": "m6i.xlarge", "nodes": {"count": 2}}})


def tags(recording: Recording, pool: str) -> dict[str, str]:
    """The tags of a pool's Auto Scaling group."""
    group = recording.one(NODE_GROUP, f"dev-{pool}").urn
    return {
        resource.inputs["tag"]["key"]: resource.inputs["tag"]["value"]
        for resource in recording.of(GROUP_TAG)
        if group in resource.dependencies
    }


def values(settings: Settings) -> dict[str, Any]:
    return dict(declare(settings).one(RELEASE).inputs["values"])


@pytest.mark.slow
def test_the_chart_and_the_image_are_pinned() -> None:
    release = declare(changed()).one(RELEASE).inputs
    assert re.fullmatch(r"\d+\.\d+\.\d+", release["version"])
    assert release["repositoryOpts"] == {"repo": "https://kubernetes.github.io/autoscaler"}
    image = release["values"]["image"]
    assert image["repository"] == "registry.k8s.io/autoscaling/cluster-autoscaler"
    assert re.fullmatch(r"v1\.\d+\.\d+@sha256:[0-9a-f]{64}", image["tag"])


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.35", "1.36"])
def test_it_is_of_the_clusters_version(version: str) -> None:
    assert values(changed(kubernetes_version=version))["image"]["tag"].startswith(f"v{version}.")


@pytest.mark.slow
def test_nodes_go_when_the_setting_says() -> None:
    arguments = values(changed(scale_down_unneeded_time="5m"))["extraArgs"]
    assert arguments["scale-down-unneeded-time"] == "300s"
    assert {"scale-down-delay-after-add", "unremovable-node-recheck-timeout"} <= arguments.keys()


def test_it_scales_this_cluster_and_nothing_of_another() -> None:
    recording = declare(changed())
    release = recording.one(RELEASE).inputs
    assert release["values"]["autoDiscovery"] == {"clusterName": "slipway-test-dev"}
    observations = json.loads(recording.one(ROLE_POLICY, "dev-autoscaler").inputs["policy"])["Statement"]
    changing = [
        finding
        for finding in observations
        if not all(re.match(r"\w+:(Describe|Get)", action) for action in finding["Action"])
    ]
    assert changing == [
        {
            "Effect": "Allow",
            "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            "Resource": [f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:*"],
            "Condition": {"StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/slipway-test-dev": "owned"}},
        }
    ]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_it_starts_with_its_identity_and_where_it_can_run(preview: bool) -> None:
    recording = declare(changed(), preview=preview)
    association = recording.one(ASSOCIATION, "dev-autoscaler")
    release = recording.one(RELEASE)
    waited = recording.waits_for(release)
    account = release.inputs["values"]["rbac"]["serviceAccount"]["name"]
    assert (association.inputs["namespace"], association.inputs["serviceAccount"]) == ("kube-system", account)
    assert {association.urn, recording.one(ROLE_POLICY, "dev-autoscaler").urn} <= waited
    assert recording.one(NODE_GROUP, "dev-cpu").urn in waited
    assert {resource.urn for resource in recording.of(GROUP_TAG)} <= waited


def test_jobs_wait_for_what_starts_their_nodes() -> None:
    ready = {resource._name for resource in declare(changed()).result["dev"].ready}
    assert "dev-autoscaler" in ready


@pytest.mark.slow
def test_an_empty_gpu_group_is_known_for_what_it_will_be() -> None:
    recording = declare(
        with_pool(
            {
                "instance_type": "g4dn.xlarge",
                "nodes": {"max": 2},
                "gpu_sharing": {"clients": 3},
                "labels": {"role": "t4"},
                "taints": [{"key": "team", "value": "a", "effect": "NoExecute"}],
            }
        )
    )
    pool = recording.result["dev"].pools["extra"]
    assert tags(recording, "extra") == {
        f"{PREFIX}/label/eks.amazonaws.com/nodegroup": "extra",
        f"{PREFIX}/label/nvidia.com/gpu.present": "true",
        f"{PREFIX}/label/k8s.amazonaws.com/accelerator": "nvidia-tesla-t4",
        f"{PREFIX}/label/role": "t4",
        f"{PREFIX}/taint/nvidia.com/gpu": "present:NoSchedule",
        f"{PREFIX}/taint/team": "a:NoExecute",
        f"{PREFIX}/resources/nvidia.com/gpu": "3",
        f"{PREFIX}/resources/ephemeral-storage": f"{pool.allocatable.ephemeral_storage}Mi",
    }


def test_an_empty_group_with_efa_is_known_for_its_interfaces() -> None:
    pool = {"instance_type": "p4d.24xlarge", "zones": ["us-east-1a"], "efa": True, "nodes": {"max": 2}}
    assert tags(declare(with_pool(pool)), "extra")[f"{PREFIX}/resources/vpc.amazonaws.com/efa"] == "4"


def test_an_empty_group_would_take_the_pods_that_ask_for_it() -> None:
    recording = declare(changed())
    for name, pool in recording.result["dev"].pools.items():
        told = tags(recording, name)
        labels = {key.partition("/label/")[2]: value for key, value in told.items() if "/label/" in key}
        taints = {key.partition("/taint/")[2]: value for key, value in told.items() if "/taint/" in key}
        assert pool.selector.items() <= labels.items()
        assert taints == {taint.key: f"{taint.value}:{taint.effect}" for taint in pool.taints}


def test_the_tags_describe_nodes_and_are_not_put_on_them() -> None:
    for tag in declare(changed()).of(GROUP_TAG):
        assert tag.inputs["tag"]["propagateAtLaunch"] is False


@pytest.mark.slow
def test_pools_of_a_fixed_size_need_no_autoscaler() -> None:
    recording = declare(fixed())
    assert recording.of(RELEASE) == []
    assert recording.of(GROUP_TAG) == []
    assert [resource.name for resource in recording.of(ASSOCIATION) if "autoscaler" in resource.name] == []


def test_only_pools_that_scale_are_described() -> None:
    recording = declare(with_pool({"instance_type": "g4dn.xlarge", "nodes": {"count": 1}}))
    assert tags(recording, "extra") == {}
    assert tags(recording, "train")
