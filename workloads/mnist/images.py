"""Read PNG and JPEG files of any kind as the network wants them: 28 x 28, grey, white on black.

A 28 x 28 image keeps its pixels. Any other is brought into MNIST's form, as its makers did: the digit's
bounding box scaled into 20 x 20, its proportions kept, and placed so that its centre of mass is the centre of
the image (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", read 2026-11).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.mnist import jpeg

SIZE = 28
_INNER = 20
LARGEST = 16_000_000
"""Pixels an image may have, about 4,000 x 4,000: decoding takes up to 20 bytes for each, and a small file can have
a great many (a decompression bomb)."""
LARGEST_FILE = 128 * 2**20
"""Bytes of a file, which is read whole: the most pixels with 16 bits in each of four channels."""
SUFFIXES = (".png", ".jpg", ".jpeg")
"""Of the files that are read."""
OTHERS = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff", ".webp")
"""Of images that are not."""
_PNG = b"\x89PNG\r\n\x1a\n"
_ROWS = 512
"""Rows whose channels are turned into grey levels at a time, to save memory."""
_LEAST_CONTRAST = 8 / 255
"""Difference between lightest and darkest below which nothing is drawn."""
_INK = 0.2
"""Share of the full range from which a pixel counts as drawn, for the bounding box."""


class ImageError(ValueError):
    """A file is not an image that can be read; the message says why, without the file's name."""


def read(path: Path) -> NDArray[np.uint8]:
    """One PNG or JPEG file of any size, bit depth, palette or transparency as (28, 28), white on black.

    Raises:
        ImageError: neither PNG nor JPEG, truncated, damaged, too large, or blank.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ImageError(f"more than {LARGEST_FILE // 2**20} MiB; scale the image down")
        content = path.read_bytes()
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}") from error
    return normalise(decode(content))


def decode(content: bytes) -> NDArray[np.float32]:
    """The grey levels (height, width), 0 to 1, of the content of a PNG or JPEG file, whatever its name says.

    Transparent parts are laid on white, as browsers do; where everything drawn is near white, on black.

    Raises:
        ImageError: as for `read`, other than blank.
    """
    if content.startswith(jpeg.SIGNATURE):
        try:
            _check_size(*jpeg.size(content))
            return jpeg.decode(content)
        except ImageError:
            raise
        except ValueError as error:
            raise ImageError(str(error)) from error
    if not content.startswith(_PNG):
        raise ImageError("neither a PNG nor a JPEG file" if content else "the file is empty")
    return _decode_png(content)


def _check_size(width: int, height: int) -> None:
    if not 0 < width * height <= LARGEST:
        raise ImageError(f"{width} x {height} pixels; an image may have {LARGEST:,}: scale it down")


def _decode_png(content: bytes) -> NDArray[np.float32]:
    if len(content) < 33 or content[12:16] != b"IHDR":
        raise ImageError("truncated or damaged PNG: it has no header")
    _check_size(*struct.unpack(">II", content[16:24]))
    import tensorflow as tf

    try:
        # Asked for four channels without need, TensorFlow 2.21 makes images of 1 to 4 bits all but transparent.
        channels = 4 if _may_be_transparent(content) else 3
        pixels = tf.io.decode_png(content, channels=channels, dtype=tf.uint16).numpy()
    except tf.errors.OpError as error:
        raise ImageError("truncated or damaged PNG: its image data cannot be decoded") from error
    # ITU-R BT.601, the weights of "luma" that image libraries use for grey.
    weights = np.array([0.299, 0.587, 0.114], np.float32) / 65535
    blocks = (pixels[start : start + _ROWS] for start in range(0, len(pixels), _ROWS))
    grey = np.concatenate([block[..., :3].astype(np.float32) @ weights for block in blocks])
    if channels == 4 and pixels[..., 3].min() < 65535:
        alpha = pixels[..., 3].astype(np.float32) / 65535
        drawn = grey[alpha > 0.5]
        paper = 0.0 if drawn.size and drawn.min() > 0.5 else 1.0
        grey = grey * alpha + paper * (1 - alpha)
    return grey


def normalise(grey: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Grey levels (height, width), 0 to 1, as a (28, 28) image, white on black.

    Raises:
        ImageError: blank, nothing stands out from the background.
    """
    low, high = float(grey.min()), float(grey.max())
    if high - low < _LEAST_CONTRAST:
        raise ImageError("blank: every pixel has the same colour, there is no digit to read")
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    if np.median(border) > (low + high) / 2:
        grey = 1 - grey
        low, high = 1 - high, 1 - low
    if grey.shape == (SIZE, SIZE):
        return np.round(grey * 255).astype(np.uint8)
    stretched = (grey - low) / (high - low)
    return _centre(_scale(_crop(stretched)))


def _may_be_transparent(content: bytes) -> bool:
    """Whether a PNG has an alpha channel (colour types 4 and 6) or a colour that is transparent (chunk tRNS)."""
    return content[25] in {4, 6} or b"tRNS" in content[: content.find(b"IDAT")]


def _crop(image: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = np.flatnonzero((image > _INK).any(1)), np.flatnonzero((image > _INK).any(0))
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _scale(image: NDArray[np.float32]) -> NDArray[np.float32]:
    import tensorflow as tf

    longest = max(image.shape)
    size = [max(1, round(side * _INNER / longest)) for side in image.shape]
    scaled = tf.image.resize(image[..., np.newaxis], size, method="bicubic", antialias=True).numpy()[..., 0]
    return np.clip(scaled, 0, 1)


def _centre(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    total = max(float(image.sum()), 1e-6)
    places = []
    for axis, side in enumerate(image.shape):
        mass = float((image.sum(1 - axis) * (np.arange(side) + 0.5)).sum()) / total
        places.append(min(max(round(SIZE / 2 - mass), 0), SIZE - side))
    canvas = np.zeros((SIZE, SIZE), np.uint8)
    top, left = places
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = np.round(image * 255)
    return canvas
