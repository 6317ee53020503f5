"""Measure how many images per second this machine's accelerators train ResNet-50 with.

The batch size is that of each accelerator. On a machine without accelerators, or where CPU devices stand in for
them, a few small steps run in place of what was asked for, and the result says so. Where TF_CONFIG names several
processes, they train one network together, and the first of them publishes the result. Run as `python -m
workloads.benchmark.resnet50 --output DIR --precision fp16`.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slipway.workloads.runtime.devices import (
    Accelerator,
    accelerators,
    before_import,
    cpu_alone,
    describe,
    strategy,
)
from slipway.workloads.runtime.exits import (
    ACCELERATOR_REFUSED,
    BAD_INPUT,
    MODEL_REFUSED,
    OK,
    USAGE,
    StepError,
    run,
    stop_on_sigterm,
)
from slipway.workloads.runtime.nodes import collectives
from slipway.workloads.runtime.store import finished, publish, staging, store_errors
from workloads.benchmark import inputs

STEP = "benchmark.resnet50"
RESULT = "result.json"
MODEL = "ResNet-50"
PRECISIONS = ("fp32", "fp16", "bf16")
DEFAULTS = {"batch_size": 64, "batches": 100, "warm_up": 10, "image_size": 224}

REDUCED = {"batch_size": 2, "batches": 10, "warm_up": 2, "image_size": 48}
"""The most that a CPU is given to do: some 3 s once the network is built."""
REDUCED_REPLICAS = 2
"""CPU devices that stand in for accelerators: one or several makes a difference, how many does not."""
REMARK = "small steps on a CPU: these figures say nothing about a GPU"

_started = time.monotonic()


@dataclass(frozen=True)
class Work:
    """What is measured: `devices` are the accelerators of this node that take part, none where the CPU trains, and
    each of the `nodes` has as many.
    """

    devices: list[Accelerator]
    batch_size: int
    batches: int
    warm_up: int
    image_size: int
    reduced: bool
    nodes: int = 1

    @property
    def replicas(self) -> int:
        """How many train together."""
        return max(len(self.devices), 1) * self.nodes


@dataclass(frozen=True)
class Measured:
    """What came of it. `seconds` are those of each timed step, `wall` those from the first one's start to the
    last one's end, and `compiling` those of the very first step.
    """

    seconds: list[float]
    wall: float
    compiling: float
    to_first_step: float
    losses: list[float]
    skipped: int


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: ACCELERATOR_REFUSED where there are fewer accelerators than --gpus, BAD_INPUT for images that
        cannot be read, USAGE for a batch that does not fit into memory, MODEL_REFUSED for a loss that is not
        finite, STORE_TROUBLE; of several processes OTHERS_MISSING and OTHER_ENDED.
    """
    options = _parse(arguments)
    among = collectives.group()
    stop_on_sigterm("nothing was published; the same command starts over")
    stored = options.data != inputs.SYNTHETIC
    data = {"data": inputs.digest(Path(options.data))} if stored else {}
    settings = {
        "batch_size": options.batch_size,
        "batches": options.batches,
        "warm_up": options.warm_up,
        "image_size": options.image_size,
        "precision": options.precision,
        "xla": options.xla,
        "gpus": options.gpus,
        "data": "stored" if stored else inputs.SYNTHETIC,
        "seed": options.seed,
        **({"nodes": among.count} if among else {}),
    }
    earlier = finished(options.output, STEP, data, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds this result, on {earlier.summary['devices']}")
        _print_total(earlier.summary["images_per_second"], reduced=earlier.summary["reduced"])
        return OK

    before_import(libraries=options.libraries)
    if among is None:
        work = _work(options, cpu_alone() if options.gpus == 0 else accelerators())
        result = _run(options, settings, work, strategy(work.devices))
        _publish(options, data, settings, work, result)
    else:
        work, result = _run_together(options, data, settings, among)
    _print_total(result["images_per_second"], reduced=work.reduced)
    return OK


def _run(
    options: argparse.Namespace, settings: dict[str, Any], work: Work, distribution: tf.distribute.Strategy
) -> dict[str, Any]:
    """Measure; returns the contents of result.json."""
    print(_announce(work, options), flush=True)
    return _result(options, settings, work, _measure(options, work, distribution))


def _run_together(
    options: argparse.Namespace, data: dict[str, str], settings: dict[str, Any], among: collectives.Group
) -> tuple[Work, dict[str, Any]]:
    """Measure as one of several processes. The first of them publishes, and none leaves before it has."""
    with collectives.others(among):
        distribution, devices = collectives.join(among, options.gpus)
        work = _work(options, devices, among.count)
        result = _run(options, settings, work, distribution)
        if among.writes:
            _publish(options, data, settings, work, result)
        collectives.part(distribution, among)
    return work, result


def _publish(
    options: argparse.Namespace,
    data: dict[str, str],
    settings: dict[str, Any],
    work: Work,
    result: dict[str, Any],
) -> None:
    with staging() as staged:
        text = json.dumps(result, indent=2, allow_nan=False) + "\n"
        (staged / RESULT).write_text(text, encoding="utf-8")
        summary = {
            "images_per_second": result["images_per_second"],
            "devices": _devices(work),
            "reduced": work.reduced,
        }
        publish(staged, options.output, step=STEP, inputs=data, settings=settings, summary=summary)
    print(f"Published {options.output / RESULT}")


def _devices(work: Work) -> str:
    return f"{work.nodes} nodes with {describe(work.devices)}" if work.nodes > 1 else describe(work.devices)


def _print_total(images_per_second: float, *, reduced: bool) -> None:
    """The end of the log, the same where the result was there already."""
    if reduced:
        print(f"Reduced: {REMARK}")
    print("-" * 64)
    print(total_line(images_per_second))


def _work(options: argparse.Namespace, available: list[Accelerator], nodes: int = 1) -> Work:
    """What is to be measured on this machine, one of `nodes`."""
    gpus = len(available) if options.gpus is None else options.gpus
    if len(available) < gpus:
        raise StepError(
            ACCELERATOR_REFUSED,
            f"asked: {gpus} GPU(s), found: {describe(available) if available else 'none'}. Is the driver "
            "installed and the image one for GPUs? --gpus 0 measures the CPU, with small steps",
        )
    devices = available[:gpus]
    amounts = {name: getattr(options, name) for name in REDUCED}
    reduced = not devices or any(device.virtual for device in devices)
    if reduced:
        # Of several nodes each has one: TensorFlow takes one CPU of each.
        devices = devices[: REDUCED_REPLICAS if nodes == 1 else 1]
        amounts = {name: min(amount, REDUCED[name]) for name, amount in amounts.items()}
    return Work(devices=devices, reduced=reduced, nodes=nodes, **amounts)


def _announce(work: Work, options: argparse.Namespace) -> str:
    lines = [
        f"{MODEL} on {_devices(work)}, {options.precision}, XLA {'on' if options.xla else 'off'}: "
        f"{work.warm_up} + {work.batches} steps of {work.batch_size} images of {work.image_size} x "
        f"{work.image_size} on each of {work.replicas} device(s)"
    ]
    if work.reduced:
        lines.append(
            f"Reduced from {options.warm_up} + {options.batches} steps of {options.batch_size} images of "
            f"{options.image_size} x {options.image_size}: {REMARK}"
        )
    return "\n".join(lines)


def _measure(options: argparse.Namespace, work: Work, distribution: tf.distribute.Strategy) -> Measured:
    import keras
    import tensorflow as tf

    from workloads.benchmark.training import CLASSES, build

    if work.reduced:
        # Rewriting the graph for speed takes a second of the few that it then runs.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    keras.utils.set_random_seed(options.seed)
    training = build(distribution, options.precision, work.image_size, xla=options.xla)
    # Virtual ones of several nodes are no devices of TensorFlow.
    devices = [one.device for one in work.devices if work.nodes == 1 or not one.virtual]
    feed = inputs.Batches(distribution, devices, work.batch_size, work.image_size, options.seed)
    try:
        with store_errors(Path(options.data)):
            synthetic = options.data == inputs.SYNTHETIC
            batches = feed.synthetic(CLASSES) if synthetic else feed.stored(Path(options.data))
            return _time_steps(training, batches, work, work.batch_size * distribution.num_replicas_in_sync)
    except tf.errors.ResourceExhaustedError as error:
        reason = str(error).splitlines()[0]
        raise StepError(
            USAGE, f"{work.batch_size} images at once do not fit into memory: lower --batch-size ({reason})"
        ) from error
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        if options.data == inputs.SYNTHETIC:
            raise
        reason = str(error).splitlines()[0]
        raise StepError(BAD_INPUT, f"--data {options.data}: a record cannot be used: {reason}") from error


def _time_steps(training: Training, batches: Iterator[tuple[Any, Any]], work: Work, images: int) -> Measured:
    """Run warm-up and timed steps; `images` is how many all replicas see in one.

    Every step is waited for, on all devices, so that the times are those of work that is done and not of its
    dispatch. tf_cnn_benchmarks waits for each step's loss, too.
    """
    losses: list[float] = []

    def one_step() -> float:
        began = time.perf_counter()
        loss = training.step(*next(batches))
        training.finish()
        took = time.perf_counter() - began
        losses.append(float(loss))
        if not math.isfinite(losses[-1]):
            raise StepError(
                MODEL_REFUSED, f"the loss is {losses[-1]} after {len(losses)} steps; speed alone is no result"
            )
        return took

    print("Running warm up", flush=True)
    compiling = one_step()
    to_first_step = time.monotonic() - _started
    for _ in range(work.warm_up - 1):
        one_step()
    before = training.updates
    print(HEADER, flush=True)
    seconds: list[float] = []
    began = time.perf_counter()
    for number in range(1, work.batches + 1):
        seconds.append(one_step())
        if is_displayed(number):
            print(step_line(number, speed(images, seconds), losses[-1]), flush=True)
    wall = time.perf_counter() - began
    skipped = work.batches - (training.updates - before)
    if skipped:
        print(f"{skipped} of {work.batches} steps changed no weight: their gradients overflowed", flush=True)
    return Measured(seconds, wall, compiling, to_first_step, losses, skipped)


def _result(
    options: argparse.Namespace, settings: dict[str, Any], work: Work, measured: Measured
) -> dict[str, Any]:
    """The contents of result.json. What was asked for is in `asked`; all else is what was measured."""
    import keras
    import tensorflow as tf

    replicas = work.replicas
    images = work.batch_size * replicas
    rate = speed(images, measured.seconds)
    images_per_second = images * work.batches / measured.wall
    capability = work.devices[0].details.get("compute_capability") if work.devices else None
    build = tf.sysconfig.get_build_info()
    return {
        "model": MODEL,
        "device": work.devices[0].model if work.devices else "CPU",
        "compute_capability": ".".join(map(str, capability)) if capability else None,
        # What a fast GPU is compared by; a stand-in counts as the GPUs that it was asked to be.
        "gpus": (len(work.devices) if options.gpus is None else options.gpus) * work.nodes,
        "nodes": work.nodes,
        "replicas": replicas,
        "virtual_devices": any(one.virtual for one in work.devices),
        "reduced": work.reduced,
        **({"remark": REMARK} if work.reduced else {}),
        "precision": options.precision,
        "tensor_float_32": bool(
            options.precision == "fp32"
            and capability
            and capability[0] >= 8
            and tf.config.experimental.tensor_float_32_execution_enabled()
        ),
        "xla": options.xla,
        "data": settings["data"],
        "image_size": work.image_size,
        "batch_size_per_gpu": work.batch_size,
        "batches": work.batches,
        "warm_up": work.warm_up,
        "seed": options.seed,
        "images_per_second": images_per_second,
        "images_per_second_per_gpu": images_per_second / replicas,
        "uncertainty": rate.uncertainty,
        "jitter": rate.jitter,
        "step_seconds": step_seconds(measured.seconds),
        "compile_seconds": measured.compiling,
        "seconds_to_first_step": measured.to_first_step,
        "seconds": time.monotonic() - _started,
        "loss": {"first": measured.losses[0], "last": measured.losses[-1]},
        "steps_without_update": measured.skipped,
        "peak_gpu_memory_bytes": _peak_gpu_memory(work.devices),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "asked": settings,
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "cuda": build.get("cuda_version"),
            "cudnn": build.get("cudnn_version"),
        },
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _peak_gpu_memory(devices: list[Accelerator]) -> int | None:
    """Most memory that TensorFlow had in use on any one GPU; None without GPUs."""
    import tensorflow as tf

    real = [one.device.rpartition("device:")[2] for one in devices if not one.virtual]
    return max((tf.config.experimental.get_memory_info(name)["peak"] for name in real), default=None)


# How fast steps were, and how sure that is. The definitions and the printed form are those of tf_cnn_benchmarks,
# so that its figures can be read beside these: get_perf_timing and benchmark_one_step in
# scripts/tf_cnn_benchmarks/benchmark_cnn.py of github.com/tensorflow/benchmarks at commit 8fb79079 (October 2023),
# read 2026-11-20.


DISPLAY_EVERY = 10
"""Steps between two lines of the log."""
HEADER = "Step\tImg/sec\ttotal_loss"
TO_STANDARD_DEVIATION = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""


@dataclass(frozen=True)
class Speed:
    """Images per second over some steps.

    `mean` is images over mean time; `uncertainty` the standard error of the mean of the steps' speeds; `jitter`
    their median absolute deviation, scaled to a standard deviation, which single slow steps do not move.
    """

    mean: float
    uncertainty: float
    jitter: float


def speed(images: int, seconds: Sequence[float]) -> Speed:
    """The speed of steps that took `seconds` each, for `images` images each."""
    times = np.asarray(seconds, np.float64)
    speeds = images / times
    return Speed(
        mean=float(images / times.mean()),
        uncertainty=float(speeds.std() / np.sqrt(len(speeds))),
        jitter=float(TO_STANDARD_DEVIATION * np.median(np.abs(speeds - np.median(speeds)))),
    )


def step_seconds(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, extremes and percentiles of how long steps took."""
    times = np.asarray(seconds, np.float64)
    p50, p90, p99 = (float(value) for value in np.percentile(times, [50, 90, 99]))
    return {
        "mean": float(times.mean()),
        "minimum": float(times.min()),
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "maximum": float(times.max()),
    }


def is_displayed(step: int) -> bool:
    """Whether the log has a line for this step, counted from 1: the first one and every tenth."""
    return step == 1 or step % DISPLAY_EVERY == 0


def step_line(step: int, so_far: Speed, loss: float) -> str:
    """The log's line after `step` steps."""
    rate = f"images/sec: {so_far.mean:.1f} +/- {so_far.uncertainty:.1f} (jitter = {so_far.jitter:.1f})"
    return f"{step}\t{rate}\t{loss:.3f}"


def total_line(images_per_second: float) -> str:
    """The last line of the log: all images of all timed steps over the wall time from the first to the last."""
    return f"total images/sec: {images_per_second:.2f}"


if TYPE_CHECKING:
    import tensorflow as tf

    from workloads.benchmark.training import Training


# The command line.


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.benchmark.resnet50", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="where to publish result.json")
    parser.add_argument("--batch-size", type=int, help="images per step on each accelerator (default: 64)")
    parser.add_argument("--batches", type=int, help="timed steps (default: 100)")
    parser.add_argument(
        "--warm-up", type=int, help="steps before, the first of which compiles (default: 10, at least 1)"
    )
    parser.add_argument("--image-size", type=int, help="height and width of the images (default: 224)")
    parser.set_defaults(**DEFAULTS)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    parser.add_argument(
        "--xla", action=argparse.BooleanOptionalAction, default=False, help="compile with XLA (default: no)"
    )
    parser.add_argument(
        "--gpus", type=int, help="accelerators of each node to use (default: all there are; 0: the CPU)"
    )
    parser.add_argument(
        "--data",
        default=inputs.SYNTHETIC,
        metavar="synthetic|DIR",
        help="numbers made on the device, or a folder of TFRecord files (default: synthetic)",
    )
    parser.add_argument("--seed", type=int, default=0, help="decides weights and images (default: 0)")
    parser.add_argument(
        "--libraries", type=Path, help="what slipway.workloads.cuda.install published, for use on GPUs"
    )
    options = parser.parse_args(arguments)
    if min(options.batch_size, options.batches, options.warm_up) < 1:
        parser.error("--batch-size, --batches and --warm-up must be at least 1")
    if options.image_size < 32:
        parser.error("--image-size must be at least 32")
    if options.gpus is not None and options.gpus < 0:
        parser.error("--gpus must not be negative")
    if not 0 <= options.seed < 2**31:
        parser.error("--seed must be from 0 to 2147483647")
    return options


if __name__ == "__main__":
    run(main)
