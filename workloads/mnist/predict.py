"""Read the digit in each PNG or JPEG image of a folder with a trained model.

Writes `predictions.json`, and `contact_sheet.png` with each image, the digit that was read, and the confidence.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import images
import numpy as np
from PIL import Image, ImageDraw, ImageFont

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

BATCH = 256
TILE, MARGIN, CAPTION, IN_A_ROW, MOST = 112, 14, 40, 10, 200
"""The sheet's measures: pixels of an image's side, around it and below it; images in a row, and on it."""
RED, BLACK, GREY = (200, 30, 30), (32, 33, 36), (110, 115, 120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="what train.py wrote")
    parser.add_argument("--images", default="", help="a folder, which is searched with all below it")
    parser.add_argument("--held-out", type=Path, help="the folder that is read without --images")
    parser.add_argument("--store", type=Path, default=os.environ.get("STORE", "."), help="where `store:` begins")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if not options.images and not options.held_out:
        parser.error("name a folder: --images, or --held-out")
    folder = images.folder_of(options.images, options.store) if options.images else options.held_out
    labels = images.find(folder)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    model = tf.saved_model.load(str(options.model / "saved_model"))

    read: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    pixels: dict[str, np.ndarray] = {}
    for name in labels:
        try:
            pixels[name] = images.read(folder / name)
        except ValueError as error:
            errors.append({"path": str(folder / name), "reason": str(error)})
    for start in range(0, len(pixels), BATCH):
        names = [*pixels][start : start + BATCH]
        logits = model.serve(tf.constant(np.stack([pixels[name] for name in names])[..., None]))
        for name, row in zip(names, tf.nn.softmax(tf.cast(logits, tf.float64)).numpy(), strict=True):
            digit = int(row.argmax())
            one = {"path": str(folder / name), "digit": digit, "confidence": float(row[digit])}
            known = {} if labels[name] is None else {"label": labels[name]}
            read.append({**one, **known, "probabilities": row.tolist()})
    known = [one for one in read if "label" in one]
    right = sum(one["digit"] == one["label"] for one in known)
    for one in read:
        confidence = f"{100 * one['confidence']:.2f}".rstrip("0").rstrip(".")
        print(f"The image {one['path']} is the number {one['digit']} with a {confidence} percent confidence.")
    for one in errors:
        print(f"The image {one['path']} could not be read: {one['reason']}")
    if known:
        print(f"{right} of {len(known)} images with a known label were read correctly", flush=True)
    if not read:
        raise SystemExit(f"none of the {len(labels)} images below {folder} could be read")
    options.output.mkdir(parents=True, exist_ok=True)
    report = {"images": read, "errors": errors, **({"accuracy": right / len(known)} if known else {})}
    (options.output / "predictions.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    sheet(read[:MOST], [*pixels.values()][:MOST]).save(options.output / "contact_sheet.png")


def sheet(read: list[dict[str, Any]], pixels: list[np.ndarray]) -> Image.Image:
    """Each image enlarged, with its digit and the confidence; red where another digit is known to be right."""
    columns = min(len(read), 5 if len(read) <= IN_A_ROW else IN_A_ROW)
    size = (columns, -(-len(read) // columns))
    sides = (MARGIN + size[0] * (TILE + MARGIN), MARGIN + size[1] * (TILE + CAPTION + MARGIN))
    drawn = Image.new("RGB", sides, "white")
    draw, large, small = ImageDraw.Draw(drawn), ImageFont.load_default(34), ImageFont.load_default(18)
    for place, (one, image) in enumerate(zip(read, pixels, strict=True)):
        left = MARGIN + place % columns * (TILE + MARGIN)
        top = MARGIN + place // columns * (TILE + CAPTION + MARGIN)
        wrong = one.get("label", one["digit"]) != one["digit"]
        if wrong:
            draw.rectangle((left - 5, top - 5, left + TILE + 4, top + TILE + CAPTION + 2), outline=RED, width=3)
        drawn.paste(Image.fromarray(image).resize((TILE, TILE), Image.Resampling.NEAREST), (left, top))
        draw.text((left, top + TILE), str(one["digit"]), RED if wrong else BLACK, large)
        said = f"not {one['label']}" if wrong else f"{100 * one['confidence']:.2f}%"
        draw.text((left + TILE, top + TILE + 20), said, RED if wrong else GREY, small, anchor="rm")
    return drawn


if __name__ == "__main__":
    main()
