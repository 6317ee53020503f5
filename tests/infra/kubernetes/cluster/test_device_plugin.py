"""The device plugin: where a platform asks for it, on its GPU nodes only, before the steps that use them."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.placed import Step
from slipway.infra.platform import DevicePlugin, Platform, Pool, Resources, Taint
from slipway.infra.review.stack import Resource
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stand_in import cpu_pool, gpu_pool, platform, step

RELEASE = "kubernetes:helm.sh/v3:Release"
JOB = "kubernetes:batch/v1:Job"
GATE = "slipway.runtime.gates.store"
"""A module that ships with few files."""

ONE_GPU = Resources(cpu=1000, memory=2048, ephemeral_storage=1024, gpus=1)


def cluster(*pools: Pool, plugin: DevicePlugin | None = None) -> Platform:
    return replace(platform(*(pools or (cpu_pool(), gpu_pool()))), device_plugin=plugin or DevicePlugin())


def workspace(make: Callable[[], Platform] = cluster) -> Recording:
    return record(
        lambda: Workspace("here", WorkspaceArgs(make(), "digits", "runner", protect=False)), {}, preview=False
    )


def jobs(make: Callable[[], Platform], *steps: Callable[[Platform], Step]) -> Recording:
    def program() -> None:
        here = make()
        space = Workspace("here", WorkspaceArgs(here, "digits", "runner", protect=False))
        gates = Gates("image")
        declare([gates.guard(step_(here)) for step_ in steps], {"here": space}, ROOT)

    return record(program, {}, preview=False)


def values(recording: Recording, name: str = "here-device-plugin-gpu") -> dict[str, Any]:
    return recording.one(RELEASE, name).inputs["values"]


def on_gpus(here: Platform) -> Step:
    return step(here, "gpu", module=GATE, resources=ONE_GPU, uses_store=False)


def on_cpus(here: Platform) -> Step:
    return step(here, "cpu", name="prepare", module=GATE, uses_store=False)


@pytest.mark.parametrize("make", [platform, lambda: cluster(cpu_pool())], ids=["its-own", "no-gpus"])
def test_a_cluster_with_a_device_plugin_of_its_own_or_without_gpus_gets_none(make: Callable[[], Platform]) -> None:
    recording = workspace(make)
    assert recording.of(RELEASE) == []
    assert len(recording.of("kubernetes:core/v1:Namespace")) == 1


def test_the_chart_is_pinned_with_its_image() -> None:
    release = workspace().one(RELEASE).inputs
    assert release["repositoryOpts"] == {"repo": "https://nvidia.github.io/k8s-device-plugin"}
    assert (release["chart"], release["version"]) == ("nvidia-device-plugin", "0.20.0")
    image = release["values"]["image"]
    tag, _, digest = image["tag"].partition("@sha256:")
    assert (image["repository"], tag, len(digest)) == ("nvcr.io/nvidia/k8s-device-plugin", "v0.20.0", 64)


def test_each_gpu_pool_has_a_release_that_tolerates_its_taints_and_selects_its_nodes() -> None:
    spot = Taint("spot", "true", "NoExecute")
    big = gpu_pool("big", taints=[*gpu_pool().taints, spot])
    recording = workspace(lambda: cluster(cpu_pool(), gpu_pool(), big))
    assert {resource.name for resource in recording.of(RELEASE)} == {
        "here-device-plugin-gpu",
        "here-device-plugin-big",
    }
    result = values(recording, "here-device-plugin-big")
    assert result["nodeSelector"] == {"pool": "big"}
    assert [
        (toleration["key"], toleration["value"], toleration["effect"]) for toleration in result["tolerations"]
    ] == [
        ("nvidia.com/gpu", "present", "NoSchedule"),
        ("spot", "true", "NoExecute"),
    ]
    assert {resource.inputs["name"] for resource in recording.of(RELEASE)} == {
        "nvidia-device-plugin-gpu",
        "nvidia-device-plugin-big",
    }


def test_it_keeps_off_nodes_that_the_gpu_operator_manages() -> None:
    affinity = values(workspace())["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "nvidia.com/gpu.deploy.device-plugin", "operator": "DoesNotExist"}]


def test_gpus_are_shared_as_the_pool_says() -> None:
    shared = values(workspace(lambda: cluster(cpu_pool(), replace(gpu_pool(), gpu_clients=4))))
    (config,) = shared["config"]["map"].values()
    assert json.loads(config)["sharing"]["timeSlicing"] == {
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
        "failRequestsGreaterThanOne": True,
    }
    assert "config" not in values(workspace())


@pytest.mark.parametrize("strategy", ["none", "single"])
def test_partitioned_gpus_are_advertised_as_the_pool_says(strategy: Any) -> None:
    pool_ = values(workspace(lambda: cluster(cpu_pool(), replace(gpu_pool(), mig_strategy=strategy))))
    assert pool_["migStrategy"] == strategy


def test_it_has_a_namespace_of_its_own_that_lets_it_mount_host_paths() -> None:
    recording = workspace()
    namespace = recording.one("kubernetes:core/v1:Namespace", "here-device-plugin-namespace")
    assert namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    release = recording.one(RELEASE)
    assert release.inputs["namespace"] == namespace.inputs["metadata"]["name"] != "digits"
    assert namespace.urn in recording.waits_for(release)


def test_openshift_lets_it_mount_host_paths_as_a_device_plugin() -> None:
    recording = workspace(lambda: cluster(plugin=DevicePlugin(openshift=True)))
    binding = recording.one("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding")
    release = recording.one(RELEASE)
    assert binding.inputs["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert binding.inputs["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": "nvidia-device-plugin-gpu-service-account",
            "namespace": release.inputs["namespace"],
        }
    ]
    assert binding.inputs["metadata"]["namespace"] == release.inputs["namespace"]
    assert binding.urn in recording.waits_for(release)
    context = release.inputs["values"]["podSecurityContext"]
    assert context == {"seLinuxOptions": {"type": "container_device_plugin_t"}}


def test_other_clusters_get_no_rule_of_openshift() -> None:
    recording = workspace()
    assert recording.of("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding") == []
    assert "podSecurityContext" not in values(recording)


def job(recording: Recording, name: str) -> Resource:
    return recording.one(JOB, name)


def test_gpu_steps_wait_for_the_plugin_of_their_pool_and_cpu_steps_for_none() -> None:
    recording = jobs(lambda: cluster(cpu_pool(), gpu_pool(), gpu_pool("big")), on_cpus, on_gpus)
    releases = {resource.name: resource.urn for resource in recording.of(RELEASE)}
    assert releases["here-device-plugin-gpu"] in recording.waits_for(job(recording, "digits-train"))
    assert not set(releases.values()) & recording.waits_for(job(recording, "digits-prepare"))


def test_no_pod_has_a_token() -> None:
    recording = jobs(cluster, on_cpus, on_gpus)
    pods = [resource.inputs["spec"]["template"]["spec"] for resource in recording.of(JOB)]
    assert not any(pod["automountServiceAccountToken"] for pod in pods)
    assert {pod["serviceAccountName"] for pod in pods} == {"runner"}
    assert recording.of("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole") == []
