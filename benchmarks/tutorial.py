"""TensorFlow's tutorial "Distributed training with Keras" on prepared data: what the training step is measured
against.

The input pipeline, network, callbacks and calls are the tutorial's (tensorflow.org/tutorials/distribute/keras,
seen November 2026): map, cache, shuffle(10000) and batch(64) one image after the other; MirroredStrategy;
`model.fit` with TensorBoard, ModelCheckpoint and LearningRateScheduler. Its images come from a `prepare`
directory instead of TensorFlow Datasets. Where the package tensorboard is not installed, TensorBoard's callback
is left out, in the tutorial's favour.

Run as `python -m benchmarks.tutorial --data DIR --epochs 12`; the last line it prints is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from slipway.runtime.devices import before_import

_started = time.monotonic()


def files(data: Path) -> tuple[Path, Path]:
    """The prepared images to train on, and those to test with."""
    return data / "train.npz", data / "test.npz"


def main() -> None:
    """Train and print the result as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tutorial", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what workloads/mnist/prepare.py wrote")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, test = ((file["images"], file["labels"]) for file in map(np.load, files(options.data)))
    before_import()
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(options.seed)
    strategy = tf.distribute.MirroredStrategy()
    batch = 64 * strategy.num_replicas_in_sync

    def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255, label

    train_dataset = tf.data.Dataset.from_tensor_slices((train[0][..., None], train[1]))
    train_dataset = train_dataset.map(scale).cache().shuffle(10_000).batch(batch)
    eval_dataset = tf.data.Dataset.from_tensor_slices((test[0][..., None], test[1])).map(scale).batch(batch)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=keras.optimizers.Adam(),
            metrics=["accuracy"],
        )

    def decay(epoch: int) -> float:
        if epoch < 3:
            return 1e-3
        if epoch < 7:
            return 1e-4
        return 1e-5

    class Times(keras.callbacks.Callback):
        first_step: float | None = None

        def __init__(self) -> None:
            super().__init__()
            self.rates: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
            self.began = time.monotonic()

        def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
            self.ended = time.monotonic()
            if self.first_step is None:
                self.first_step = self.ended

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
            self.rates.append(len(train[0]) / (self.ended - self.began))

    times = Times()
    with tempfile.TemporaryDirectory() as folder:
        callbacks: list[keras.callbacks.Callback] = [
            times,
            keras.callbacks.ModelCheckpoint(f"{folder}/ckpt_{{epoch}}.weights.h5", save_weights_only=True),
            keras.callbacks.LearningRateScheduler(decay),
        ]
        if importlib.util.find_spec("tensorboard"):
            callbacks.append(keras.callbacks.TensorBoard(log_dir=f"{folder}/logs"))
        model.fit(train_dataset, epochs=options.epochs, callbacks=callbacks, verbose=0)
        loss, accuracy = model.evaluate(eval_dataset, verbose=0)
    assert times.first_step is not None
    result = {
        "images_per_second": times.rates,
        "accuracy": accuracy,
        "loss": loss,
        "seconds": time.monotonic() - _started,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
