"""Prepare a folder of labelled images for training: `train.npz`, `test.npz`, and ten held-out images.

The folder has PNG and JPEG files, at any depth. A `labels.json` beside them maps file names to digits, or they lie
in folders named 0 to 9. With the folders `train` and `test` at the top, these are the splits; without, a tenth of
each digit's images becomes the test split. Run as `python -m workloads.mnist.prepare_images --source DIR --output
DIR`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.mnist.data import Split, save
from workloads.mnist.images import OTHERS, ImageError, read
from workloads.mnist.predict import LABELS, Found, _read_labels, find_images
from workloads.mnist.prepare import hold_out
from workloads.runtime.devices import before_import
from workloads.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from workloads.runtime.store import digest_of, finished, publish, staging, store_errors

STEP = "mnist.prepare_images"
TEST_SHARE = 10
"""One distinct image of a digit in this many goes to the test split, and two at least: one of them is held out."""
FEWEST = 3
"""Distinct images that each digit needs: one to train on, one to test with, one to hold out."""
SPLITS = ("train", "test")
"""Folders at the top that are the splits, where both are there."""

_READERS = 4
"""Files that are read at a time, since a mounted bucket takes long for each. A decoded photo may take 300 MB."""
_SHOWN = 20


@dataclass(frozen=True)
class Image:
    """An image as the network wants it, (28, 28) uint8 white on black; its name in the folder, and its digit."""

    name: str
    digit: int
    pixels: NDArray[np.uint8]


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT naming the files that cannot be used, or where there are too few; STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("nothing was published")
    with store_errors(options.source):
        found = labelled(options.source)
        inputs = {"source": _digest(found)}
    settings = {"seed": options.seed}
    earlier = finished(options.output, STEP, inputs, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds {earlier.summary['train_images']:,} training images")
        return OK

    before_import(keras=False)
    train, test = divide(options.source, read_all(options.source, found), options.seed)
    rest, held_out = hold_out(_arrays(test))
    with staging() as staged:
        save(staged / "train.npz", _arrays(train))
        save(staged / "test.npz", rest)
        _save_images(staged / "images", held_out)
        summary = {
            "dataset": "images",
            "train_images": len(train),
            "test_images": len(rest[0]),
            "held_out_images": len(held_out[0]),
        }
        publish(staged, options.output, step=STEP, inputs=inputs, settings=settings, summary=summary)
    print(
        f"Prepared {len(train):,} training, {len(rest[0]):,} test and {len(held_out[0])} held-out images in "
        f"{options.output}"
    )
    return OK


def labelled(folder: Path) -> list[Found]:
    """Every image below `folder`, each with its digit, sorted by name.

    Raises:
        StepError: with BAD_INPUT naming images without a digit or with two, images that are neither PNG nor JPEG,
            and those that a `labels.json` names and that are not there.
        OSError: the folder cannot be read.
    """
    images = find_images(folder)
    wrong = []
    known = []
    for image in images:
        by_folder = _digit_of_folder(image.name)
        if image.path.suffix.lower() in OTHERS:
            wrong.append(f"{image.name} is neither PNG nor JPEG: convert it")
        elif image.label is None and by_folder is None:
            wrong.append(f"{image.name} has no digit")
        elif None not in {image.label, by_folder} and image.label != by_folder:
            wrong.append(f"{image.name} lies in the folder {by_folder}, and {LABELS} says {image.label}")
        else:
            known.append(replace(image, label=by_folder if image.label is None else image.label))
    names = {image.name for image in images}
    for place in sorted(folder.rglob(LABELS)):
        inside = place.relative_to(folder).parent
        if not any(part.startswith(".") for part in inside.parts):
            listed = [(inside / name).as_posix() for name in _read_labels(place)]
            wrong += [f"{name} is in {LABELS}, and is not there" for name in listed if name not in names]
    _refuse(folder, wrong, f"An image's digit is in {LABELS} beside it, or its folder is named 0 to 9")
    return known


def read_all(folder: Path, found: Sequence[Found]) -> list[Image]:
    """The images below `folder`, each with its pixels.

    Raises:
        StepError: with BAD_INPUT naming every file that cannot be read as a digit.
    """

    def image(each: Found) -> Image | str:
        try:
            return Image(each.name, int(each.label or 0), read(each.path))
        except ImageError as error:
            return f"{each.name}: {error}"

    with ThreadPoolExecutor(_READERS) as pool:
        images = list(pool.map(image, found))
    _refuse(folder, [each for each in images if isinstance(each, str)], "Replace them, or take them out")
    return [each for each in images if isinstance(each, Image)]


def divide(folder: Path, images: Sequence[Image], seed: int) -> tuple[list[Image], list[Image]]:
    """The training split and the test split of the `images` below `folder`.

    Where all images lie in the folders `train` and `test`, these are the splits. Otherwise a digest of `seed` and
    of the pixels orders the images of each digit, and the first tenth is for the test. So neither names nor order
    matter, and equal images are on one side.

    Raises:
        StepError: with BAD_INPUT for digits that have too few images, and for equal images with two digits.
    """
    tops = {top: [image for image in images if image.name.startswith(f"{top}/")] for top in SPLITS}
    if all(tops.values()):
        outside = [image.name for image in images if not image.name.startswith(tuple(f"{top}/" for top in SPLITS))]
        _refuse(folder, [f"{name} lies in neither train nor test" for name in outside], "Put it into one of them")
        for top, each in tops.items():
            _require_each(folder / top, each, 1)
        return tops["train"], tops["test"]
    _require_each(folder, images, FEWEST)
    train: list[Image] = []
    test: list[Image] = []
    for digit in range(10):
        keys = {image.name: _key(image, seed) for image in images if image.digit == digit}
        distinct = sorted(set(keys.values()))
        tested = set(distinct[: max(2, len(distinct) // TEST_SHARE)])
        for image in sorted((each for each in images if each.digit == digit), key=lambda each: keys[each.name]):
            (test if keys[image.name] in tested else train).append(image)
    return train, test


def _key(image: Image, seed: int) -> str:
    return hashlib.sha256(f"{seed}:".encode() + image.pixels.tobytes()).hexdigest()


def _require_each(folder: Path, images: Sequence[Image], fewest: int) -> None:
    """Raise StepError with BAD_INPUT where a digit has too few different images, or equal ones have two digits."""
    digits: dict[bytes, dict[int, str]] = {}
    for image in images:
        digits.setdefault(image.pixels.tobytes(), {}).setdefault(image.digit, image.name)
    equal = [
        " and ".join(f"{name} ({digit})" for digit, name in each.items())
        for each in digits.values()
        if len(each) > 1
    ]
    _refuse(folder, [f"{each} are equal" for each in equal], "An image is one digit")
    counts = Counter(digit for each in digits.values() for digit in each)
    few = [f"{digit} ({counts[digit]})" for digit in range(10) if counts[digit] < fewest]
    if few:
        raise StepError(
            BAD_INPUT,
            f"{folder} needs {fewest} or more different images of each digit, and has too few of {', '.join(few)}",
        )


def _refuse(folder: Path, wrong: Sequence[str], fix: str) -> None:
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise StepError(BAD_INPUT, f"{folder}: {'; '.join(wrong[:_SHOWN])}{more}. {fix}")


def _digit_of_folder(name: str) -> int | None:
    """The digit after which the folder of an image is named."""
    parent = Path(name).parent.name
    return int(parent) if len(parent) == 1 and parent in "0123456789" else None


def _arrays(images: Sequence[Image]) -> Split:
    return np.stack([image.pixels for image in images]), np.array([image.digit for image in images], np.uint8)


def _save_images(folder: Path, held_out: Split) -> None:
    import tensorflow as tf

    folder.mkdir()
    labels = {}
    for pixels, digit in zip(*held_out, strict=True):
        name = f"digit-{digit}.png"
        (folder / name).write_bytes(tf.io.encode_png(pixels[..., np.newaxis]).numpy())
        labels[name] = int(digit)
    (folder / LABELS).write_text(json.dumps(labels, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _digest(found: Iterable[Found]) -> str:
    """One digest for names, contents and digits of the images."""
    images = list(found)
    with ThreadPoolExecutor(_READERS) as pool:
        contents = pool.map(lambda image: digest_of(image.path).sha256, images)
        lines = [f"{image.name}\0{each}\0{image.label}\n" for image, each in zip(images, contents, strict=True)]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.mnist.prepare_images", description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="folder with PNG and JPEG images")
    parser.add_argument("--output", type=Path, required=True, help="where to publish the data")
    parser.add_argument("--seed", type=int, default=0, help="decides which images are for the test (default: 0)")
    options = parser.parse_args(arguments)
    if not options.source.is_dir():
        raise StepError(BAD_INPUT, f"--source {options.source}: there is no such folder")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    return options


if __name__ == "__main__":
    run(main)
