"""One training step of Keras' ResNet-50 on every replica: forward, backward, SGD with momentum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

POLICIES = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}
"""Keras' policy for each precision. In the mixed ones variables, batch statistics and loss stay float32."""
CLASSES = 1000
LEARNING_RATE = 0.001
"""Low enough that no precision diverges within a benchmark; the speed does not depend on it."""
MOMENTUM = 0.9
LOSS_SCALE = 128.0
"""For fp16, whose smallest numbers gradients would fall below; what tf_cnn_benchmarks takes for ResNet
(scripts/tf_cnn_benchmarks/models/model.py, read 2026-11-20). A step whose gradients overflow halves it, on one
node. Among several Keras would ask the gradients of one replica of each process whether they did, and where the
processes differ, some would wait for ever for the others (LossScaleOptimizer._tf_apply, Keras 3.15.1): there
gradients that overflow count as zero."""


class FusedSGD(keras.optimizers.SGD):
    """keras.optimizers.SGD with momentum for dense gradients: the same numbers, computed by one kernel.

    ResNet-50 has 161 variables. Keras' 800 small operations for their update would be as many launches as the
    forward and the backward pass have together, and a fast GPU would wait for the host. tf_cnn_benchmarks, to
    whose figures these are compared, updates with one kernel each, too.
    """

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        """Apply one gradient to one variable; Keras calls this for each."""
        momentum = self.momentums[self._get_variable_index(variable)]
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=momentum.value.handle,
            lr=tf.cast(learning_rate, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
            momentum=tf.constant(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )


@dataclass(frozen=True)
class Training:
    """`step` runs one training step on a batch of images and labels and returns the mean loss of this process's
    replicas, a scalar tensor.

    Its work may go on after it returned: `finish` waits until all devices are idle.
    """

    strategy: tf.distribute.Strategy
    step: Callable[[Any, Any], tf.Tensor]
    optimizer: keras.Optimizer

    def finish(self) -> None:
        """Wait until every device of this process has done what it was given."""
        if not isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            tf.test.experimental.sync_devices()
            return
        # TensorFlow's own function tries those of the other processes, too, and fails.
        for device in self.strategy.extended.worker_devices:
            with tf.device(device):
                tf.raw_ops.SyncDevice()

    @property
    def updates(self) -> int:
        """Steps so far that changed the weights; one whose fp16 gradients overflowed did not."""
        return int(self.optimizer.iterations.numpy())


def build(strategy: tf.distribute.Strategy, precision: str, image_size: int, *, xla: bool) -> Training:
    """The network and its compiled training step on all replicas of `strategy`.

    With `xla`, XLA compiles forward and backward pass of each replica. Adding up gradients and updating weights
    stay outside, on one GPU as on many, so that their figures differ by nothing else.
    """
    keras.mixed_precision.set_global_policy(POLICIES[precision])
    among_processes = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    fixed_scale = LOSS_SCALE if precision == "fp16" and among_processes else None
    with strategy.scope():
        model = keras.applications.ResNet50(
            weights=None, input_shape=(image_size, image_size, 3), classes=CLASSES, classifier_activation=None
        )
        optimizer: keras.Optimizer = FusedSGD(LEARNING_RATE, momentum=MOMENTUM, loss_scale_factor=fixed_scale)
        if precision == "fp16" and not among_processes:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=LOSS_SCALE)
        optimizer.build(model.trainable_variables)

    @tf.function(autograph=False, jit_compile=xla)
    def compute_gradients(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(_scaled(images), training=True), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            scaled = optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, model.trainable_variables)

    def on_replica(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss, gradients = compute_gradients(images, labels)
        if fixed_scale is not None:
            gradients = [tf.where(tf.math.is_finite(value), value, tf.zeros_like(value)) for value in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function(autograph=False)
    def step(images: Any, labels: Any) -> tf.Tensor:
        losses = strategy.run(on_replica, args=(images, labels))
        # Among processes, the mean of all would be one more exchange in every step.
        return tf.reduce_mean(tf.stack(strategy.experimental_local_results(losses)))

    return Training(strategy, step, optimizer)


def _scaled(images: tf.Tensor) -> tf.Tensor:
    """Stored images travel as bytes and are scaled to -1..1 on the device; synthetic ones are numbers already."""
    return tf.cast(images, tf.float32) / 127.5 - 1 if images.dtype == tf.uint8 else images
