"""Held-out images with their labels: from a folder, or from an `.npz` file of arrays. Read once, at the start.

A folder has images and `labels.json`, which maps their names to labels; or a folder for each label; or just
images, whose labels nobody knows. An `.npz` file has `images` (count, height, width) or (count, height, width,
channels) as uint8 and, where they are known, `labels` (count,) as whole numbers. NumPy is not needed.
"""

from __future__ import annotations

import ast
import json
import math
import random
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from workloads.apps.page.pixels import ImageError, decode, png

MOST = 2000
"""Samples that are kept: of more, a random choice."""

MOST_BYTES = 64 * 2**20
"""Bytes of one file of samples, unpacked for an `.npz`."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

LABELS = "labels.json"

WHOLE_NUMBERS = {f"{order}{kind}{size}" for order in "<>|=" for kind in "iu" for size in (1, 2, 4, 8)}


class SamplesError(Exception):
    """The samples cannot be read; the message says why and what to do."""


@dataclass(frozen=True)
class Sample:
    """One held-out image. ``label`` is its label, or the place of that among the model's; None: not known."""

    image: Image.Image
    label: str | int | None

    @property
    def png(self) -> bytes:
        """Its PNG file."""
        return png(self.image)

    def truth(self, labels: Sequence[str]) -> int | None:
        """Its label's place among ``labels``; None where it has none of them."""
        if self.label is None:
            return None
        if str(self.label) in labels:
            return labels.index(str(self.label))
        place = int(self.label) if str(self.label).isdecimal() else -1
        return place if 0 <= place < len(labels) else None


def load(place: Path) -> list[Sample]:
    """The samples of a folder or an `.npz` file, at most `MOST` of them.

    Raises:
        SamplesError: there is none, or the file is something else.
    """
    try:
        samples = list(_of_file(place) if place.is_file() else _of_folder(place))
    except OSError as error:
        raise SamplesError(f"{error.filename or place}: {error.strerror}") from error
    if not samples:
        raise SamplesError(f"{place}: holds no image; name a folder with PNG, JPEG or WebP files, or an .npz file")
    return samples


def _choose(count: int) -> list[int]:
    return sorted(random.Random(0).sample(range(count), min(count, MOST)))


def _of_folder(folder: Path) -> Iterator[Sample]:
    if not folder.is_dir():
        raise SamplesError(f"{folder}: there is no such folder or file")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    labels = _labels(folder / LABELS)
    for place in _choose(len(paths)):
        path = paths[place]
        name = path.relative_to(folder).as_posix()
        of_folder = path.parent.name if path.parent != folder else None
        if path.stat().st_size > MOST_BYTES:
            raise SamplesError(f"{path}: more than {MOST_BYTES // 2**20} MiB")
        try:
            yield Sample(decode(path.read_bytes()), labels.get(name, of_folder))
        except ImageError as error:
            raise SamplesError(f"{path}: {error}") from error


def _labels(file: Path) -> Mapping[str, str | int]:
    if not file.is_file():
        return {}
    try:
        labels = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SamplesError(f"{file}: not JSON: {error}") from error
    if not isinstance(labels, dict) or not all(isinstance(label, str | int) for label in labels.values()):
        raise SamplesError(f"{file}: has to be a JSON object with the label of label image by its file's name")
    return labels


@dataclass(frozen=True)
class _Array:
    kind: str
    shape: tuple[int, ...]
    content: bytes


def _of_file(file: Path) -> Iterator[Sample]:
    try:
        with zipfile.ZipFile(file) as archive:
            images = _array(archive, "images")
            labels = _array(archive, "labels") if "labels.npy" in archive.namelist() else None
    except (zipfile.BadZipFile, KeyError, ValueError, SyntaxError) as error:
        raise SamplesError(f"{file}: not an .npz file of samples: {error}") from error
    shape = images.shape
    whole = images.kind == "|u1" and (len(shape) == 3 or (len(shape) == 4 and shape[3] in {1, 3}))
    if not whole or (labels and (labels.shape != shape[:1] or labels.kind not in WHOLE_NUMBERS)):
        raise SamplesError(
            f"{file}: `images` have to be uint8 of (count, height, width[, 1 or 3]), and `labels` whole numbers, "
            "one for each"
        )
    mode = "RGB" if shape[3:] == (3,) else "L"
    size = math.prod(shape[1:])
    for place in _choose(shape[0]):
        content = images.content[place * size : (place + 1) * size]
        label = None if labels is None else _number(labels, place)
        yield Sample(Image.frombytes(mode, (shape[2], shape[1]), content), label)


def _number(array: _Array, place: int) -> int:
    size = int(array.kind[2:])
    order = "big" if array.kind[0] == ">" else "little"
    return int.from_bytes(array.content[place * size : (place + 1) * size], order, signed=array.kind[1] == "i")


def _array(archive: zipfile.ZipFile, name: str) -> _Array:
    """An array in NumPy's format (numpy.org/doc/stable/reference/generated/numpy.lib.format, November 2026)."""
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MOST_BYTES:
        raise ValueError(f"{name} has {info.file_size:,} bytes, and {MOST_BYTES:,} are taken")
    content = archive.read(info)
    if content[:6] != b"\x93NUMPY":
        raise ValueError(f"{name} is not an array of NumPy's")
    wide = 2 if content[6] == 1 else 4
    start = 8 + wide
    end = start + int.from_bytes(content[8:start], "little")
    header = ast.literal_eval(content[start:end].decode("latin-1").strip())
    shape, kind = tuple(int(size) for size in header["shape"]), str(header["descr"])
    if header["fortran_order"]:
        raise ValueError(f"`{name}` is in the order of Fortran; save it after numpy.ascontiguousarray")
    if kind not in WHOLE_NUMBERS:
        wanted = "uint8, from 0 to 255" if name == "images" else "whole numbers"
        raise ValueError(f"`{name}` is of the type {kind}, and has to be {wanted}")
    if len(content) - end != math.prod(shape) * int(kind[2:]):
        raise ValueError(f"{name} is truncated")
    return _Array(kind, shape, content[end:])
