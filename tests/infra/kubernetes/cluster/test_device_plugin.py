"""The device plugin: where a platform asks for it, on its GPU nodes only, before the steps that use them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.platform import DevicePlugin, Platform, Pool
from slipway.infra.review.stack import Resource
from tests.support.recording import Recording, record
from tests.support.stand_in import cpu_pool, gpu_pool, platform

RELEASE = "kubernetes:helm.sh/v3:Release"
JOB = "kubernetes:batch/v1:Job"


def cluster(*pools: Pool, plugin: DevicePlugin | None = None) -> Platform:
    return replace(platform(*(pools or (cpu_pool(), gpu_pool()))), device_plugin=plugin or DevicePlugin())


def workspace(make: Callable[[], Platform] = cluster) -> Recording:
    return record(
        lambda: Workspace("here", WorkspaceArgs(make(), "digits", "runner", protect=False)), {}, preview=False
    )


def values(recording: Recording, name: str = "here-device-plugin-gpu") -> dict[str, Any]:
    return recording.one(RELEASE, name).inputs["values"]


def test_the_chart_is_pinned_with_its_image() -> None:
    release = workspace().one(RELEASE).inputs
    assert release["repositoryOpts"] == {"repo": "https://nvidia.github.io/k8s-device-plugin"}
    assert (release["chart"], release["version"]) == ("nvidia-device-plugin", "0.20.0")
    image = release["values"]["image"]
    tag, _, digest = image["tag"].partition("@sha256:")
    assert (image["repository"], tag, len(digest)) == ("nvcr.io/nvidia/k8s-device-plugin", "v0.20.0", 64)


def job(recording: Recording, name: str) -> Resource:
    return recording.one(JOB, name)
