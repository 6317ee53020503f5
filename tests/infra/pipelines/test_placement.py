"""What two pipelines of one stack share, and what they do not."""

from typing import Any

from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.run import plan
from slipway.infra.pipelines.discovery import DeclaredPipeline, pipeline
from slipway.infra.placement.placing import place
from tests.support.checkout import ROOT
from tests.support.recording import record
from tests.support.stand_in import platform

ON_GPU = {"pool": "gpu", "gpus": 1}
SETTINGS = pipeline("mnist").settings.model_validate(
    {"steps": {"prepare": {"pool": "cpu"}, "train": ON_GPU, "predict": ON_GPU}}
)


def test_one_pipeline_under_two_names_has_jobs_and_folders_of_its_own_and_shares_gates_and_libraries() -> None:
    def program() -> Any:
        pipelines = [DeclaredPipeline(name, "mnist", SETTINGS) for name in ("one", "two")]
        placed = place(pipelines, {"here": platform()}, Gates("image"), ROOT)
        return {name: [plan(step, ROOT) for step in steps] for name, steps in placed.items()}

    runs = record(program, {}, preview=True).result
    assert [run.path.rpartition("/")[0] for run in runs["two"]] == ["two/prepare", "two/train", "two/predict"]
    assert [run.digest for run in runs["one"]] == [run.digest for run in runs["two"]]
    assert not {run.job_name for run in runs["one"]} & {run.job_name for run in runs["two"]}
    one, two = runs["one"][1], runs["two"][1]
    assert one.inputs["libraries"].path == two.inputs["libraries"].path
    assert {id(step) for step in one.step.after} == {id(step) for step in two.step.after}


def test_the_order_of_a_stack_file_changes_nothing() -> None:
    def names(*order: str) -> list[str]:
        def program() -> list[str]:
            pipelines = [DeclaredPipeline(name, "mnist", SETTINGS) for name in order]
            return list(place(pipelines, {"here": platform()}, Gates("image"), ROOT))

        return record(program, {}, preview=True).result

    assert names("b", "a") == names("a", "b")
