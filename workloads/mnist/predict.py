"""Read the digit in each PNG or JPEG image of a folder with a trained model.

Writes `predictions.json` and `contact_sheet.png`. Run as `python -m workloads.mnist.predict --model DIR
--images DIR --output DIR`, where --model is what `train` published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.mnist.contact_sheet import Tile, draw
from workloads.mnist.images import OTHERS, SUFFIXES, ImageError, read
from workloads.runtime.devices import accelerators, before_import, describe
from workloads.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from workloads.runtime.store import check, digest_of, finished, publish, staging, store_errors

STEP = "mnist.predict"
LABELS = "labels.json"


@dataclass(frozen=True)
class Found:
    """An image file: where it lies, its name relative to --images, and its label where `labels.json` beside it
    knows it.
    """

    path: Path
    name: str
    label: int | None


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
        inputs = {"model": manifest.digest, "images": _digest(images)}
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
        (staged / "contact_sheet.png").write_bytes(tf.io.encode_png(draw(tiles)).numpy())
        summary = {"images": len(result["images"]), "errors": len(result["errors"])}
        if "accuracy" in result:
            summary["accuracy"] = result["accuracy"]
        publish(staged, options.output, step=STEP, inputs=inputs, settings=settings, summary=summary)
    print(f"Read {summary['images']} images, {summary['errors']} could not be read: {options.output}")
    return OK


def find_images(folder: Path) -> list[Found]:
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
            labels[path.parent] = _read_labels(path.parent / LABELS)
        images.append(Found(path, path.relative_to(folder).as_posix(), labels[path.parent].get(path.name)))
    return images


def _predict(options: argparse.Namespace, images: list[Found]) -> tuple[dict[str, Any], list[Tile]]:
    """The contents of predictions.json, model excepted, and the tiles of the contact sheet."""
    import numpy as np
    import tensorflow as tf

    found = accelerators()
    print(f"Predicting on {describe(found[:1])}", flush=True)
    model = tf.saved_model.load(str(options.model / "saved_model"))
    began = time.monotonic()
    predictions: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    tiles: list[Tile] = []
    for start in range(0, len(images), options.batch_size):
        readable: list[Found] = []
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


def _read_labels(path: Path) -> dict[str, int]:
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


def _digest(images: list[Found]) -> str:
    """One digest for names, contents and labels of the images."""
    digest = hashlib.sha256()
    for image in images:
        try:
            content = digest_of(image.path).sha256
        except OSError:
            content = "unreadable"
        digest.update(f"{image.name}\0{content}\0{image.label}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.mnist.predict", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="what train published")
    parser.add_argument(
        "--images", type=Path, required=True, help="folder with PNG and JPEG images, searched recursively"
    )
    parser.add_argument("--output", type=Path, required=True, help="where to publish the predictions")
    parser.add_argument("--batch-size", type=int, default=256, help="images per call of the model (default: 256)")
    parser.add_argument("--libraries", type=Path, help="what workloads.cuda.install published, for use on GPUs")
    options = parser.parse_args(arguments)
    if options.batch_size < 1:
        parser.error("--batch-size must be at least 1")
    return options


if __name__ == "__main__":
    run(main)
