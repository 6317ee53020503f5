"""Event files for TensorBoard: the scalars of each epoch.

`tf.summary.scalar` and Keras' TensorBoard callback need the package tensorboard, which TensorFlow 2.21 no
longer brings along; the writer below them is TensorFlow's own. View them anywhere with `tensorboard --logdir
DIR`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workloads.runtime.store import StoreError


class EventWriter:
    """Appends scalars to a new event file in each of `directory`/train and `directory`/validation."""

    def __init__(self, directory: Path) -> None:
        import tensorflow as tf

        self._directory = directory
        self._writers = {
            name: tf.summary.create_file_writer(str(directory / name)) for name in ("train", "validation")
        }

    def write(self, epoch: int, scalars: Mapping[str, Mapping[str, float]]) -> None:
        """Add the scalars of one epoch, counted from 0: `train` and `validation` map to values by tag.

        Raises:
            StoreError: the directory cannot be written.
        """
        import tensorflow as tf

        metadata = tf.compat.v1.SummaryMetadata(
            plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        )
        try:
            for name, values in scalars.items():
                writer = self._writers[name]
                with writer.as_default(step=epoch):
                    for tag, value in values.items():
                        tf.summary.write(tag, tf.constant(value, tf.float32), metadata=metadata)
                writer.flush()
        except tf.errors.OpError as error:
            raise StoreError(
                f"{self._directory}: TensorBoard's events cannot be written: {error.message}"
            ) from error

    def close(self) -> None:
        """Close both files."""
        for writer in self._writers.values():
            writer.close()
