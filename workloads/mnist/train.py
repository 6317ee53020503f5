"""Train the network on every accelerator of this machine; resume where an earlier training was stopped.

Run as `python -m workloads.mnist.train --data DIR --output DIR`, where --data is what `prepare` published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.mnist.checkpoints import restore
from workloads.mnist.data import Split, load
from workloads.mnist.model import build, learning_rate, parse_learning_rates
from workloads.runtime.devices import accelerators, before_import, describe, strategy
from workloads.runtime.exits import BAD_INPUT, MODEL_REFUSED, OK, StepError, run, stop_on_sigterm
from workloads.runtime.store import check, finished, publish, staging, store_errors

if TYPE_CHECKING:
    import keras

STEP = "mnist.train"
LAST_LINE = "Training finished. Model saved"
TUTORIAL_RATES = "0:1e-3,3:1e-4,7:1e-5"
"""The decay of the tutorial that the network comes from."""

_started = time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT where the data is not whole, MODEL_REFUSED below --min-accuracy, STORE_TROUBLE.
    """
    options = _parse(arguments)
    checkpoint_directory = options.output / "checkpoints"
    stop_on_sigterm(f"the same command resumes from the newest checkpoint in {checkpoint_directory}")
    manifest = check(options.data)
    inputs = {"data": manifest.digest}
    settings = {
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "learning_rates": options.learning_rates,
        "seed": options.seed,
    }
    earlier = finished(options.output, STEP, inputs, settings)
    if earlier is not None:
        accuracy = earlier.summary["test_accuracy"]
        _refuse_below(options.min_accuracy, accuracy, f"it was published in {options.output} for a lower one")
        print(f"Nothing to do: {options.output} holds this model, test accuracy {accuracy:.4f}")
        print(LAST_LINE)
        return OK

    with store_errors(options.data):
        train, test = load(options.data / "train.npz"), load(options.data / "test.npz")
    before_import(libraries=options.libraries)
    result, model = _train(options, train, test, _run_name(inputs, settings), checkpoint_directory)
    _refuse_below(
        options.min_accuracy,
        result["test"]["accuracy"],
        f"nothing is published, its checkpoints are in {checkpoint_directory}",
    )
    with staging() as staged:
        _save(model, staged, result)
        summary = {
            "test_accuracy": result["test"]["accuracy"],
            "test_loss": result["test"]["loss"],
            "epochs": options.epochs,
            "devices": result["devices"],
        }
        publish(staged, options.output, step=STEP, inputs=inputs, settings=settings, summary=summary)
    print(
        f"Test accuracy {result['test']['accuracy']:.4f}, test loss {result['test']['loss']:.4f}: {options.output}"
    )
    print(LAST_LINE)
    return OK


def _train(
    options: argparse.Namespace, train: Split, test: Split, run_name: str, checkpoint_directory: Path
) -> tuple[dict[str, Any], keras.Model]:
    """Train from the newest checkpoint to the last epoch; returns the contents of metrics.json and a plain
    model.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from workloads.mnist.optimizer import FusedAdam
    from workloads.mnist.progress import Progress

    found = accelerators()
    distribution = strategy(found)
    replicas = distribution.num_replicas_in_sync
    batch = min(options.batch_size * replicas, len(train[0]) // replicas * replicas)
    test_batch = min(256 * replicas, len(test[0]) // replicas * replicas)
    if batch == 0 or test_batch == 0:
        counts = f"{len(train[0])} training and {len(test[0])} test images"
        raise StepError(BAD_INPUT, f"{options.data}: {counts} are too few for {replicas} replicas")
    steps = len(train[0]) // batch
    rates = options.rates
    print(
        f"Training on {describe(found)}: {replicas} replica(s), {len(train[0]):,} images, {steps} steps of "
        f"{batch} images per epoch; testing on {len(test[0]):,} images",
        flush=True,
    )

    keras.utils.set_random_seed(options.seed)
    with distribution.scope():
        # One execution per epoch: between the steps nothing comes back to Python.
        model = build(FusedAdam(), steps_per_execution=steps)
        model.optimizer.build(model.trainable_variables)
        checkpoint = restore(model, checkpoint_directory, run_name, options.epochs)
    done = 0
    progress = Progress(options.epochs, steps * batch, options.output / "logs", checkpoint_directory, run_name)
    if checkpoint is not None:
        done = checkpoint.epochs_done
        progress.history = checkpoint.history
        print(f"Resuming after epoch {done} from {checkpoint.path.name}", flush=True)

    # Keras adds up the first batch of all replicas to learn its shape, so that one must split evenly.
    testing = tf.data.Dataset.from_tensor_slices((test[0][..., np.newaxis], test[1])).batch(test_batch).prefetch(2)
    if done < options.epochs:
        with store_errors(options.output):
            model.fit(
                batches(train, options.seed, range(done, options.epochs), batch),
                initial_epoch=done,
                epochs=options.epochs,
                steps_per_epoch=steps,
                validation_data=testing,
                callbacks=[
                    keras.callbacks.LearningRateScheduler(lambda epoch, _: learning_rate(rates, epoch)),
                    progress,
                ],
                shuffle=False,
                verbose=0,
            )
    loss, accuracy = model.evaluate(testing, verbose=0)
    if not np.isfinite(loss):
        raise StepError(MODEL_REFUSED, f"the loss is {loss}: training diverged; lower --learning-rates")
    result = {
        "test": {"accuracy": float(accuracy), "loss": float(loss), "images": len(test[0])},
        "history": progress.history,
        "images_per_second": max((epoch["images_per_second"] for epoch in progress.history), default=0.0),
        "seconds_to_first_step": progress.first_step - _started if progress.first_step else None,
        "seconds": time.monotonic() - _started,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "devices": describe(found),
        "virtual_devices": any(one.virtual for one in found),
        "replicas": replicas,
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    }
    # What is published needs nothing of ours to be loaded: one device, Keras' own optimizer.
    plain = build()
    plain.set_weights(model.get_weights())
    return result, plain


def batches(train: Split, seed: int, epochs: range, batch: int) -> Any:
    """A tf.data.Dataset of full batches (images uint8, labels) over `epochs`, one after the other.

    The order within an epoch depends on `seed` and the epoch alone, so that a resumed training sees what an
    uninterrupted one would. Each epoch leaves out less than one batch, other images each time. The images stay
    bytes, and only indices are shuffled.
    """
    import numpy as np
    import tensorflow as tf

    count = len(train[0])
    images, labels = tf.constant(train[0][..., np.newaxis]), tf.constant(train[1])

    def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffle_seed = tf.stack([tf.cast(epoch, tf.int32), seed])
        order = tf.random.experimental.index_shuffle(tf.range(count), shuffle_seed, count - 1)
        return tf.data.Dataset.from_tensor_slices(order).batch(batch, drop_remainder=True)

    indices = tf.data.Dataset.range(epochs.start, epochs.stop).flat_map(of_epoch)
    return indices.map(lambda index: (tf.gather(images, index), tf.gather(labels, index))).prefetch(4)


def _refuse_below(least: float, accuracy: float, consequence: str) -> None:
    if not accuracy >= least:
        raise StepError(
            MODEL_REFUSED,
            f"the model reads {accuracy:.4f} of the test images, {least} is asked for; {consequence}",
        )


def _save(model: keras.Model, staged: Path, result: dict[str, Any]) -> None:
    model.save(staged / "mnist.keras")
    model.export(staged / "saved_model", verbose=False)
    (staged / "metrics.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _run_name(inputs: dict[str, str], settings: dict[str, Any]) -> str:
    """What a checkpoint depends on. Not the number of epochs: a longer training continues a shorter one."""
    content = {**inputs, **{name: value for name, value in settings.items() if name != "epochs"}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.mnist.train", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what prepare published")
    parser.add_argument("--output", type=Path, required=True, help="where to publish the model")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="images per step on each accelerator (default: 64)"
    )
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training images (default: 12)")
    parser.add_argument(
        "--learning-rates",
        default=TUTORIAL_RATES,
        metavar="EPOCH:RATE,...",
        help=f"from each epoch (counted from 0) on, the rate after its colon (default: {TUTORIAL_RATES})",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="decides initial weights and order of images (default: 0)"
    )
    parser.add_argument(
        "--min-accuracy", type=float, default=0.9, help="share of test images the model must read (default: 0.9)"
    )
    parser.add_argument("--libraries", type=Path, help="what workloads.cuda.install published, for use on GPUs")
    options = parser.parse_args(arguments)
    if options.batch_size < 1 or options.epochs < 1:
        parser.error("--batch-size and --epochs must be at least 1")
    if not 0 <= options.seed < 2**31:
        parser.error("--seed must be from 0 to 2147483647")
    if not 0 <= options.min_accuracy <= 1:
        parser.error("--min-accuracy must be from 0 to 1")
    try:
        options.rates = parse_learning_rates(options.learning_rates)
    except ValueError as error:
        parser.error(f"--learning-rates: {error}")
    return options


if __name__ == "__main__":
    run(main)
