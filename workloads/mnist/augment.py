"""Images as other hands and pens would have written them: moved, turned, slanted, stretched, thinner or thicker.

Keras' own layers for this draw from a state that they keep, or from one whole number (3.15.1). A training that is
resumed, or shared by several nodes, needs draws that depend on the seed, the epoch and the image alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

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
