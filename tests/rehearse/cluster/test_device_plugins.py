"""Where a device plugin is declared, GPUs are there only on nodes that it reaches."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.device_plugin import values
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.platform import DevicePlugin, Node, Resources, Taint
from slipway.infra.review.stack import Resource
from slipway.rehearse.cluster.cluster_objects import DevicePlugins
from slipway.rehearse.state import JobRecord, Phase
from tests.support.checkout import ROOT
from tests.support.rehearsing import record, rehearse_file
from tests.support.stand_in import cpu_pool, gpu_pool, platform, step

GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


def node(*, labels: Mapping[str, str] | None = None, taints: tuple[Taint, ...] = (GPU_TAINT,)) -> Node:
    return Node("here", "gpu", {"pool": "gpu", **(labels or {})}, taints, Resources(4000, 8192, 0, 1), 1, "t4")


def release(cluster: str = "here", **changes: Any) -> Resource:
    inputs = {"name": "nvidia-device-plugin-gpu", "values": {**values(gpu_pool(), DevicePlugin()), **changes}}
    return Resource(
        urn=f"urn:release:{cluster}",
        type="kubernetes:helm.sh/v3:Release",
        name="plugin",
        inputs=inputs,
        properties=inputs,
        provider=f"urn:pulumi:test::slipway::pulumi:providers:kubernetes::{cluster}",
    )


def plugins(*releases: Resource) -> DevicePlugins:
    made = DevicePlugins()
    for release in releases:
        made.add(release)
    return made


@pytest.mark.parametrize("declared", [[], [release()], [release("there")], [release(nodeSelector={}), release()]])
def test_gpus_are_there_where_the_plugin_reaches_them_or_the_cluster_has_its_own(declared: list[Resource]) -> None:
    assert plugins(*declared).obstacle(node()) == ""


def required(key: str, operator: str, *wanted: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(wanted)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize(
    ("declared", "gpu_node", "reason"),
    [
        (
            release(),
            node(taints=(GPU_TAINT, Taint("spot", "true", "NoSchedule"))),
            "untolerated taint {spot: true}",
        ),
        (release(tolerations=[]), node(), "untolerated taint {nvidia.com/gpu: present}"),
        (release(nodeSelector={"pool": "other"}), node(), "didn't match Pod's node affinity/selector"),
        (release(), node(labels={"nvidia.com/gpu.deploy.device-plugin": "true"}), "didn't match"),
        (release(affinity=required("nvidia.com/gpu.present", "In", "true")), node(), "didn't match"),
        (release(affinity=required("nvidia.com/gpu.present", "Exists")), node(), "didn't match"),
        (release(affinity=required("pool", "NotIn", "gpu")), node(), "didn't match"),
    ],
)
def test_what_keeps_the_plugin_off_a_node_is_said_as_the_scheduler_would(
    declared: Resource, gpu_node: Node, reason: str
) -> None:
    obstacle = plugins(declared).obstacle(gpu_node)
    assert "no device plugin makes nvidia.com/gpu allocatable on pool gpu" in obstacle
    assert (
        f"DaemonSet nvidia-device-plugin-gpu: 1 node(s) {'had ' if 'taint' in reason else ''}{reason}" in obstacle
    )


def test_nodes_without_gpus_need_no_plugin() -> None:
    cpu = Node("here", "cpu", {}, (), Resources(4000, 8192), 1)
    assert plugins(release()).obstacle(cpu) == ""


STACK = {
    "slipway:clusters": {
        "here": {
            "cloud": "existing",
            "kubeconfig": "nowhere",
            "pools": {
                "cpu": {"selector": {"pool": "cpu"}, "cpu": "4", "memory": "8Gi", "ephemeral_storage": "10Gi"},
                "gpu": {
                    "selector": {"pool": "gpu"},
                    "taints": [{"key": "nvidia.com/gpu", "value": "present"}],
                    "cpu": "4",
                    "memory": "16Gi",
                    "ephemeral_storage": "10Gi",
                    "accelerator": "nvidia-tesla-t4",
                    "gpus": 1,
                },
            },
        }
    },
    "slipway:store": {"kind": "pvc", "access_mode": "ReadWriteMany", "storage_class": "shared"},
}


def train(plugin_tolerates: Sequence[Taint]) -> None:
    """A step that asks for a GPU, on a cluster whose device plugin tolerates these taints."""
    here = replace(platform(cpu_pool(), gpu_pool(taints=plugin_tolerates)), device_plugin=DevicePlugin())
    space = Workspace("here", WorkspaceArgs(here, "digits", "runner", protect=False))
    made = step(
        here,
        "gpu",
        module="slipway.runtime.gates.store",
        arguments=["--store", "{store}"],
        resources=Resources(cpu=1000, memory=2048, ephemeral_storage=1024, gpus=1),
    )
    declare([replace(made, pool=gpu_pool())], {"here": space}, ROOT)


def rehearse_step(program: Callable[[], object], folder: Path) -> JobRecord:
    file = folder / "Pulumi.here.yaml"
    file.write_text(json.dumps({"config": STACK}), encoding="utf-8")
    outcome, _ = rehearse_file(folder / "rehearsal", file, program, stack="here")
    return record(outcome)


def test_a_step_gets_the_gpus_that_the_plugin_makes_allocatable(tmp_path: Path) -> None:
    assert rehearse_step(lambda: train([GPU_TAINT]), tmp_path).phase is Phase.SUCCEEDED


def test_a_step_is_told_why_it_gets_no_gpu(tmp_path: Path) -> None:
    job = rehearse_step(lambda: train([]), tmp_path)
    assert job.phase is Phase.FAILED
    assert "Insufficient nvidia.com/gpu" in job.reason
    assert "DaemonSet nvidia-device-plugin-gpu: 1 node(s) had untolerated taint" in job.reason
