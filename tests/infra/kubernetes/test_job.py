"""Jobs: what runs again and what does not, where pods may run, and what Pulumi's engine needs of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.infra import places
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.run import plan
from slipway.infra.pipelines.results import RESULTS as ANNOTATION
from slipway.infra.pipelines.results import Number, Picture
from slipway.infra.placed import Step
from slipway.infra.platform import Resources
from slipway.infra.review.stack import Resource
from tests.support.failure_policies import action_for
from tests.support.recording import Recording, record
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

Steps = Callable[[], Sequence[Step]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "LIBRARY", tmp_path)
    files = {
        "work/__init__.py": "",
        "work/prepare.py": "import work.common",
        "work/train.py": "import work.model",
        "work/predict.py": "import work.model",
        "work/report.py": "",
        "work/model.py": "",
        "work/common.py": "",
        "work/requirements.txt": "numpy==2.0",
        "slipway/runtime/steps/packages.py": "",
        "slipway/runtime/usage/measure.py": "",
        "images/3.png": "3",
        "images/labels.json": "{}",
    }
    return write_tree(tmp_path, files)


def run(steps: Steps, root: Path, preview: bool = False) -> Recording:
    def program() -> None:
        declared = list(steps())
        workspaces = {
            entry.name: Workspace(entry.name, WorkspaceArgs(entry, "slipway", "runner", protect=False))
            for entry in {id(entry.platform): entry.platform for entry in declared}.values()
        }
        declare(declared, workspaces, root)

    return record(program, {}, preview=preview)


def jobs(recording: Recording) -> dict[str, Resource]:
    return {resource.name: resource for resource in recording.of(JOB)}


def names(recording: Recording) -> dict[str, str]:
    return {name: resource.inputs["metadata"]["name"] for name, resource in jobs(recording).items()}


def pod(job: Resource) -> dict[str, Any]:
    return job.inputs["spec"]["template"]["spec"]


def chain() -> list[Step]:
    """prepare → train → predict, and report beside them."""
    here = platform()
    prepare = step(here, name="prepare")
    train = step(here, "gpu", arguments=["{prepare}", "{output}"], inputs={"prepare": prepare})
    predict = step(here, name="predict", arguments=["{train}", "{output}"], inputs={"train": train})
    return [predict, step(here, name="report")]


@pytest.mark.parametrize("preview", [True, False])
def test_the_same_program_declares_the_same_jobs(root: Path, preview: bool) -> None:
    first, second = run(chain, root, preview), run(chain, root, preview)
    assert [job.inputs for job in jobs(first).values()] == [job.inputs for job in jobs(second).values()]
    assert set(names(first)) == {"digits-prepare", "digits-train", "digits-predict", "digits-report"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("work/common.py", {"digits-prepare", "digits-train", "digits-predict"}),
        ("work/train.py", {"digits-train", "digits-predict"}),
        ("work/model.py", {"digits-train", "digits-predict"}),
        ("work/predict.py", {"digits-predict"}),
        ("work/report.py", {"digits-report"}),
    ],
)
def test_one_changed_byte_runs_its_step_and_those_after_it_again_and_no_other(
    root: Path, file: str, again: set[str]
) -> None:
    before = run(chain, root)
    (root / file).write_text((root / file).read_text(encoding="utf-8") + "#", encoding="utf-8")
    after = run(chain, root)
    assert {name for name, job in jobs(before).items() if job.inputs != jobs(after)[name].inputs} == again
    assert {name for name, run_name in names(before).items() if run_name != names(after)[name]} == again


def test_what_the_package_runs_is_replaced_with_its_code_and_finds_its_result(root: Path) -> None:
    """Else an update of Slipway would train everything anew that reads packages."""
    pods = []
    for code in ("", "#"):
        (root / "slipway/runtime/steps/packages.py").write_text(code, encoding="utf-8")
        pods += map(
            pod, jobs(run(lambda: [step(platform(), module="slipway.runtime.steps.packages")], root)).values()
        )
    assert pods[0]["containers"][0]["args"] == pods[1]["containers"][0]["args"]
    assert pods[0]["volumes"] != pods[1]["volumes"]


def test_an_input_is_read_where_the_step_before_wrote_it(root: Path) -> None:
    declared = jobs(run(chain, root))
    output = {name: pod(job)["containers"][0]["args"][-1] for name, job in declared.items()}
    assert pod(declared["digits-train"])["containers"][0]["args"][0] == output["digits-prepare"]
    assert pod(declared["digits-predict"])["containers"][0]["args"][0] == output["digits-train"]
    assert len(set(output.values())) == len(output)
    assert all(path.startswith("/store/digits/") for path in output.values())


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"arguments": ["--epochs", "3"]}, True),
        ({"image": "example/image:2"}, True),
        ({"module": "work.predict"}, True),
        ({"environment": {"A": "1"}}, True),
        ({"resources": Resources(cpu=1000, memory=2048, ephemeral_storage=1024, gpus=1)}, True),
        ({"resources": Resources(cpu=2000, memory=4096, ephemeral_storage=2048)}, False),
        ({"time_limit": 7200}, False),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_what_decides_the_result_decides_the_name(root: Path, change: dict[str, Any], again: bool) -> None:
    def program() -> None:
        one = step(platform())
        assert (plan(one, root).digest != plan(replace(one, **change), root).digest) is again

    record(program, {}, preview=True)


def test_other_hardware_runs_a_step_again(root: Path) -> None:
    def program() -> None:
        one = step(platform(), "gpu")
        other = replace(one, pool=replace(one.pool, accelerator="nvidia-h100-80gb"))
        assert plan(one, root).digest != plan(other, root).digest

    record(program, {}, preview=True)


def test_a_step_that_only_has_to_succeed_first_does_not_make_others_run_again(root: Path) -> None:
    def after_report() -> list[Step]:
        here = platform()
        return [step(here, after=[step(here, name="report")])]

    before = names(run(after_report, root))
    (root / "work/report.py").write_text("#", encoding="utf-8")
    after = names(run(after_report, root))
    assert before["digits-report"] != after["digits-report"]
    assert before["digits-train"] == after["digits-train"]


@pytest.mark.parametrize(
    ("conditions", "codes", "action"),
    [
        (
            {"PodScheduled"},
            {},
            "Ignore",
        ),  # The kubelet rejected it.
        ({"PodScheduled"}, {"predict": 0, "sidecar": 3}, "Count"),
        ({"PodScheduled"}, {"predict": 137}, "Count"),
        ({"PodScheduled", "DisruptionTarget"}, {"predict": 143}, "Ignore"),
        (set[str](), {}, "Count"),
    ],
)
def test_only_a_pod_that_a_node_took_away_or_refused_is_replaced(
    root: Path, conditions: set[str], codes: dict[str, int], action: str
) -> None:
    rules = run(lambda: [step(platform())], root).one(JOB).inputs["spec"]["podFailurePolicy"]["rules"]
    assert action_for(rules, conditions, codes) == action


RESULTS = (
    Number(name="accuracy", title="Accuracy", path="metrics.json", select="/accuracy", format="percent"),
    Picture(name="sheet", title="All images", path="sheet.png"),
)


def test_a_job_says_where_its_result_is_what_it_reads_and_what_is_worth_showing(root: Path) -> None:
    def program_steps() -> list[Step]:
        here = platform()
        prepare = step(here, name="prepare")
        report = step(here, name="report", arguments=[])
        return [step(here, inputs={"data": prepare}, results=RESULTS, after=[report])]

    recording = run(program_steps, root)
    annotations = {name: job.inputs["metadata"]["annotations"] for name, job in jobs(recording).items()}
    train, prepare = annotations["digits-train"], annotations["digits-prepare"]
    assert f"/store/{train['slipway/run']}" in pod(jobs(recording)["digits-train"])["containers"][0]["args"]
    assert json.loads(train["slipway/inputs"]) == {"data": prepare["slipway/run"]}
    assert ANNOTATION.validate_json(train["slipway/results"]) == RESULTS
    # A Job that leaves nothing in the store has no directory there.
    assert not [key for key in annotations["digits-report"] if key.startswith("slipway/")]


def test_what_is_worth_showing_decides_no_result(root: Path) -> None:
    before = names(run(lambda: [step(platform())], root))
    assert names(run(lambda: [step(platform(), results=RESULTS)], root)) == before


def test_long_names_still_fit_and_still_change_with_the_digest(root: Path) -> None:
    (before,) = names(run(lambda: [step(platform(), pipeline="p" * 60)], root)).values()
    (root / "work/train.py").write_text("#", encoding="utf-8")
    (after,) = names(run(lambda: [step(platform(), pipeline="p" * 60)], root)).values()
    assert len(before) <= 63
    assert before != after
