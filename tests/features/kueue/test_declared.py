"""What a stack with `kueue` declares, and the order in which Jobs, queues and Kueue itself come and go."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.features.kueue.declared import divided
from slipway.features.kueue.feature import REPLICAS, REQUESTS
from slipway.infra.clouds.gcp.emulator import Emulator
from slipway.infra.kubernetes.labels import PRIORITY_LABEL, QUEUE_LABEL
from slipway.infra.platform import add
from slipway.infra.platform_output import OUTPUT, PlatformFacts
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.schema.quantities import canonical
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import GCP, changed

pytestmark = pytest.mark.slow

API = "kubernetes:kueue.x-k8s.io/v1beta2:"
JOB = "kubernetes:batch/v1:Job"
RELEASE = "kubernetes:helm.sh/v3:Release"

POOLS = {
    "cpu": {"selector": {"kind": "cpu"}, "cpu": "4", "memory": "16Gi", "ephemeral_storage": "40Gi", "nodes": 3},
    "gpu": {
        "selector": {"kind": "gpu"},
        "cpu": "8",
        "memory": "32Gi",
        "ephemeral_storage": "80Gi",
        "accelerator": "nvidia-tesla-t4",
        "gpus": 2,
        "nodes": 2,
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    },
}
STEPS = {
    "prepare": {"pool": "cpu"},
    "train": {"pool": "gpu", "gpus": 2, "priority": "high", "time_limit": "4h"},
    "predict": {"pool": "gpu", "gpus": 1, "priority": "low"},
}
TEAMS = {"vision": {"namespace": "vision"}, "speech": {"namespace": "speech"}}


def stack(kueue: Mapping[str, Any] | None = None, *, preview: bool = False, **more: Any) -> Recording:
    values: dict[str, Any] = {
        "clusters": {"here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": POOLS}},
        "store": {"kind": "nfs", "server": "10.0.0.5", "path": "/slipway"},
        "pipelines": {"mnist": {"steps": STEPS}},
        **more,
    }
    if kueue is not None:
        values["kueue"] = dict(kueue)
    config = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), config, preview=preview)


def of_kind(recording: Recording, kind: str) -> dict[str, Resource]:
    """Kueue's objects of a kind by name."""
    return {resource.inputs["metadata"]["name"]: resource for resource in recording.of(API + kind)}


def quotas(queue: Resource) -> dict[str, dict[str, str]]:
    """The nominal quotas by flavor and resource, which are in the order of the resources that the group covers."""
    (group,) = queue.inputs["spec"]["resourceGroups"]
    result: dict[str, dict[str, str]] = {}
    for flavor in group["flavors"]:
        assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]
        result[flavor["name"]] = {resource["name"]: resource["nominalQuota"] for resource in flavor["resources"]}
    return result


@pytest.fixture(scope="module")
def alone() -> Recording:
    return stack({})


@pytest.fixture(scope="module")
def shared() -> Recording:
    return stack({"shares": {"vision": 2}, "preemption": "shares"}, teams=TEAMS)


def test_a_flavor_is_a_pool_with_its_labels_and_taints(alone: Recording) -> None:
    flavors = {name: resource.inputs["spec"] for name, resource in of_kind(alone, "ResourceFlavor").items()}
    assert flavors == {
        "slipway.cpu": {"nodeLabels": {"kind": "cpu"}, "nodeTaints": []},
        "slipway.gpu": {
            "nodeLabels": {"kind": "gpu"},
            "nodeTaints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        },
    }


def test_quotas_are_all_nodes_less_what_is_in_no_queue(alone: Recording) -> None:
    queue = of_kind(alone, "ClusterQueue")["slipway"]
    custom = add(*[REQUESTS] * REPLICAS)
    assert quotas(queue) == {
        "slipway.cpu": {
            "cpu": canonical(f"{3 * 4000 - custom.cpu}m"),
            "memory": canonical(f"{3 * 16384 - custom.memory}Mi"),
            "ephemeral-storage": "120Gi",
            "nvidia.com/gpu": "0",
        },
        "slipway.gpu": {
            "cpu": "16",
            "memory": "64Gi",
            "ephemeral-storage": "160Gi",
            "nvidia.com/gpu": "4",
        },
    }
    assert queue.inputs["spec"]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "slipway"}}
    assert not {"cohortName", "fairSharing", "admissionChecksStrategy"} & set(queue.inputs["spec"])


def test_a_found_kueue_takes_nothing_of_the_pools() -> None:
    declared_stack = stack({"install": False})
    assert not declared_stack.of(RELEASE)
    assert quotas(of_kind(declared_stack, "ClusterQueue")["slipway"])["slipway.cpu"]["cpu"] == "12"


@pytest.mark.parametrize("preview", [True, False])
def test_every_job_is_in_the_queue_with_a_priority(preview: bool) -> None:
    jobs = {entry.name: entry for entry in stack({}, preview=preview).of(JOB)}
    assert {job.inputs["metadata"]["labels"][QUEUE_LABEL] for job in jobs.values()} == {"slipway"}
    levels = {name: resource.inputs["metadata"]["labels"][PRIORITY_LABEL] for name, resource in jobs.items()}
    assert levels["mnist-prepare"] == "slipway-normal"
    assert levels["mnist-train"] == "slipway-high"
    assert levels["mnist-predict"] == "slipway-low"
    gates = {name: level for name, level in levels.items() if "gate" in name}
    # Each is needed by the most urgent step.
    assert set(gates.values()) == {"slipway-high"}


def test_the_pods_of_a_job_are_as_they_are_without_a_queue(alone: Recording) -> None:
    without = {
        resource.name: resource.inputs
        for resource in stack(pipelines={"mnist": {"steps": without_priority()}}).of(JOB)
    }
    for job in alone.of(JOB):
        assert job.inputs["spec"] == without[job.name]["spec"]
        assert job.inputs["metadata"]["name"] == without[job.name]["metadata"]["name"]


def without_priority() -> dict[str, Any]:
    return {name: {k: v for k, v in value.items() if k != "priority"} for name, value in STEPS.items()}


def test_a_gate_is_no_more_urgent_than_the_steps_behind_it() -> None:
    steps = {name: {**value, "priority": "low"} for name, value in STEPS.items()}
    for job in stack({}, pipelines={"mnist": {"steps": steps}}).of(JOB):
        assert job.inputs["metadata"]["labels"][PRIORITY_LABEL] == "slipway-low", job.name


def test_up_waits_for_the_admission_beside_the_time_limit() -> None:
    job = stack({"wait": "2h"}).one(JOB, "mnist-train")
    assert job.create_timeout == f"{4 * 3600 + 600 + 2 * 3600}s"
    assert job.inputs["spec"]["activeDeadlineSeconds"] == 4 * 3600


def test_a_job_that_joins_or_leaves_a_queue_is_replaced(alone: Recording) -> None:
    # Kueue refuses the change on a Job that it does not hold back, such as one that is done.
    assert alone.one(JOB, "mnist-train").replace_on_changes == (f'metadata.labels["{QUEUE_LABEL}"]',)


def test_kueue_is_there_before_its_objects_and_these_before_jobs(alone: Recording) -> None:
    release = alone.one(RELEASE).urn
    objects = [resource for resource in alone.resources if resource.type.startswith(API)]
    for object in objects:
        assert release in alone.waits_for(object)
    queue = of_kind(alone, "ClusterQueue")["slipway"]
    local = of_kind(alone, "LocalQueue")["slipway"]
    for flavor in of_kind(alone, "ResourceFlavor").values():
        assert flavor.urn in alone.waits_for(queue)
    assert queue.urn in alone.waits_for(local)
    # What deletes the namespace waits until Kueue lets go of what is in it.
    assert release in alone.waits_for(alone.one("kubernetes:core/v1:Namespace", "here-namespace"))
    for job in alone.of(JOB):
        assert {resource.urn for resource in objects} <= alone.waits_for(job)


def test_the_chart_is_taken_by_its_digest_and_its_image_by_its_own(alone: Recording) -> None:
    release = alone.one(RELEASE).inputs
    assert "@sha256:" in release["chart"]
    assert release["chart"].startswith("oci://")
    assert "@sha256:" in release["values"]["controllerManager"]["manager"]["image"]["tag"]
    # Kueue's pods run where there is no GPU to be idle beneath them.
    assert release["values"]["controllerManager"]["nodeSelector"] == {"kind": "cpu"}


def test_kueue_looks_after_jobs_of_named_namespaces_alone(shared: Recording) -> None:
    values = shared.one(RELEASE).inputs["values"]
    config = json.loads(values["managerConfig"]["controllerManagerConfigYaml"])
    (rule,) = config["managedJobsNamespaceSelector"]["matchExpressions"]
    assert rule == {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": ["slipway", "speech", "vision"],
    }
    assert config["integrations"]["frameworks"] == ["batch/job"]
    assert config["manageJobsWithoutQueueName"] is False
    assert "fairSharing" in config


def test_a_job_whose_nodes_never_come_is_given_up_after_about_the_wait() -> None:
    values = stack({"wait": "10h", "ready_within": "30m"}).one(RELEASE).inputs["values"]
    config = json.loads(values["managerConfig"]["controllerManagerConfigYaml"])["waitForPodsReady"]
    assert config["timeout"] == "1800s"
    assert config["requeuingStrategy"]["backoffLimitCount"] == 10


def test_teams_divide_the_pools_in_one_cohort(shared: Recording) -> None:
    queues = of_kind(shared, "ClusterQueue")
    assert set(queues) == {"slipway", "vision", "speech"}
    assert {queue.inputs["spec"]["cohortName"] for queue in queues.values()} == {"slipway"}
    weights = {name: resource.inputs["spec"]["fairSharing"]["weight"] for name, resource in queues.items()}
    assert weights == {"slipway": "1", "vision": "2", "speech": "1"}
    gpus = {name: quotas(queue)["slipway.gpu"]["nvidia.com/gpu"] for name, queue in queues.items()}
    assert gpus == {"slipway": "1", "vision": "2", "speech": "1"}
    policies = {name: resource.inputs["spec"]["preemption"] for name, resource in queues.items()}
    assert policies["vision"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def test_a_platform_without_pipelines_keeps_no_share() -> None:
    queues = of_kind(stack({}, teams=TEAMS, pipelines={}), "ClusterQueue")
    assert {name: quotas(queue)["slipway.gpu"]["nvidia.com/gpu"] for name, queue in queues.items()} == {
        "slipway": "0",
        "vision": "2",
        "speech": "2",
    }


@pytest.mark.parametrize(
    ("amount", "shares", "expected"),
    [(4, [1, 1, 1], [2, 1, 1]), (7, [2, 1], [5, 2]), (1, [0, 1], [0, 1]), (0, [1, 2], [0, 0]), (3, [1], [3])],
)
def test_nothing_is_lost_by_dividing(amount: int, shares: list[int], expected: list[int]) -> None:
    assert divided(amount, shares) == expected
    assert sum(divided(amount, shares)) == amount


def test_who_administers_a_teams_namespace_may_make_its_queue(shared: Recording, alone: Recording) -> None:
    role = shared.one("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "here-kueue-team-queues").inputs
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] == "true"
    assert "create" in next(rule["verbs"] for rule in role["rules"] if "localqueues" in rule["resources"])
    assert not [resource for resource in alone.resources if resource.name == "here-kueue-team-queues"]


def test_a_queue_of_somebody_else_is_named_and_nothing_declared() -> None:
    steps = {"mnist": {"steps": without_priority()}}
    declared_stack = stack({"install": False, "local_queue": "gpu-users"}, pipelines=steps)
    assert not [resource for resource in declared_stack.resources if resource.type.startswith(API)]
    labels = declared_stack.one(JOB, "mnist-train").inputs["metadata"]["labels"]
    assert labels[QUEUE_LABEL] == "gpu-users"
    assert PRIORITY_LABEL not in labels


def test_a_schedule_puts_its_jobs_into_the_queue_but_not_itself() -> None:
    pipelines = {"mnist": {"steps": STEPS, "schedule": {"cron": "0 3 * * *"}}}
    declared_stack = stack({"wait": "1h"}, pipelines=pipelines)
    cron = declared_stack.one("kubernetes:batch/v1:CronJob").inputs
    assert QUEUE_LABEL not in cron["spec"]["jobTemplate"]["metadata"]["labels"]
    jobs = json.loads(
        declared_stack.one("kubernetes:core/v1:ConfigMap", "mnist-schedule-jobs").inputs["data"]["jobs.json"]
    )
    assert {job["manifest"]["metadata"]["labels"][QUEUE_LABEL] for job in jobs} == {"slipway"}
    # It lives as long as its Jobs may wait.
    limits = [job["manifest"]["spec"]["activeDeadlineSeconds"] for job in jobs]
    limit = cron["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert limit == 2 * (sum(limits) + len(limits) * 3600)


def test_a_team_uses_the_queue_that_the_platform_tells_it_of(shared: Recording) -> None:
    facts = PlatformFacts.model_validate(shared.exports[OUTPUT])
    queue = facts.clusters["here"].teams["vision"].queue
    assert queue is not None
    assert queue.cluster_queue == "vision"
    assert queue.priorities["high"] == "slipway-high"


def test_without_kueue_a_platform_tells_of_none() -> None:
    steps = {"mnist": {"steps": without_priority()}}
    declared_stack = stack(teams=TEAMS, pipelines=steps).exports[OUTPUT]
    assert "queue" not in declared_stack["clusters"]["here"]["teams"]["vision"]


def test_nodes_that_come_together_are_asked_for_by_a_check_on_their_flavor_alone() -> None:
    h100 = {
        "machine_type": "a3-highgpu-1g",
        "accelerator": "nvidia-h100-80gb",
        "flex_start": True,
        "queued_provisioning": True,
        "nodes": {"total_max": 2},
    }
    values = changed(GCP, {"clusters.dev.pools.train": h100, "kueue": {"wait": "10h"}})
    config = {f"slipway:{key}": value for key, value in values.items()}
    emulator = Emulator(load(values).request)
    made = record(declare, {**config, **emulator.configuration}, preview=False, emulators=[emulator])
    queue = of_kind(made, "ClusterQueue")["slipway"]
    ((name, check),) = of_kind(made, "AdmissionCheck").items()
    (request,) = of_kind(made, "ProvisioningRequestConfig").values()
    rule = queue.inputs["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert rule == [{"name": name, "onFlavors": ["slipway.train"]}]
    assert check.inputs["spec"]["parameters"]["name"] == request.inputs["metadata"]["name"]
    # The API server takes no dot in it.
    assert "." not in request.inputs["metadata"]["name"]
    assert request.inputs["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert check.urn in made.waits_for(queue)
    # GKE taints such nodes itself.
    taints = of_kind(made, "ResourceFlavor")["slipway.train"].inputs["spec"]["nodeTaints"]
    assert {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"} in taints
    job = made.one(JOB, "mnist-train").inputs["spec"]["template"]["spec"]
    assert "cloud.google.com/gke-queued" in {toleration["key"] for toleration in job["tolerations"]}


def test_a_service_is_in_no_queue() -> None:
    steps = {name: {"pool": "cpu"} for name in ("prepare", "days", "evaluate")}
    pipelines = {"fraud": {"services": {"queue": {"pool": "cpu"}}, "steps": steps}}
    queue = of_kind(stack({"install": False}, pipelines=pipelines), "ClusterQueue")["slipway"]
    left = quotas(queue)["slipway.cpu"]
    assert (left["cpu"], left["memory"]) == ("11750m", f"{3 * 16384 - 256}Mi")
