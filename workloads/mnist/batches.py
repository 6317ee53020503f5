"""The order in which images are trained on: it depends on the seed and the epoch alone."""

from __future__ import annotations

from typing import Any

from workloads.mnist.augment import DRAWS, alter
from workloads.mnist.data import Split


def batches(
    train: Split, seed: int, epochs: range, batch: int, *, copies: int = 0, shares: int = 1, mine: range = range(1)
) -> Any:
    """A tf.data.Dataset of full batches (images uint8, labels) over `epochs`, one after the other.

    The order within an epoch depends on `seed` and the epoch alone, so that a resumed training sees what an
    uninterrupted one would. Each epoch leaves out less than one batch, other images each time. The images stay
    bytes, and only indices are shuffled.

    With `copies` an epoch has each image so many times, altered each time in another way, which depends on `seed`
    and the epoch alone, too.

    Each batch is divided into `shares` equal parts, and those with the numbers `mine` come one after the other.
    No other image is touched.
    """
    import numpy as np
    import tensorflow as tf

    count = len(train[0]) * max(copies, 1)
    images, labels = tf.constant(train[0][..., np.newaxis]), tf.constant(train[1])

    def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffle_seed = tf.stack([tf.cast(epoch, tf.int32), seed])
        order = tf.random.experimental.index_shuffle(tf.range(count), shuffle_seed, count - 1)
        draws = [tf.random.stateless_uniform((count, DRAWS), shuffle_seed, -1, 1)] if copies else []
        return tf.data.Dataset.from_tensor_slices((order % len(images), *draws)).batch(batch, drop_remainder=True)

    def share(*chosen: tf.Tensor) -> tuple[tf.Tensor, ...]:
        parts = (tf.reshape(part, (shares, batch // shares, *part.shape[1:])) for part in chosen)
        return tuple(part[mine.start : mine.stop] for part in parts)

    def read(index: tf.Tensor, *draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = tf.gather(images, index), tf.gather(labels, index)
        return (alter(image, *draws) if draws else image), label

    chosen = tf.data.Dataset.range(epochs.start, epochs.stop).flat_map(of_epoch)
    if shares > 1:
        chosen = chosen.map(share).unbatch()
    return chosen.map(read, num_parallel_calls=tf.data.AUTOTUNE if copies else None).prefetch(4)
