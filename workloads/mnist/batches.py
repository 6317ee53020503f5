"""The images that are trained on, in their order, and altered: both depend on the seed and the epoch alone.

One file for each split, `train.npz` and `test.npz`, with `images` (count, 28, 28) uint8, white on black, and
`labels` (count,) uint8. Two files, because a mounted bucket answers per request and reads best from front to end;
compressed, because 60,000 images are then 10 MB instead of 47, read twice (to verify, to load), and unpacking them
takes 0.03 s (docs/performance.md).
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slipway.workloads.runtime.exits import BAD_INPUT, StepError

# The prepared data set as `prepare` writes it and `train` reads it. numpy only.


Split = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images (count, 28, 28) and labels (count,)."""


def save(path: Path, split: Split) -> None:
    """Write one split; equal content gives equal bytes."""
    images, labels = split
    np.savez_compressed(path, images=images, labels=labels)


def load(path: Path) -> Split:
    """Read one split.

    Raises:
        StepError: with BAD_INPUT where the file is not such a split.
        OSError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            images, labels = archive["images"], archive["labels"]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StepError(BAD_INPUT, f"{path} is not a prepared data set: {error}") from error
    right = images.dtype == labels.dtype == np.uint8 and images.shape == (len(labels), 28, 28) and len(labels)
    if not right:
        shapes = f"images {images.dtype}{images.shape}, labels {labels.dtype}{labels.shape}"
        raise StepError(BAD_INPUT, f"{path} is not a prepared data set: {shapes}")
    return images, labels


# The images that are trained on, in their order, and altered: both depend on the seed and the epoch alone.


if TYPE_CHECKING:
    import tensorflow as tf


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


# Images as other hands and pens would have written them: moved, turned, slanted, stretched, thinner or thicker.
#
# Keras' own layers for this draw from a state that they keep, or from one whole number (3.15.1). A training that
# is resumed, or shared by several nodes, needs draws that depend on the seed, the epoch and the image alone.

DRAWS = 8
"""Numbers from -1 to 1 that are drawn for each image."""

TURN = 0.3
"""Radians, at most, to either side."""
SLANT = 0.35
"""Pixels to the side for each pixel of height."""
ZOOM = 0.25
"""Logarithm of the scale of both sides."""
STRETCH = 0.35
"""Logarithm of the scale of one side, by which the other becomes smaller."""
SHIFT = 2.5
"""Pixels in each direction: a page that centres the mass of a drawing has it elsewhere than a scan of 8 x 8."""
LEVELS = (0.2, 0.8)
"""Grey levels, of 1, at which the edge of a stroke is put: the lower, the thicker it is."""
SHARPEST = 8.0
"""Factor of the contrast at that edge. Scans that were enlarged have blurred edges, and drawings sharp ones."""


def alter(images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """`images` (count, height, width, 1) uint8, each altered by its row of `draws` (count, DRAWS)."""
    import keras
    import tensorflow as tf

    *moves, level, contrast = tf.unstack(draws, axis=1)
    grey = tf.cast(images, tf.float32) / 255
    grey = keras.ops.image.affine_transform(grey, _placement(images.shape[1:3], moves))
    lowest, highest = LEVELS
    edge = lowest + (highest - lowest) * (level + 1) / 2
    factor = SHARPEST ** ((contrast + 1) / 2)
    edge, factor = (value[:, tf.newaxis, tf.newaxis, tf.newaxis] for value in (edge, factor))
    return tf.cast(tf.round(tf.clip_by_value((grey - edge) * factor + 0.5, 0, 1) * 255), tf.uint8)


def _placement(size: Sequence[int], moves: Sequence[tf.Tensor]) -> tf.Tensor:
    """Rows of `keras.ops.image.affine_transform`: from a place in the altered image to one in the image."""
    import tensorflow as tf

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
