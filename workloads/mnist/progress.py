"""What happens after each epoch of a training: one line in the log, TensorBoard's scalars, a checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import keras

from workloads.mnist.checkpoints import save
from workloads.mnist.events import EventWriter


class Progress(keras.callbacks.Callback):
    """A Keras callback. `images` is the number of training images per epoch; `run` goes into the checkpoints.

    `history` has one entry per epoch with loss, accuracy, val_loss, val_accuracy, learning_rate and
    images_per_second (of the training steps alone); `first_step` is time.monotonic() at the end of the first
    execution of training steps.
    """

    def __init__(self, epochs: int, images: int, logs: Path, checkpoints: Path, run: str) -> None:
        super().__init__()
        self.history: list[dict[str, float]] = []
        self.first_step: float | None = None
        self._epochs, self._images = epochs, images
        self.run = run
        self._logs, self._checkpoints = logs, checkpoints
        self._events: EventWriter | None = None
        self._epoch_began = self._steps_ended = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        self._epoch_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        self._steps_ended = time.monotonic()
        if self.first_step is None:
            self.first_step = self._steps_ended

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        assert logs is not None
        values = {name: float(value) for name, value in logs.items()}
        values["images_per_second"] = self._images / max(self._steps_ended - self._epoch_began, 1e-9)
        self.history.append(values)
        save(self.model, self._checkpoints, epoch + 1, self.run, self.history)
        if self._events is None:
            self._events = EventWriter(self._logs)
        self._events.write(
            epoch,
            {
                "train": {"epoch_loss": values["loss"], "epoch_accuracy": values["accuracy"]},
                "validation": {"epoch_loss": values["val_loss"], "epoch_accuracy": values["val_accuracy"]},
            },
        )
        print(
            f"Epoch {epoch + 1}/{self._epochs} - loss {values['loss']:.4f} - accuracy {values['accuracy']:.4f} - "
            f"validation accuracy {values['val_accuracy']:.4f} - learning rate {values['learning_rate']:g} - "
            f"{values['images_per_second']:,.0f} images/s",
            flush=True,
        )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        if self._events is not None:
            self._events.close()
