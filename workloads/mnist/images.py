"""Read PNG and JPEG files of any kind as the network wants them: 28 x 28, grey, white on black.

A 28 x 28 image keeps its pixels. Any other is brought into MNIST's form, as its makers did: the digit's
bounding box scaled into 20 x 20, its proportions kept, and placed so that its centre of mass is the centre of
the image (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", read 2026-11).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipway.workloads.runtime.exits import BAD_INPUT, StepError
from slipway.workloads.runtime.store import digest_of

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
READERS = 4
"""Files that are read at a time, since a mounted bucket takes long for each. A decoded photo may take 300 MB."""
LABELS = "labels.json"
"""The file beside images that has their digits by their names."""
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
    if content.startswith(_JPEG):
        try:
            _check_size(*_jpeg_size(content))
            return _decode_jpeg(content)
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


# JPEG files as grey levels, upright as cameras meant them.

_JPEG = b"\xff\xd8\xff"
_EXIF = b"Exif\0\0"
_APP1, _START_OF_SCAN = 0xE1, 0xDA
_ORIENTATION = 0x0112
"""Exif's tag of how the picture was held (CIPA DC-008-2023, "Exif 3.0", section 4.6.5.1)."""


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Width and height as the header has them, without decoding.

    Raises:
        ValueError: damaged.
    """
    import tensorflow as tf

    try:
        height, width, _ = (int(side) for side in tf.image.extract_jpeg_shape(content).numpy())
    except tf.errors.OpError as error:
        raise ValueError("truncated or damaged JPEG: its header cannot be read") from error
    return width, height


def _decode_jpeg(content: bytes) -> NDArray[np.float32]:
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


# Folders of images.


@dataclass(frozen=True)
class ImageFile:
    """An image file: where it lies, its name below the folder that was searched, and its label where `labels.json`
    beside it knows it.
    """

    path: Path
    name: str
    label: int | None


def find_images(folder: Path) -> list[ImageFile]:
    """Every image file under `folder`, sorted by name. Says which other files are left out.

    Those of kinds that are not read are among them, for `read` to refuse them by name.

    Raises:
        StepError: with BAD_INPUT where there is no such folder or no image in it, or a `labels.json` cannot be
        understood.
    """
    if not folder.is_dir():
        raise StepError(BAD_INPUT, f"--images {folder}: there is no such folder")
    # Hidden folders are left out: a mounted ConfigMap has its files once more in one that begins with two dots.
    files = sorted(
        path
        for path in folder.rglob("*")
        # A link that leads nowhere is no file, and worth a word.
        if (path.is_file() or (path.is_symlink() and not path.exists()))
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    paths = [path for path in files if path.suffix.lower() in {*SUFFIXES, *OTHERS}]
    others = [path for path in files if path.suffix.lower() not in {*SUFFIXES, *OTHERS} and path.name != LABELS]
    if others:
        names = ", ".join(ascii(path.relative_to(folder).as_posix()) for path in others)
        print(f"Left out, for they are no images: {names}", flush=True)
    if not paths:
        raise StepError(BAD_INPUT, f"{folder}: no *.png, *.jpg or *.jpeg file in it or below")
    labels: dict[Path, dict[str, int]] = {}
    images = []
    for path in paths:
        if path.parent not in labels:
            labels[path.parent] = read_labels(path.parent / LABELS)
        images.append(ImageFile(path, path.relative_to(folder).as_posix(), labels[path.parent].get(path.name)))
    return images


def read_labels(path: Path) -> dict[str, int]:
    """The digits in a `labels.json` by file name; none where there is no such file.

    Raises:
        StepError: with BAD_INPUT where it cannot be understood.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StepError(BAD_INPUT, f"{path} is not JSON: {error}") from error
    if not isinstance(raw, dict) or not all(
        isinstance(digit, int) and not isinstance(digit, bool) and 0 <= digit <= 9 for digit in raw.values()
    ):
        raise StepError(BAD_INPUT, f"{path} must map file names to digits 0 to 9")
    return raw


def digest_images(images: Iterable[ImageFile], *, skip_unreadable: bool = False) -> str:
    """One digest for names, contents and labels of the images.

    Raises:
        OSError: one cannot be read, unless `skip_unreadable` leaves its content out.
    """

    def line(image: ImageFile) -> str:
        try:
            content = digest_of(image.path).sha256
        except OSError:
            if not skip_unreadable:
                raise
            content = "unreadable"
        return f"{image.name}\0{content}\0{image.label}\n"

    with ThreadPoolExecutor(READERS) as pool:
        text = "".join(pool.map(line, images))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
