"""The network that reads digits, and the images that it is trained on: their order, and how they are altered."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

IMAGE = (28, 28, 1)
"""Height, width and channels of an image: uint8, light on dark."""


def build() -> keras.Sequential:
    """A new network: images (batch, 28, 28, 1) uint8 in, logits (batch, 10) out. Its layers are a tutorial's,
    "Distributed training with Keras" (tensorflow.org/tutorials/distribute/keras, seen November 2026); the first
    scales to 0..1, so that whoever serves it cannot forget it."""
    return keras.Sequential(
        [
            keras.Input(IMAGE, dtype="uint8", name="image"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ],
        name="mnist",
    )


def batches(
    images: Any, labels: Any, *, seed: int, epochs: range, batch: int, copies: int, replicas: int, mine: range
) -> tf.data.Dataset:
    """Shares of full batches, of `epochs` one after the other: images (share, 28, 28, 1) uint8, and labels.

    Each batch has a share for each of the `replicas`; those of `mine` follow one another. The order within an
    epoch depends on `seed` and the epoch alone, so that a training that is resumed sees what any other would. Each
    epoch leaves out less than one batch. With `copies`, an epoch has each image so many times, each altered in
    another way.
    """
    count = len(images) * max(copies, 1)
    pixels, truth = tf.constant(images[..., None]), tf.constant(labels)

    def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffle = tf.stack([tf.cast(epoch, tf.int32), seed])
        order = tf.random.experimental.index_shuffle(tf.range(count), shuffle, count - 1)
        draws = [tf.random.stateless_uniform((count, DRAWS), shuffle, -1, 1)] if copies else []
        return tf.data.Dataset.from_tensor_slices((order % len(images), *draws)).batch(batch, drop_remainder=True)

    def shares(*chosen: tf.Tensor) -> tuple[tf.Tensor, ...]:
        parts = (tf.reshape(part, (replicas, batch // replicas, *part.shape[1:])) for part in chosen)
        return tuple(part[mine.start : mine.stop] for part in parts)

    def read(index: tf.Tensor, *draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.gather(pixels, index)
        return (alter(image, *draws) if draws else image), tf.gather(truth, index)

    chosen = tf.data.Dataset.range(epochs.start, epochs.stop).flat_map(of_epoch)
    if replicas > 1:
        chosen = chosen.map(shares).unbatch()
    return chosen.map(read, num_parallel_calls=tf.data.AUTOTUNE if copies else None).prefetch(4)


# Images as other hands and pens would have written them. Keras' own layers for this draw from a state that they
# keep, or from one whole number (3.15.1); a training that is resumed, or shared by nodes, needs draws that depend
# on the seed, the epoch and the image alone.

DRAWS = 8
"""Numbers from -1 to 1 that are drawn for each image."""
TURN, SLANT = 0.3, 0.35
"""To either side at most: radians, and pixels to the side for each pixel of height."""
ZOOM, STRETCH = 0.25, 0.35
"""Logarithms of the scale: of both sides, and of one, by which the other becomes smaller."""
SHIFT = 2.5
"""Pixels in each direction."""
LEVELS, SHARPEST = (0.2, 0.8), 8.0
"""Grey levels, of 1, at which the edge of a stroke is put (lower is thicker), and the highest contrast there."""


def alter(images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Images (count, height, width, 1) uint8, moved, turned, slanted, stretched, with thinner or thicker strokes,
    each by its row of `draws` (count, DRAWS)."""
    *moves, level, contrast = tf.unstack(draws, axis=1)
    grey = keras.ops.image.affine_transform(tf.cast(images, tf.float32) / 255, placement(images.shape[1:3], moves))
    lowest, highest = LEVELS
    edge = lowest + (highest - lowest) * (level + 1) / 2
    factor = SHARPEST ** ((contrast + 1) / 2)
    edge, factor = (value[:, None, None, None] for value in (edge, factor))
    return tf.cast(tf.round(tf.clip_by_value((grey - edge) * factor + 0.5, 0, 1) * 255), tf.uint8)


def placement(size: Sequence[int], moves: Sequence[tf.Tensor]) -> tf.Tensor:
    """Rows of `keras.ops.image.affine_transform`: from a place in the altered image to one in the image."""
    turn, slant, zoom, stretch, right, down = moves
    cosine, sine, slope = tf.cos(TURN * turn), tf.sin(TURN * turn), SLANT * slant
    across, along = tf.exp(ZOOM * zoom + STRETCH * stretch), tf.exp(ZOOM * zoom - STRETCH * stretch)
    a0, a1 = cosine * across, (cosine * slope - sine) * along
    b0, b1 = sine * across, (sine * slope + cosine) * along
    # The middle of the image stays where it is, but for the shift.
    y, x = ((side - 1) / 2 for side in size)
    a2, b2 = x - a0 * x - a1 * y + SHIFT * right, y - b0 * x - b1 * y + SHIFT * down
    nothing = tf.zeros_like(turn)
    return tf.stack([a0, a1, a2, b0, b1, b2, nothing, nothing], axis=1)
