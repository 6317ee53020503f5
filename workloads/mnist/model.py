"""The network that reads digits: one convolution and two dense layers, as in TensorFlow's tutorial "Distributed
training with Keras" (tensorflow.org/tutorials/distribute/keras, seen November 2026).
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

CLASSES = 10
IMAGE_SHAPE = (28, 28, 1)
"""Height, width and channels of an input image: uint8, 0 to 255, white on black."""
PIXEL_SCALE = 1 / 255


def build(optimizer: keras.Optimizer | None = None, steps_per_execution: int = 1) -> keras.Model:
    """A new, compiled network: images (batch, 28, 28, 1) uint8 in, logits (batch, 10) float32 out.

    The scaling to 0..1 is its first layer, so that whoever serves it cannot forget it and images travel as
    bytes. `optimizer` is Keras' Adam where it is not given; `steps_per_execution` is how many training steps
    TensorFlow runs before it comes back to Python.
    """
    model = keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE, dtype="uint8", name="image"),
            layers.Rescaling(PIXEL_SCALE),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES),
        ],
        name="mnist",
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=optimizer or keras.optimizers.Adam(),
        metrics=["accuracy"],
        # XLA reached a third of the speed on a CPU, and Keras leaves it out under MirroredStrategy; this way one
        # GPU runs what many run.
        jit_compile=False,
        steps_per_execution=steps_per_execution,
    )
    return model


def plain(model: keras.Model) -> keras.Model:
    """`model` as it is published, which needs nothing of ours to be loaded: one device, Keras' own optimizer."""
    copy = build()
    copy.set_weights(model.get_weights())
    return copy


class FusedAdam(keras.optimizers.Adam):
    """keras.optimizers.Adam for dense gradients: the same numbers in the same state variables, computed by one of
    TensorFlow's kernels, which passes over each variable once instead of a dozen times.

    Keras writes the update as a dozen operations on whole arrays. At 64 images per step the network's 347,000
    parameters make that a third of a step on a CPU (docs/performance.md). A state that either of the two saved
    is read by the other.
    """

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        """Apply one gradient to one variable; Keras calls this for each."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, variable.dtype)
        beta_1, beta_2 = tf.constant(self.beta_1, variable.dtype), tf.constant(self.beta_2, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.constant(self.epsilon, variable.dtype),
            grad=gradient,
        )
