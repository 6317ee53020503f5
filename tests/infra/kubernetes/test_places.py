"""Steps with places: a suspended Job for each, what lets one of them run, and what it may do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.gcp.emulator import Emulator
from slipway.infra.kubernetes.cluster.api_access import RUNNER
from slipway.infra.kubernetes.labels import PRIORITY_LABEL, QUEUE_ANNOTATION, QUEUE_LABEL
from slipway.infra.kubernetes.run import TESTER
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.settings.loading import load
from slipway.runtime.exits import USAGE
from slipway.runtime.schedule import release
from slipway.runtime.schedule.places.hold import HELD_BACK
from slipway.runtime.schedule.places.jobs import read_places
from slipway.runtime.schedule.places.move import TOO_DEAR, TOO_LATE, rules_of
from slipway.runtime.schedule.run import JOB_FAILED, NO_API
from tests.support.checkout import ROOT
from tests.support.failure_policies import action_for
from tests.support.recording import Recording, is_unknown, record
from tests.support.refusals import FREE_NETWORK, SECOND
from tests.support.stack_values import GCP, changed

JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
TRAIN = "pipelines.mnist.steps.train"
SPOT = {
    "machine_type": "n1-standard-4",
    "accelerator": "nvidia-tesla-t4",
    "gpus": 1,
    "spot": True,
    "nodes": {"total_min": 0, "total_max": 1},
}
STEP = {"gpus": 1, "cpu": "2", "memory": "8Gi"}
PLACES = {**STEP, "places": ["train-spot", "train", "predict"]}


class Noted(Emulator):
    """What the mover and `cluster-run` have noted by the time of an update."""

    noted: Mapping[str, str] = {}

    def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name.endswith(("-notes-read", "-attempts-read")):
            return {"data": {"about": "x", **self.noted}}
        return super().outputs(token, name, inputs)


def declared(
    step: Mapping[str, Any],
    noted: Mapping[str, str] | None = None,
    *,
    preview: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> Recording:
    values = changed(GCP, {"clusters.dev.pools.train-spot": SPOT, TRAIN: dict(step), **(changes or {})})
    config = {f"slipway:{key}": value for key, value in values.items()} | {"gcp:project": "acme-project"}
    cluster = Noted(load(values).request)
    cluster.noted = noted or {}
    return record(lambda: declare(ROOT), config, preview=preview, emulators=[cluster])


@pytest.fixture(scope="module")
def moved() -> Recording:
    return declared(PLACES)


@pytest.fixture(scope="module")
def at_one() -> Recording:
    return declared({**STEP, "pool": "train"})


def held(recording: Recording) -> dict[str, Resource]:
    """The Jobs that the mover lets run, by their Kubernetes names."""
    return {job.inputs["metadata"]["name"]: job for job in recording.of(JOB) if job.inputs["spec"].get("suspend")}


def plan(recording: Recording) -> dict[str, Any]:
    return json.loads(recording.one(CONFIG_MAP, "mnist-train-plan").inputs["data"]["plan.json"])


def run_of(recording: Recording) -> str:
    return recording.one(JOB, "mnist-train").inputs["metadata"]["annotations"]["slipway/run"]


def pod(job: Resource) -> dict[str, Any]:
    return job.inputs["spec"]["template"]


def test_each_place_has_a_suspended_job_and_each_but_the_last_a_probe(moved: Recording) -> None:
    places = read_places(plan(moved))
    assert [place.pool for place in places] == ["train-spot", "train", "predict"]
    assert [place.sure for place in places] == [False, True, False]
    assert [bool(place.probe) for place in places] == [True, True, False]
    jobs = held(moved)
    assert sorted(jobs) == sorted(name for place in places for name in (place.job, place.probe) if name)
    for job in jobs.values():
        assert job.ignore_changes == ("spec.suspend",)
        assert "pulumi.com/waitFor" in job.inputs["metadata"]["annotations"]
    assert rules_of(plan(moved)).next_after == 900


def test_it_is_one_result_wherever_it_is_made(moved: Recording) -> None:
    pods = {place.pool: pod(held(moved)[place.job]) for place in read_places(plan(moved))}
    programs = {pool: template["spec"]["containers"][0] for pool, template in pods.items()}
    words = {pool: list(program["args"]) for pool, program in programs.items()}
    checkpoints = {pool: json.loads(args.pop(args.index("--checkpoints") + 1)) for pool, args in words.items()}
    # A spot node ends sooner; all else of the program is the same.
    graces = {pool: rules.pop("grace") for pool, rules in checkpoints.items()}
    assert graces == {"train-spot": 15, "train": 120, "predict": 15}
    same = [[words[pool], checkpoints[pool], program["image"]] for pool, program in programs.items()]
    assert same == [same[0]] * 3
    assert len({json.dumps(template["spec"]["nodeSelector"], sort_keys=True) for template in pods.values()}) == 3
    turned = declared({**STEP, "places": ["predict", "train", "train-spot"]})
    assert run_of(turned) == run_of(moved)
    assert [place.pool for place in read_places(plan(turned))] == ["predict", "train", "train-spot"]
    other_times = declared({**PLACES, "next_after": "5m", "max_price": 20})
    assert run_of(other_times) == run_of(moved)
    # All Jobs stay as they are, also that of what lets them run: it reads its rules anew.
    jobs, before = held(other_times), held(moved)
    assert {name: job.inputs["spec"] for name, job in jobs.items()} == {
        name: job.inputs["spec"] for name, job in before.items()
    }
    assert other_times.one(JOB, "mnist-train").inputs["spec"] == moved.one(JOB, "mnist-train").inputs["spec"]
    assert rules_of(plan(other_times)).next_after == 300
    # With other places it is made anew.
    assert pod(turned.one(JOB, "mnist-train")) != pod(moved.one(JOB, "mnist-train"))


def test_what_has_rules_is_taken_over_from_an_update_that_was_killed(moved: Recording) -> None:
    """Pulumi does not know what that created, and would refuse to give it other values."""
    changed_rules = declared({**PLACES, "next_after": "7m"})
    differ = [
        (resource, before)
        for resource in changed_rules.resources
        if (before := next((old for old in moved.resources if old.urn == resource.urn), None))
        and before.inputs != resource.inputs
    ]
    assert differ
    for resource, _ in differ:
        assert resource.inputs["metadata"]["annotations"]["pulumi.com/patchForce"] == "true"


def test_the_mover_is_not_on_nodes_of_a_place() -> None:
    pool = {"machine_type": "e2-standard-4", "nodes": {"total_min": 0, "total_max": 2}}
    pools = {"clusters.dev.pools.spare-spot": {**pool, "spot": True}, "clusters.dev.pools.spare": pool}
    step = {"places": ["cpu", "spare-spot"], "cpu": "2", "memory": "8Gi"}
    moved = declared(step, changes=pools)
    assert pod(moved.one(JOB, "mnist-train"))["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"] == "spare"


def test_the_mover_may_change_its_jobs_and_nothing_else(moved: Recording) -> None:
    rules = moved.one(ROLE, "mnist-train-mover-role").inputs["rules"]
    changes = [rule for rule in rules if {"patch", "update", "create", "delete", "*"} & {*rule["verbs"]}]
    assert [(rule["resources"], rule["verbs"]) for rule in changes] == [
        (["jobs"], ["get", "patch"]),
        (["configmaps"], ["get", "patch"]),
        (["events"], ["create"]),
    ]
    # Also its own Jobs at other pools, which were places when an update was interrupted.
    assert {*changes[0]["resourceNames"]} == {*held(moved), *plan(moved)["every"]}
    digest = run_of(moved).rpartition("/")[2]
    assert all(name.startswith(f"mnist-train-{digest}-") for name in changes[0]["resourceNames"])
    assert len(changes[1]["resourceNames"]) == 1
    assert (["pods", "events"], ["list"]) in [(rule["resources"], rule["verbs"]) for rule in rules]
    account = pod(moved.one(JOB, "mnist-train"))["spec"]["serviceAccountName"]
    # The program and the probe may do nothing at the API server.
    for job in held(moved).values():
        assert pod(job)["spec"].get("serviceAccountName") != account
        assert pod(job)["spec"]["automountServiceAccountToken"] is False


def test_kueue_looks_after_no_job_of_a_step_before_its_mover_says_so(moved: Recording) -> None:
    flex = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1, "flex_start": True}
    pools = {"clusters.dev.pools.train-spot": {**flex, "queued_provisioning": True, "nodes": SPOT["nodes"]}}
    queued = declared(PLACES, changes={**pools, "kueue": {}})
    queue = queued.one("kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue", "dev-local-queue")
    places = read_places(plan(queued))
    # The request for nodes of a probe is none of the step's.
    assert [bool(place.probe) for place in places] == [False, True, False]
    assert [place.probe for place in rules_of(plan(queued)).places] == [False, True, False]
    priorities = {}
    for name, job in held(queued).items():
        metadata = job.inputs["metadata"]
        assert QUEUE_LABEL not in metadata["labels"]
        assert metadata["annotations"][QUEUE_ANNOTATION] == queue.inputs["metadata"]["name"]
        # Kueue would not let go of one that it looks after.
        assert job.replace_on_changes == (f'metadata.annotations["{QUEUE_ANNOTATION}"]',)
        priorities[name] = metadata["labels"][PRIORITY_LABEL]
    assert priorities == {
        **{place.job: "slipway-normal" for place in places},
        **{place.probe: "slipway-low" for place in places if place.probe},
    }
    rules = queued.one(ROLE, "mnist-train-mover-role").inputs["rules"]
    assert [rule["verbs"] for rule in rules if "workloads" in rule["resources"]] == [["list", "patch"]]
    assert all(QUEUE_ANNOTATION not in job.inputs["metadata"]["annotations"] for job in held(moved).values())
    assert QUEUE_LABEL in queued.one(JOB, "mnist-prepare").inputs["metadata"]["labels"]
    # What moves it takes room that no Job of the queue has.
    alone = declared({**STEP, "pool": "train"}, changes={"kueue": {}})
    assert cpu_quota(alone, "slipway.cpu") - cpu_quota(queued, "slipway.cpu") == RUNNER.cpu


def cpu_quota(recording: Recording, flavor: str) -> int:
    """Millicores of the flavor that the queue may hand out."""
    spec = recording.one("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "dev-kueue-queue-slipway").inputs[
        "spec"
    ]
    flavors = {entry["name"]: entry["resources"] for entry in spec["resourceGroups"][0]["flavors"]}
    amounts = {entry["name"]: entry["nominalQuota"] for entry in flavors[flavor]}
    return int(amounts["cpu"].removesuffix("m"))


def test_pulumi_sees_that_a_step_failed(moved: Recording) -> None:
    spec = moved.one(JOB, "mnist-train").inputs["spec"]
    # By `BackoffLimitExceeded`: it waits on where a rule says `FailJob`.
    assert spec["backoffLimit"] == 0
    rules = spec["podFailurePolicy"]["rules"]
    assert "FailJob" not in {rule["action"] for rule in rules}
    (main,) = spec["template"]["spec"]["containers"]
    assert action_for(rules, {"PodScheduled"}, {main["name"]: NO_API}) == "Ignore"
    assert action_for(rules, {"PodScheduled"}, {main["name"]: USAGE, "gke-gcsfuse-sidecar": 137}) == "Count"
    final = (USAGE, JOB_FAILED, TOO_LATE, TOO_DEAR)
    assert {action_for(rules, {"PodScheduled"}, {main["name"]: code}) for code in final} == {"Count"}


def test_gpus_are_tested_in_the_pods_of_each_place(moved: Recording) -> None:
    for place in read_places(plan(moved)):
        (container,) = pod(held(moved)[place.job])["spec"]["containers"]
        assert TESTER in container["command"]


def test_a_pool_is_one_place_and_needs_no_mover(at_one: Recording) -> None:
    assert held(at_one) == {}
    assert [resource.name for resource in at_one.resources if "mover" in resource.name] == []
    assert [
        resource.name for resource in at_one.of(CONFIG_MAP) if resource.name.endswith(("-plan", "-notes"))
    ] == []


def test_only_the_job_that_failed_is_made_anew_and_with_it_the_mover(moved: Recording) -> None:
    failed = read_places(plan(moved))[1].job
    again = declared(PLACES, {failed: "2"})
    before, after = held(moved), held(again)
    assert before.keys() == after.keys()
    assert [name for name in before if before[name].inputs["spec"] != after[name].inputs["spec"]] == [failed]
    assert run_of(again) == run_of(moved)


def test_a_preview_knows_the_pods() -> None:
    for job in held(declared(PLACES, preview=True)).values():
        assert not is_unknown(pod(job)["metadata"].get("annotations"))


FAR = {
    "clusters.far": {**SECOND, "network": FREE_NETWORK, "location": "us-east1-b"},
    "clusters.far.pools.far-cpu": {"machine_type": "e2-standard-4"},
    "clusters.far.pools.far-spot": SPOT,
    "clusters.far.pools.far-sure": {**SPOT, "spot": False},
}
ANYWHERE = {**STEP, "places": ["train-spot", "far-spot", "train", "far-sure"]}


@pytest.fixture(scope="module")
def anywhere() -> Recording:
    return declared(ANYWHERE, changes=FAR)


def provider(resource: Resource) -> str:
    return resource.provider.rpartition("::")[2]


def test_places_in_two_clusters_have_their_jobs_there(anywhere: Recording) -> None:
    places = plan(anywhere)["places"]
    assert [place["cluster"] for place in places] == ["", "far", "", "far"]
    jobs = held(anywhere)
    for place in places:
        for name in filter(None, (place["job"], place["probe"])):
            assert provider(jobs[name]) == (place["cluster"] or "dev")
    # What the pods mount is in their own cluster, under the same name.
    maps = {(provider(resource), resource.inputs["metadata"]["name"]) for resource in anywhere.of(CONFIG_MAP)}
    for place in places:
        volumes = pod(jobs[place["job"]])["spec"]["volumes"]
        mounted = {volume["configMap"]["name"] for volume in volumes if "configMap" in volume}
        assert mounted
        assert {(place["cluster"] or "dev", name) for name in mounted} <= maps


def test_jobs_of_places_take_no_other_job_its_room(anywhere: Recording) -> None:
    without = declared({**STEP, "pool": "train"}, changes=FAR)
    room = [
        {
            provider(quota): int(quota.inputs["spec"]["hard"]["count/jobs.batch"])
            for quota in recording.of("kubernetes:core/v1:ResourceQuota")
        }
        for recording in (without, anywhere)
    ]
    for cluster in ("dev", "far"):
        names = [name for name, job in held(anywhere).items() if provider(job) == cluster]
        assert room[1][cluster] - room[0][cluster] >= len(names)


def test_only_pods_of_another_cluster_ask_whether_they_may_run(anywhere: Recording, moved: Recording) -> None:
    """The mover reaches the others, and a step in one cluster is as it was."""
    for place in plan(anywhere)["places"]:
        job = held(anywhere)[place["job"]]
        command = pod(job)["spec"]["containers"][0]["command"]
        assert ("--orders" in command) is bool(place["cluster"])
        codes = {
            code
            for rule in job.inputs["spec"]["podFailurePolicy"]["rules"]
            if rule["action"] == "Ignore"
            for code in rule.get("onExitCodes", {}).get("values", [])
        }
        assert codes == ({HELD_BACK} if place["cluster"] else set())
        if place["cluster"]:
            assert command[command.index("--job") + 1] == place["job"]
    assert run_of(anywhere) == run_of(declared({**STEP, "places": ["train-spot", "train"]}, changes=FAR))
    assert all("cluster" not in place for place in plan(moved)["places"])
    assert "--orders" not in pod(moved.one(JOB, "mnist-train"))["spec"]["containers"][0]["args"]


def test_an_agent_acts_in_the_other_cluster_and_nobody_waits_for_it(anywhere: Recording) -> None:
    agent, mover = anywhere.one(JOB, "mnist-train-agent-far"), anywhere.one(JOB, "mnist-train")
    assert (provider(agent), provider(mover)) == ("far", "dev")
    assert agent.urn in mover.dependencies
    annotations = agent.inputs["metadata"]["annotations"]
    # One that has not ended well is made anew, as the mover of a failed step is.
    assert annotations["pulumi.com/replaceUnready"] == "true"
    assert "pulumi.com/waitFor" in annotations
    assert agent.inputs["spec"]["activeDeadlineSeconds"] == mover.inputs["spec"]["activeDeadlineSeconds"]
    plans = {entry.name: entry for entry in anywhere.of(CONFIG_MAP) if entry.name.startswith("mnist-train-plan")}
    assert [provider(plans[name]) for name in ("mnist-train-plan", "mnist-train-plan-far")] == ["dev", "far"]
    assert len({entry.inputs["data"]["plan.json"] for entry in plans.values()}) == 1
    pods = [pod(job)["metadata"]["annotations"]["slipway/plan"] for job in (agent, mover)]
    assert len({*pods}) == 1
    words = pod(agent)["spec"]["containers"][0]["args"]
    same = pod(mover)["spec"]["containers"][0]["args"]
    assert words[words.index("--cluster") + 1] == "far"
    assert words[words.index("--orders") + 1] == same[same.index("--orders") + 1]
    assert words[words.index("--plan") + 1] == plans["mnist-train-plan-far"].inputs["metadata"]["name"]


def test_an_agent_may_change_the_jobs_of_its_cluster_and_write_its_answers(anywhere: Recording) -> None:
    rules = anywhere.one(ROLE, "mnist-train-agent-far-role").inputs["rules"]
    assert (["pods", "events"], ["list"]) in [(rule["resources"], rule["verbs"]) for rule in rules]
    changes = [rule for rule in rules if {"patch", "update", "create", "delete", "*"} & {*rule["verbs"]}]
    assert [rule["resources"] for rule in changes] == [["jobs"]]
    assert changes[0]["resourceNames"] == sorted(
        name for name, job in held(anywhere).items() if provider(job) == "far"
    )
    accounts = {
        pod(anywhere.one(JOB, name))["spec"]["serviceAccountName"]
        for name in ("mnist-train", "mnist-train-agent-far")
    }
    # One identity for both would be two grants of the same right, of which one takes the other along.
    assert len(accounts) == 2
    written = {
        grant.inputs["member"].rpartition("/")[2]: grant.inputs["condition"]["expression"]
        for grant in anywhere.of("gcp:storage/bucketIAMMember:BucketIAMMember")
        if "store-writer" in grant.name
    }
    words = pod(anywhere.one(JOB, "mnist-train"))["spec"]["containers"][0]["args"]
    folder = words[words.index("--orders") + 1].removeprefix("/store/")
    assert accounts <= written.keys()
    assert all(f"/{folder}/" in written[account] for account in accounts)


def test_the_pods_of_a_training_meet_in_each_cluster() -> None:
    two = {
        f"clusters.{pool}.nodes": {"total_min": 0, "total_max": 2}
        for pool in ("dev.pools.train-spot", "far.pools.far-spot")
    }
    both = declared({**STEP, "places": ["train-spot", "far-spot"], "nodes": 2}, changes={**FAR, **two})
    meeting = [
        entry for entry in both.of("kubernetes:core/v1:Service") if entry.inputs["spec"].get("clusterIP") == "None"
    ]
    assert {provider(entry) for entry in meeting} == {"dev", "far"}
    assert len({entry.inputs["metadata"]["name"] for entry in meeting}) == 1
    quotas = {
        provider(entry): entry.inputs["spec"]["hard"] for entry in both.of("kubernetes:core/v1:ResourceQuota")
    }
    assert {cluster: quotas[cluster]["count/services"] for cluster in ("dev", "far")} == {"dev": "1", "far": "1"}


IN_CLUSTER = {"pipelines.mnist.runs": "cluster"}


@pytest.fixture(scope="module")
def in_cluster() -> Recording:
    return declared(PLACES, changes=IN_CLUSTER)


def released(recording: Recording) -> dict[str, release.Planned]:
    """The Jobs that `cluster-run` lets run, by the step."""
    content = recording.one(CONFIG_MAP, "dev-cluster-run-jobs").inputs
    return {job.step: job for job in release.read(content)}


def test_what_lets_jobs_run_in_the_cluster_lets_the_mover_run(moved: Recording, in_cluster: Recording) -> None:
    mover, by_up = in_cluster.one(JOB, "mnist-train"), moved.one(JOB, "mnist-train")
    assert mover.inputs["spec"]["suspend"] is True
    assert mover.ignore_changes == ("spec.suspend",)
    annotations = mover.inputs["metadata"]["annotations"]
    assert annotations["slipway/runs"] == "cluster-run"
    assert "pulumi.com/waitFor" in annotations
    assert "pulumi.com/replaceUnready" not in annotations
    # Pulumi never takes the one for the other: it would ignore that the Job has to be suspended.
    assert mover.urn != by_up.urn
    assert mover.inputs["metadata"]["name"] != by_up.inputs["metadata"]["name"]
    # Those of its places are as they were, and nobody but the mover lets them run.
    places = [place.job for place in read_places(plan(in_cluster))]
    assert places == [place.job for place in read_places(plan(moved))]
    for name in places:
        assert held(in_cluster)[name].inputs["spec"] == held(moved)[name].inputs["spec"]
    jobs = released(in_cluster)
    assert jobs["mnist-train"].name == mover.inputs["metadata"]["name"]
    assert jobs["mnist-train"].name in jobs["mnist-predict"].after
    assert jobs["mnist-prepare"].name in jobs["mnist-train"].after
    assert not {job.name for job in jobs.values()} & {*places}
    assert run_of(in_cluster) == run_of(moved)


def test_it_waits_for_the_mover_as_long_as_that_may_take(in_cluster: Recording) -> None:
    limits = {
        job.name: job.inputs["spec"]["activeDeadlineSeconds"]
        for job in in_cluster.of(JOB)
        if job.inputs["metadata"]["annotations"].get("slipway/runs") != "mover"
    }
    assert limits.pop("dev-cluster-run") >= sum(limits.values())


def test_a_failure_is_noted_of_a_job_and_of_its_mover_by_whoever_let_it_run(in_cluster: Recording) -> None:
    mover = in_cluster.one(JOB, "mnist-train").inputs["metadata"]["name"]
    failed = read_places(plan(in_cluster))[1].job
    again = declared(PLACES, {failed: "2", mover: "2"}, changes=IN_CLUSTER)
    before, after = held(in_cluster), held(again)
    changed_jobs = {name for name in before if before[name].inputs["spec"] != after[name].inputs["spec"]}
    assert changed_jobs == {failed, mover}
    assert (released(in_cluster)["mnist-train"].attempt, released(again)["mnist-train"].attempt) == (1, 2)
    # It was too late, or too dear: no Job of its places failed.
    late = held(declared(PLACES, {mover: "2"}, changes=IN_CLUSTER))
    assert {name for name in before if before[name].inputs["spec"] != late[name].inputs["spec"]} == {mover}


@pytest.mark.slow
def test_what_a_place_costs_is_told_by_its_pool_and_noted_by_its_pods() -> None:
    moved = declared(PLACES, preview=True, changes={"budget": {"run": 1000}})
    maps = [map_.inputs.get("data", {}) for map_ in moved.of(CONFIG_MAP)]
    (limits,) = (data["limits.json"] for data in maps if "limits.json" in data)
    told = json.loads(limits)["prices"]["mnist.train"]
    assert told.keys() == {place["pool"] for place in plan(moved)["places"]}
    assert told["train-spot"]["dollars"] < told["train"]["dollars"] < told["predict"]["dollars"]
    assert {pool["kept"] for pool in told.values()} == {600.0}
    for place in plan(moved)["places"]:
        command = " ".join(pod(held(moved)[place["job"]])["spec"]["containers"][0]["command"])
        assert f"--pool {place['pool']} " in command
