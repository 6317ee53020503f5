"""Held-out images with their labels: from a folder, or from an `.npz` file of arrays. Read once, at the start.

A folder has images and `labels.json`, which maps their names to labels; or a folder for each label; or just
images, whose labels nobody knows. An `.npz` file has `images` (count, height, width) or (count, height, width,
channels) as uint8 and, where they are known, `labels` (count,) as whole numbers.
"""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from slipway.workloads.apps.page.pixels import ImageError, decode, png

MOST = 2000
"""Samples that are kept: of more, a random choice."""

MOST_BYTES = 64 * 2**20
"""Bytes of one file of samples, unpacked for an `.npz`."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

LABELS = "labels.json"


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
        raise SamplesError(f"{file}: has to be a JSON object with the label of each image by its file's name")
    return labels


def _of_file(file: Path) -> Iterator[Sample]:
    try:
        with zipfile.ZipFile(file) as archive:
            images = _array(archive, "images")
            labels = _array(archive, "labels") if "labels.npy" in archive.namelist() else None
    except (zipfile.BadZipFile, KeyError, ValueError, MemoryError) as error:
        raise SamplesError(f"{file}: not an .npz file of samples: {error}") from error
    if images.ndim == 3 or images.shape[3:] == (3,):
        pictures = images
    elif images.shape[3:] == (1,):
        pictures = images[..., 0]
    else:
        raise SamplesError(f"{file}: `images` have the shape {images.shape}: not (count, height, width[, 1 or 3])")
    if labels is not None and labels.shape != images.shape[:1]:
        raise SamplesError(f"{file}: `labels` are not one for each of {len(images)} images")
    for place in _choose(len(images)):
        yield Sample(Image.fromarray(pictures[place]), None if labels is None else int(labels[place]))


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MOST_BYTES:
        raise ValueError(f"{name} has {info.file_size:,} bytes, and {MOST_BYTES:,} are taken")
    with archive.open(info) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.kind not in "iu" or (name == "images" and array.dtype != np.uint8):
        wanted = "uint8, from 0 to 255" if name == "images" else "whole numbers"
        raise ValueError(f"`{name}` is of the type {array.dtype.str}, and has to be {wanted}")
    return array
