"""Prepare handwritten digits for training: `train.npz`, `test.npz`, and ten held-out images to predict later.

Sources: `mnist` (70,000 images, downloaded by TensorFlow Datasets), `digits` (1,797 scans inside scikit-learn,
no network) or `idx` (a folder with MNIST-style files). Needs tensorflow-datasets, scikit-learn and pillow,
which `slipway.workloads.runtime.steps.packages` installs. Run as
`python -m workloads.mnist.prepare --dataset digits --output DIR`.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib.util
import io
import json
import logging
import math
import os
import struct
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from numpy.typing import NDArray
from PIL import Image

from slipway.workloads.runtime.exits import BAD_INPUT, NO_NETWORK, OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.store import StoreError, digest_of, finished, publish, staging
from workloads.mnist.batches import Split, save

# scikit-learn's handwritten digits as a TensorFlow data set: 1,797 real scans, no download needed.
#
# The scans are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998, UCI
# Machine Learning Repository, CC BY 4.0; archive.ics.uci.edu/dataset/80), 8 x 8 pixels with values 0 to 16,
# shipped inside scikit-learn. Here they are brought to MNIST's form: 20 x 20 in the centre of 28 x 28, white on
# black, 0 to 255.


SIZE = 28
"""Pixels along each side of an image."""
_INNER = 20


def enlarge(scan: NDArray[np.floating]) -> NDArray[np.uint8]:
    """One 8 x 8 scan with values 0 to 16 as a 28 x 28 image with values 0 to 255."""
    levels = np.round(np.clip(scan, 0, 16) * (255 / 16)).astype(np.uint8)
    inner = Image.fromarray(levels).resize((_INNER, _INNER), Image.Resampling.LANCZOS)
    image = np.zeros((SIZE, SIZE), np.uint8)
    edge = (SIZE - _INNER) // 2
    image[edge : edge + _INNER, edge : edge + _INNER] = np.asarray(inner)
    return image


class Digits(tfds.core.GeneratorBasedBuilder):
    """The 1,797 scans in one split, `train`; features `image` (28, 28, 1) uint8 and `label` 0 to 9."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "All scans, enlarged to 28 x 28."}

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            homepage="https://archive.ics.uci.edu/dataset/80",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(SIZE, SIZE, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:  # noqa: ARG002
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        from sklearn.datasets import load_digits

        scans = load_digits()
        for index, (scan, label) in enumerate(zip(scans.images, scans.target, strict=True)):
            # An encoded file instead of an array: TFDS would import TensorFlow, 4 s of CPU, to encode arrays.
            encoded = io.BytesIO()
            Image.fromarray(enlarge(scan)).save(encoded, "PNG")
            encoded.seek(0)
            yield index, {"image": encoded, "label": int(label)}


STEP = "mnist.prepare"
TEST_SHARE = {"digits": 5, "idx": 10}
"""One image in this many goes to the test split where a source has no test split of its own."""
MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz"
"""Where TensorFlow Datasets 4.9 fetches MNIST from (seen November 2026)."""
NETWORK_TIMEOUT = 10.0
"""Seconds until MNIST's server counts as out of reach."""


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT for a malformed source, NO_NETWORK where MNIST cannot be downloaded, STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("nothing was published")
    settings: dict[str, Any] = {"dataset": options.dataset, "seed": options.seed}
    inputs = {"source": _source_digest(options.source)} if options.dataset == "idx" else {}
    earlier = finished(options.output, STEP, inputs, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds {describe_data(earlier.summary)}")
        return OK

    with staging() as scratch:
        train, test = _load(options, scratch)
    publish_data(options, STEP, train, test, encode=_encode_png, inputs=inputs, settings=settings)
    return OK


def publish_data(
    options: argparse.Namespace,
    step: str,
    train: Split,
    test: Split,
    *,
    encode: Callable[[NDArray[np.uint8]], bytes],
    inputs: Mapping[str, str],
    settings: Mapping[str, Any],
) -> None:
    """Publish both splits, and ten images of the test split beside them as PNG files, which `encode` makes.

    Raises:
        StepError: as `hold_out`; STORE_TROUBLE.
    """
    test, held_out = hold_out(test)
    with staging() as staged:
        save(staged / "train.npz", train)
        save(staged / "test.npz", test)
        (staged / "images").mkdir()
        labels = {f"digit-{label}.png": int(label) for label in held_out[1]}
        for name, image in zip(labels, held_out[0], strict=True):
            (staged / "images" / name).write_bytes(encode(image))
        text = json.dumps(labels, indent=2, sort_keys=True) + "\n"
        (staged / "images" / "labels.json").write_text(text, encoding="utf-8")
        summary = {
            "dataset": settings.get("dataset", "images"),
            "train_images": len(train[0]),
            "test_images": len(test[0]),
            "held_out_images": len(held_out[0]),
        }
        publish(staged, options.output, step=step, inputs=inputs, settings=settings, summary=summary)
    print(f"Prepared {describe_data(summary)} in {options.output}")


def describe_data(summary: Mapping[str, Any]) -> str:
    """How many images are published, and of what."""
    of = "" if summary["dataset"] == "images" else f" of {summary['dataset']}"
    return (
        f"{summary['train_images']:,} training, {summary['test_images']:,} test and "
        f"{summary['held_out_images']} held-out images{of}"
    )


def split(everything: Split, share: int, seed: int) -> tuple[Split, Split]:
    """Shuffle by `seed` and cut off one image in `share` for the test; returns training and test."""
    images, labels = everything
    order = np.random.default_rng(seed).permutation(len(images))
    boundary = len(order) - len(order) // share
    first, second = order[:boundary], order[boundary:]
    return (images[first], labels[first]), (images[second], labels[second])


def hold_out(test: Split) -> tuple[Split, Split]:
    """Take the first image of each digit out of the test split; returns the rest and the ten, in order of digits.

    Raises:
        StepError: with BAD_INPUT where a digit is missing from the test split, or nothing but the ten is there.
    """
    images, labels = test
    chosen = []
    for digit in range(10):
        places = np.flatnonzero(labels == digit)
        if not len(places):
            raise StepError(
                BAD_INPUT, f"the test split has no image of the digit {digit}; the source is too small"
            )
        chosen.append(int(places[0]))
    rest = np.setdiff1d(np.arange(len(images)), chosen)
    if not len(rest):
        raise StepError(
            BAD_INPUT, "the test split has ten images only, and these are held out; the source is too small"
        )
    return (images[rest], labels[rest]), (images[chosen], labels[chosen])


def _load(options: argparse.Namespace, scratch: Path) -> tuple[Split, Split]:
    if options.dataset == "mnist":
        return _load_mnist(scratch)
    if options.dataset == "digits":
        return split(_load_digits(scratch), TEST_SHARE[options.dataset], options.seed)
    try:
        train, test = (read_split(options.source, name) for name in ("train", "t10k"))
    except IdxError as error:
        raise StepError(BAD_INPUT, str(error)) from error
    if train and test:
        return train, test
    only = train or test
    if only is None:
        raise StepError(
            BAD_INPUT,
            f"{options.source}: holds no train-images-idx3-ubyte[.gz] and no t10k-images-idx3-ubyte[.gz]",
        )
    return split(only, TEST_SHARE[options.dataset], options.seed)


def _load_digits(scratch: Path) -> Split:
    with _tensorflow_datasets() as tfds:
        pass

        # array_record reads without importing TensorFlow, 4 s of CPU, but is made for Linux only.
        without_tensorflow = importlib.util.find_spec("array_record") is not None
        builder = Digits(
            data_dir=scratch / "tfds", file_format="array_record" if without_tensorflow else "tfrecord"
        )
        builder.download_and_prepare()
        if without_tensorflow:
            examples = list(builder.as_data_source("train"))
        else:
            examples = list(tfds.as_numpy(builder.as_dataset("train")))
    images = np.stack([example["image"][..., 0] for example in examples])
    return images, np.array([example["label"] for example in examples], np.uint8)


def _load_mnist(scratch: Path) -> tuple[Split, Split]:
    try:
        request = urllib.request.Request(MNIST_URL, method="HEAD")
        urllib.request.urlopen(request, timeout=NETWORK_TIMEOUT).close()
    except (urllib.error.URLError, OSError) as error:
        raise _no_network(error) from error
    from slipway.workloads.runtime.devices import before_import

    before_import()
    with _tensorflow_datasets() as tfds:
        try:
            parts = tfds.load(
                "mnist", split=["train", "test"], batch_size=-1, data_dir=scratch / "tfds", shuffle_files=False
            )
        except (tfds.download.DownloadError, ConnectionError, TimeoutError) as error:
            raise _no_network(error) from error
        train, test = (tfds.as_numpy(part) for part in parts)
    first, second = ((part["image"][..., 0], part["label"].astype(np.uint8)) for part in (train, test))
    return first, second


def _no_network(error: Exception) -> StepError:
    reason = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
    return StepError(
        NO_NETWORK,
        f"MNIST cannot be downloaded from storage.googleapis.com ({reason}). Without a network use --dataset "
        "digits (1,797 scans that come with scikit-learn), or --dataset idx --source DIR with MNIST's own files",
    )


@contextlib.contextmanager
def _tensorflow_datasets() -> Iterator[Any]:
    """TensorFlow Datasets, with its progress bars kept out of the log."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise StepError(
            BAD_INPUT,
            f"{error}; run `python -m slipway.workloads.runtime.steps.packages --requirements "
            "workloads/mnist/requirements.txt --target DIR` and put DIR on PYTHONPATH",
        ) from error
    tfds.disable_progress_bar()
    # It would advise to install OpenCV.
    logging.getLogger("absl").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):
        yield tfds


# The IDX format of the MNIST files: a magic number, the sizes of the dimensions, then the values.
#
# Bytes 0-1 are zero, byte 2 is the type (0x08: unsigned byte), byte 3 the number of dimensions, then one
# big-endian 32-bit size for each dimension, then the values, last dimension fastest (yann.lecun.com/exdb/mnist,
# read 2026-11).


_UNSIGNED_BYTE = 0x08
_LARGEST_IDX = 1 << 31
"""Values a file may hold: the largest IDX file of the MNIST family has 0.55e9 (EMNIST by class)."""


class IdxError(ValueError):
    """A file is not IDX, is of another type or is incomplete; the message names the file."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, compressed with gzip or not; the array has the shape that the file
    states.

    Raises:
        IdxError: not IDX, another value type, truncated, longer than it states, or a damaged gzip.
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise IdxError(f"{path}: damaged gzip ({error})") from error
    return decode_idx(content, str(path))


def decode_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """The array in the uncompressed `content` of an IDX file; `name` is for the error's text.

    Raises:
        IdxError: as for `read_idx`.
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise IdxError(f"{name}: not an IDX file, it does not begin with two zero bytes and a type")
    kind, dimensions = content[2], content[3]
    if kind != _UNSIGNED_BYTE:
        raise IdxError(f"{name}: holds values of type 0x{kind:02x}; only unsigned bytes (0x08) are read")
    start = 4 + 4 * dimensions
    if dimensions == 0 or len(content) < start:
        raise IdxError(f"{name}: truncated, the sizes of its {dimensions} dimensions are incomplete")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = math.prod(shape)
    if expected > _LARGEST_IDX or len(content) - start != expected:
        raise IdxError(
            f"{name}: states {' x '.join(map(str, shape))} = {expected} values, but holds {len(content) - start}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def find_idx(folder: Path, split: str, kind: str) -> Path | None:
    """The file of one split (`train` or `t10k`) and kind (`images` or `labels`) in `folder`, or None.

    Both spellings that are about are found, with and without `.gz`: train-images-idx3-ubyte and
    train-images.idx3-ubyte.
    """
    rank = 3 if kind == "images" else 1
    for separator in "-.":
        for suffix in ("", ".gz"):
            path = folder / f"{split}-{kind}{separator}idx{rank}-ubyte{suffix}"
            if path.is_file():
                return path
    return None


def read_split(folder: Path, split: str) -> Split | None:
    """Images (count, 28, 28), white on black, and labels (count,) of one split; None where it has neither file.

    Raises:
        IdxError: one of the two files is missing or malformed, the counts differ, the images are not 28 x 28, or
            a label is above 9.
    """
    images_path, labels_path = (find_idx(folder, split, kind) for kind in ("images", "labels"))
    if images_path is None and labels_path is None:
        return None
    if images_path is None or labels_path is None:
        raise IdxError(
            f"{folder}: has {split} {'images' if images_path else 'labels'} only, needs images and labels"
        )
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise IdxError(f"{images_path}: holds {' x '.join(map(str, images.shape))} values; needs count x 28 x 28")
    if labels.ndim != 1 or len(labels) != len(images):
        shape = " x ".join(map(str, labels.shape))
        raise IdxError(f"{labels_path}: holds {shape} labels for {len(images)} images")
    if len(labels) and labels.max() > 9:
        raise IdxError(f"{labels_path}: holds the label {labels.max()}; digits are 0 to 9")
    return images, labels


# The command line, and what decides whether the work is done.


def _encode_png(image: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _source_digest(source: Path) -> str:
    """One digest for the IDX files in `source`: of their names and contents."""
    digest = hashlib.sha256()
    try:
        for name in ("train", "t10k"):
            for kind in ("images", "labels"):
                path = find_idx(source, name, kind)
                if path is not None:
                    digest.update(f"{path.name} {digest_of(path).sha256}\n".encode())
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from error
    return digest.hexdigest()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.mnist.prepare", description=__doc__)
    parser.add_argument("--dataset", choices=("mnist", "digits", "idx"), default="mnist", help="default: mnist")
    parser.add_argument("--source", type=Path, help="folder with IDX files, for --dataset idx")
    parser.add_argument("--output", type=Path, required=True, help="where to publish the data")
    parser.add_argument(
        "--seed", type=int, default=0, help="decides splits of sources with one split (default: 0)"
    )
    options = parser.parse_args(arguments)
    if (options.dataset == "idx") != (options.source is not None):
        parser.error("--dataset idx needs --source, and no other data set takes it")
    if options.source is not None and not options.source.is_dir():
        raise StepError(BAD_INPUT, f"--source {options.source}: there is no such folder")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    return options


if __name__ == "__main__":
    run(main)
