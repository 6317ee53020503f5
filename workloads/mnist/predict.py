"""Read the digit in each PNG or JPEG image of a folder with a trained model.

Writes `predictions.json` and `contact_sheet.png`. Run as `python -m workloads.mnist.predict --model DIR
--images DIR --output DIR`, where --model is what `train` published.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipway.workloads.runtime.devices import accelerators, before_import, describe
from slipway.workloads.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.store import check, finished, publish, staging, store_errors
from workloads.mnist.images import ImageError, ImageFile, digest_images, find_images, read

STEP = "mnist.predict"


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT where the model is not whole or no image can be read, STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("nothing was published")
    manifest = check(options.model)
    with store_errors(options.images):
        images = find_images(options.images)
        inputs = {"model": manifest.digest, "images": digest_images(images, skip_unreadable=True)}
    settings = {"images": str(options.images)}
    earlier = finished(options.output, STEP, inputs, settings)
    if earlier is not None:
        with store_errors(options.output):
            _report(json.loads((options.output / "predictions.json").read_text(encoding="utf-8")))
        print(f"Nothing to do: {options.output} holds these {earlier.summary['images']} predictions")
        return OK

    before_import(keras=False, libraries=options.libraries)
    result, tiles = _predict(options, images)
    result["model"] = {"directory": str(options.model), "manifest_sha256": manifest.digest}
    _report(result)
    if not result["images"]:
        raise StepError(BAD_INPUT, f"none of the {len(images)} images under {options.images} could be read")
    with staging() as staged:
        import tensorflow as tf

        text = json.dumps(result, indent=2, allow_nan=False) + "\n"
        (staged / "predictions.json").write_text(text, encoding="utf-8")
        (staged / "contact_sheet.png").write_bytes(tf.io.encode_png(draw_sheet(tiles)).numpy())
        summary = {"images": len(result["images"]), "errors": len(result["errors"])}
        if "accuracy" in result:
            summary["accuracy"] = result["accuracy"]
        publish(staged, options.output, step=STEP, inputs=inputs, settings=settings, summary=summary)
    print(f"Read {summary['images']} images, {summary['errors']} could not be read: {options.output}")
    return OK


def _predict(options: argparse.Namespace, images: list[ImageFile]) -> tuple[dict[str, Any], list[Tile]]:
    """The contents of predictions.json, model excepted, and the tiles of the contact sheet."""
    import numpy as np
    import tensorflow as tf

    devices = accelerators()
    print(f"Predicting on {describe(devices[:1])}", flush=True)
    model = tf.saved_model.load(str(options.model / "saved_model"))
    began = time.monotonic()
    predictions: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    tiles: list[Tile] = []
    for start in range(0, len(images), options.batch_size):
        readable: list[ImageFile] = []
        pixels = []
        for image in images[start : start + options.batch_size]:
            try:
                pixels.append(read(image.path))
                readable.append(image)
            except ImageError as error:
                errors.append({"path": str(image.path), "reason": str(error)})
        if not pixels:
            continue
        logits = model.serve(tf.constant(np.stack(pixels)[..., np.newaxis]))
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float64)).numpy()
        if not np.isfinite(probabilities).all():
            raise StepError(BAD_INPUT, f"the model in {options.model} answers with numbers that are not finite")
        for image, drawn, row in zip(readable, pixels, probabilities, strict=True):
            digit = int(row.argmax())
            prediction = {"path": str(image.path), "digit": digit, "confidence": float(row[digit])}
            if image.label is not None:
                prediction["label"] = image.label
            predictions.append({**prediction, "probabilities": [float(value) for value in row]})
            tiles.append(Tile(drawn, digit, float(row[digit]), image.label))
    result: dict[str, Any] = {"images": predictions, "errors": errors, "seconds": time.monotonic() - began}
    known = [one for one in predictions if "label" in one]
    if known:
        result["accuracy"] = sum(one["digit"] == one["label"] for one in known) / len(known)
    return result, tiles


def _report(result: dict[str, Any]) -> None:
    for one in result["images"]:
        confidence = f"{100 * one['confidence']:.2f}".rstrip("0").rstrip(".")
        print(f"The image {one['path']} is the number {one['digit']} with a {confidence} percent confidence.")
    for one in result["errors"]:
        print(f"The image {one['path']} could not be read: {one['reason']}")
    if "accuracy" in result:
        known = [one for one in result["images"] if "label" in one]
        right = sum(one["digit"] == one["label"] for one in known)
        print(f"{right} of {len(known)} images with a known label were read correctly", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.mnist.predict", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="what train published")
    parser.add_argument(
        "--images", type=Path, required=True, help="folder with PNG and JPEG images, searched recursively"
    )
    parser.add_argument("--output", type=Path, required=True, help="where to publish the predictions")
    parser.add_argument("--batch-size", type=int, default=256, help="images per call of the model (default: 256)")
    parser.add_argument(
        "--libraries", type=Path, help="what slipway.workloads.cuda.install published, for use on GPUs"
    )
    options = parser.parse_args(arguments)
    if options.batch_size < 1:
        parser.error("--batch-size must be at least 1")
    return options


# The contact sheet: every image enlarged, with the digit that was read and the confidence, wrong ones marked.

# 5 x 7 pixels per character, one string per row of pixels.
_GLYPHS = {
    "0": "01110 10001 10001 10001 10001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    "%": "11000 11001 00010 00100 01000 10011 00011",
    ".": "00000 00000 00000 00000 00000 01100 01100",
    ":": "00000 01100 01100 00000 01100 01100 00000",
    "n": "00000 00000 10110 11001 10001 10001 10001",
    "o": "00000 00000 01110 10001 10001 10001 01110",
    "t": "01000 01000 11100 01000 01000 01001 00110",
    " ": "00000 00000 00000 00000 00000 00000 00000",
}
_ENLARGED = 4
"""Each pixel of a 28 x 28 image becomes this many pixels square."""
_TILE = 28 * _ENLARGED
_MARGIN = 14
_CAPTION = 44
_PAPER, _INK, _QUIET, _WRONG = (255, 255, 255), (32, 33, 36), (110, 115, 120), (200, 30, 30)
MOST = 200
"""Images on a sheet; the first ones of a larger set."""


@dataclass(frozen=True)
class Tile:
    """One image (28, 28) uint8, the digit read in it, the confidence from 0 to 1, and the true digit where it
    is known.
    """

    image: NDArray[np.uint8]
    digit: int
    confidence: float
    label: int | None = None


def draw_sheet(tiles: Sequence[Tile]) -> NDArray[np.uint8]:
    """The sheet as RGB, (height, width, 3): up to ten images in a row, at most MOST of them."""
    tiles = tiles[:MOST]
    columns = min(len(tiles), 5 if len(tiles) <= 10 else 10)
    rows = -(-len(tiles) // columns)
    width = _MARGIN + columns * (_TILE + _MARGIN)
    height = _MARGIN + rows * (_TILE + _CAPTION + _MARGIN)
    sheet = np.full((height, width, 3), _PAPER, np.uint8)
    for place, tile in enumerate(tiles):
        row, column = divmod(place, columns)
        _draw_tile(sheet, _MARGIN + row * (_TILE + _CAPTION + _MARGIN), _MARGIN + column * (_TILE + _MARGIN), tile)
    return sheet


def _draw_tile(sheet: NDArray[np.uint8], top: int, left: int, tile: Tile) -> None:
    wrong = tile.label is not None and tile.label != tile.digit
    if wrong:
        sheet[top - 5 : top + _TILE + _CAPTION + 3, left - 5 : left + _TILE + 5] = _WRONG
        sheet[top - 2 : top + _TILE + _CAPTION, left - 2 : left + _TILE + 2] = _PAPER
    enlarged = tile.image.repeat(_ENLARGED, 0).repeat(_ENLARGED, 1)
    sheet[top : top + _TILE, left : left + _TILE] = enlarged[..., np.newaxis]
    baseline = top + _TILE + 8
    _write(sheet, baseline, left, str(tile.digit), scale=4, colour=_WRONG if wrong else _INK)
    text = f"{100 * tile.confidence:.2f}%"
    _write(
        sheet,
        baseline + (0 if wrong else 7),
        left + _TILE - _text_width(text, 2),
        text,
        scale=2,
        colour=_WRONG if wrong else _QUIET,
    )
    if wrong:
        note = f"not {tile.label}"
        _write(sheet, baseline + 17, left + _TILE - _text_width(note, 2), note, scale=2, colour=_WRONG)


def _text_width(text: str, scale: int) -> int:
    return (6 * len(text) - 1) * scale


def _write(
    sheet: NDArray[np.uint8], top: int, left: int, text: str, *, scale: int, colour: tuple[int, int, int]
) -> None:
    for place, character in enumerate(text):
        rows = [[int(bit) for bit in row] for row in _GLYPHS[character].split()]
        dots = np.array(rows, bool).repeat(scale, 0).repeat(scale, 1)
        start = left + place * 6 * scale
        sheet[top : top + dots.shape[0], start : start + dots.shape[1]][dots] = colour


if __name__ == "__main__":
    run(main)
