"""SGD with momentum by TensorFlow's own kernel: one launch for each variable instead of five."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


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
