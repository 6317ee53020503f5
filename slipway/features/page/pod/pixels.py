"""What a drawing becomes for a model of small images, and the test images that it was not trained on."""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps
from starlette.exceptions import HTTPException

SIDE = 280
"""Pixels of a side of the drawing that a browser sends: a byte for each, 0 for ink and 255 for paper."""

LEAST_CONTRAST, INK = 16, 51
"""Levels of 255: between the lightest and darkest of what is drawn, and above the ground for a pixel of it."""

SHARE = 20 / 28
"""The drawing's share of a side: that of MNIST's digits."""


@dataclass(frozen=True)
class Form:
    """What images a model takes; ``ink`` says whether it reads light drawings on a dark ground, or the reverse."""

    width: int
    height: int
    mode: Literal["L", "RGB"]
    ink: Literal["light", "dark"] = "dark"


@dataclass(frozen=True)
class Sample:
    """A test image. ``label`` is its label, or the place of that among the model's; empty: not known."""

    image: Image.Image
    label: str

    def truth(self, labels: Sequence[str]) -> int | None:
        """Its label's place among ``labels``; None where it has none of them."""
        if self.label in labels:
            return labels.index(self.label)
        return int(self.label) if self.label.isdecimal() and int(self.label) < len(labels) else None


def of_drawing(content: bytes, form: Form) -> Image.Image:
    """The drawing of `SIDE` x `SIDE` bytes as a model of ``form`` takes it.

    It is scaled to its share of the side, its centre of mass in the centre, as MNIST's are. Raises HTTPException.
    """
    if len(content) != SIDE * SIDE:
        raise HTTPException(422, f"A drawing has {SIDE * SIDE:,} bytes.")
    ink = ImageOps.invert(Image.frombytes("L", (SIDE, SIDE), content))
    low, high = 255 - max(content), 255 - min(content)
    if high - low < LEAST_CONTRAST:
        raise HTTPException(422, "It is blank: everything has the same colour.")
    drawn = ink.point([min(max(round((level - low) * 255 / (high - low)), 0), 255) for level in range(256)])
    cut = drawn.crop(drawn.point([255 * (level > INK) for level in range(256)]).getbbox())
    scale = min(form.width * SHARE / cut.width, form.height * SHARE / cut.height)
    scaled = cut.resize(
        (max(1, round(cut.width * scale)), max(1, round(cut.height * scale))), Image.Resampling.BICUBIC
    )
    levels = np.asarray(scaled, np.float64) / np.asarray(scaled).sum()
    place: list[int] = []
    for axis, side in ((0, form.width), (1, form.height)):
        mass = levels.sum(axis=axis) @ (np.arange(scaled.size[axis]) + 0.5)
        place.append(min(max(math.floor(side / 2 - mass + 0.5), 0), side - scaled.size[axis]))
    ground = Image.new("L", (form.width, form.height))
    ground.paste(scaled, (place[0], place[1]))
    return (ground if form.ink == "light" else ImageOps.invert(ground)).convert(form.mode)


def of_sample(sample: Sample, form: Form) -> Image.Image:
    """A test image as a model of ``form`` takes it: it is as those that the model was trained on."""
    return sample.image.convert(form.mode).resize((form.width, form.height), Image.Resampling.BICUBIC)


def png(image: Image.Image) -> str:
    """The image as a PNG file, in base64."""
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def load(folder: str) -> list[Sample]:
    """The test images of a folder, PNG files and `labels.json`, which maps their names to labels.

    Raises argparse.ArgumentTypeError.
    """
    try:
        paths = sorted(Path(folder).glob("*.png"))
        labels = json.loads(Path(folder, "labels.json").read_text(encoding="utf-8"))
        samples = [Sample(Image.open(path, formats=("PNG",)), str(labels.get(path.name, ""))) for path in paths]
        for sample in samples:
            sample.image.load()
    except (OSError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{folder}: cannot be read as test images: {error}") from error
    return samples
