"""Gates: each there once, asked for no sooner than needed, and run again when what they tested changes."""

from collections.abc import Callable
from dataclasses import replace

from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.run import plan
from slipway.infra.placed import Step
from slipway.infra.platform import Platform, Pool, Resources
from tests.support.checkout import ROOT
from tests.support.recording import record
from tests.support.stand_in import cpu_pool, gpu_pool, platform, step

ONE_GPU = Resources(cpu=1000, memory=2048, ephemeral_storage=1024, gpus=1)


def on(pools: list[Pool], check: Callable[[Platform], None]) -> None:
    """Runs ``check`` inside a program, with a platform that has ``pools``."""
    record(lambda: check(platform(*pools)), {}, preview=True)


def needed(step: Step) -> set[str]:
    """All steps that have to succeed before ``step``."""
    before = [*step.inputs.values(), *step.after]
    return {f"{step_.pipeline}/{step_.name}" for step_ in before}.union(*(needed(step_) for step_ in before))


def test_a_step_waits_for_the_gates_of_its_cluster_and_tests_its_gpus_in_its_own_pods() -> None:
    def check(here: Platform) -> None:
        gates = Gates("image")
        prepare = gates.guard(step(here, name="prepare"))
        train = gates.guard(step(here, "gpu", resources=ONE_GPU, inputs={"prepare": prepare}))
        assert needed(prepare) == {"store-gate/here"}
        assert needed(train) == {"store-gate/here", "digits/prepare"}
        assert prepare.test is None
        assert train.test is not None

    on([cpu_pool(), gpu_pool()], check)


def test_each_gate_is_there_once_however_many_steps_it_guards() -> None:
    def check(here: Platform) -> None:
        gates = Gates("image")
        one = gates.guard(step(here, "gpu", resources=ONE_GPU))
        other = gates.guard(step(here, "gpu", name="predict", resources=ONE_GPU, inputs={"train": one}))
        assert list(map(id, one.after)) == list(map(id, other.after))

    on([cpu_pool(), gpu_pool()], check)


def arguments(step: Step) -> list[str]:
    assert step.test is not None
    return [*step.test.arguments]


def test_the_gpus_that_a_pod_has_are_tested_with_what_its_image_has() -> None:
    def check(here: Platform) -> None:
        gates = Gates("image")
        four = replace(ONE_GPU, gpus=4)
        train = gates.guard(step(here, "gpu", resources=four, uses_store=False))
        fit = gates.guard(step(here, "gpu", resources=four, uses_store=False), tensorflow=False)
        assert arguments(train) == ["--tensorflow", "--model", "nvidia-tesla-t4", "--count", "4"]
        assert arguments(fit) == ["--model", "nvidia-tesla-t4", "--count", "4"]
        assert [guarded.test and guarded.test.interpreter for guarded in (train, fit)] == ["python", "python3"]

    on([cpu_pool(), gpu_pool(gpus=8)], check)


def test_a_test_is_remembered_in_the_store_by_image_and_left_out_where_the_result_is() -> None:
    def check(here: Platform) -> None:
        words = arguments(Gates("image").guard(step(here, "gpu", resources=ONE_GPU, image="example/{x}:1")))
        assert words[words.index("--passed") :] == [
            *("--passed", "{store}/gates/gpu-test", "--image", "example/{{x}}:1", "--output", "{output}")
        ]

    on([cpu_pool(), gpu_pool()], check)


def test_the_test_of_gpus_ships_with_the_step_and_decides_nothing() -> None:
    def check(here: Platform) -> None:
        alone = step(here, "gpu", module="slipway.runtime.gates.store", resources=ONE_GPU)
        tested = Gates("image").guard(alone)
        with_test, without = plan(tested, ROOT), plan(alone, ROOT)
        assert with_test.digest == without.digest
        shipped = {*with_test.bundle.contents} - {*without.bundle.contents}
        assert {f"slipway/runtime/gates/{name}.py" for name in ("gpus", "accelerator")} <= shipped

    on([cpu_pool(), gpu_pool()], check)


def test_the_store_gate_runs_where_no_gpu_is() -> None:
    def check(here: Platform) -> None:
        gate = Gates("image").guard(step(here, "gpu", resources=ONE_GPU)).after[0]
        assert (gate.pipeline, gate.pool.name, gate.resources.gpus) == ("store-gate", "cpu", 0)

    on([gpu_pool(), cpu_pool()], check)


def test_the_store_gate_runs_on_a_gpu_node_where_there_is_no_other() -> None:
    def check(here: Platform) -> None:
        gate = Gates("image").guard(step(here, "gpu", resources=ONE_GPU)).after[0]
        assert (gate.pool.name, gate.resources.gpus) == ("gpu", 0)

    on([gpu_pool()], check)
