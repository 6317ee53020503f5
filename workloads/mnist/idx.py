"""The IDX format of the MNIST files: a magic number, the sizes of the dimensions, then the values. numpy only.

Layout: bytes 0-1 are zero, byte 2 is the type (0x08: unsigned byte), byte 3 the number of dimensions, then one
big-endian 32-bit size for each dimension, then the values, last dimension fastest (yann.lecun.com/exdb/mnist,
read 2026-11).
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_UNSIGNED_BYTE = 0x08
_LARGEST = 1 << 31
"""Values a file may hold: the largest IDX file of the MNIST family has 0.55e9 (EMNIST by class)."""


class IdxError(ValueError):
    """A file is not IDX, is of another type or is incomplete; the message names the file."""


def read(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, compressed with gzip or not; the array has the shape that the file
    states.

    Raises:
        IdxError: not IDX, another value type, truncated, longer than it states, or a damaged gzip.
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise IdxError(f"{path}: damaged gzip ({error})") from error
    return decode(content, str(path))


def decode(content: bytes, name: str) -> NDArray[np.uint8]:
    """The array in the uncompressed `content` of an IDX file; `name` is for the error's text.

    Raises:
        IdxError: as for `read`.
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise IdxError(f"{name}: not an IDX file, it does not begin with two zero bytes and a type")
    kind, dimensions = content[2], content[3]
    if kind != _UNSIGNED_BYTE:
        raise IdxError(f"{name}: holds values of type 0x{kind:02x}; only unsigned bytes (0x08) are read")
    start = 4 + 4 * dimensions
    if dimensions == 0 or len(content) < start:
        raise IdxError(f"{name}: truncated, the sizes of its {dimensions} dimensions are incomplete")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = math.prod(shape)
    if expected > _LARGEST or len(content) - start != expected:
        raise IdxError(
            f"{name}: states {' x '.join(map(str, shape))} = {expected} values, but holds {len(content) - start}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def encode(array: NDArray[np.uint8]) -> bytes:
    """The uncompressed IDX file of an array of unsigned bytes with 1 to 255 dimensions."""
    header = bytes((0, 0, _UNSIGNED_BYTE, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + np.ascontiguousarray(array).tobytes()


def find(folder: Path, split: str, kind: str) -> Path | None:
    """The file of one split (`train` or `t10k`) and kind (`images` or `labels`) in `folder`, or None.

    Both spellings that are about are found, with and without `.gz`: train-images-idx3-ubyte and
    train-images.idx3-ubyte.
    """
    rank = 3 if kind == "images" else 1
    for separator in "-.":
        for suffix in ("", ".gz"):
            path = folder / f"{split}-{kind}{separator}idx{rank}-ubyte{suffix}"
            if path.is_file():
                return path
    return None


def read_split(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
    """Images (count, 28, 28), white on black, and labels (count,) of one split; None where it has neither file.

    Raises:
        IdxError: one of the two files is missing or malformed, the counts differ, the images are not 28 x 28,
        or a label
            is above 9.
    """
    paths = [find(folder, split, kind) for kind in ("images", "labels")]
    images_path, labels_path = paths
    if images_path is None and labels_path is None:
        return None
    if images_path is None or labels_path is None:
        raise IdxError(
            f"{folder}: has {split} {'images' if images_path else 'labels'} only, needs images and labels"
        )
    images, labels = read(images_path), read(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise IdxError(f"{images_path}: holds {' x '.join(map(str, images.shape))} values; needs count x 28 x 28")
    if labels.ndim != 1 or len(labels) != len(images):
        shape = " x ".join(map(str, labels.shape))
        raise IdxError(f"{labels_path}: holds {shape} labels for {len(images)} images")
    if len(labels) and labels.max() > 9:
        raise IdxError(f"{labels_path}: holds the label {labels.max()}; digits are 0 to 9")
    return images, labels
