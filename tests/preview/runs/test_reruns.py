"""Which Jobs an update runs, on Jobs made by hand: one cause each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pytest

from slipway.evaluated import phrasing
from slipway.evaluated.model import JobRun, Outcome
from slipway.infra.placed_model import PlacedStep
from slipway.infra.platform import GPU_RESOURCE, Resources, Taint
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, NodePool, Resource, Secret, Stack
from slipway.preview.differences import compare, rows
from tests.support.reviewing import declared

JOB = "kubernetes:batch/v1:Job"
NONE: Mapping[str, Any] = MappingProxyType({})
GPU_TAINT = Taint("gpu", "present", "NoSchedule")
TOLERATION = {"key": "gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}


def provider(kubeconfig: str = "a") -> Resource:
    return declared(KUBERNETES_PROVIDER, "main", {"kubeconfig": Secret(kubeconfig)})


@dataclass
class StepJob(Resource):
    """A Job of a step, with what the placed model says of it."""

    step: PlacedStep | None = None


def job(
    step: str, digest: str, *, inputs: Mapping[str, str] = NONE, placed: Mapping[str, Any] = NONE, **pod: Any
) -> StepJob:
    """The Job of a step whose result is in ``<step>/<digest>``; ``placed`` is more of what the model says."""
    container = {"name": step, "image": "python:3", **pod.pop("container", {})}
    spec = {"nodeSelector": {"pool": "cpu"}, "containers": [container], **pod}
    properties = {"metadata": {"name": f"{step}-{digest}"}, "spec": {"template": {"spec": spec}}}
    says = {"directory": f"{step}/{digest}", "inputs": inputs, **placed}
    model = PlacedStep(job=step, pipeline="test", name=step, pool="cpu", **says)
    urn = f"urn:pulumi:test::slipway::slipway:kubernetes:StepJob${JOB}::{step}"
    return StepJob(urn, JOB, step, properties, provider=provider().urn, step=model)


def pool(name: str, gpus: int = 0, **more: Any) -> NodePool:
    return NodePool(
        urn="",
        cluster="main",
        name=name,
        labels={"pool": name},
        taints=[GPU_TAINT] if gpus else [],
        allocatable=Resources(cpu=4000, memory=8192, gpus=gpus),
        min_nodes=0,
        max_nodes=1,
        accelerator="t4" if gpus else None,
        gpus=gpus,
        **more,
    )


def stack(*resources: Resource, kubeconfig: str = "a", steps: Sequence[PlacedStep] = ()) -> Stack:
    all_ = [provider(kubeconfig), *resources]
    told = [*steps, *(each.step for each in resources if isinstance(each, StepJob) and each.step)]
    placed = {step.job: step for step in told}
    return Stack("test", {each.urn: each for each in all_}, steps=placed, pools=[pool("cpu"), pool("gpu", 1)])


def runs(before: list[Resource], after: list[Resource], kubeconfig: str = "a") -> dict[str, JobRun]:
    return {run.name: run for run in compare(stack(*before), stack(*after, kubeconfig=kubeconfig)).runs}


def one(before: Resource, after: Resource) -> tuple[Outcome, str]:
    (found,) = runs([before], [after]).values()
    return found.outcome, found.because


def test_an_unchanged_job_does_not_run() -> None:
    assert runs([job("train", "1")], [job("train", "1")]) == {}


def test_a_deleted_job_does_not_run() -> None:
    assert runs([job("train", "1")], []) == {}


def test_a_new_job_runs() -> None:
    (found,) = runs([], [job("train", "1")]).values()
    assert (found.outcome, found.because, found.cluster, found.pool) == (Outcome.RUNS, "it is new", "main", "cpu")


def test_changed_code_runs_the_job_and_those_that_read_its_result() -> None:
    def both(digest: str, text: str) -> list[Resource]:
        return [
            job("train", digest, placed={"files": {"code/train.py": text, "code/same.py": "x"}}),
            job("predict", f"9{digest}", inputs={"model": f"train/{digest}"}),
            job("other", "1"),
        ]

    found = runs(both("1", "a"), both("2", "b"))
    assert {name: (each.outcome, each.because) for name, each in found.items()} == {
        # A command's own file is named as in its folder.
        "train": (Outcome.RUNS, "train.py changed"),
        "predict": (Outcome.RUNS, "its input train runs again"),
    }


def test_files_that_came_and_went_are_named() -> None:
    before, after = (
        job("train", name, placed={"files": {f"code/{name}.py": "a", "code/use.py": name}}) for name in ("1", "2")
    )
    assert one(before, after) == (Outcome.RUNS, "use.py changed; 2.py came; 1.py went")


@pytest.mark.parametrize(("count", "because"), [(3, "f0, f1, f2 changed"), (5, "f0, f1, f2 and 2 more changed")])
def test_many_changed_files_are_counted(count: int, because: str) -> None:
    names = [f"f{index}" for index in range(count)]
    before, after = (job("train", digest, placed={"files": dict.fromkeys(names, digest)}) for digest in "12")
    assert one(before, after) == (Outcome.RUNS, because)


DECIDED = {"image": "python:3", "arguments": ["a"], "gpus": 1, "accelerator": "t4", "format": 1}


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"image": "python:4"}, "its image changed"),
        ({"arguments": ["b"]}, "its arguments changed"),
        ({"environment": {"A": "b"}}, "its environment changed"),
        ({"gpus": 2}, "its GPUs changed"),
        ({"accelerator": "l4"}, "its accelerator changed from t4 to l4"),
        ({"format": 2, "runner": 2}, "how Slipway runs it changed"),
        ({"data": {"cats": ["gs://cats", ""]}}, "it reads cats, gs://cats"),
    ],
)
def test_a_change_that_affects_the_result_runs_the_job(changed: dict[str, Any], because: str) -> None:
    before, after = (
        job("train", "1", placed={"decides": DECIDED}),
        job("train", "2", placed={"decides": {**DECIDED, **changed}}),
    )
    assert one(before, after) == (Outcome.RUNS, because)


CHANGED = {"image": "python:4", "env": [{"name": "A", "value": "b"}], "args": ["b"]}


def test_the_words_of_a_pod_are_no_cause_where_the_model_has_one() -> None:
    before, after = (
        job("train", digest, container=container, placed={"files": {"code/train.py": digest}})
        for digest, container in (("1", {}), ("2", CHANGED))
    )
    assert one(before, after) == (Outcome.RUNS, "train.py changed")


def test_against_a_base_without_a_model_the_parts_of_the_pod_are_the_causes() -> None:
    before, after = job("train", "1"), job("train", "2", container=CHANGED, placed={"files": {"code/a.py": ""}})
    (found,) = runs([replace(before, step=None)], [after]).values()
    assert found.outcome is Outcome.RUNS
    assert set(found.because.split("; ")) == {
        "its image changed",
        "its arguments changed",
        "its environment changed",
    }
    (same,) = runs([replace(before, step=None)], [job("train", "1", nodeSelector={"pool": "gpu"})]).values()
    assert (same.outcome, same.because) == (Outcome.RESUMES, "its node selector changed")


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"container": {"resources": {"requests": {"memory": "2Gi"}}}}, "its memory changed"),
        ({"nodeSelector": {"pool": "gpu"}}, "its node selector changed"),
        ({"tolerations": [TOLERATION]}, "its tolerations changed"),
        ({"enableServiceLinks": False}, "its pod's enableServiceLinks changed"),
    ],
)
def test_a_change_that_does_not_affect_the_result_lets_the_job_find_it(
    changed: dict[str, Any], because: str
) -> None:
    assert one(job("train", "1"), job("train", "1", **changed)) == (Outcome.RESUMES, because)


def test_a_job_without_a_result_always_runs() -> None:
    before, after = (job("gate", "1", placed={"directory": ""}, tolerations=each) for each in ([], [TOLERATION]))
    assert one(before, after) == (Outcome.RUNS, "its tolerations changed")


def test_on_another_cluster_a_job_finds_the_result_that_is_in_the_store() -> None:
    found = runs([job("train", "1")], [job("train", "1")], kubeconfig="b")["train"]
    assert (found.outcome, found.because) == (Outcome.RESUMES, "its cluster main is replaced")


def test_results_are_lost_with_a_store_on_the_replaced_cluster() -> None:
    claim = declared(
        "kubernetes:core/v1:PersistentVolumeClaim",
        "store",
        {"metadata": {"name": "store"}},
        provider=provider().urn,
    )
    mounted = job("train", "1", volumes=[{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}])
    found = runs([claim, mounted], [claim, mounted], kubeconfig="b")["train"]
    assert (found.outcome, found.because) == (Outcome.RUNS, "its store is new; its cluster main is replaced")


def on_volume(source: dict[str, Any], *, claim: str = "store", size: str = "1Gi") -> list[Resource]:
    """A volume of the stack's own, its claim, and a Job that keeps its result there."""
    volume = {"metadata": {"name": f"volume-{claim}"}, "spec": {"capacity": {"storage": size}, **source}}
    claiming = {"metadata": {"name": claim}, "spec": {"volumeName": f"volume-{claim}"}}
    mounts = [{"name": "store", "persistentVolumeClaim": {"claimName": claim}}]
    return [
        declared("kubernetes:core/v1:PersistentVolume", "volume", volume, provider=provider().urn),
        declared("kubernetes:core/v1:PersistentVolumeClaim", "store", claiming, provider=provider().urn),
        job("train", "1", volumes=mounts),
    ]


NFS = {"nfs": {"server": "filer.example", "path": "/slipway"}}


def test_the_same_folder_behind_another_claim_still_has_the_results() -> None:
    found = runs(on_volume(NFS), on_volume(NFS, claim="larger", size="2Gi"))["train"]
    assert (found.outcome, found.because) == (Outcome.RESUMES, "its volumes changed")


def test_another_folder_of_the_store_has_no_results() -> None:
    other = {"nfs": {**NFS["nfs"], "path": "/elsewhere"}}
    found = runs(on_volume(NFS), on_volume(other, claim="other"))["train"]
    assert (found.outcome, found.because) == (Outcome.RUNS, "its store is new")


def test_another_capacity_of_a_bucket_volume_keeps_the_results() -> None:
    def bucket(capacity: str, options: str) -> dict[str, Any]:
        attributes = {"capacity": capacity, "options": options}
        return {"csi": {"driver": "s3", "volumeHandle": "bucket", "volumeAttributes": attributes}}

    before = on_volume(bucket("1Gi", "--endpoint a"))
    assert runs(before, on_volume(bucket("2Gi", "--endpoint a"), claim="b"))["train"].outcome is Outcome.RESUMES
    assert runs(before, on_volume(bucket("1Gi", "--endpoint b"), claim="b"))["train"].outcome is Outcome.RUNS


@pytest.mark.parametrize(
    ("source", "outcome"), [(NFS, Outcome.RESUMES), ({"hostPath": {"path": "/data"}}, Outcome.RUNS)]
)
def test_a_host_folder_on_another_cluster_has_no_results(source: dict[str, Any], outcome: Outcome) -> None:
    assert runs(on_volume(source), on_volume(source), kubeconfig="b")["train"].outcome is outcome


def test_a_job_in_another_namespace_says_so() -> None:
    spec = job("gate", "1").properties["spec"]
    before, after = (
        declared(
            JOB, "gate", {"metadata": {"name": "gate-1", "namespace": each}, "spec": spec}, provider=provider().urn
        )
        for each in ("old", "new")
    )
    assert one(before, after) == (Outcome.RUNS, "its namespace changed")


def test_a_changed_dependency_is_the_cause_if_nothing_else_changed() -> None:
    def chart(digest: str, *needed: Resource) -> Resource:
        urns = frozenset(each.urn for each in needed)
        return replace(job("chart", digest), dependencies=urns)

    one_run, other_run = job("t4", "1"), job("h100", "1")
    release = declared("kubernetes:helm.sh/v3:Release", "plugin", {"version": "1"}, provider=provider().urn)
    newer = replace(release, properties={"version": "2"})
    before = [release, one_run, chart("1", release, one_run)]
    added = runs(before, [release, one_run, other_run, chart("2", release, one_run, other_run)])
    assert added["chart"].because == "h100 is new"
    assert runs(before, [release, chart("2", release)])["chart"].because == "t4 is gone"
    assert runs(before, [newer, one_run, chart("2", newer, one_run)])["chart"].because == "plugin changes"


def test_a_job_that_is_declared_under_another_name_finds_its_result() -> None:
    renamed = job("renamed", "1", placed={"directory": "train/1"})
    renamed.properties = job("train", "1").properties
    found = runs([job("train", "1")], [renamed])["renamed"]
    assert (found.outcome, found.because) == (Outcome.RESUMES, "it is declared anew")


def test_an_input_that_finds_its_result_does_not_run_again() -> None:
    def both(memory: str) -> list[Resource]:
        sized = {"resources": {"requests": {"memory": memory}}}
        reads = {"model": "train/1"}
        return [job("train", "1", container=sized), job("predict", "9", inputs=reads, container=sized)]

    assert {run.because for run in runs(both("1Gi"), both("2Gi")).values()} == {"its memory changed"}


def test_a_new_input_is_called_new() -> None:
    before = [job("predict", "1")]
    after = [job("train", "1"), job("predict", "2", inputs={"model": "train/1"})]
    assert "its input train is new" in runs(before, after)["predict"].because


def test_a_job_runs_on_the_pool_that_can_take_its_pod() -> None:
    asking = {"resources": {"limits": {GPU_RESOURCE: "1"}}}
    on_gpu: dict[str, Any] = {"nodeSelector": {"pool": "gpu"}, "container": asking}
    right = runs([], [job("train", "1", tolerations=[TOLERATION], **on_gpu)])["train"]
    assert (right.pool, right.accelerator, right.gpus) == ("gpu", "t4", 1)
    untolerated = runs([], [job("train", "1", **on_gpu)])["train"]
    assert (untolerated.pool, untolerated.accelerator, untolerated.gpus) == ("", "", 1)
    too_many = {"resources": {"limits": {GPU_RESOURCE: "8"}}}
    more = job("train", "1", tolerations=[TOLERATION], nodeSelector={"pool": "gpu"}, container=too_many)
    assert runs([], [more])["train"].pool == ""


def test_a_job_whose_pool_cannot_be_told_is_not_said_to_fit_none() -> None:
    unknown = job("train", "1", nodeSelector=UNKNOWN)
    too_large = job("train", "1", container={"resources": {"requests": {"memory": "1Ti"}}})
    said = {}
    for name, each in (("unknown", unknown), ("too large", too_large)):
        changes = compare(stack(), stack(each))
        said[name] = (rows(changes)[-1].place, phrasing.job_words(changes, 3))
    assert said["unknown"] == ("on a pool that this preview cannot tell", "train on an unknown pool")
    assert said["too large"] == ("on no pool, for none can take it", "train on no pool")


def test_the_list_of_a_schedules_jobs_is_not_shown_beside_the_jobs_that_changed() -> None:
    def both(digest: str, words: str) -> list[Resource]:
        listed = declared("kubernetes:core/v1:ConfigMap", "nightly-jobs", {"data": {"jobs.json": f'["{words}"]'}})
        return [listed, job("train", digest, container={"args": [words]})]

    shown = {row.resources[0][0]: row for row in rows(compare(stack(*both("1", "a")), stack(*both("2", "b"))))}
    assert (shown["nightly-jobs"].why, shown["nightly-jobs"].properties) == ("it lists Jobs that change", [])
    alone = rows(compare(stack(both("1", "a")[0]), stack(both("1", "b")[0])))
    assert [each.path for each in alone[0].properties] == ['data["jobs.json"]']


def test_the_policy_of_a_schedule_is_shown_by_what_it_does_to_a_run_in_progress() -> None:
    """Its expressions say nothing to a person; a run that has begun is refused the Jobs that it has not made."""

    def both(digest: str, words: str) -> list[Resource]:
        variables = [{"name": "known", "expression": "true"}, {"name": "pod0", "expression": f'dyn("{words}")'}]
        spec = {"failurePolicy": "Fail", "variables": variables}
        kind = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
        return [
            declared(kind, "nightly-policy", {"spec": spec}),
            job("train", digest, container={"args": [words]}),
        ]

    shown = {row.resources[0][0]: row for row in rows(compare(stack(*both("1", "a")), stack(*both("2", "b"))))}
    assert shown["nightly-policy"].properties == []
    assert "a scheduled run that has begun fails" in shown["nightly-policy"].why
