"""What one process of the benchmark computes and times, with a small network in place of ResNet-50."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slipway.workloads.runtime.devices import Accelerator, before_import
from tests.workloads.benchmark.small import network
from workloads.benchmark.resnet50 import Measured, Work, _parse, _result, _time_steps

SIZE = 8


class Stopwatch:
    """A training whose step returns at once, while a device goes on for `seconds`."""

    updates = 0

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def step(self, _images: Any, _labels: Any) -> float:
        self.updates += 1
        return 1.0

    def finish(self) -> None:
        time.sleep(self.seconds)


def test_the_time_of_a_step_is_that_of_the_work_that_it_started(capsys: pytest.CaptureFixture[str]) -> None:
    work = Work(devices=[], batch_size=4, batches=3, warm_up=2, image_size=SIZE, reduced=False)
    measures = _time_steps(Stopwatch(0.02), iter([(None, None)] * 5), work, 8)  # type: ignore[arg-type]
    assert len(measures.seconds) == 3
    assert min(*measures.seconds, measures.compiling) >= 0.02
    assert measures.wall >= sum(measures.seconds)
    assert measures.skipped == 0
    assert capsys.readouterr().out.startswith("Running warm up\nStep\t")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The networks that were built."""
    before_import()
    import keras

    built: list[Any] = []

    def kept(**arguments: Any) -> Any:
        built.append(network(**arguments))
        return built[-1]

    monkeypatch.setattr(keras.applications, "ResNet50", kept)
    yield built
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "computes_in", "xla"),
    [("fp32", "float32", False), ("fp16", "float16", False), ("bf16", "bfloat16", True)],
)
def test_a_step_computes_in_its_precision_and_is_compiled_where_asked(
    precision: str, computes_in: str, xla: bool, small: list[Any]
) -> None:
    import tensorflow as tf

    from workloads.benchmark.training import build

    training = build(tf.distribute.get_strategy(), precision, SIZE, xla=xla)
    batch = tf.ones([2, SIZE, SIZE, 3]), tf.constant([1, 2])
    losses = [float(training.step(*batch)) for _ in range(3)]

    assert losses[-1] < losses[0]
    assert training.updates == 3
    assert {layer.compute_dtype for layer in small[0].layers} == {computes_in}
    assert {trainable_variable.dtype for trainable_variable in small[0].trainable_variables} == {"float32"}
    functions = training.step.get_concrete_function(*batch).graph.as_graph_def().library.function  # type: ignore[attr-defined]
    assert any(function.attr["_XlaMustCompile"].b for function in functions) == xla


@pytest.mark.slow
def test_the_fused_optimizer_computes_what_kerass_does() -> None:
    before_import()
    import keras
    import tensorflow as tf

    from workloads.benchmark.training import FusedSGD

    values = []
    for kind in (keras.optimizers.SGD, FusedSGD):
        variable = keras.Variable(np.array([1.0, -2.0], np.float32))
        optimizer = kind(0.1, momentum=0.9)
        for gradient in ([1.0, 0.5], [-0.25, 2.0], [3.0, 0.0]):
            optimizer.apply_gradients([(tf.constant(gradient), variable)])
        values.append(variable.numpy())
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "precision", "expected"),
    [((7, 0), "fp32", False), ((7, 5), "fp32", False), ((8, 0), "fp32", True), ((9, 0), "fp16", False)],
)
def test_tf32_is_said_of_fp32_on_gpus_that_have_it(
    capability: tuple[int, int], precision: str, expected: bool, tmp_path: Path
) -> None:
    before_import()
    # Said to be virtual, because there is none to ask for the memory that was used.
    gpu = Accelerator("/device:CPU:0", "a GPU", virtual=True, details={"compute_capability": capability})
    options = _parse(["--output", str(tmp_path), "--precision", precision])
    work = Work(devices=[gpu, gpu], batch_size=4, batches=2, warm_up=1, image_size=SIZE, reduced=False)
    measured = Measured([0.5, 0.5], wall=1.0, compiling=2.0, to_first_step=3.0, losses=[1.0, 0.5, 0.4], skipped=0)

    measures = SimpleNamespace(**_result(options, {"data": "synthetic"}, work, measured))

    assert measures.tensor_float_32 is expected
    assert measures.compute_capability == ".".join(map(str, capability))
    assert (measures.images_per_second, measures.images_per_second_per_gpu) == (16, 8)
