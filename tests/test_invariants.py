"""What holds for every stack in stacks/, whatever its settings."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from slipway.command.reference import shipped
from slipway.evaluated.places import is_agent
from slipway.evaluated.pod_rules import breaches, words
from slipway.infra.clouds.registry import emulators
from slipway.infra.kubernetes.run import TESTER
from slipway.infra.platform import Node, Resources
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.schema.problems import without_prefix
from slipway.infra.schema.quantities import cpu_millicores, mebibytes
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import other_stacks, stack_config

STACKS = shipped.stacks()
QUICK = {"aws-dev", "gcp-dev", "gcp-platform", "gcp-team", "local", "openshift"}
"""One of each kind. The others take five times as long, and are slow."""

JOB = "kubernetes:batch/v1:Job"
RELEASE = "kubernetes:helm.sh/v3:Release"
GPU = "nvidia.com/gpu"
BUCKETS = ("gcp:storage/bucket:Bucket", "aws:s3/bucket:Bucket")
CLUSTERS = ("gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster")
HOLDS_DATA = {*BUCKETS, *CLUSTERS, "kubernetes:core/v1:PersistentVolumeClaim"}
STORE = {
    "predictions.json": '{"images": [{"path": "3.png", "digit": 3, "confidence": 1.0}]}',
    "metrics.json": '{"test": {"accuracy": 1.0}}',
    "result.json": '{"images_per_second": 100.0}',
}


class AnyRun(Mapping[str, str]):
    """A store in which every run has its results."""

    def __getitem__(self, path: str) -> str:
        return STORE[path.rpartition("/")[2]]

    def __contains__(self, path: object) -> bool:
        return str(path).rpartition("/")[2] in STORE

    def __iter__(self) -> Iterator[str]:
        return iter(STORE)

    def __len__(self) -> int:
        return len(STORE)


def evaluate(stack: str, preview: bool, root: Path = ROOT) -> Recording:
    values = stack_config(stack, ROOT)
    others = other_stacks(stack, preview=preview)
    settings = load(without_prefix(values), others.resolve)
    stand_ins = emulators(settings.request)
    for stand_in in stand_ins:
        values = {**stand_in.configuration, **values}
    return record(
        lambda: declare(root),
        values,
        preview=preview,
        emulators=stand_ins,
        store=AnyRun(),
        stack_name=stack,
        stacks=others.exported,
    )


once = cache(evaluate)


def marks(stack: str) -> Sequence[pytest.MarkDecorator]:
    return [] if stack in QUICK else [pytest.mark.slow]


@pytest.fixture(
    params=[
        pytest.param((stack, preview), marks=marks(stack), id=f"{stack}-{preview}")
        for stack in STACKS
        for preview in (True, False)
    ]
)
def recording(request: pytest.FixtureRequest) -> Recording:
    return once(*request.param)


@pytest.fixture
def running(recording: Recording) -> Recording:
    """One of those that run pipelines: a stack may have clusters for others alone."""
    if not recording.result.settings.pipelines:
        assert recording.result.settings.teams
        pytest.skip("it has clusters for others, and runs nothing")
    return recording


@pytest.fixture(params=[pytest.param(stack, marks=marks(stack)) for stack in STACKS])
def stack(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pod(job: Resource) -> dict[str, Any]:
    return job.inputs["spec"]["template"]["spec"]


def containers(job: Resource) -> list[dict[str, Any]]:
    return [*pod(job).get("initContainers", []), *pod(job)["containers"]]


def provider_of(resource: Resource) -> str:
    """Logical name of the resource's provider, which is that of the cluster."""
    return resource.provider.rpartition("::")[2]


def requested_by(job: Resource) -> Resources:
    """What the pod asks for, a cloud's injected container left out: init containers run one after another."""

    def total(group: list[dict[str, Any]], name: str, combine: Any) -> int:
        read = {"cpu": cpu_millicores, GPU: int}.get(name, mebibytes)
        return combine(read(container["resources"]["requests"].get(name, "0")) for container in group)

    def need(name: str) -> int:
        first = pod(job).get("initContainers", [])
        return max(
            total(pod(job)["containers"], name, sum), total(first, name, lambda sizes: max(sizes, default=0))
        )

    return Resources(need("cpu"), need("memory"), need("ephemeral-storage"), need(GPU))


def nodes(recording: Recording) -> list[Node]:
    every = [node for emulator in recording.emulators for node in emulator.standing_nodes()]
    for resource in recording.resources:
        for emulator in recording.emulators:
            every.extend(emulator.nodes(resource.type, resource.name, resource.inputs))
    return every


def tolerates(job: Resource, node: Node) -> bool:
    tolerations = pod(job).get("tolerations", [])
    return all(
        any(
            (toleration["key"], toleration["value"], toleration["effect"])
            == (taint.key, taint.value, taint.effect)
            for toleration in tolerations
        )
        for taint in node.taints
        if taint.effect != "PreferNoSchedule"
    )


def test_there_are_stacks_to_check() -> None:
    assert {"local", "gcp-dev", "gcp-prod"} <= set(STACKS)


def test_every_pod_selects_a_pool_of_its_cluster_tolerates_it_and_fits_on_its_nodes(stack: str) -> None:
    result = once(stack, False)
    all_nodes = nodes(result)
    sidecars = {name: platform.store.sidecar for name, platform in result.result.platforms.items()}
    for job in result.of(JOB):
        here = [node for node in all_nodes if node.cluster == provider_of(job)]
        selected = [node for node in here if pod(job)["nodeSelector"].items() <= node.labels.items()]
        assert selected, f"{job.name} selects no pool"
        # Pods on Autopilot that ask for nothing are kept off other nodes by taints alone.
        selected = [node for node in selected if tolerates(job, node)]
        assert selected, f"{job.name} tolerates no node that it selects"
        assert len({node.pool for node in selected}) == 1
        need, beside = requested_by(job), Resources(0, 0)
        if any(volume["name"] == "store" for volume in pod(job).get("volumes", ())):
            beside = sidecars[provider_of(job)]
        for node in selected:
            assert need.cpu + beside.cpu <= node.allocatable.cpu, job.name
            assert need.memory + beside.memory <= node.allocatable.memory, job.name
            assert need.ephemeral_storage + beside.ephemeral_storage <= node.allocatable.ephemeral_storage, (
                job.name
            )
            assert need.gpus <= node.allocatable.gpus, job.name
            assert bool(need.gpus) <= bool(node.accelerator)


def test_the_quota_admits_every_job_with_what_its_store_adds(recording: Recording) -> None:
    quotas = {provider_of(quota): quota for quota in recording.of("kubernetes:core/v1:ResourceQuota")}
    sidecars = {name: platform.store.sidecar for name, platform in recording.result.platforms.items()}
    for job in recording.of(JOB):
        hard = quotas[provider_of(job)].inputs["spec"]["hard"]
        need, beside = requested_by(job), sidecars[provider_of(job)]
        assert need.cpu + beside.cpu <= cpu_millicores(hard["requests.cpu"])
        assert need.memory + beside.memory <= mebibytes(hard["requests.memory"])
        storage = need.ephemeral_storage + beside.ephemeral_storage
        assert storage <= mebibytes(hard["requests.ephemeral-storage"])
        assert need.gpus <= int(hard[f"requests.{GPU}"])
    for quota in quotas.values():
        assert len(recording.of(JOB)) <= int(quota.inputs["spec"]["hard"]["count/jobs.batch"])


def test_the_quota_finds_requests_on_every_container(recording: Recording) -> None:
    for job in recording.of(JOB):
        for container in containers(job):
            assert {"cpu", "memory", "ephemeral-storage"} <= set(container["resources"]["requests"])


def test_gpus_are_limited_to_what_is_asked_for(recording: Recording) -> None:
    for job in recording.of(JOB):
        for container in containers(job):
            resources = container["resources"]
            assert resources["limits"].get(GPU) == resources["requests"].get(GPU)


def test_no_gpu_node_is_asked_for_before_the_data_is_there(running: Recording) -> None:
    recording = running
    first = {"handwriting": "handwriting-prepare", "mnist": "mnist-prepare"}
    images = {image(job): name for job in recording.of(JOB) if (name := job.name.partition("-")[0]) in first}
    for job in recording.of(JOB):
        if requested_by(job).gpus:
            pipeline = job.name.partition("-")[0]
            prepare = recording.one(JOB, first[pipeline if pipeline in first else images[image(job)]])
            assert prepare.urn in recording.waits_for(job), job.name
            before = recording.waits_for(prepare)
            assert not [
                other.name for other in recording.of(JOB) if other.urn in before and requested_by(other).gpus
            ]


def image(job: Resource) -> str:
    """That of the Job's main container."""
    return containers(job)[-1]["image"]


def test_predict_waits_for_train_and_each_for_the_gates_of_what_it_uses(running: Recording) -> None:
    recording = running
    by_name = {job.name: job for job in recording.of(JOB)}
    if "mnist-train" not in by_name:
        pytest.skip("it does not run MNIST")
    train, predict = by_name["mnist-train"], by_name["mnist-predict"]
    assert train.urn in recording.waits_for(predict)
    for job in (by_name["mnist-prepare"], train, predict):
        waits = recording.waits_for(job)
        assert by_name[f"store-gate-{provider_of(job)}"].urn in waits


def test_each_pod_tests_its_gpus_before_its_program(recording: Recording) -> None:
    for job in recording.of(JOB):
        before, (program,) = pod(job).get("initContainers", []), pod(job)["containers"]
        # What asks for nodes of another place computes nothing.
        computes = requested_by(job).gpus > 0 and program["name"] != "probe"
        assert (TESTER in program["command"]) == computes, job.name
        # Autopilot refuses those that ask for GPUs.
        assert not [container for container in before if container["resources"]["limits"].get(GPU)], job.name


def test_no_pod_uses_a_gpu_before_those_of_its_cluster_are_allocatable(recording: Recording) -> None:
    plugins = [release for release in recording.of(RELEASE) if "device-plugin" in release.name]
    for job in recording.of(JOB):
        if not requested_by(job).gpus:
            continue
        waits = recording.waits_for(job)
        beside = [plugin for plugin in plugins if provider_of(plugin) == provider_of(job)]
        selected = [
            plugin for plugin in beside if plugin.inputs["values"]["nodeSelector"] == pod(job)["nodeSelector"]
        ]
        assert len(selected) == bool(beside), job.name
        assert {plugin.urn for plugin in selected} <= waits, job.name


def test_a_pool_is_measured_one_job_at_a_time_and_after_its_other_work(recording: Recording) -> None:
    def place(job: Resource) -> tuple[str, dict[str, str]]:
        return provider_of(job), pod(job)["nodeSelector"]

    jobs = recording.of(JOB)
    measured = [job for job in jobs if "measure.py" in containers(job)[-1].get("args", [])]
    for job in measured:
        waits = recording.waits_for(job)
        for other in jobs:
            if other is job or place(other) != place(job):
                continue
            if other in measured:
                assert (other.urn in waits) is not (job.urn in recording.waits_for(other)), (job.name, other.name)
            elif other.name.startswith("mnist-"):
                assert other.urn in waits, (job.name, other.name)


def test_every_kubernetes_resource_names_the_provider_of_its_cluster_and_a_parent(recording: Recording) -> None:
    clusters = set(recording.result.platforms)
    ours = [resource for resource in recording.resources if resource.type.startswith("kubernetes:")]
    assert ours
    for item in ours:
        assert provider_of(item) in clusters, item.name
        assert "slipway:" in item.parent, item.name


def in_namespace(resource: Resource) -> str:
    """The namespace of a Kubernetes object; of a Namespace, itself."""
    metadata = resource.inputs["metadata"]
    return str(metadata.get("namespace") or metadata["name"])


def test_every_cluster_waits_for_its_own_workspace(recording: Recording) -> None:
    for job in recording.of(JOB):
        waits = recording.waits_for(job)
        for token in ("Namespace", "ServiceAccount", "ResourceQuota"):
            workspace = [
                resource
                for resource in recording.of(f"kubernetes:core/v1:{token}")
                if provider_of(resource) == provider_of(job)
                and in_namespace(resource) == in_namespace(job)
                # Those of scheduled runs and apps, and of what moves one step.
                and not any(word in resource.parent for word in ("PipelineSchedule", "PipelineApp", "MovedStep"))
            ]
            assert workspace
            assert {resource.urn for resource in workspace} <= waits


def builds_an_image(job: Resource) -> bool:
    """BuildKit needs more than *restricted* allows: its Jobs are in a namespace of their own."""
    return in_namespace(job).endswith("-images")


def test_every_pod_is_restricted(recording: Recording) -> None:
    of_apps = [*recording.of("kubernetes:apps/v1:Deployment"), *recording.of("kubernetes:apps/v1:StatefulSet")]
    for job in (*(step for step in recording.of(JOB) if not builds_an_image(step)), *of_apps):
        spec = pod(job)
        assert words(breaches(spec)) == ""
        for container in containers(job):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            # A cluster that assigns users sets one above zero.
            assert security.get("runAsUser", spec["securityContext"].get("runAsUser", 1)) > 0
        moves = "slipway/moves" in job.metadata.get("annotations", {}) or is_agent(job)
        assert spec["automountServiceAccountToken"] is moves


def test_what_holds_data_is_protected_in_protected_stacks_and_only_there(recording: Recording) -> None:
    protect = recording.result.settings.protect
    holding = [resource for resource in recording.resources if resource.type in HOLDS_DATA]
    # The store of a stack on another's clusters is that one's.
    keeps_data = not any(resource.other_stack for resource in recording.result.settings.clusters.values())
    assert bool(holding) is keeps_data
    for resource in holding:
        assert resource.protect is protect, resource.name
    for bucket in (resource for token in BUCKETS for resource in recording.of(token)):
        assert bucket.inputs["forceDestroy"] is not protect
    for cluster in (resource for token in CLUSTERS for resource in recording.of(token)):
        assert cluster.inputs["deletionProtection"] is protect


def test_only_jobs_write_to_the_bucket_and_apps_and_teams_have_their_own_ways_in(stack: str) -> None:
    recording = once(stack, False)
    settings = recording.result.settings
    grants = [resource for resource in recording.resources if "IAM" in resource.type]
    on_bucket = [grant for grant in grants if grant.type.startswith("gcp:storage/")]
    teams = settings.teams.values()
    # Apps read, each by an identity of its own; what moves a step writes its orders, too.
    apps = settings.request.apps if recording.of(BUCKETS[0]) else ()
    writing = [app for app in apps if app.folder is not None]
    assert len(on_bucket) == len(recording.of(BUCKETS[0])) + 2 * len(teams) + len(apps) + len(writing)
    # A team may use the objects of its folder, and list the names of all.
    allowed = {(settings.namespace, settings.service_account): {"roles/storage.objectUser"}}
    for team in teams:
        allowed[team.namespace, team.service_account] = {
            "roles/storage.objectUser",
            "roles/storage.legacyBucketReader",
        }
    for app in apps:
        allowed[settings.namespace, app.service_account] = {"roles/storage.objectViewer"}
    for app in writing:
        assert "places" in app.at, "nothing else that writes is in any of the stacks"
        allowed[settings.namespace, app.service_account].add("roles/storage.objectUser")
    for grant in on_bucket:
        subject = re.search(r"/subject/ns/([^/]+)/sa/([^/]+)$", grant.inputs["member"])
        assert subject, "the stacks use no impersonation"
        assert grant.inputs["role"] in allowed[subject[1], subject[2]]
        of_stack = subject[1] == settings.namespace
        if subject[2] in {app.service_account for app in writing}:
            assert ("condition" in grant.inputs) is grant.inputs["role"].endswith("objectUser")
        assert of_stack or "condition" in grant.inputs or grant.inputs["role"].endswith("legacyBucketReader")
    of_project = {grant.inputs["role"] for grant in grants if grant.type.startswith("gcp:projects/iAMMember")}
    assert of_project <= {
        "roles/artifactregistry.reader",
        "roles/container.defaultNodeServiceAccount",
        # To read images as they are needed: image streaming.
        "roles/serviceusage.serviceUsageConsumer",
    }
    on_keys = [grant for grant in grants if grant.type.startswith("gcp:kms/")]
    for grant in on_keys:
        assert grant.inputs["role"] == "roles/cloudkms.cryptoKeyEncrypterDecrypter"
        agent = r"serviceAccount:service-\d+@(container-engine-robot|gs-project-accounts)\.iam\..*"
        assert re.fullmatch(agent, grant.inputs["member"]), "Google's own services alone"
    others = {grant.type.partition(":")[2] for grant in grants} - {
        "storage/bucketIAMMember:BucketIAMMember",
        "projects/iAMMember:IAMMember",
        "kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
        "projects/iAMAuditConfig:IAMAuditConfig",
    }
    assert others <= {"serviceaccount/iAMMember:IAMMember"}


def test_jobs_leave_by_no_clock(recording: Recording) -> None:
    for job in recording.of(JOB):
        assert "ttlSecondsAfterFinished" not in job.inputs["spec"]
        assert "creationTimestamp" not in job.inputs["metadata"]


EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?")


def test_what_no_policy_asks_of_declarations_holds(recording: Recording) -> None:
    """Limits, retries, probes and rights: who declares objects beside these has checkov for theirs."""
    servers = [*recording.of("kubernetes:apps/v1:Deployment"), *recording.of("kubernetes:apps/v1:StatefulSet")]
    for workload in (*recording.of(JOB), *servers):
        for container in containers(workload):
            assert "memory" in container["resources"]["limits"], workload.name
    for job in recording.of(JOB):
        assert job.inputs["spec"]["activeDeadlineSeconds"] > 0
        if not builds_an_image(job):
            rules = job.inputs["spec"]["podFailurePolicy"]["rules"]
            lost = [rule for rule in rules if "onPodConditions" in rule]
            assert "Ignore" in {rule["action"] for rule in lost}, job.name
    for clock in recording.of("kubernetes:batch/v1:CronJob"):
        assert clock.inputs["spec"]["concurrencyPolicy"] == "Forbid"
    for server in servers:
        assert any("readinessProbe" in container for container in containers(server)), server.name
    for kind in ("Role", "ClusterRole"):
        for role in recording.of(f"kubernetes:rbac.authorization.k8s.io/v1:{kind}"):
            assert not any("*" in [*rule["verbs"], *rule["resources"]] for rule in role.inputs["rules"]), role.name
    for release in recording.of(RELEASE):
        chart = release.inputs["chart"]
        assert EXACT.fullmatch(str(release.inputs.get("version"))) or chart.startswith("."), release.name


def test_nodes_disks_and_grants_of_clouds_are_closed(recording: Recording) -> None:
    for template in recording.of("aws:ec2/launchTemplate:LaunchTemplate"):
        assert template.inputs["metadataOptions"]["httpTokens"] == "required"
        assert all(disk["ebs"]["encrypted"] for disk in template.inputs["blockDeviceMappings"])
    for system in recording.of("aws:efs/fileSystem:FileSystem"):
        assert system.inputs["encrypted"] is True
    for policy in recording.of("aws:iam/rolePolicy:RolePolicy"):
        document = policy.inputs["policy"]
        if isinstance(document, str):
            assert not [entry for entry in json.loads(document)["Statement"] if "*" in entry.get("Action", [])]
    for pool in recording.of("gcp:container/nodePool:NodePool"):
        assert "serviceAccount" in pool.inputs["nodeConfig"]
    for cluster in recording.of(CLUSTERS[0]):
        assert cluster.inputs["privateClusterConfig"]["enablePrivateNodes"] is True
        assert cluster.inputs["deletionProtection"] is recording.result.settings.protect
    for grant in recording.of("gcp:projects/iAMMember:IAMMember"):
        assert not re.fullmatch(r"roles/(owner|editor|.*[aA]dmin)", grant.inputs["role"]), grant.name


def inputs(result: Recording) -> dict[str, Any]:
    return {resource.urn: repr_of(resource.inputs) for resource in result.resources}


@pytest.mark.parametrize("stack", sorted(QUICK))
@pytest.mark.parametrize("preview", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_two_evaluations_declare_the_same(stack: str, preview: bool) -> None:
    assert inputs(once(stack, preview)) == inputs(evaluate(stack, preview))


def repr_of(value: Any) -> Any:
    """Values with unknown ones made comparable."""
    if isinstance(value, Mapping):
        return {key: repr_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [repr_of(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


def test_a_preview_registers_what_an_update_registers(stack: str) -> None:
    """Nothing is declared inside `apply`, where a preview would not see it."""
    assert {resource.urn for resource in once(stack, True).resources} == {
        resource.urn for resource in once(stack, False).resources
    }


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "workloads", root / "workloads", ignore=shutil.ignore_patterns("__pycache__"))
    return root


AFTER_PREPARE = {"mnist-prepare", "mnist-serving-publish", "mnist-train", "mnist-predict"}

STEPS = {
    "mnist/predict.py": {"mnist-predict"},
    "mnist/train.py": {"mnist-serving-publish", "mnist-train", "mnist-predict"},
    "mnist/prepare.py": AFTER_PREPARE,
    "mnist/images.py": AFTER_PREPARE,
    "mnist/requirements.txt": {*AFTER_PREPARE, "packages-mnist", "packages-mnist-gpu"},
    "resnet/chart.py": {"resnet-chart", "resnet-all-chart", "resnet-pair-chart"},
}
"""Files, each with the Jobs that run again when it changes."""


def run_again(stack: str, workloads: Path, files: Iterable[str]) -> set[str]:
    """The Jobs that have another name once each of ``files`` has one more byte."""

    def names(result: Recording) -> dict[str, str]:
        return {job.name: job.inputs["metadata"]["name"] for job in result.of(JOB)}

    before = names(once(stack, False))
    paths = [workloads / "workloads" / file for file in files]
    originals = {path: path.read_bytes() for path in paths}
    try:
        for path, original in originals.items():
            path.write_bytes(original + b"#")
        after = names(evaluate(stack, False, workloads))
    finally:
        for path, original in originals.items():
            path.write_bytes(original)
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    ("stack", "file"),
    [
        *(("demo", file) for file in STEPS if file.startswith("mnist/")),
        ("gcp-dev", "resnet/chart.py"),
        *(pytest.param("gcp-dev", file, marks=pytest.mark.slow) for file in STEPS if file.startswith("mnist/")),
    ],
)
def test_one_changed_byte_runs_its_step_and_those_after_it_again(stack: str, file: str, workloads: Path) -> None:
    declared = {job.name for job in once(stack, False).of(JOB)}
    assert run_again(stack, workloads, [file]) == STEPS[file] & declared


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["aws-prod", "gcp-distributed", "gcp-team", "onprem"])
def test_changed_files_run_no_other_steps_again(stack: str, workloads: Path) -> None:
    declared = {job.name for job in once(stack, False).of(JOB)}
    assert run_again(stack, workloads, STEPS) == set[str]().union(*STEPS.values()) & declared


def test_the_kubeconfigs_are_secret_and_hold_no_token(stack: str) -> None:
    result = once(stack, False)
    assert "kubeconfig" in result.secret_exports
    for content in result.exports["kubeconfig"].values():
        assert "token:" not in content
        assert '"token"' not in content
