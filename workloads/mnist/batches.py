"""The order in which images are trained on: it depends on the seed and the epoch alone."""

from __future__ import annotations

from typing import Any

from workloads.mnist.data import Split


def batches(train: Split, seed: int, epochs: range, batch: int, *, shares: int = 1, mine: range = range(1)) -> Any:
    """A tf.data.Dataset of full batches (images uint8, labels) over `epochs`, one after the other.

    The order within an epoch depends on `seed` and the epoch alone, so that a resumed training sees what an
    uninterrupted one would. Each epoch leaves out less than one batch, other images each time. The images stay
    bytes, and only indices are shuffled.

    Each batch is divided into `shares` equal parts, and those with the numbers `mine` come one after the other.
    No other image is touched.
    """
    import numpy as np
    import tensorflow as tf

    count = len(train[0])
    images, labels = tf.constant(train[0][..., np.newaxis]), tf.constant(train[1])

    def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffle_seed = tf.stack([tf.cast(epoch, tf.int32), seed])
        order = tf.random.experimental.index_shuffle(tf.range(count), shuffle_seed, count - 1)
        return tf.data.Dataset.from_tensor_slices(order).batch(batch, drop_remainder=True)

    indices = tf.data.Dataset.range(epochs.start, epochs.stop).flat_map(of_epoch)
    if shares > 1:
        parts = indices.map(lambda index: tf.reshape(index, (shares, batch // shares))[mine.start : mine.stop])
        indices = parts.unbatch()
    return indices.map(lambda index: (tf.gather(images, index), tf.gather(labels, index))).prefetch(4)
