"""Jobs of steps on several nodes: how their pods find one another, who reaches them, and when they run again."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.features.nodes.feature import Nodes
from slipway.infra import places
from slipway.infra.kubernetes.cluster.workspace import Admission, Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.run import plan
from slipway.infra.kubernetes.schedules.schedule import PipelineSchedule, PipelineScheduleArgs
from slipway.infra.placed import Command, Step
from slipway.infra.platform import Interconnect, Platform, Resources
from slipway.rehearse.cluster.kubelet import expand
from slipway.runtime.schedule import run as by_the_clock
from tests.support.recording import Recording, record
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
QUOTA = "kubernetes:core/v1:ResourceQuota"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

FILES = {
    "workloads/__init__.py": "",
    "slipway/runtime/__init__.py": "",
    "slipway/features/nodes/pod/launcher.py": "import slipway.runtime.steps.command\n",
    "slipway/runtime/steps/command.py": "",
    "slipway/runtime/usage/measure.py": "",
    "workloads/digits/__init__.py": "",
    "workloads/digits/train.py": "",
    "slipway/runtime/schedule/__init__.py": "",
    "slipway/runtime/schedule/run.py": "",
    "sums/train.py": "",
}
"""The repository that the steps ship from."""

LABELS = {
    "app.kubernetes.io/part-of": "slipway",
    "app.kubernetes.io/managed-by": "pulumi",
    "app.kubernetes.io/name": "digits",
    "app.kubernetes.io/component": "train",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "LIBRARY", tmp_path)
    return write_tree(tmp_path, FILES)


def train(on: Platform, root: Path, **changes: Any) -> Step:
    """A command on three nodes."""
    values: dict[str, Any] = {
        "name": "train",
        "module": None,
        "command": Command(root / "sums"),
        "arguments": ["python", "train.py", "--output", "{output}"],
        "parts": [Nodes(3)],
        **changes,
    }
    return step(on, **values)


@pytest.fixture
def declared(root: Path) -> Callable[..., Recording]:
    """Declares the step, with changes to it and to its workspace."""

    def recording(
        workspace: Mapping[str, Any] | None = None, interconnect: Interconnect | None = None, **changes: Any
    ) -> Recording:
        def program() -> None:
            live = platform()
            if interconnect:
                fast = replace(live.pools["gpu"], interconnect=interconnect)
                live = replace(live, pools={**live.pools, "gpu": fast})
            args = WorkspaceArgs(live, "slipway", "runner", protect=False, groups=1, **(workspace or {}))
            declare([train(live, root, **changes)], {live.name: Workspace(live.name, args)}, root)

        return record(program, {}, preview=False)

    return recording


def digest_of(root: Path, **changes: Any) -> str:
    return record(lambda: plan(train(platform(), root, **changes), root).digest, {}, preview=False).result


def job(recording: Recording) -> dict[str, Any]:
    return dict(recording.one(JOB).inputs)


def pod(recording: Recording) -> dict[str, Any]:
    return job(recording)["spec"]["template"]["spec"]


def words(recording: Recording) -> list[str]:
    """The arguments of the container as the kubelet hands them to it."""
    name = job(recording)["metadata"]["name"]
    return [expand(word, {"JOB_NAME": name}) for word in pod(recording)["containers"][0]["args"]]


def values(words: list[str], flag: str) -> list[str]:
    custom = words[: words.index("--")]
    return [custom[index + 1] for index, word in enumerate(custom) if word == flag]


def test_all_pods_run_at_once_and_each_knows_its_rank(declared: Callable[..., Recording]) -> None:
    spec = job(declared())["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["backoffLimit"] == 0


def test_a_pod_that_was_taken_away_or_killed_is_tried_again_and_an_error_of_the_program_is_final(
    declared: Callable[..., Recording],
) -> None:
    disrupted, codes, *_ = job(declared())["spec"]["podFailurePolicy"]["rules"]
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert codes["action"] == "Ignore"
    # The container is named: the sidecar of a mount, which is ended after it, does not decide.
    assert codes["onExitCodes"] == {"containerName": "train", "operator": "In", "values": [15, 137, 143]}


def test_each_pod_has_a_node_of_its_own(declared: Callable[..., Recording]) -> None:
    terms = pod(declared())["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}]


def test_the_pods_are_told_of_one_another_by_names_that_the_service_gives(
    declared: Callable[..., Recording],
) -> None:
    made = declared(parts=[Nodes(2, {"chief": 1, "worker": 1}, wait=90, port=4000)])
    name, service = job(made)["metadata"]["name"], made.one(SERVICE).inputs
    hosts = [f"{name}-{rank}.{service['metadata']['name']}" for rank in range(2)]
    told = words(made)
    assert values(told, "--node") == [f"{host}:4000" for host in hosts]
    assert values(told, "--meet") == [f"{hosts[0]}:3999"]
    assert values(told, "--wait") == ["90"]
    assert values(told, "--roles") == ["chief=1,worker=1"]
    assert pod(made)["subdomain"] == service["metadata"]["name"]
    spec = service["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"], spec["selector"]) == ("None", True, LABELS)
    assert {port["port"] for port in spec["ports"]} == {3999, 4000}


def test_the_launcher_of_a_command_is_told_what_its_runner_would_be(declared: Callable[..., Recording]) -> None:
    made = declared()
    told = words(made)
    assert pod(made)["containers"][0]["command"] == ["python3", "-m", "slipway.features.nodes.pod.launcher"]
    assert told[told.index("--") + 1 :] == ["python", "train.py", "--output", *values(told, "--output")]
    assert values(told, "--step") == ["digits.train"]
    assert not values(told, "--roles")
    assert not values(told, "--gpus")


def test_the_job_that_a_pod_is_of_tells_it_from_those_of_another_run(declared: Callable[..., Recording]) -> None:
    environment = {variable["name"]: variable for variable in pod(declared())["containers"][0]["env"]}
    paths = {name: environment[name]["valueFrom"]["fieldRef"]["fieldPath"] for name in ("JOB_UID", "JOB_NAME")}
    assert paths == {
        "JOB_UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
        "JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
    }


def test_only_its_own_pods_reach_its_pods(declared: Callable[..., Recording]) -> None:
    custom = declared().one(POLICY, "digits-train").inputs["spec"]
    pods = {
        "matchLabels": LABELS,
        "matchExpressions": [{"key": "slipway/service", "operator": "DoesNotExist"}],
    }
    assert custom["podSelector"] == pods
    # At any port: NCCL listens on ports that the system chooses.
    assert custom["ingress"] == [{"from": [{"podSelector": pods}]}]
    assert custom["egress"] == [{"to": [{"podSelector": pods}]}]
    open_ended = declared({"egress": None}).one(POLICY, "digits-train").inputs["spec"]
    # A policy for egress would take everything else from them.
    assert (open_ended["policyTypes"], open_ended.get("egress")) == (["Ingress"], None)


def test_the_namespace_may_hold_the_service_and_no_way_in(declared: Callable[..., Recording]) -> None:
    hard = declared().one(QUOTA).inputs["spec"]["hard"]
    assert hard["count/services"] == "1"
    assert (hard["services.loadbalancers"], hard["services.nodeports"]) == ("0", "0")


def test_gpus_have_shared_memory_even_one_of_them_and_the_fast_network_of_the_pool(
    declared: Callable[..., Recording],
) -> None:
    fast = Interconnect("vendor.example/efa", 4, {"FI_PROVIDER": "efa"})
    resources = Resources(cpu=1000, memory=2048, ephemeral_storage=512, gpus=1)
    made = declared(interconnect=fast, pool="gpu", resources=resources)
    container = pod(made)["containers"][0]
    assert any(volume_mount["mountPath"] == "/dev/shm" for volume_mount in container["volumeMounts"])
    assert values(words(made), "--gpus") == ["1"]
    for amounts in ("requests", "limits"):
        assert container["resources"][amounts]["vendor.example/efa"] == "4"
    assert {"name": "FI_PROVIDER", "value": "efa"} in container["env"]
    alone = pod(declared(interconnect=fast, pool="gpu", resources=resources, parts=[]))["containers"][0]
    assert "vendor.example/efa" not in alone["resources"]["requests"]
    assert not any(variable["name"] == "FI_PROVIDER" for variable in alone["env"])


def test_the_number_of_nodes_and_their_roles_decide_the_result_and_how_long_they_wait_does_not(root: Path) -> None:
    def digest(nodes: Nodes | None) -> str:
        return digest_of(root, parts=[nodes] if nodes else [])

    first = digest(Nodes(2))
    assert digest(Nodes(2, wait=30, port=3000)) == first
    assert len({first, digest(None), digest(Nodes(3)), digest(Nodes(2, {"chief": 1, "worker": 1}))}) == 4


def test_what_the_launcher_is_made_of_decides_nothing(root: Path) -> None:
    module = {"module": "workloads.digits.train", "command": None, "arguments": ["--out", "{output}"]}
    before = [digest_of(root), digest_of(root, **module)]
    write_tree(
        root,
        {"slipway/features/nodes/pod/launcher.py": ("import slipway.runtime.steps.command\n# Changed.\n")},
    )
    assert [digest_of(root), digest_of(root, **module)] == before


def test_host_names_of_pods_are_labels_however_long_the_names_of_pipeline_and_step_are(
    declared: Callable[..., Recording],
) -> None:
    made = declared(pipeline="p" * 40, name="s" * 40, parts=[Nodes(200)])
    name = job(made)["metadata"]["name"]
    assert len(f"{name}-199") <= 63
    assert len(made.one(SERVICE).inputs["metadata"]["name"]) <= 63


def test_a_job_waits_for_its_service_and_its_policy(declared: Callable[..., Recording]) -> None:
    made = declared()
    needed = {dependency.rpartition("::")[0].rpartition("$")[2] for dependency in made.one(JOB).dependencies}
    assert {SERVICE, POLICY} <= needed


def test_jobs_name_the_queue_that_admits_them(declared: Callable[..., Recording]) -> None:
    queued = job(declared({"admission": Admission("slipway", 0)}))
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "slipway"
    assert "kueue.x-k8s.io/queue-name" not in queued["spec"]["template"]["metadata"]["labels"]
    assert "kueue.x-k8s.io/queue-name" not in job(declared())["metadata"]["labels"]


def test_a_run_by_the_clock_has_host_names_of_its_own_jobs(root: Path) -> None:
    def program() -> None:
        on = platform()
        args = WorkspaceArgs(
            on, "slipway", "runner", protect=False, scheduled=True, admission=Admission("slipway", 0), groups=1
        )
        workspace = Workspace(on.name, args)
        long = train(on, root, pipeline="p" * 40, name="s" * 40)
        jobs = declare([long], {on.name: workspace}, root)
        PipelineSchedule(
            "clock",
            PipelineScheduleArgs("p" * 40, "0 3 * * *", "Etc/UTC", list(jobs.values()), workspace, "image", root),
        )

    made = record(program, {}, preview=False)
    planned = json.loads(made.one(CONFIG_MAP, "clock-jobs").inputs["data"]["jobs.json"])
    read = by_the_clock.read({"data": {"jobs.json": json.dumps(planned)}})
    owner = {"metadata": {"name": "clock", "uid": "1"}}
    manifest = by_the_clock.scheduled(read[0], read, "20261122-0300", owner)
    name = manifest["metadata"]["name"]
    assert len(f"{name}-2") <= 63
    assert "20261122-0300" in name
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "slipway"
    spec = manifest["spec"]["template"]["spec"]
    told = [expand(word, {"JOB_NAME": name}) for word in spec["containers"][0]["args"]]
    service = made.one(SERVICE).inputs["metadata"]["name"]
    assert values(told, "--meet") == [f"{name}-0.{service}:2221"]
    assert spec["subdomain"] == service
