"""The benchmark pipeline: from settings to steps that the workloads understand, in the right order."""

import argparse
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.kubernetes.gates import Gates
from infra.kubernetes.job import declare
from infra.kubernetes.pod import arguments
from infra.kubernetes.run import plan
from infra.kubernetes.workspace import Workspace, WorkspaceArgs
from infra.pipelines import benchmark
from infra.settings.pipelines import Benchmark
from infra.step import Step
from tests.support.recording import Recording, record
from tests.support.stand_in import cpu_pool, gpu_pool, platform, step

ROOT = Path(__file__).parents[3]

RUNS = {"one": {"pool": "gpu", "gpus": 1}}
CHART = {"pool": "cpu", "cpu": "1", "memory": "2Gi"}


def settings(**values: Any) -> Benchmark:
    return Benchmark.model_validate({"runs": RUNS, "chart": CHART, **values})


def inspect(given: Benchmark, look: Callable[[benchmark.BenchmarkSteps], Any], *, before: bool = False) -> Any:
    """What ``look`` finds in the steps of ``given``, inside a program, where others come ``before`` or none."""

    def program() -> Any:
        here = platform(cpu_pool(), gpu_pool(), gpu_pool("gpus", gpus=8))
        others = [step(here, "gpu", "predict"), step(here, "cpu", "prepare")] if before else []
        return look(benchmark.steps(given, {"here": here}, Gates("image"), others))

    return record(program, {}, preview=True).result


def needs(of: Step) -> set[str]:
    """Every step that has to succeed before this one, by pipeline and name."""
    found: set[str] = set()
    for each in (*of.inputs.values(), *of.after):
        found |= {f"{each.pipeline}-{each.name}", *needs(each)}
    return found


def parsed(of: Callable[[benchmark.BenchmarkSteps], Step], given: Benchmark) -> argparse.Namespace:
    """What the workload itself makes of a step's arguments."""
    module, given_arguments = inspect(given, lambda made: (of(made).module, arguments(plan(of(made), ROOT))))
    return importlib.import_module(module)._parse(given_arguments)


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
    assert inspect(given, lambda made: [each.name for each in made.runs]) == ["all-fp32", "all-bf16"]
    options = parsed(lambda made: made.runs[1], given)
    assert (options.precision, options.batch_size, options.batches, options.warm_up) == ("bf16", 256, 40, 5)
    assert (options.xla, options.gpus, options.seed) == (True, 8, 7)
    assert options.data == "/store/imagenet/{2012}"
    assert str(options.libraries).startswith("/store/cuda/libraries/")


def test_what_a_run_leaves_out_is_as_tf_cnn_benchmarks_has_it() -> None:
    options = parsed(lambda made: made.runs[0], settings())
    assert (options.batch_size, options.batches, options.warm_up, options.xla) == (64, 100, 10, False)
    assert options.data == "synthetic"


def test_steps_of_one_pool_follow_one_another_and_those_of_other_pipelines() -> None:
    runs = {**RUNS, "all": {"pool": "gpus", "gpus": 8, "precisions": ["fp16"]}}

    def look(made: benchmark.BenchmarkSteps) -> dict[str, set[str]]:
        return {each.name: needs(each) for each in made.runs}

    found = inspect(settings(runs=runs), look, before=True)
    assert "digits-predict" in found["one-fp32"]
    assert {"digits-predict", "benchmark-one-fp32"} <= found["one-fp16"]
    assert not found["all-fp16"] & {"digits-predict", "benchmark-one-fp32", "benchmark-one-fp16"}
    assert not any("digits-prepare" in each for each in found.values())


def test_a_gpu_node_is_not_asked_for_before_the_others_are_done() -> None:
    def look(made: benchmark.BenchmarkSteps) -> set[str]:
        gate = next(each for each in made.runs[0].after if each.pipeline == "accelerator-gate")
        return needs(gate)

    assert "digits-predict" in inspect(settings(), look, before=True)


def test_what_comes_before_only_orders() -> None:
    def inputs(made: benchmark.BenchmarkSteps) -> list[set[str]]:
        return [set(each.inputs) for each in made.runs]

    assert inspect(settings(), inputs, before=True) == [{"libraries"}, {"libraries"}]


def test_the_chart_waits_for_every_run_and_reads_all_that_is_in_the_store() -> None:
    def look(made: benchmark.BenchmarkSteps) -> tuple[set[str], bool, str | None]:
        requirements = made.chart.requirements
        return set(made.chart.inputs), bool(made.chart.resources.gpus), requirements and requirements.file

    inputs, on_gpus, requirements = inspect(settings(), look)
    assert inputs == {"one-fp32", "one-fp16"}
    assert not on_gpus
    assert requirements == "workloads/benchmark/requirements.txt"
    options = parsed(lambda made: made.chart, settings())
    assert [str(each) for each in options.results] == ["/store/benchmark"]
    assert str(options.output).startswith("/store/benchmark/chart/")


def test_the_chart_is_drawn_again_when_a_run_is() -> None:
    def path(made: benchmark.BenchmarkSteps) -> str:
        return plan(made.chart, ROOT).path

    other = settings(runs={"one": {"pool": "gpu", "gpus": 1, "batches": 50}})
    assert inspect(settings(), path) != inspect(other, path)


def test_images_are_written_where_a_run_reads_them_and_only_then() -> None:
    images = {"pool": "cpu", "count": 300}
    generated = {"one": {"pool": "gpu", "gpus": 1, "data": "generated"}}

    def look(made: benchmark.BenchmarkSteps) -> set[str]:
        return needs(made.chart)

    assert "benchmark-images" not in inspect(settings(images=images), look)
    given = settings(images=images, runs=generated)
    assert "benchmark-images" in inspect(given, look)
    options = parsed(lambda made: made.runs[0].inputs["images"], given)
    assert options.count == 300
    assert parsed(lambda made: made.runs[0], given).data == str(options.output)


def test_what_is_published_has_the_names_that_the_stack_looks_for() -> None:
    assert importlib.import_module(benchmark.MEASURES).RESULT == benchmark.RESULT
    assert importlib.import_module(benchmark.DRAWS).CHART == benchmark.CHART


def test_it_ships_what_this_repository_has(tmp_path: Path) -> None:
    assert benchmark.problems(ROOT) == []
    assert {each.key for each in benchmark.problems(tmp_path)} == {
        "slipway:pipelines.benchmark.runs",
        "slipway:pipelines.benchmark.images",
        "slipway:pipelines.benchmark.chart",
    }


def declared(*, readable: bool, **content: Any) -> Recording:
    """The stack's outputs where the store can be read from here, or only from inside the cluster.

    ``content`` is what result.json has beside the figure.
    """

    def program() -> None:
        here = platform(cpu_pool(), gpu_pool())
        if readable:
            text = json.dumps({"images_per_second": 1234.567, **content})
            store = replace(here.store, claim=None, read=lambda _path, _job: pulumi.Output.from_input(text))
            here = replace(here, store=store)
        made = benchmark.steps(settings(), {"here": here}, Gates("image"))
        workspaces = {"here": Workspace("here", WorkspaceArgs(here, "slipway", "runner", protect=False))}
        jobs = declare([made.chart], workspaces, ROOT)
        for name, value in benchmark.outputs(made, jobs, workspaces).items():
            pulumi.export(name, value)

    return record(program, {}, preview=False)


def test_the_outputs_are_the_figures_where_the_store_can_be_read() -> None:
    found = declared(readable=True).exports
    assert found["images_per_second"] == {"one-fp32": 1234.6, "one-fp16": 1234.6}
    assert found["chart"].startswith("pvc://slipway/store/benchmark/chart/")
    assert found["chart"].endswith("/throughput.png")


def test_the_outputs_say_which_figures_are_those_of_a_cpu() -> None:
    found = declared(readable=True, remark="small steps on a CPU").exports
    assert found["images_per_second"]["one-fp32"] == "1234.6 (small steps on a CPU)"


def test_the_outputs_are_commands_where_the_store_is_a_claim() -> None:
    found = declared(readable=False).exports
    assert found["images_per_second"]["one-fp32"] == "make show STACK=test one-fp32"
    assert found["chart"] == "make show STACK=test chart"
    assert found["show"]["chart"]["path"].startswith("benchmark/chart/")
    assert found["show"]["one-fp32"]["path"].endswith("/result.json")


@pytest.mark.parametrize("key", ["runs", "chart"])
def test_a_pool_is_needed(key: str) -> None:
    with pytest.raises(ValueError, match="required"):
        Benchmark.model_validate({name: {} for name in ("runs", "chart")} | {key: {"one": {}}})
