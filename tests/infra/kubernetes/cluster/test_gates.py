"""Gates: each there once, asked for no sooner than needed, and run again when what they tested changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.run import plan
from slipway.infra.pipelines.contract import Nodes
from slipway.infra.placed import Step
from slipway.infra.platform import Interconnect, Platform, Pool, Resources
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


def devices_gate(step: Step) -> Step:
    (gate,) = [step_ for step_ in step.after if step_.pipeline == "devices-gate"]
    return gate


def test_a_step_waits_for_the_gates_of_its_cluster_and_tests_its_gpus_in_its_own_pods() -> None:
    def check(here: Platform) -> None:
        gates = Gates("image")
        prepare = gates.guard(step(here, name="prepare"))
        train = gates.guard(step(here, "gpu", resources=ONE_GPU, inputs={"prepare": prepare}))
        assert needed(prepare) == {"store-gate/here"}
        assert needed(train) == {"store-gate/here", "digits/prepare", "devices-gate/here"}
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
        assert arguments(train) == ["--by", "tensorflow", "--model", "nvidia-tesla-t4", "--count", "4"]
        assert arguments(fit)[:2] == ["--by", "driver"]
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
        alone = step(here, "gpu", module="slipway.workloads.gates.store", resources=ONE_GPU)
        tested = Gates("image").guard(alone)
        with_test, without = plan(tested, ROOT), plan(alone, ROOT)
        assert with_test.digest == without.digest
        shipped = {*with_test.bundle.contents} - {*without.bundle.contents}
        assert {f"slipway/workloads/gates/{name}.py" for name in ("gpus", "accelerator", "driver")} <= shipped

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


def test_the_devices_gate_is_told_what_every_gpu_pool_should_have() -> None:
    def check(here: Platform) -> None:
        gate = devices_gate(Gates("image").guard(step(here, "gpu", resources=ONE_GPU)))
        pools = [gate.arguments[at + 1 : at + 5] for at, word in enumerate(gate.arguments) if word == "--pool"]
        assert pools == [["gpu", "8", "0", "pool=gpu"], ["standing", "1", "2", "pool=standing"]]
        assert (gate.pool.name, gate.resources.gpus, gate.uses_store) == ("cpu", 0, False)
        assert gate.reads_nodes

    on([cpu_pool(), gpu_pool(gpus=8), replace(gpu_pool("standing"), min_nodes=2)], check)


def test_the_devices_gate_runs_again_when_the_nodes_of_a_pool_change_and_its_steps_do_not() -> None:
    digests: list[tuple[str, str]] = []

    def check(here: Platform) -> None:
        train = Gates("image").guard(
            step(here, "gpu", module="slipway.workloads.gates.store", resources=ONE_GPU, uses_store=False)
        )
        digests.append((plan(devices_gate(train), ROOT).digest, plan(train, ROOT).digest))

    on([cpu_pool(), gpu_pool(), gpu_pool("other", fingerprint="driver-1")], check)
    on([cpu_pool(), gpu_pool(), gpu_pool("other", fingerprint="driver-2")], check)
    (gate, train), (gate_after, train_after) = digests
    assert gate != gate_after
    assert train == train_after


def test_there_is_no_devices_gate_where_nobody_may_read_nodes() -> None:
    def check(here: Platform) -> None:
        train = Gates("image").guard(step(replace(here, reads_nodes=False), "gpu", resources=ONE_GPU))
        assert needed(train) == {"store-gate/here"}

    on([cpu_pool(), gpu_pool()], check)


def fast_pool(**network: Any) -> Pool:
    values: dict[str, Any] = {
        "name": "EFA",
        "bandwidth": 400,
        "resource": "example.com/efa",
        "count": 4,
        **network,
    }
    return replace(gpu_pool(gpus=8), max_nodes=4, interconnect=Interconnect(**values))


def on_nodes(here: Platform, count: int = 3, **changes: Any) -> Step:
    resources = replace(ONE_GPU, cpu=3000, gpus=8)
    values: dict[str, Any] = {"module": "slipway.workloads.gates.store", "uses_store": False, **changes}
    nodes = Nodes(count, roles={"chief": 1, "worker": count - 1}, wait=60)
    return step(here, "gpu", resources=resources, nodes=nodes, **values)


def network_gate(step: Step) -> Step:
    (gate,) = [step_ for step_ in step.after if step_.pipeline == "network-gate"]
    return gate


def test_a_step_on_several_nodes_waits_for_two_of_them_to_sum_something() -> None:
    def check(here: Platform) -> None:
        train = Gates("image").guard(on_nodes(here))
        gate = network_gate(train)
        assert gate.nodes == Nodes(2, wait=60)
        assert gate.resources.gpus == 8
        assert gate.resources.cpu == 3000, "what sends for the GPUs runs on CPUs"
        assert gate.image == train.image
        assert gate.arguments == [
            *("--count", "8", "--library", "tensorflow"),
            *("--network", "EFA", "--bandwidth", "400", "--resource", "example.com/efa"),
        ]
        assert "devices-gate/here" in needed(gate)
        assert arguments(gate)[-2:] == ["--count", "8"], "its pods test their own GPUs, too"
        assert "network-gate/gpu" in needed(train)

    on([cpu_pool(), fast_pool()], check)


def test_a_step_on_one_node_waits_for_no_network() -> None:
    def check(here: Platform) -> None:
        train = Gates("image").guard(step(here, "gpu", resources=replace(ONE_GPU, gpus=8), uses_store=False))
        assert not [entry for entry in needed(train) if entry.startswith("network-gate")]

    on([cpu_pool(), fast_pool()], check)


def test_a_network_gate_waits_for_the_data_and_asks_for_no_more_than_its_node_has() -> None:
    small = Resources(cpu=3800, memory=3000, ephemeral_storage=500, gpus=8)

    def check(here: Platform) -> None:
        gates = Gates("image")
        prepare = gates.guard(step(here, name="prepare"))
        gate = network_gate(gates.guard(on_nodes(here, inputs={"prepare": prepare}, uses_store=True)))
        assert {"digits/prepare", "store-gate/here"} <= needed(gate)
        assert gate.resources == replace(small, cpu=3000)

    on([cpu_pool(), replace(fast_pool(), allocatable=small)], check)


def test_a_network_of_which_nothing_is_known_is_measured_without_a_figure() -> None:
    def check(here: Platform) -> None:
        gate = network_gate(Gates("image").guard(on_nodes(here), tensorflow=False))
        assert gate.arguments == ["--count", "8", "--library", "nccl", "--network", "network", "--bandwidth", "0"]
        assert gate.interpreter == "python3"

    on([cpu_pool(), replace(gpu_pool(gpus=8), max_nodes=4)], check)


def test_a_network_gate_is_there_once_for_each_image() -> None:
    def check(here: Platform) -> None:
        gates = Gates("image")
        one, other = (network_gate(gates.guard(on_nodes(here, name=name, count=4))) for name in ("a", "b"))
        third = network_gate(gates.guard(on_nodes(here, image="example/other:1")))
        assert one is other
        assert (one.job, third.job) == ("network-gate-gpu", "network-gate-gpu-2")

    on([cpu_pool(), fast_pool()], check)


def test_a_network_gate_runs_again_when_the_network_or_the_driver_changes_and_its_step_does_not() -> None:
    digests: list[tuple[str, str]] = []

    def check(here: Platform) -> None:
        train = Gates("image").guard(on_nodes(here))
        digests.append((plan(network_gate(train), ROOT).digest, plan(train, ROOT).digest))

    on([fast_pool()], check)
    on([fast_pool(environment={"NCCL_DEBUG": "INFO"})], check)
    on([fast_pool(bandwidth=800)], check)
    on([replace(fast_pool(), fingerprint="driver-2")], check)
    assert len({gate for gate, _ in digests}) == 4
    assert len({train for _, train in digests}) == 1
