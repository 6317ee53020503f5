"""What a model takes and gives, in the page's words: its form, its numbers, its labels."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from slipway.workloads.apps.page.pixels import Fit, Form, Ink, png, values

WHOLE = ("DT_UINT8", "DT_INT8", "DT_INT16", "DT_UINT16", "DT_INT32", "DT_UINT32", "DT_INT64", "DT_UINT64")
FLOATS = ("DT_FLOAT", "DT_DOUBLE", "DT_HALF", "DT_BFLOAT16")
TEXT = "DT_STRING"
"""The type of a model that takes files and decodes them itself."""


class UnusableError(Exception):
    """A model does not fit the page's settings; the message says why, and which setting mends it."""


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives. ``shape`` is its input's, with -1 for what may be any, the batch left out.

    ``dtype`` is the input's as TensorFlow names it: `DT_UINT8`. ``classes`` is how many numbers it gives; None
    where that is not said.
    """

    name: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    classes: int | None


@dataclass(frozen=True)
class Pictures:
    """What is said of the images that a model takes; None is read from its signature."""

    width: int | None = None
    height: int | None = None
    channels: int | None = None
    ink: Ink = "any"
    fit: Fit | None = None
    share: float = 20 / 28
    black: float | None = None
    white: float | None = None


@dataclass(frozen=True)
class Model:
    """A version of the model that can be asked. ``numbers`` are what it takes for each level from 0 to 255."""

    version: int
    signature: Signature
    form: Form
    labels: Sequence[str]
    numbers: Sequence[float]

    def instance(self, image: Image.Image) -> Any:
        """What is sent of ``image``, which is of the model's form."""
        if self.signature.dtype == TEXT:
            return {"b64": base64.b64encode(png(image)).decode()}
        return values(image, self.numbers, last=len(self.signature.shape) == 3)

    def probabilities(self, numbers: Sequence[float]) -> list[float]:
        """The share of each label. Numbers that do not add up to 1 are logits.

        Raises:
            UnusableError: there are more or fewer numbers than labels, or some are none.
        """
        if not all(math.isfinite(number) for number in numbers):
            raise UnusableError("The model answered with numbers that are none (NaN or infinite).")
        if len(numbers) == 1 and len(self.labels) == 2:
            only = numbers[0] if 0 <= numbers[0] <= 1 else 1 / (1 + math.exp(-max(min(numbers[0], 700), -700)))
            return [1 - only, only]
        if len(numbers) != len(self.labels):
            raise UnusableError(_other_count(len(numbers), len(self.labels)))
        if min(numbers) >= 0 and abs(sum(numbers) - 1) < 0.01:
            return list(numbers)
        largest = max(numbers)
        powers = [math.exp(number - largest) for number in numbers]
        total = sum(powers)
        return [power / total for power in powers]


def model(version: int, signature: Signature, pictures: Pictures, labels: Sequence[str]) -> Model:
    """The version as it can be asked.

    Raises:
        UnusableError: it takes no images, or others than the settings say.
    """
    form = _form(signature, pictures)
    names = list(labels)
    if not names:
        if signature.classes is None:
            raise UnusableError("The model does not say how many labels it has. Name them: --label=…")
        names = [str(number) for number in range(max(signature.classes, 2))]
    elif signature.classes not in {None, len(names)} and (signature.classes, len(names)) != (1, 2):
        raise UnusableError(_other_count(signature.classes or 0, len(names)))
    whole = signature.dtype in WHOLE
    black = 0.0 if pictures.black is None else pictures.black
    white = pictures.white if pictures.white is not None else 255.0 if whole else 1.0
    levels = [black + step * (white - black) / 255 for step in range(256)]
    return Model(
        version=version,
        signature=signature,
        form=form,
        labels=tuple(names),
        numbers=[round(level) if whole else round(level, 6) for level in levels],
    )


def _form(signature: Signature, pictures: Pictures) -> Form:
    if signature.dtype == TEXT:
        if signature.shape:
            raise UnusableError(
                f"The model takes text of the shape {list(signature.shape)}, and a page has one image."
            )
        shape: tuple[int, ...] = (-1, -1, pictures.channels or 3)
    elif signature.dtype not in (*WHOLE, *FLOATS):
        raise UnusableError(f"The model takes {signature.dtype}, and a page has numbers.")
    elif len(signature.shape) == 2:
        shape = (*signature.shape, 1)
    elif len(signature.shape) == 3:
        shape = signature.shape
    else:
        raise UnusableError(
            f"The model takes a tensor of the shape {['any', *signature.shape]}, and images are (any, height, "
            "width, channels) or (any, height, width)."
        )
    settings = (("height", pictures.height), ("width", pictures.width), ("channels", pictures.channels))
    sides = [_side(name, setting, size) for (name, setting), size in zip(settings, shape, strict=True)]
    height, width, channels = sides
    if channels not in {1, 3}:
        raise UnusableError(f"The model takes images of {channels} channels, and a page has 1 or 3.")
    fit = pictures.fit or ("cover" if pictures.ink == "any" else "content")
    return Form(width, height, channels, pictures.ink, fit, pictures.share)


def _side(name: str, setting: int | None, size: int) -> int:
    if size < 0:
        if setting is None:
            raise UnusableError(f"The model takes images of any {name}. Say which: --{name}=…")
        return setting
    if setting not in {None, size}:
        raise UnusableError(
            f"The model takes images with {name} {size}, and the page was told --{name}={setting}."
        )
    return size


def _other_count(given: int, labels: int) -> str:
    return f"The model gives {given} numbers, and the page was told {labels} labels: name as many with --label=…"
