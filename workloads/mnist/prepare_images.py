"""Prepare a folder of labelled images for training: `train.npz`, `test.npz`, and ten held-out images.

The folder has PNG and JPEG files, at any depth. A `labels.json` beside them maps file names to digits, or they lie
in folders named 0 to 9. With the folders `train` and `test` at the top, these are the splits; without, a tenth of
each digit's images becomes the test split. Run as `python -m workloads.mnist.prepare_images --source DIR --output
DIR`.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipway.workloads.runtime.devices import before_import
from slipway.workloads.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.store import finished, store_errors
from workloads.mnist.batches import Split
from workloads.mnist.images import (
    LABELS,
    OTHERS,
    READERS,
    ImageError,
    ImageFile,
    digest_images,
    find_images,
    read,
    read_labels,
)
from workloads.mnist.prepare import describe_data, publish_data

STEP = "mnist.prepare_images"
TEST_SHARE = 10
"""One distinct image of a digit in this many goes to the test split, and two at least: one of them is held out."""
FEWEST = 3
"""Distinct images that each digit needs: one to train on, one to test with, one to hold out."""
SPLITS = ("train", "test")
"""Folders at the top that are the splits, where both are there."""

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
        files = find_labelled(options.source)
        inputs = {"source": digest_images(files)}
    settings = {"seed": options.seed}
    earlier = finished(options.output, STEP, inputs, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds {describe_data(earlier.summary)}")
        return OK

    before_import(keras=False)
    train, test = divide(options.source, read_all(options.source, files), options.seed)
    publish_data(
        options, STEP, _arrays(train), _arrays(test), encode=_encode_png, inputs=inputs, settings=settings
    )
    return OK


def find_labelled(folder: Path) -> list[ImageFile]:
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
            listed = [(inside / name).as_posix() for name in read_labels(place)]
            wrong += [f"{name} is in {LABELS}, and is not there" for name in listed if name not in names]
    _refuse(folder, wrong, f"An image's digit is in {LABELS} beside it, or its folder is named 0 to 9")
    return known


def read_all(folder: Path, files: Sequence[ImageFile]) -> list[Image]:
    """The images below `folder`, each with its pixels.

    Raises:
        StepError: with BAD_INPUT naming every file that cannot be read as a digit.
    """

    def image_or_reason(file: ImageFile) -> Image | str:
        try:
            return Image(file.name, int(file.label or 0), read(file.path))
        except ImageError as error:
            return f"{file.name}: {error}"

    with ThreadPoolExecutor(READERS) as pool:
        images = list(pool.map(image_or_reason, files))
    _refuse(folder, [reason for reason in images if isinstance(reason, str)], "Replace them, or take them out")
    return [image for image in images if isinstance(image, Image)]


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
        for top, of_split in tops.items():
            _require_each(folder / top, of_split, 1)
        return tops["train"], tops["test"]
    _require_each(folder, images, FEWEST)
    train: list[Image] = []
    test: list[Image] = []
    for digit in range(10):
        keyed = [(_key(image, seed), image) for image in images if image.digit == digit]
        distinct = sorted({key for key, _ in keyed})
        tested = set(distinct[: max(2, len(distinct) // TEST_SHARE)])
        for key, image in sorted(keyed, key=itemgetter(0)):
            (test if key in tested else train).append(image)
    return train, test


def _key(image: Image, seed: int) -> str:
    return hashlib.sha256(f"{seed}:".encode() + image.pixels.tobytes()).hexdigest()


def _require_each(folder: Path, images: Sequence[Image], fewest: int) -> None:
    """Raise StepError with BAD_INPUT where a digit has too few different images, or equal ones have two digits."""
    digits: dict[bytes, dict[int, str]] = {}
    for image in images:
        digits.setdefault(image.pixels.tobytes(), {}).setdefault(image.digit, image.name)
    equal = [names for names in digits.values() if len(names) > 1]
    both = [" and ".join(f"{name} ({digit})" for digit, name in names.items()) for names in equal]
    _refuse(folder, [f"{pair} are equal" for pair in both], "An image is one digit")
    counts = Counter(digit for names in digits.values() for digit in names)
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


def _encode_png(image: NDArray[np.uint8]) -> bytes:
    import tensorflow as tf

    return tf.io.encode_png(image[..., np.newaxis]).numpy()


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
