"""One training step of Keras' ResNet-50 on every GPU: forward, backward, SGD with momentum; and what it is fed
with."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

POLICIES = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}
"""Keras' policy for each precision. In the mixed ones variables, batch statistics and loss stay float32."""
CLASSES = 1000
LEARNING_RATE, MOMENTUM = 0.001, 0.9
"""So low that no precision diverges within a measurement; the speed does not depend on it."""
LOSS_SCALE = 128.0
"""For fp16, whose smallest numbers gradients would fall below; what tf_cnn_benchmarks takes for ResNet
(scripts/tf_cnn_benchmarks/models/model.py, read 2026-11-20)."""


class FusedSGD(keras.optimizers.SGD):
    """keras.optimizers.SGD with momentum for dense gradients: the same numbers, computed by one kernel.

    ResNet-50 has 161 variables. Keras' 800 small operations for their update would be as many launches as the
    forward and the backward pass have together, and a fast GPU would wait for the host. tf_cnn_benchmarks, to
    whose figures these are compared, updates with one kernel each, too.
    """

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        momentum = self.momentums[self._get_variable_index(variable)]
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=momentum.value.handle,
            lr=tf.cast(learning_rate, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
            momentum=tf.constant(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )


def build(
    strategy: tf.distribute.Strategy, precision: str, size: int, *, xla: bool
) -> tuple[keras.Optimizer, Callable[[Any, Any], tf.Tensor]]:
    """The optimizer, and the compiled step: images and labels in, the mean loss of this node's replicas out.

    With `xla`, XLA compiles forward and backward pass of each replica. Adding up gradients and updating weights
    stay outside, on one GPU as on many, so that their figures differ by nothing else.
    """
    keras.mixed_precision.set_global_policy(POLICIES[precision])
    # LossScaleOptimizer would ask the gradients of one replica of each node whether they overflowed, and where
    # nodes differ, some would wait for ever for the others (Keras 3.15.1). There, gradients that overflow count as
    # zero.
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    fixed_scale = LOSS_SCALE if precision == "fp16" and several else None
    with strategy.scope():
        model = keras.applications.ResNet50(
            weights=None, input_shape=(size, size, 3), classes=CLASSES, classifier_activation=None
        )
        optimizer: keras.Optimizer = FusedSGD(LEARNING_RATE, momentum=MOMENTUM, loss_scale_factor=fixed_scale)
        if precision == "fp16" and not several:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=LOSS_SCALE)
        optimizer.build(model.trainable_variables)

    @tf.function(autograph=False, jit_compile=xla)
    def compute_gradients(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(images, training=True), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            scaled = optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, model.trainable_variables)

    def on_replica(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss, gradients = compute_gradients(images, labels)
        if fixed_scale is not None:
            gradients = [tf.where(tf.math.is_finite(value), value, tf.zeros_like(value)) for value in gradients]
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function(autograph=False)
    def step(images: Any, labels: Any) -> tf.Tensor:
        losses = strategy.run(on_replica, args=(images, labels))
        # Among nodes, the mean of all would be one more exchange in every step.
        return tf.reduce_mean(tf.stack(strategy.experimental_local_results(losses)))

    return optimizer, step


def synthetic(strategy: tf.distribute.Strategy, batch: int, size: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Random images and labels again and again, made once, on each replica's own device."""
    generator = tf.random.Generator.from_seed(seed)

    def make(_: tf.distribute.InputContext) -> tf.data.Dataset:
        images = generator.normal([batch, size, size, 3])
        labels = tf.cast(generator.uniform([batch], 0, CLASSES, tf.int32), tf.int32)
        return tf.data.Dataset.from_tensors((images, labels)).repeat()

    return itertools.repeat(next(iter(strategy.distribute_datasets_from_function(make))))


PATTERN = "train-*-of-*"
IMAGE, LABEL = "image/encoded", "image/class/label"
"""The features of TFRecords that the scripts of Inception and ResNet make of ImageNet: a JPEG, a class from 1."""


def stored(
    strategy: tf.distribute.Strategy, folder: Path, batch: int, size: int, seed: int
) -> Iterator[tuple[Any, Any]]:
    """The images of a folder, read, decoded, cropped and flipped at random while the step before runs."""
    names = sorted(map(str, folder.glob(PATTERN)))
    if not names:
        raise SystemExit(f"--data {folder}: there is no file {PATTERN}")

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        files = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), seed)
        if len(names) >= context.num_input_pipelines:
            files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
        # A mounted bucket answers slowly, but to many at once.
        records = files.repeat().interleave(
            tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=tf.data.AUTOTUNE
        )
        numbered = records.enumerate(context.input_pipeline_id)
        images = numbered.map(
            lambda number, record: decode(record, tf.stack([number, seed]), size),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return images.batch(batch, drop_remainder=True).prefetch(2)

    return iter(strategy.distribute_datasets_from_function(make))


def decode(record: tf.Tensor, seed: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Part of the image as ResNet is trained on it, (size, size, 3) from -1 to 1, and its class counted from 0."""
    features = tf.io.parse_single_example(
        record, {IMAGE: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}
    )
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(features[IMAGE]),
        tf.zeros([0, 0, 4], tf.float32),
        seed,
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 4 / 3),
        area_range=(0.08, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], extent[:2]], axis=0)
    image = tf.image.resize(tf.image.decode_and_crop_jpeg(features[IMAGE], window, channels=3), [size, size])
    image = tf.image.stateless_random_flip_left_right(image, seed) / 127.5 - 1
    return tf.ensure_shape(image, [size, size, 3]), tf.cast(features[LABEL] - 1, tf.int32)
