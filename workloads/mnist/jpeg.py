"""Read JPEG files as grey levels, upright as cameras meant them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\xff\xd8\xff"
_EXIF = b"Exif\0\0"
_APP1, _START_OF_SCAN = 0xE1, 0xDA
_ORIENTATION = 0x0112
"""Exif's tag of how the picture was held (CIPA DC-008-2023, "Exif 3.0", section 4.6.5.1)."""


def size(content: bytes) -> tuple[int, int]:
    """Width and height as the header has them, without decoding.

    Raises:
        ValueError: damaged.
    """
    import tensorflow as tf

    try:
        height, width, _ = (int(each) for each in tf.image.extract_jpeg_shape(content).numpy())
    except tf.errors.OpError as error:
        raise ValueError("truncated or damaged JPEG: its header cannot be read") from error
    return width, height


def decode(content: bytes) -> NDArray[np.float32]:
    """The grey levels (height, width), 0 to 1, turned as the file's Exif data say.

    Raises:
        ValueError: damaged.
    """
    import tensorflow as tf

    try:
        # One channel is JPEG's own luma: ITU-R BT.601, as for PNG.
        pixels = tf.io.decode_jpeg(content, channels=1, dct_method="INTEGER_ACCURATE").numpy()[..., 0]
    except tf.errors.OpError as error:
        raise ValueError("truncated or damaged JPEG: its image data cannot be decoded") from error
    return _upright(pixels.astype(np.float32) / 255, _orientation(content))


def _upright(grey: NDArray[np.float32], orientation: int) -> NDArray[np.float32]:
    """Undoes each of Exif's eight ways in which a picture can lie."""
    if orientation in {5, 6, 7, 8}:
        grey = grey.T
    if orientation in {2, 3, 6, 7}:
        grey = grey[:, ::-1]
    if orientation in {3, 4, 7, 8}:
        grey = grey[::-1]
    return np.ascontiguousarray(grey)


def _orientation(content: bytes) -> int:
    """Exif's orientation, 1 (upright) where there is none or it cannot be read."""
    for marker, segment in _segments(content):
        if marker == _APP1 and segment.startswith(_EXIF):
            try:
                return _tag(segment[len(_EXIF) :], _ORIENTATION)
            except struct.error:
                return 1
    return 1


def _segments(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The segments before the image data, each with its marker."""
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF and content[at + 1] != _START_OF_SCAN:
        (length,) = struct.unpack_from(">H", content, at + 2)
        yield content[at + 1], content[at + 4 : at + 2 + length]
        at += 2 + length


def _tag(tiff: bytes, wanted: int) -> int:
    """A short number in the first directory of TIFF data; 1 where it is not there."""
    order = "<" if tiff[:2] == b"II" else ">"
    (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, directory)
    for index in range(count):
        tag, _, _, value = struct.unpack_from(f"{order}HHIH", tiff, directory + 2 + 12 * index)
        if tag == wanted:
            return int(value)
    return 1
