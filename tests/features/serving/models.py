"""Small SavedModels, and requests for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
TRUTH = np.array([1, 1, 1, 1, 1, 1])


class Scores(tf.Module):
    """Two scores for two numbers: the numbers times ``factor``, so that class 1 wins where it is positive."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = tf.Variable(float(factor))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="numbers")])
    def __call__(self, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": numbers * self.factor}


class Unsigned(tf.Module):
    """A model that nobody gave a signature."""

    @tf.function
    def __call__(self, numbers: tf.Tensor) -> tf.Tensor:
        return numbers


class OfTheBatch(tf.Module):
    """Answers that depend on who else is in the batch."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="numbers")])
    def __call__(self, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": numbers - tf.reduce_mean(numbers, axis=0)}


class Means(tf.Module):
    """One answer for all rows."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="numbers")])
    def __call__(self, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": tf.reduce_mean(numbers, axis=0, keepdims=True)}


def save(folder: Path, factor: float = 1.0, module: tf.Module | None = None) -> Path:
    """A SavedModel in ``folder``, as a training leaves it."""
    tf.saved_model.save(module or Scores(factor), str(folder))
    return folder


def requests(file: Path) -> Path:
    """Requests for it with what is right."""
    np.savez(file, numbers=ROWS, right=TRUTH)
    return file
