"""The benchmark pipeline: from settings to steps that the workloads understand, in the right order."""

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.infra.kubernetes.pods.pod import arguments
from slipway.infra.kubernetes.run import plan
from slipway.infra.pipelines.contract import Nodes
from slipway.infra.pipelines.discovery import DeclaredPipeline, declared_steps
from slipway.infra.placed import Step
from slipway.infra.placement import shipping
from slipway.infra.platform import Pool, Store
from tests.support import placing
from tests.support.placing import Steps
from tests.support.stand_in import cpu_pool, gpu_pool
from workloads.benchmark.pipeline import PIPELINE, Benchmark
from workloads.mnist.pipeline import Mnist

ROOT = Path(__file__).parents[3]

RUNS = {"one": {"pool": "gpu", "gpus": 1}}
CHART = {"pool": "cpu", "cpu": "1", "memory": "2Gi"}


def settings(**values: Any) -> Benchmark:
    return Benchmark.model_validate({"runs": RUNS, "chart": CHART, **values})


ON_GPU = {"pool": "gpu", "gpus": 1, "image": f"example.org/tensorflow@sha256:{'0' * 64}"}
OTHER = Mnist.model_validate({"steps": {"prepare": {"pool": "cpu"}, "train": ON_GPU, "predict": ON_GPU}})


def inspect(given: Benchmark, look: Callable[[Steps], Any], *, before: bool = False) -> Any:
    """What ``look`` finds in the steps of ``given``, inside a program, where others come ``before`` or none."""

    def pools() -> list[Pool]:
        return [cpu_pool(), gpu_pool(), gpu_pool("gpus", gpus=8)]

    return placing.inspect("benchmark", given, look, beside={"mnist": OTHER} if before else {}, pools=pools)


def measuring(made: Steps) -> list[Step]:
    return [step for step in made.values() if step.module == "workloads.benchmark.resnet50"]


def needs(of: Step) -> set[str]:
    """Every step that has to succeed before this one, by pipeline and name."""
    names: set[str] = set()
    for step in (*of.inputs.values(), *of.after):
        names |= {f"{step.pipeline}-{step.name}", *needs(step)}
    return names


def parsed(of: Callable[[Steps], Step], given: Benchmark) -> argparse.Namespace:
    """What the workload itself makes of a step's arguments."""
    module, given_arguments = inspect(given, lambda made: (of(made).module, arguments(plan(of(made), ROOT))))
    return importlib.import_module(module)._parse(given_arguments)


def test_a_run_on_several_nodes_is_a_step_in_as_many_pods() -> None:
    runs = {**RUNS, "two": {"pool": "gpu", "gpus": 1, "nodes": 2, "wait": "20m", "precisions": ["fp16"]}}
    declared = {step.name: step.nodes for step in PIPELINE.steps(settings(runs=runs))}
    assert declared["two-fp16"] == Nodes(2, wait=1200)
    assert declared["one-fp32"] is None


def test_each_precision_of_a_run_is_a_step_with_all_that_its_settings_say() -> None:
    run = {
        "precisions": ["fp32", "bf16"],
        "batch_size": 256,
        "batches": 40,
        "warm_up": 5,
        "xla": True,
        "data": "store:imagenet/{2012}",
    }
    given = settings(runs={"all": {"pool": "gpus", "gpus": 8, **run}}, seed=7)
    assert inspect(given, lambda made: [step.name for step in measuring(made)]) == ["all-fp32", "all-bf16"]
    options = parsed(lambda made: measuring(made)[1], given)
    assert (options.precision, options.batch_size, options.batches, options.warm_up) == ("bf16", 256, 40, 5)
    assert (options.xla, options.gpus, options.seed) == (True, 8, 7)
    assert options.data == "/store/imagenet/{2012}"
    assert str(options.libraries).startswith("/store/cuda/libraries/")


def test_what_a_run_leaves_out_is_as_tf_cnn_benchmarks_has_it() -> None:
    options = parsed(lambda made: measuring(made)[0], settings())
    assert (options.batch_size, options.batches, options.warm_up, options.xla) == (64, 100, 10, False)
    assert options.data == "synthetic"


def test_steps_of_one_pool_follow_one_another_and_those_of_other_pipelines() -> None:
    runs = {**RUNS, "all": {"pool": "gpus", "gpus": 8, "precisions": ["fp16"]}}

    def look(made: Steps) -> None:
        steps = {step.name: step for step in measuring(made)}
        waits = {name: needs(step) for name, step in steps.items()}
        assert "mnist-predict" in waits["one-fp32"]
        assert {"mnist-predict", "benchmark-one-fp32"} <= waits["one-fp16"]
        assert not waits["all-fp16"] & {"mnist-predict", "benchmark-one-fp32", "benchmark-one-fp16"}
        for name, step in steps.items():
            of_mnist = [other.name for other in step.after if other.pipeline == "mnist"]
            assert of_mnist == ([] if name == "all-fp16" else ["train", "predict"]), "those on the same pool alone"
            assert set(step.inputs) == {"libraries"}, "what comes before only orders"

    inspect(settings(runs=runs), look, before=True)


def test_the_chart_waits_for_every_run_and_reads_all_that_is_in_the_store() -> None:
    def look(made: Steps) -> tuple[set[str], bool, str | None]:
        requirements = made["chart"].requirements
        return set(made["chart"].inputs), bool(made["chart"].resources.gpus), requirements and requirements.file

    inputs, on_gpus, requirements = inspect(settings(), look)
    assert inputs == {"one-fp32", "one-fp16"}
    assert not on_gpus
    assert requirements == "workloads/benchmark/requirements.txt"
    options = parsed(lambda made: made["chart"], settings())
    assert [str(result) for result in options.results] == ["/store/benchmark"]
    assert str(options.output).startswith("/store/benchmark/chart/")


def test_the_chart_is_drawn_again_when_a_run_is() -> None:
    def path(made: Steps) -> str:
        return plan(made["chart"], ROOT).path

    other = settings(runs={"one": {"pool": "gpu", "gpus": 1, "batches": 50}})
    assert inspect(settings(), path) != inspect(other, path)


def test_images_are_written_where_a_run_reads_them_and_only_then() -> None:
    images = {"pool": "cpu", "count": 300}
    generated = {"one": {"pool": "gpu", "gpus": 1, "data": "generated"}}

    def look(made: Steps) -> set[str]:
        return needs(made["chart"])

    assert "benchmark-images" not in inspect(settings(images=images), look)
    given = settings(images=images, runs=generated)
    assert "benchmark-images" in inspect(given, look)
    options = parsed(lambda made: measuring(made)[0].inputs["images"], given)
    assert options.count == 300
    assert parsed(lambda made: measuring(made)[0], given).data == str(options.output)


def test_it_ships_what_this_repository_has(tmp_path: Path) -> None:
    given = settings(images={"pool": "cpu"}, runs={"one": {**RUNS["one"], "data": "generated"}})
    pipelines = [DeclaredPipeline("benchmark", "benchmark", given)]
    assert shipping.problems(pipelines, ROOT) == []
    assert {problem.key for problem in shipping.problems(pipelines, tmp_path)} == {
        "slipway:pipelines.benchmark.runs.one",
        "slipway:pipelines.benchmark.images",
        "slipway:pipelines.benchmark.chart",
    }


def test_the_declared_results_are_the_files_that_the_chart_publishes(tmp_path: Path) -> None:
    results = {result.name: result for step in declared_steps("benchmark", settings()) for result in step.results}
    chart = importlib.import_module("workloads.benchmark.chart")
    assert results["chart"].path == chart.CHART
    assert results["throughput"].path == chart.RESULTS
    assert results["images_per_second"].path == importlib.import_module("workloads.benchmark.resnet50").RESULT


def readable(store: Store) -> Store:
    rows = [{"run": "one-fp32", "device": "T4", "images_per_second": 1234.567, "jitter": 1, "reduced": True}]
    return reading({"results": rows, "images_per_second": 1234.567})(store)


def reading(content: Mapping[str, Any]) -> Callable[[Store], Store]:
    """Lets each file of a store say ``content``."""

    def change(store: Store) -> Store:
        text = json.dumps(content)
        return replace(store, claim=None, read=lambda _path, _job: pulumi.Output.from_input(text))

    return change


def test_the_outputs_say_which_figures_are_those_of_a_cpu() -> None:
    content = {"results": [], "images_per_second": 12.3456789, "remark": "small steps on a CPU"}
    shown = placing.outputs("benchmark", settings(), reading(content)).exports["benchmark"]
    assert shown["images_per_second"]["one-fp32"] == "12.3457 (small steps on a CPU)"


def test_the_outputs_are_the_figures_where_the_store_can_be_read() -> None:
    shown = placing.outputs("benchmark", settings(), readable).exports["benchmark"]
    (row,) = shown["throughput"]
    assert shown["images_per_second"] == {"one-fp32": 1234.567, "one-fp16": 1234.567}
    assert row == {"run": "one-fp32", "device": "T4", "images_per_second": 1234.567, "reduced": True}
    assert shown["chart"].startswith("pvc://slipway/store/benchmark/chart/")
    assert shown["chart"].endswith("/throughput.png")


def test_the_outputs_are_commands_where_the_store_is_a_claim() -> None:
    exports = placing.outputs("benchmark", settings(), lambda store: store).exports
    command = "make show STACK=test benchmark.images_per_second.one-fp32"
    assert exports["benchmark"]["images_per_second"]["one-fp32"] == command
    assert exports["benchmark"]["chart"] == "make show STACK=test benchmark.chart"
    assert exports["show"]["benchmark.chart"]["path"].startswith("benchmark/chart/")
    assert exports["show"]["benchmark.images_per_second.one-fp32"]["path"].endswith("/result.json")


@pytest.mark.parametrize("key", ["runs", "chart"])
def test_a_pool_is_needed(key: str) -> None:
    with pytest.raises(ValueError, match="required"):
        Benchmark.model_validate({name: {} for name in ("runs", "chart")} | {key: {"one": {}}})
