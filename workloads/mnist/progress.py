"""What happens after each epoch of a training: one line in the log, TensorBoard's scalars, a checkpoint; after
the first, the graph of the model."""

from __future__ import annotations

import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from slipway.workloads.runtime.store import (
    StoreError,
    copy_atomically,
    digest_of,
    remove_stale,
    staging,
    store_errors,
)


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
        save_checkpoint(self.model, self._checkpoints, epoch + 1, self.run, self.history)
        if self._events is None:
            self._events = EventWriter(self._logs)
            self._events.write_graph(self.model)
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


# Checkpoints that verify themselves: `epoch-0003-<digest>.keras`, the digest being that of the content.
#
# A checkpoint is a Keras archive (weights, optimizer state, network) with one more member, `slipway.json`: which
# run it belongs to and the history so far. It is written under another name and renamed, so it is whole or
# absent; a name never changes its content, so two trainings in one directory cannot damage each other's. Any of
# them opens with keras.models.load_model(path, compile=False).


KEEP = 3
"""Newest checkpoints that stay; older ones are deleted."""
_MEMBER = "slipway.json"
_NAME = re.compile(r"epoch-(\d{4,})-([0-9a-f]{16})\.keras")


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: how many epochs are done, its file, and the history of each epoch."""

    epochs_done: int
    path: Path
    history: list[dict[str, float]]


def save_checkpoint(
    model: keras.Model, directory: Path, epochs_done: int, run: str, history: list[dict[str, float]]
) -> Path:
    """Write the complete state after `epochs_done` epochs and delete old checkpoints; returns the new file.

    `run` identifies what the state depends on: data, seed, batch size, learning rates, augmentation.

    Raises:
        StoreError: the store cannot be written.
    """
    with staging() as scratch:
        local = scratch / "model.keras"
        model.save(local)
        with zipfile.ZipFile(local, "a") as archive:
            archive.writestr(_MEMBER, json.dumps({"run": run, "epochs_done": epochs_done, "history": history}))
        target = directory / f"epoch-{epochs_done:04d}-{digest_of(local).sha256[:16]}.keras"
        with store_errors(directory):
            copy_atomically(local, target)
            remove_stale(directory)
            for path in _newest_first(directory)[KEEP:]:
                if path != target:
                    path.unlink(missing_ok=True)
    return target


def restore(model: keras.Model, directory: Path, run: str, epochs: int) -> Checkpoint | None:
    """Load the newest whole checkpoint of `run` with at most `epochs` epochs into `model`, optimizer state
    included.

    Says on standard output for each newer one that is passed over why; returns None where there is none to load.

    Raises:
        StoreError: the directory is there and cannot be read.
    """
    for path in _newest_first(directory):
        match = _NAME.fullmatch(path.name)
        assert match is not None
        if int(match[1]) > epochs:
            print(f"Checkpoint {path.name} skipped: it is past the {epochs} epochs asked for", flush=True)
            continue
        with store_errors(directory):
            try:
                digest = digest_of(path)
                if digest.sha256[:16] != match[2]:
                    reason = f"truncated or altered, its {digest.size} bytes do not have the digest in its name"
                    print(f"Checkpoint {path.name} skipped: {reason}", flush=True)
                    continue
                state = _read_member(path)
                if state.get("run") != run:
                    reason = "other data, seed, batch size, learning rates or augmentation"
                    print(f"Checkpoint {path.name} skipped: {reason}", flush=True)
                    continue
                model.load_weights(path)
            except (FileNotFoundError, KeyError, ValueError, zipfile.BadZipFile) as error:
                print(f"Checkpoint {path.name} skipped: {' '.join(str(error).split())[:200]}", flush=True)
                continue
        return Checkpoint(int(match[1]), path, list(state["history"]))
    return None


def _read_member(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(_MEMBER))


def _newest_first(directory: Path) -> list[Path]:
    with store_errors(directory):
        if not directory.is_dir():
            return []
        files = [path for path in directory.iterdir() if path.is_file()]
    checkpoints = [(int(match[1]), path) for path in files if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(checkpoints, key=lambda item: (item[0], item[1].name), reverse=True)]


# Event files for TensorBoard: the scalars of each epoch and the graph of the model. `tf.summary.scalar` and Keras'
# TensorBoard callback need the package tensorboard, which TensorFlow 2.21 no longer brings along; the writer below
# them is TensorFlow's own.
# View them anywhere with `tensorboard --logdir DIR`.


class EventWriter:
    """Appends to a new event file in each of `directory`/train and `directory`/validation."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers = {
            name: tf.summary.create_file_writer(str(directory / name)) for name in ("train", "validation")
        }

    def write(self, epoch: int, scalars: Mapping[str, Mapping[str, float]]) -> None:
        """Add the scalars of one epoch, counted from 0: `train` and `validation` map to values by tag.

        Raises:
            StoreError: the directory cannot be written.
        """
        metadata = tf.compat.v1.SummaryMetadata(
            plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        )
        with self._errors():
            for name, values in scalars.items():
                writer = self._writers[name]
                with writer.as_default(step=epoch):
                    for tag, value in values.items():
                        tf.summary.write(tag, tf.constant(value, tf.float32), metadata=metadata)
                writer.flush()

    def write_graph(self, model: keras.Model) -> None:
        """Add the operations by which `model` predicts, a group for each layer.

        Raises:
            StoreError: the directory cannot be written.
        """
        images = [tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype) for tensor in model.inputs]
        predict = tf.function(lambda *images: model(*images, training=False)).get_concrete_function(*images)
        with self._errors(), self._writers["train"].as_default(step=0):
            tf.summary.graph(predict.graph)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            message = f"{self._directory}: TensorBoard's events cannot be written: {error.message}"
            raise StoreError(message) from error

    def close(self) -> None:
        """Close both files."""
        for writer in self._writers.values():
            writer.close()
