"""Where a device plugin is declared, GPUs are there only on nodes that it reaches, and pods can ask which."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi_kubernetes as k8s
import pytest

from slipway.infra.kubernetes.cluster.device_plugin import values
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.platform import DevicePlugin, Node, Resources, Taint
from slipway.infra.review.stack import Resource
from slipway.offline.rehearsal.cluster.cluster_objects import DevicePlugins
from slipway.offline.rehearsal.state import JobRecord, Phase
from tests.offline.rehearsal.toy import CLUSTER, NAMESPACE, Toys, rehearse
from tests.support.checkout import ROOT
from tests.support.rehearsing import log, record, rehearse_file
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


READ = """
import json, sys, urllib.error, urllib.request
url, folder = sys.argv[1:]
token = open(folder + "/token").read() if len(sys.argv) > 2 else ""
request = urllib.request.Request(url + "/api/v1/nodes", headers={"Authorization": "Bearer " + token})
try:
    nodes = json.load(urllib.request.urlopen(request))["items"]
    print([(node["metadata"]["name"], node["status"]["allocatable"]["cpu"]) for node in nodes])
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {json.load(error)['message']}")
"""


def reader(verbs: list[str]) -> Callable[[], object]:
    """A program with one Job, whose service account may do ``verbs`` to nodes."""

    def program() -> None:
        toys = Toys()
        account = toys.declare(k8s.core.v1.ServiceAccount, "reader")
        rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": verbs}]
        everywhere = {"namespace": None}
        role = toys.declare(k8s.rbac.v1.ClusterRole, "reader", metadata=everywhere, rules=rules)
        binding = toys.declare(
            k8s.rbac.v1.ClusterRoleBinding,
            "reader",
            metadata=everywhere,
            role_ref={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            subjects=[{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}],
        )
        api = "https://kubernetes.default.svc"
        folder = "/var/run/secrets/kubernetes.io/serviceaccount"
        toys.job("read", READ, api, folder, service_account="reader", after=[account, role, binding])

    return program


def test_a_pod_reads_the_nodes_of_its_cluster_with_its_token(tmp_path: Path) -> None:
    outcome, _ = rehearse(reader(["get", "list"]), tmp_path)

    assert record(outcome).phase is Phase.SUCCEEDED, record(outcome)
    assert f"('{CLUSTER}-cpu-0', " in log(tmp_path, "read")
    assert not list((tmp_path / "pods").glob("read*"))


def test_a_pod_that_may_not_list_nodes_is_refused_as_the_api_server_would(tmp_path: Path) -> None:
    outcome, _ = rehearse(reader(["get"]), tmp_path)

    assert record(outcome).phase is Phase.FAILED
    user = f"system:serviceaccount:{NAMESPACE}:reader"
    assert f'403 nodes is forbidden: User "{user}" cannot list resource "nodes"' in record(outcome).message


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


def train(plugin_tolerates: Sequence[Taint], *, gated: bool) -> None:
    """A step that asks for a GPU, on a cluster whose device plugin tolerates these taints."""
    here = replace(platform(cpu_pool(), gpu_pool(taints=plugin_tolerates)), device_plugin=DevicePlugin())
    space = Workspace("here", WorkspaceArgs(here, "digits", "runner", protect=False))
    made = step(
        here,
        "gpu",
        module="slipway.workloads.gates.store",
        arguments=["--store", "{store}"],
        resources=Resources(cpu=1000, memory=2048, ephemeral_storage=1024, gpus=1),
    )
    gates = [step for step in Gates("image").guard(made).after if gated and step.pipeline == "devices-gate"]
    declare([replace(made, pool=gpu_pool(), after=gates)], {"here": space}, ROOT)


def rehearse_steps(program: Callable[[], object], folder: Path) -> dict[str, JobRecord]:
    file = folder / "Pulumi.here.yaml"
    file.write_text(json.dumps({"config": STACK}), encoding="utf-8")
    outcome, _ = rehearse_file(folder / "rehearsal", file, program, stack="here")
    return {job.name: job for job in outcome.records}


def test_a_step_gets_the_gpus_that_the_plugin_makes_allocatable(tmp_path: Path) -> None:
    jobs = rehearse_steps(lambda: train([GPU_TAINT], gated=True), tmp_path)

    assert {name: job.phase for name, job in jobs.items()} == {
        "devices-gate-here": Phase.SUCCEEDED,
        "digits-train": Phase.SUCCEEDED,
    }
    gate = log(tmp_path / "rehearsal", "devices-gate-here")
    assert "Pool gpu: 1 GPU(s) allocatable on each of here-gpu-0" in gate


def test_a_taint_that_nobody_told_the_plugin_of_ends_the_rehearsal_at_once(tmp_path: Path) -> None:
    jobs = rehearse_steps(lambda: train([], gated=True), tmp_path)

    gate = jobs["devices-gate-here"]
    assert gate.phase is Phase.FAILED
    assert "1 node(s) had untolerated taint {nvidia.com/gpu: present}" in gate.reason
    assert jobs["digits-train"].phase is Phase.NOT_RUN


@pytest.mark.slow
def test_a_step_without_a_gate_is_told_why_it_gets_no_gpu(tmp_path: Path) -> None:
    (job,) = rehearse_steps(lambda: train([], gated=False), tmp_path).values()
    assert job.phase is Phase.FAILED
    assert "Insufficient nvidia.com/gpu" in job.reason
    assert "DaemonSet nvidia-device-plugin-gpu: 1 node(s) had untolerated taint" in job.reason
