"""What both ways of training have in common: the size of batches, what checkpoints depend on, the report."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.mnist.data import Split
from workloads.runtime.exits import BAD_INPUT, MODEL_REFUSED, USAGE, StepError

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
        """Where checkpoints are written."""
        return self.options.output / "checkpoints"

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


def plain(model: keras.Model) -> keras.Model:
    """`model` as it is published, which needs nothing of ours to be loaded: one device, Keras' own optimizer."""
    from workloads.mnist.model import build

    copy = build()
    copy.set_weights(model.get_weights())
    return copy
