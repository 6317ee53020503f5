"""Measure how many images per second this machine's GPUs train ResNet-50 with.

The batch size is that of each GPU. Without GPUs a few small steps run on the CPU in place of what was asked for,
and the result says so. Where TF_CONFIG names several nodes, they train one network together, and the first of them
writes `results.json`: a list with an entry for each precision.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import training

REDUCED = {"batch_size": 2, "batches": 3, "warm_up": 1, "image_size": 48}
"""The most that a CPU is given to do, which takes half a minute for fp16."""
CPU = "CPU, with small steps"
"""Its figures say nothing about a GPU."""
BFLOAT16_SINCE = (8, 0)
"""The compute capability of Ampere, which brought bfloat16 (docs.nvidia.com/deeplearning/transformer-engine,
"Datatype and hardware support matrix", read 2026-11-20)."""
TO_STANDARD_DEVIATION = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precisions", default="fp32", help="fp32, fp16 and bf16, with commas")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step on each GPU")
    parser.add_argument("--batches", type=int, default=100, help="timed steps")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before, the first of which compiles")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--xla", choices=("true", "false"), default="false", help="compile with XLA")
    parser.add_argument(
        "--data", default="", help="a folder of the store with TFRecords; default: numbers on the GPU"
    )
    parser.add_argument("--store", type=Path, default=Path())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.precisions = options.precisions.split(",")
    if unknown := [precision for precision in options.precisions if precision not in training.POLICIES]:
        parser.error(f"--precisions: {', '.join(unknown)} is none of {', '.join(training.POLICIES)}")
    if min(options.batch_size, options.batches, options.warm_up) < 1 or options.image_size < 32:
        parser.error("--batch-size, --batches and --warm-up are 1 or more, --image-size is 32 or more")
    return options


def main() -> None:
    options = parse()
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster, task = config.get("cluster", {}), config.get("task", {})
    nodes = sum(len(cluster.get(role, ())) for role in ("chief", "worker")) or 1
    writes = nodes == 1 or task["type"] == "chief" or ("chief" not in cluster and task["index"] == 0)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    strategy = tf.distribute.get_strategy()
    if nodes > 1:
        kinds = tf.distribute.experimental.CommunicationImplementation
        adding_up = tf.distribute.experimental.CommunicationOptions(
            implementation=kinds.NCCL if gpus else kinds.RING
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=adding_up)
    elif len(gpus) > 1:
        strategy = tf.distribute.MirroredStrategy()
    about = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    capability = about.get("compute_capability")
    if not gpus:
        # Rewriting the graph for speed takes a second of the few that it then runs.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        for name, most in REDUCED.items():
            setattr(options, name, min(getattr(options, name), most))

    results = []
    for precision in options.precisions:
        if precision == "bf16" and capability and capability < BFLOAT16_SINCE:
            print(f"bf16 is left out: {about['device_name']} has compute capability {capability}", flush=True)
            continue
        result = {
            "device": about.get("device_name", "unknown GPU") if gpus else CPU,
            "reduced": not gpus,
            "nodes": nodes,
            "gpus": len(gpus) * nodes,
            # Convolutions of fp32 are computed in TF32 where a GPU has it.
            "precision": "fp32 (TF32)"
            if precision == "fp32" and capability and capability >= (8, 0)
            else precision,
            "xla": options.xla == "true",
            "data": "stored" if options.data else "synthetic",
            "image_size": options.image_size,
            "batch_size_per_gpu": options.batch_size,
            "batches": options.batches,
            **measure(options, strategy, precision),
            "versions": {"tensorflow": tf.__version__, "keras": keras.__version__},
            "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        results.append(result)
    if not results:
        raise SystemExit("no precision is left to measure")
    if writes:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if nodes > 1:
        # A node that ends closes connections from which another one may still read the end of the last step.
        time.sleep(2)


def measure(options: argparse.Namespace, strategy: tf.distribute.Strategy, precision: str) -> dict[str, Any]:
    """Trains in one precision: the speed, how sure it is, and how long steps took."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(options.seed)
    replicas = strategy.num_replicas_in_sync
    steps = f"{options.warm_up} + {options.batches} steps of {options.batch_size} images"
    print(f"ResNet-50 on {replicas} device(s), {precision}, XLA {options.xla}: {steps} on each", flush=True)
    optimizer, step = training.build(strategy, precision, options.image_size, xla=options.xla == "true")
    amount = options.batch_size, options.image_size, options.seed
    try:
        feed = (
            training.stored(strategy, options.store / options.data, *amount)
            if options.data
            else training.synthetic(strategy, *amount)
        )
        images = options.batch_size * replicas
        return time_steps(options, lambda: step(*next(feed)), lambda: wait(strategy), optimizer, images)
    except tf.errors.ResourceExhaustedError as error:
        raise SystemExit(
            f"{options.batch_size} images at once do not fit into memory: lower --batch-size"
        ) from error


def time_steps(
    options: argparse.Namespace,
    step: Callable[[], tf.Tensor],
    wait: Callable[[], None],
    optimizer: keras.Optimizer,
    images: int,
) -> dict[str, Any]:
    """Runs warm-up and timed steps of so many `images` each.

    Every step is waited for, on all devices, so that the times are those of work that is done and not of its
    dispatch. tf_cnn_benchmarks waits for each step's loss, too. What is printed is its form, so that its figures
    can be read beside these (benchmark_cnn.py of github.com/tensorflow/benchmarks at 8fb79079, read 2026-11-20).
    """

    def one_step() -> tuple[float, float]:
        began = time.perf_counter()
        loss = step()
        wait()
        took = time.perf_counter() - began
        if not math.isfinite(float(loss)):
            raise SystemExit(f"the loss is {float(loss)}: speed alone is no result")
        return took, float(loss)

    print("Running warm up", flush=True)
    compiling, first = one_step()
    for _ in range(options.warm_up - 1):
        one_step()
    before = int(optimizer.iterations.numpy())
    print("Step\tImg/sec\ttotal_loss", flush=True)
    seconds: list[float] = []
    began, loss = time.perf_counter(), first
    for number in range(1, options.batches + 1):
        took, loss = one_step()
        seconds.append(took)
        if number == 1 or number % 10 == 0:
            mean, uncertainty, jitter = speed(images, seconds)
            print(
                f"{number}\timages/sec: {mean:.1f} +/- {uncertainty:.1f} (jitter = {jitter:.1f})\t{loss:.3f}",
                flush=True,
            )
    rate = images * options.batches / (time.perf_counter() - began)
    print("-" * 64 + f"\ntotal images/sec: {rate:.2f}", flush=True)
    _, uncertainty, jitter = speed(images, seconds)
    gpus = tf.config.list_logical_devices("GPU")
    memory = [tf.config.experimental.get_memory_info(gpu.name.rpartition("device:")[2])["peak"] for gpu in gpus]
    return {
        "images_per_second": rate,
        "per_gpu": rate * options.batch_size / images,
        "uncertainty": uncertainty,
        "jitter": jitter,
        "step_seconds": dict(
            zip(("p50", "p90", "p99"), np.percentile(seconds, [50, 90, 99]).tolist(), strict=True)
        ),
        "compile_seconds": compiling,
        "loss": {"first": first, "last": loss},
        "steps_without_update": options.batches - (int(optimizer.iterations.numpy()) - before),
        "peak_gpu_memory_bytes": max(memory, default=None),
    }


def wait(strategy: tf.distribute.Strategy) -> None:
    """Returns when every device of this node has done what it was given."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        tf.test.experimental.sync_devices()
        return
    # TensorFlow's own function tries those of the other nodes, too, and fails.
    for device in strategy.extended.worker_devices:
        with tf.device(device):
            tf.raw_ops.SyncDevice()


def speed(images: int, seconds: list[float]) -> tuple[float, float, float]:
    """Images per second over steps that took `seconds` each; the standard error of the mean of their speeds; and
    their jitter, the median absolute deviation as a standard deviation, which single slow steps do not move."""
    speeds = images / np.asarray(seconds)
    deviation = float(np.median(np.abs(speeds - np.median(speeds))))
    error = float(speeds.std() / np.sqrt(len(speeds)))
    return float(images / np.mean(seconds)), error, TO_STANDARD_DEVIATION * deviation


if __name__ == "__main__":
    main()
