"""Train on this machine, and what that has in common with a training on several nodes: the size of batches, what
checkpoints depend on, the report.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.workloads.runtime.devices import accelerators, describe, strategy
from slipway.workloads.runtime.exits import BAD_INPUT, MODEL_REFUSED, USAGE, StepError
from slipway.workloads.runtime.store import store_errors
from workloads.mnist.batches import Split, batches

if TYPE_CHECKING:
    import keras

    from workloads.mnist.progress import Progress

TEST_BATCH = 256
"""Images that each replica is tested on at a time."""

_started = time.monotonic()


@dataclass(frozen=True)
class Work:
    """What is to be trained: the command line, the images, and the digest of each input by its name."""

    options: argparse.Namespace
    train: Split
    test: Split
    inputs: Mapping[str, str]

    @property
    def images(self) -> int:
        """Images of an epoch: with --augment, altered copies of those that there are."""
        return len(self.train[0]) * max(self.options.augment, 1)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are written: where they are copied from beside the training, or else in its output."""
        folder = os.environ.get("SLIPWAY_CHECKPOINT")
        return Path(folder) if folder else self.options.output / "checkpoints"

    @property
    def logs(self) -> Path:
        """Where TensorBoard's events are written."""
        return self.options.output / "logs"


@dataclass(frozen=True)
class Batches:
    """Images of one step of all `replicas` together: in training, and in a test."""

    train: int
    test: int
    replicas: int

    def steps(self, images: int) -> int:
        """Training steps of an epoch."""
        return images // self.train


def batches_of(work: Work, replicas: int) -> Batches:
    """The batches for so many replicas.

    Raises:
        StepError: BAD_INPUT where there are too few images, USAGE where --global-batch-size cannot be divided.
    """
    options, train, test = work.options, work.images, len(work.test[0])
    whole = options.global_batch_size
    if whole is not None and whole % replicas:
        raise StepError(USAGE, f"--global-batch-size {whole} cannot be divided among {replicas} replicas")
    batch = min(whole or options.batch_size * replicas, train // replicas * replicas)
    test_batch = min(TEST_BATCH * replicas, test // replicas * replicas)
    if batch == 0 or test_batch == 0:
        counts = f"{train} training and {test} test images"
        raise StepError(BAD_INPUT, f"{options.data}: {counts} are too few for {replicas} replicas")
    return Batches(batch, test_batch, replicas)


def parse_learning_rates(text: str) -> dict[int, float]:
    """Read `0:1e-3,3:1e-4`: from each epoch (counted from 0) on, the learning rate after its colon.

    Raises:
        ValueError: another form, no rate for epoch 0, an epoch twice, or a rate that is not above 0 and at most 1.
    """
    rates: dict[int, float] = {}
    for part in text.split(","):
        epoch_text, colon, rate_text = part.partition(":")
        try:
            epoch, rate = int(epoch_text), float(rate_text)
        except ValueError:
            colon = ""
        if not colon or epoch < 0 or epoch in rates or not 0 < rate <= 1:
            raise ValueError(f"{part!r} is not EPOCH:RATE with a new epoch and a rate above 0 and at most 1")
        rates[epoch] = rate
    if 0 not in rates:
        raise ValueError("the rate of epoch 0 is missing")
    return dict(sorted(rates.items()))


def learning_rate(rates: dict[int, float], epoch: int) -> float:
    """The learning rate of an epoch, counted from 0."""
    return rates[max(start for start in rates if start <= epoch)]


def announce(work: Work, batches: Batches, devices: str) -> None:
    """Say what is trained on what."""
    copies = work.options.augment
    altered = f" altered in {copies} ways in each epoch" if copies else ""
    print(
        f"Training on {devices}: {batches.replicas} replica(s), {len(work.train[0]):,} images{altered}, "
        f"{batches.steps(work.images)} steps of "
        f"{batches.train} images per epoch; testing on {len(work.test[0]):,} images",
        flush=True,
    )


def run_name(work: Work, batches: Batches) -> str:
    """What a checkpoint depends on. Neither the number of epochs, since a longer training continues a shorter one,
    nor how many replicas share a batch.
    """
    options = work.options
    settings = {"batch_size": batches.train, "learning_rates": options.learning_rates, "seed": options.seed}
    # Without, it has the name that it had before there was such a thing.
    if options.augment:
        settings["augment"] = options.augment
    return hashlib.sha256(json.dumps({**work.inputs, **settings}, sort_keys=True).encode()).hexdigest()


def report(
    work: Work, progress: Progress, loss: float, accuracy: float, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The contents of metrics.json. `about` is what is to be said of the machines.

    Raises:
        StepError: MODEL_REFUSED where the loss is not finite.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    if not np.isfinite(loss):
        raise StepError(MODEL_REFUSED, f"the loss is {loss}: training diverged; lower --learning-rates")
    return {
        "test": {"accuracy": float(accuracy), "loss": float(loss), "images": len(work.test[0])},
        "history": progress.history,
        "images_per_second": max((epoch["images_per_second"] for epoch in progress.history), default=0.0),
        "seconds_to_first_step": progress.first_step - _started if progress.first_step else None,
        "seconds": time.monotonic() - _started,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **about,
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    }


# The training on the accelerators of this machine alone, by Keras' own loop.


def train(work: Work) -> tuple[dict[str, Any], keras.Model]:
    """Train from the newest checkpoint to the last epoch; returns the contents of metrics.json and a plain model.

    Raises:
        StepError: BAD_INPUT, USAGE, MODEL_REFUSED where the loss is not finite, STORE_TROUBLE.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from workloads.mnist.model import FusedAdam, build, plain
    from workloads.mnist.progress import Progress, restore

    options = work.options
    devices = accelerators()
    distribution = strategy(devices)
    sizes = batches_of(work, distribution.num_replicas_in_sync)
    steps, run = sizes.steps(work.images), run_name(work, sizes)
    announce(work, sizes, describe(devices))

    keras.utils.set_random_seed(options.seed)
    with distribution.scope():
        # One execution per epoch: between the steps nothing comes back to Python.
        model = build(FusedAdam(), steps_per_execution=steps)
        model.optimizer.build(model.trainable_variables)
        checkpoint = restore(model, work.checkpoints, run, options.epochs)
    done = 0
    progress = Progress(options.epochs, steps * sizes.train, work.logs, work.checkpoints, run)
    if checkpoint is not None:
        done = checkpoint.epochs_done
        progress.history = checkpoint.history
        print(f"Resuming after epoch {done} from {checkpoint.path.name}", flush=True)

    # Keras adds up the first batch of all replicas to learn its shape, so that one must split evenly.
    test = work.test[0][..., np.newaxis], work.test[1]
    testing = tf.data.Dataset.from_tensor_slices(test).batch(sizes.test).prefetch(2)
    if done < options.epochs:
        with store_errors(options.output):
            model.fit(
                batches(
                    work.train,
                    options.seed,
                    range(done, options.epochs),
                    sizes.train,
                    copies=options.augment,
                ),
                initial_epoch=done,
                epochs=options.epochs,
                steps_per_epoch=steps,
                validation_data=testing,
                callbacks=[
                    keras.callbacks.LearningRateScheduler(lambda epoch, _: learning_rate(options.rates, epoch)),
                    progress,
                ],
                shuffle=False,
                verbose=0,
            )
    loss, accuracy = model.evaluate(testing, verbose=0)
    about = {
        "devices": describe(devices),
        "virtual_devices": any(one.virtual for one in devices),
        "replicas": sizes.replicas,
    }
    return report(work, progress, loss, accuracy, about), plain(model)
