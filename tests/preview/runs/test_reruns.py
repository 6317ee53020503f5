"""Which Jobs an update runs, on Jobs made by hand: one cause each."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slipway.evaluated import phrasing
from slipway.evaluated.model import JobRun, Outcome
from slipway.infra.kubernetes.shipping.archive import Archive
from slipway.infra.kubernetes.shipping.bundle import Files
from slipway.infra.placed import CODE_PART
from slipway.infra.platform import GPU_RESOURCE, Resources, Taint
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, NodePool, Resource, Secret, Stack
from slipway.preview.differences import compare, rows
from tests.support.reviewing import declared

JOB = "kubernetes:batch/v1:Job"
GPU_TAINT = Taint("gpu", "present", "NoSchedule")
TOLERATION = {"key": "gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}


def provider(kubeconfig: str = "a") -> Resource:
    return declared(KUBERNETES_PROVIDER, "main", {"kubeconfig": Secret(kubeconfig)})


def files(step: str, digest: str, **contents: str) -> Resource:
    keys = {path.replace("_", "."): text for path, text in contents.items()}
    return declared(
        "kubernetes:core/v1:ConfigMap",
        f"{step}-bundle",
        {"metadata": {"name": f"{step}-bundle-{digest}"}, "data": keys, "immutable": True},
        provider=provider().urn,
    )


def job(step: str, digest: str, *arguments: str, result: bool = True, **pod: Any) -> Resource:
    output = [f"--output=/store/{step}/{digest}"] if result else []
    container = {"name": step, "image": "python:3", "args": [*arguments, *output], **pod.pop("container", {})}
    spec = {"nodeSelector": {"pool": "cpu"}, "containers": [container], **pod}
    inputs = dict(argument.split("=/store/") for argument in arguments if "=/store/" in argument)
    annotations = {"slipway/runtime": f"{step}/{digest}"} if result else {}
    annotations |= {"slipway/inputs": json.dumps(inputs)} if inputs else {}
    metadata = {"name": f"{step}-{digest}", "annotations": annotations}
    properties = {"metadata": metadata, "spec": {"template": {"spec": spec}}}
    return declared(JOB, step, properties, provider=provider().urn)


def mounting(config_map: str, *paths: str) -> dict[str, Any]:
    items = [{"key": path.replace("/", "."), "path": path} for path in paths]
    return {"volumes": [{"name": "bundle", "configMap": {"name": config_map, "items": items}}]}


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


def stack(*resources: Resource, kubeconfig: str = "a") -> Stack:
    all_ = [provider(kubeconfig), *resources]
    return Stack("test", {each.urn: each for each in all_}, pools=[pool("cpu"), pool("gpu", 1)])


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
            files("train", digest, train_py=text, same_py="x"),
            job("train", digest, **mounting(f"train-bundle-{digest}", "train/py", "same/py")),
            job("predict", f"9{digest}", f"--model=/store/train/{digest}"),
            job("other", "1"),
        ]

    found = runs(both("1", "a"), both("2", "b"))
    assert {name: (each.outcome, each.because) for name, each in found.items()} == {
        "train": (Outcome.RUNS, "train/py changed"),
        "predict": (Outcome.RUNS, "its input train runs again"),
    }


def test_a_changed_file_of_a_command_is_named_as_in_its_folder() -> None:
    before, after = (
        [
            files("train", text, train_py=text),
            job("train", text, **mounting(f"train-bundle-{text}", "code/train.py")),
        ]
        for text in ("1", "2")
    )
    before, after = (
        [
            replace(resource, properties={**resource.properties, "data": {"code.train.py": text}})
            if resource.name == "train-bundle"
            else resource
            for resource in resources
        ]
        for resources, text in ((before, "1"), (after, "2"))
    )

    assert runs(before, after)["train"].because == "train.py changed"


def test_a_changed_file_of_code_that_is_an_archive_is_named_too() -> None:
    def shipping(text: str) -> list[Resource]:
        archive = Archive(Files({"data.bin": bytes(2_000_000), "a/train.py": text.encode(), "z.py": b""}))
        maps = [
            declared(
                "kubernetes:core/v1:ConfigMap",
                f"part-{text}-{index}",
                {
                    "metadata": {"name": f"part-{text}-{index}"},
                    "binaryData": {CODE_PART: base64.b64encode(part.contents[CODE_PART]).decode()},
                },
                provider=provider().urn,
            )
            for index, part in enumerate(archive.parts)
        ]
        assert len(maps) == 3
        items = [{"key": CODE_PART, "path": CODE_PART}]
        volumes = [
            {"name": f"part-{index}", "configMap": {"name": made.name, "items": items}}
            for index, made in enumerate(maps)
        ]
        return [*maps, job("train", text, volumes=volumes)]

    assert runs(shipping("1"), shipping("2"))["train"].because == "a/train.py changed"


@pytest.mark.parametrize(("count", "because"), [(3, "f0, f1, f2 changed"), (5, "f0, f1, f2 and 2 more changed")])
def test_many_changed_files_are_counted(count: int, because: str) -> None:
    names = [f"f{index}" for index in range(count)]
    before, after = (
        [
            files("train", digest, **dict.fromkeys(names, digest)),
            job("train", digest, **mounting(f"train-bundle-{digest}", *names)),
        ]
        for digest in ("1", "2")
    )
    assert runs(before, after)["train"].because == because


USES = "import sys\n\nfrom {module} import run\nfrom work.data import load\n\nrun(load(sys.argv))\n"


def shipping(digest: str, contents: Mapping[str, str], command: str) -> list[Resource]:
    """Three Jobs with the same files."""
    found: list[Resource] = []
    for step in ("prepare", "train", "predict"):
        keys = {path.replace("/", "."): text for path, text in contents.items()}
        mounted = mounting(f"{step}-bundle-{digest}", *contents)
        found += [
            replace(files(step, digest), properties={**files(step, digest).properties, "data": keys}),
            job(
                step, digest, **mounted, initContainers=[{"name": "install", "command": ["python", "-m", command]}]
            ),
        ]
    return found


def test_jobs_whose_files_only_moved_share_a_row_that_says_so() -> None:
    before = shipping(
        "1" * 10,
        {"work/exits.py": "def run(it): ...", "work/use.py": USES.format(module="work.exits")},
        "work.exits",
    )
    moved = {
        "work/shared/__init__.py": "",
        "work/shared/exits.py": "def run(it): ...",
        "work/use.py": "import sys\n\nfrom work.data import load\n"
        "from work.shared.exits import run\n\nrun(load(sys.argv))\n",
    }
    after = shipping("2" * 10, moved, "work.shared.exits")
    changes = compare(stack(*before), stack(*after))
    assert changes.moved == {"work/exits.py": "work/shared/exits.py"}
    assert [(row.done, row.why, len(row.resources), list(row.properties)) for row in rows(changes)] == [
        ("replaced", "its code moved", 3, []),
        ("runs again", "its code moved", 3, []),
    ]


def test_other_changes_beside_a_move_are_listed() -> None:
    uses = "import {}.exits\nB = {}"
    first = {"work/exits.py": "A = 1", "work/use.py": uses.format("work", 1), "work/old.py": "C = 1"}
    second = {"new/exits.py": "A = 1", "work/use.py": uses.format("new", 2), "new/old.py": "C = 2"}
    before, after = shipping("1" * 10, first, "x"), shipping("2" * 10, second, "x")
    changes = compare(stack(*before), stack(*after))
    assert changes.moved == {"work/exits.py": "new/exits.py"}
    assert {run.because for run in changes.runs} == {
        "work/use.py changed; new/old.py came; work/old.py went; its code moved"
    }
    (bundles, _) = rows(changes)
    assert [each.path for each in bundles.properties] == [
        'data["new/old.py"]',
        'data["work/old.py"]',
        'data["work/use.py"]',
    ]


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"container": {"image": "python:4"}}, "its image changed"),
        ({"container": {"args": ["--epochs=2", "--output=/store/train/2"]}}, "its arguments changed"),
        ({"container": {"env": [{"name": "A", "value": "b"}]}}, "its environment changed"),
    ],
)
def test_a_change_that_affects_the_result_runs_the_job(changed: dict[str, Any], because: str) -> None:
    assert one(job("train", "1"), job("train", "2", **changed)) == (Outcome.RUNS, because)


def test_another_run_directory_is_not_a_cause() -> None:
    def after(digest: str, text: str) -> list[Resource]:
        environment = {"env": [{"name": "RECORD", "value": f"/store/.runs/train/{digest}/1"}]}
        mounted = mounting(f"train-bundle-{digest}", "train/py")
        data = f"--data=/store/prepare/{digest}"
        return [
            files("train", digest, train_py=text),
            job("train", digest, data, container=environment, **mounted),
        ]

    assert runs(after("4c1a99e007", "a"), after("52dc7b1f3e", "b"))["train"].because == "train/py changed"


def test_directories_of_a_job_without_annotations_are_not_a_cause() -> None:
    before, after = job("train", "1", "--data=/store/prepare/1"), job("train", "2", "--data=/store/prepare/2")
    before.properties["metadata"].pop("annotations")
    assert one(before, after) == (Outcome.RUNS, "what its result depends on changed")


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"container": {"resources": {"requests": {"memory": "2Gi"}}}}, "its memory changed"),
        ({"container": {"resources": {"limits": {GPU_RESOURCE: "1"}}}}, "its GPUs changed"),
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
    before, after = (job("gate", "1", result=False, tolerations=each) for each in ([], [TOLERATION]))
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
    assert (found.outcome, found.because) == (Outcome.RUNS, "its volumes changed; its store is new")


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
    spec = job("gate", "1", result=False).properties["spec"]
    before, after = (
        declared(
            JOB, "gate", {"metadata": {"name": "gate-1", "namespace": each}, "spec": spec}, provider=provider().urn
        )
        for each in ("old", "new")
    )
    assert one(before, after) == (Outcome.RUNS, "its namespace changed")


def test_another_accelerator_of_the_pool_is_named() -> None:
    asking = {"resources": {"limits": {GPU_RESOURCE: "1"}}}
    on_gpu: dict[str, Any] = {"nodeSelector": {"pool": "gpu"}, "container": asking, "tolerations": [TOLERATION]}
    before, after = stack(job("train", "1", **on_gpu)), stack(job("train", "2", **on_gpu))
    other = replace(after, pools=[pool("cpu"), replace(pool("gpu", 1), accelerator="l4")])
    (found,) = compare(before, other).runs
    assert found.because == "its accelerator changed from t4 to l4"


def test_a_changed_dependency_is_the_cause_if_nothing_else_changed() -> None:
    def chart(digest: str, *needed: Resource) -> Resource:
        urns = frozenset(each.urn for each in needed)
        return replace(job("chart", digest, "--results=/store"), dependencies=urns)

    one_run, other_run = job("t4", "1"), job("h100", "1")
    release = declared("kubernetes:helm.sh/v3:Release", "plugin", {"version": "1"}, provider=provider().urn)
    newer = replace(release, properties={"version": "2"})
    before = [release, one_run, chart("1", release, one_run)]
    added = runs(before, [release, one_run, other_run, chart("2", release, one_run, other_run)])
    assert added["chart"].because == "h100 is new"
    assert runs(before, [release, chart("2", release)])["chart"].because == "t4 is gone"
    assert runs(before, [newer, one_run, chart("2", newer, one_run)])["chart"].because == "plugin changes"


def test_a_job_that_is_declared_under_another_name_finds_its_result() -> None:
    renamed = declared(JOB, "renamed", job("train", "1").properties, provider=provider().urn)
    found = runs([job("train", "1")], [renamed])["renamed"]
    assert (found.outcome, found.because) == (Outcome.RESUMES, "it is declared anew")


def test_an_input_that_finds_its_result_does_not_run_again() -> None:
    def both(memory: str) -> list[Resource]:
        sized = {"resources": {"requests": {"memory": memory}}}
        args = ["--model=/store/train/1", "--output=/store/predict/9"]
        return [job("train", "1", container=sized), job("predict", "9", container={**sized, "args": args})]

    assert {run.because for run in runs(both("1Gi"), both("2Gi")).values()} == {"its memory changed"}


def test_a_new_input_is_called_new() -> None:
    before = [job("predict", "1", "--model=/elsewhere")]
    after = [job("train", "1"), job("predict", "2", "--model=/store/train/1")]
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
        return [listed, job("train", digest, words)]

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
        return [declared(kind, "nightly-policy", {"spec": spec}), job("train", digest, words)]

    shown = {row.resources[0][0]: row for row in rows(compare(stack(*both("1", "a")), stack(*both("2", "b"))))}
    assert shown["nightly-policy"].properties == []
    assert "a scheduled run that has begun fails" in shown["nightly-policy"].why
