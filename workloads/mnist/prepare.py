"""Prepare handwritten digits for training: `train.npz`, `test.npz`, and ten held-out images to predict later.

Sources: `mnist` (70,000 images, downloaded by TensorFlow Datasets), `digits` (1,797 scans inside scikit-learn,
no network) or `idx` (a folder with MNIST-style files). Needs tensorflow-datasets, scikit-learn and pillow,
which `workloads.runtime.steps.packages` installs. Run as
`python -m workloads.mnist.prepare --dataset digits --output DIR`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workloads.mnist.data import Split, save
from workloads.mnist.idx import IdxError, find, read_split
from workloads.runtime.exits import BAD_INPUT, NO_NETWORK, OK, StepError, run, stop_on_sigterm
from workloads.runtime.store import StoreError, digest_of, finished, publish, staging

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
        print(f"Nothing to do: {options.output} holds {_describe(earlier.summary)}")
        return OK

    with staging() as scratch:
        train, test = _load(options, scratch)
        test, held_out = hold_out(test)
        staged = scratch / "staged"
        staged.mkdir()
        save(staged / "train.npz", train)
        save(staged / "test.npz", test)
        _save_images(staged / "images", held_out)
        summary = {
            "dataset": options.dataset,
            "train_images": len(train[0]),
            "test_images": len(test[0]),
            "held_out_images": len(held_out[0]),
        }
        publish(staged, options.output, step=STEP, inputs=inputs, settings=settings, summary=summary)
    print(f"Prepared {_describe(summary)} in {options.output}")
    return OK


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
        from workloads.mnist.digits import Digits

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
    from workloads.runtime.devices import before_import

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
            f"{error}; run `python -m workloads.runtime.steps.packages --requirements "
            "workloads/mnist/requirements.txt --target DIR` and put DIR on PYTHONPATH",
        ) from error
    tfds.disable_progress_bar()
    # It would advise to install OpenCV.
    logging.getLogger("absl").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):
        yield tfds


def _save_images(folder: Path, held_out: Split) -> None:
    from PIL import Image

    folder.mkdir()
    labels = {}
    for image, label in zip(*held_out, strict=True):
        name = f"digit-{label}.png"
        Image.fromarray(image).save(folder / name, optimize=True)
        labels[name] = int(label)
    (folder / "labels.json").write_text(json.dumps(labels, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _source_digest(source: Path) -> str:
    """One digest for the IDX files in `source`: of their names and contents."""
    digest = hashlib.sha256()
    try:
        for name in ("train", "t10k"):
            for kind in ("images", "labels"):
                path = find(source, name, kind)
                if path is not None:
                    digest.update(f"{path.name} {digest_of(path).sha256}\n".encode())
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from error
    return digest.hexdigest()


def _describe(summary: Any) -> str:
    return (
        f"{summary['train_images']:,} training, {summary['test_images']:,} test and "
        f"{summary['held_out_images']} held-out images of {summary['dataset']}"
    )


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
