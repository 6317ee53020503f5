"""From a visitor's file to the numbers that a model takes.

What is decoded is bounded before it is decoded: by its format, which the decoders say and not its name, and by its
pixels. Memory for one image is at most 17 bytes for each pixel of `LARGEST`, as WebP needs with transparency.
"""

from __future__ import annotations

import base64
import contextlib
import io
import math
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageFile, ImageOps, PngImagePlugin

from slipway.workloads.apps.page.image_files import PartsError, pixels_of

FORMATS = ("PNG", "JPEG", "WEBP")
"""What is decoded. Pillow knows some fifty formats more, which nobody here needs and somebody has to keep safe."""

LARGEST = 12_500_000
"""Pixels that an image may have: a phone's 4,032 x 3,024. A small file can have many more, to harm."""

WORKING = 320
"""Pixels of the longest side with which an image is worked on, so that a photograph takes little more time than a
drawing."""

LEAST_CONTRAST = 8
"""Difference between lightest and darkest, of 255, below which nothing is drawn."""

INK = 51
"""Grey level above the ground, of 255, from which a pixel counts as drawn when its bounding box is looked for."""

Ink = Literal["light", "dark", "any"]
Fit = Literal["content", "contain", "cover", "stretch"]

ImageFile.LOAD_TRUNCATED_IMAGES = False
# Texts in a PNG file, which are unpacked when it is opened: 64 MB by default.
PngImagePlugin.MAX_TEXT_MEMORY = 4 * 2**20
Image.MAX_IMAGE_PIXELS = LARGEST
# Up to twice as many Pillow would only warn of: `decode` refuses them.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class ImageError(ValueError):
    """A file is not an image that can be used; the message is for the visitor."""


@dataclass(frozen=True)
class Form:
    """What images a model takes: their size, their channels, and how others are brought to that.

    ``ink`` says whether it reads light drawings on a dark ground or the other way round, ``fit`` how an image of
    another size or shape is fitted in. ``share`` is, with the fit `content`, the drawing's share of a side.
    """

    width: int
    height: int
    channels: int
    ink: Ink = "any"
    fit: Fit = "cover"
    share: float = 20 / 28


def measure(content: bytes) -> int:
    """The pixels of a PNG, JPEG or WebP file, of which no more than its header is read.

    Raises:
        ImageError: another format, or too many pixels.
    """
    with _open(content) as (opened, _):
        return opened.width * opened.height


def decode(content: bytes, side: int = WORKING) -> Image.Image:
    """The picture of a PNG, JPEG or WebP file, upright: grey levels, or red, green and blue.

    Its longest side may have fewer pixels than the file's, where it still has ``side``. Transparent parts are laid
    on white, as browsers do; where all that is drawn is near white, on black.

    Raises:
        ImageError: another format, truncated, damaged, or too many pixels.
    """
    with _open(content) as (opened, orientation):
        # A JPEG file can be decoded at an eighth of its size, for a part of the memory and the time.
        opened.draft(None, (side, side))
        opened.load()
        return _lay_on_ground(_turn_upright(_reduce(opened, side), orientation))


@contextlib.contextmanager
def _open(content: bytes) -> Generator[tuple[Image.Image, int]]:
    """The file, and how it has to be turned, as EXIF numbers it."""
    if not content:
        raise ImageError("The file is empty.")
    try:
        pixels = pixels_of(content)
        with Image.open(io.BytesIO(pixels.content), formats=FORMATS) as opened:
            if not 0 < opened.width * opened.height <= LARGEST:
                raise ImageError(_too_large(f"{opened.width:,} x {opened.height:,}:"))
            yield opened, pixels.orientation
    except PartsError:
        raise ImageError(
            "The image has too many parts: nobody needs so many, and they keep a server busy."
        ) from None
    except Image.UnidentifiedImageError:
        raise ImageError("This is not a PNG, JPEG or WebP image.") from None
    except Image.DecompressionBombError:
        raise ImageError(_too_large("more than")) from None
    except ImageError:
        raise
    # Decoders raise whatever they come upon in a damaged file.
    except Exception:
        raise ImageError("The image is damaged: it cannot be decoded.") from None


def prepare(image: Image.Image, form: Form, *, drawn: bool = False) -> Image.Image:
    """``image`` as a model of ``form`` takes it: its size, mode L or RGB.

    ``drawn`` says that it is dark ink on white paper; else that is found out by its edge.

    Raises:
        ImageError: nothing is drawn.
    """
    if form.ink == "any" and not drawn:
        return _fit(image.convert(_mode(form)), form)
    grey = image.convert("L")
    low, high = (int(level) for level in grey.getextrema())
    if high - low < LEAST_CONTRAST:
        raise ImageError("It is blank: everything has the same colour.")
    light_ground = drawn or _edge(grey) > (low + high) / 2
    # From here on light ink on a dark ground.
    ink = ImageOps.invert(grey) if light_ground else grey
    if grey.size != (form.width, form.height):
        ink = _centre_content(_stretch_levels(ink), form) if form.fit == "content" else _fit(ink, form)
    light = form.ink == "light"
    return (ink if light else ImageOps.invert(ink)).convert(_mode(form))


def values(image: Image.Image, numbers: Sequence[float], *, last: bool) -> list[Any]:
    """Rows of pixels, each a list of its channels or, for one channel without ``last``, a number.

    ``numbers`` are what the model takes for each level from 0 to 255.
    """
    pixels = np.asarray(numbers)[np.asarray(image)]
    return (pixels[..., None] if last and pixels.ndim == 2 else pixels).tolist()


def png(image: Image.Image) -> bytes:
    """The image as a PNG file."""
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def data_of(image: Image.Image) -> str:
    """The PNG file of ``image`` in base64."""
    return base64.b64encode(png(image)).decode()


def _too_large(what: str) -> str:
    return f"The image has too many pixels, {what} {LARGEST / 1_000_000:g} million are taken. Scale it down."


def _lay_on_ground(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        # 16 bits in a channel: Pillow would cut levels off instead of scaling them.
        _, high = image.getextrema()
        scale = 255 / 65535 if image.mode.startswith("I;16") or high > 255 else 1.0
        return image.convert("I").point(lambda level: level * scale).convert("L")
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("L" if image.mode in {"1", "L"} else "RGB")
    whole = image.convert("RGBA")
    alpha = whole.getchannel("A")
    solid = alpha.point([0] * 128 + [255] * 128)
    drawn = whole.convert("L").histogram(solid)
    paper = 0 if any(drawn) and not any(drawn[:128]) else 255
    ground = Image.new("RGB", whole.size, (paper, paper, paper))
    ground.paste(whole, mask=alpha)
    return ground


def _turn_upright(image: Image.Image, orientation: int) -> Image.Image:
    """``image`` turned and mirrored as ``orientation`` says (EXIF 3.0, tag 0x0112)."""
    turned = _TURNS.get(orientation)
    return image if turned is None else image.transpose(turned)


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _reduce(image: Image.Image, side: int) -> Image.Image:
    """``image`` at a half, a third, …, where its longest side is still at least ``side``."""
    factor = max(image.size) // side
    # What is not a level cannot be averaged: places in a palette.
    return image.reduce(factor) if factor > 1 and image.mode in {"L", "LA", "RGB", "RGBA", "CMYK"} else image


def _mode(form: Form) -> str:
    return "L" if form.channels == 1 else "RGB"


def _edge(grey: Image.Image) -> int:
    """The median of the outermost pixels."""
    width, height = grey.size
    sides = ((0, 0, width, 1), (0, height - 1, width, height), (0, 0, 1, height), (width - 1, 0, width, height))
    levels = sorted(level for side in sides for level in grey.crop(side).tobytes())
    return levels[len(levels) // 2]


def _stretch_levels(grey: Image.Image) -> Image.Image:
    low, high = (int(level) for level in grey.getextrema())
    return grey.point([min(max(round((level - low) * 255 / (high - low)), 0), 255) for level in range(256)])


def _fit(image: Image.Image, form: Form) -> Image.Image:
    size = (form.width, form.height)
    if image.size == size:
        return image
    if form.fit == "stretch":
        return image.resize(size, Image.Resampling.BICUBIC)
    if form.fit == "cover":
        return ImageOps.fit(image, size, Image.Resampling.BICUBIC)
    ground = _edge(image.convert("L"))
    return ImageOps.pad(image, size, Image.Resampling.BICUBIC, color=(ground,) * len(image.getbands()))


def _centre_content(ink: Image.Image, form: Form) -> Image.Image:
    """What is drawn, scaled to its share of the side, its centre of mass in the centre, as MNIST's makers did.

    Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", read November 2026.
    """
    box = ink.point([255 * (level > INK) for level in range(256)]).getbbox()
    cut = ink.crop(box)
    scale = min(form.width * form.share / cut.width, form.height * form.share / cut.height)
    size = tuple(max(1, round(side * scale)) for side in cut.size)
    scaled = cut.resize(size, Image.Resampling.BICUBIC)
    ground = Image.new("L", (form.width, form.height))
    ground.paste(scaled, _place(scaled, form))
    return ground


def _place(scaled: Image.Image, form: Form) -> tuple[int, int]:
    levels = np.asarray(scaled, np.float64)
    height, width = levels.shape
    total = max(levels.sum(), 1)
    columns = levels.sum(axis=0) @ (np.arange(width) + 0.5) / total
    rows = levels.sum(axis=1) @ (np.arange(height) + 0.5) / total
    wanted = ((form.width, width, columns), (form.height, height, rows))
    left, top = (min(max(math.floor(side / 2 - mass + 0.5), 0), side - size) for side, size, mass in wanted)
    return left, top
