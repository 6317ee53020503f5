"""Images of digits as the network reads them: 28 x 28, grey levels from 0 to 255, light on dark.

A file of 28 x 28 pixels keeps them. Any other is brought into MNIST's form, as its makers did: what is drawn is
scaled into 20 x 20, its proportions kept, and placed so that its centre of mass is that of the image (Y. LeCun,
C. Cortes, C. Burges, "The MNIST database of handwritten digits", read 2026-11).
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

SIZE, INNER = 28, 20
LARGEST = 16_000_000
"""Pixels that a file may have. Decoding takes some 20 bytes for each, and a small file can promise very many."""
KINDS = {".png", ".jpg", ".jpeg", ".avif", ".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp"}
"""Endings of images. Those that are neither PNG nor JPEG files are told so when they are read."""
FAINT = 8 / 255
"""Difference between the lightest and the darkest pixel below which nothing is drawn."""
INK = 0.2
"""Share of the full range from which a pixel counts as drawn."""


def read(path: Path) -> np.ndarray:
    """The file as (28, 28) uint8. Raises ValueError with the reason where it is no image that can be read."""
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            if image.width * image.height > LARGEST:
                raise ValueError(f"{image.width} x {image.height} pixels; scale it down to {LARGEST:,}")
            return normalise(_grey(ImageOps.exif_transpose(image)))
    except Image.UnidentifiedImageError:
        raise ValueError("neither a PNG nor a JPEG file" if path.stat().st_size else "the file is empty") from None
    except FileNotFoundError:
        raise ValueError("there is no such file") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"truncated, damaged or too large: {error}") from error


def _grey(image: Image.Image) -> np.ndarray:
    """Grey levels from 0 to 1. What is transparent becomes white, or black below something that is near white."""
    if image.mode.startswith("I"):
        # 16 bits; Pillow's own conversion to 8 would cut them off at 255.
        return np.asarray(image, np.float32) / 65535
    levels = np.asarray(image.convert("LA"), np.float32) / 255
    grey, alpha = levels[..., 0], levels[..., 1]
    drawn = grey[alpha > 0.5]
    paper = 0.0 if drawn.size and drawn.min() > 0.5 and alpha.min() < 1 else 1.0
    return grey * alpha + paper * (1 - alpha)


def normalise(grey: np.ndarray) -> np.ndarray:
    """Grey levels (height, width) from 0 to 1 as (28, 28) uint8, light on dark. Raises ValueError for a blank."""
    low, high = float(grey.min()), float(grey.max())
    if high - low < FAINT:
        raise ValueError("blank: every pixel has the same colour, there is no digit to read")
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    if np.median(border) > (low + high) / 2:
        grey, low, high = 1 - grey, 1 - high, 1 - low
    if grey.shape == (SIZE, SIZE):
        return np.round(grey * 255).astype(np.uint8)
    drawn = (grey - low) / (high - low)
    rows, columns = (np.flatnonzero((drawn > INK).any(axis)) for axis in (1, 0))
    drawn = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = INNER / max(drawn.shape)
    height, width = (max(1, round(side * scale)) for side in drawn.shape)
    scaled = Image.fromarray(drawn).resize((width, height), Image.Resampling.BICUBIC)
    return centre(np.clip(np.asarray(scaled), 0, 1))


def centre(drawn: np.ndarray) -> np.ndarray:
    """What is drawn, at most 28 pixels high and wide, from 0 to 1, with its centre of mass in that of an image."""
    mass = max(float(drawn.sum()), 1e-6)
    place = []
    for axis, side in enumerate(drawn.shape):
        middle = float((drawn.sum(1 - axis) * (np.arange(side) + 0.5)).sum()) / mass
        place.append(min(max(round(SIZE / 2 - middle), 0), SIZE - side))
    image = np.zeros((SIZE, SIZE), np.uint8)
    (top, left), (height, width) = place, drawn.shape
    image[top : top + height, left : left + width] = np.round(drawn * 255)
    return image


def find(folder: Path) -> dict[str, int | None]:
    """The images below the folder by name, sorted, each with its digit where a `labels.json` beside it says it.

    Images of kinds that are not read are among them; other files are named, and left out. Hidden folders are not
    looked into: a mounted ConfigMap has its files in one once more. Ends the program where there is nothing.
    """
    if not folder.is_dir():
        raise SystemExit(f"{folder}: there is no such folder")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    shown = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    images = [name for name in shown if Path(name).suffix.lower() in KINDS]
    others = [name for name in shown if name not in images and Path(name).name != "labels.json"]
    if others:
        print(f"Left out, for they are no images: {', '.join(map(ascii, others))}", flush=True)
    if not images:
        raise SystemExit(f"{folder}: no *.png, *.jpg or *.jpeg file in it or below")
    places = {Path(name).parent for name in images}
    labels = {place: read_labels(folder / place / "labels.json") for place in places}
    return {name: labels[Path(name).parent].get(Path(name).name) for name in images}


def read_labels(path: Path) -> dict[str, int]:
    """The digits by file name; none where there is no such file. Ends the program where it says something else."""
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise SystemExit(f"{path} is not JSON: {error}") from error
    digits = labels.values() if isinstance(labels, dict) else [None]
    if not all(type(digit) is int and 0 <= digit <= 9 for digit in digits):
        raise SystemExit(f"{path} has to map file names to digits from 0 to 9")
    return labels


def folder_of(place: str, store: Path) -> Path:
    """The folder that a setting names: `store:uploads/digits` in the store, any other path beside the program."""
    inside = place.removeprefix("store:")
    return Path(place) if inside == place else store / inside
