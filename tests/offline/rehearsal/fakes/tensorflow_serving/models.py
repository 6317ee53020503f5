"""Models as TensorFlow Serving's documentation has them. The import takes seconds: it loads TensorFlow."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf


class HalfPlus(tf.Module):
    """`saved_model_half_plus_three` of TensorFlow Serving's test data: x / 2 + ``added``."""

    def __init__(self, added: float) -> None:
        super().__init__()
        self.added = tf.Variable(float(added))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x / 2 + self.added}

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="name")])
    def greet(self, name: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"greeting": tf.strings.join(["hello ", name])}


class Sensors(tf.Module):
    """Three named inputs as in the documentation's request, and several outputs of several types."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="tag"),
            tf.TensorSpec([None, 5], tf.int32, name="signal"),
            tf.TensorSpec([None, 2, 2], tf.float32, name="sensor"),
        ]
    )
    def predict(self, tag: tf.Tensor, signal: tf.Tensor, sensor: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "tag": tag,
            "raw_bytes": tag,
            "sum": tf.reduce_sum(signal, axis=1),
            "scaled": sensor * 0.1,
            "odd": signal % 2 == 1,
        }


def half_plus(folder: Path, added: float) -> Path:
    module = HalfPlus(added)
    signatures = {"serving_default": module.predict, "greet": module.greet}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def sensors(folder: Path) -> Path:
    module = Sensors()
    tf.saved_model.save(module, str(folder), signatures=module.predict)
    return folder
