"""Prepare handwritten digits for training: `train.npz`, `test.npz`, and ten images that no training sees.

Data sets: `digits` has 1,797 scans that come with scikit-learn, and needs no network; `mnist` downloads MNIST's
70,000 images through Keras; `idx` is a folder with MNIST's own files; `images` a folder of PNG and JPEG files, at
any depth, with a `labels.json` beside them that maps file names to digits, or in folders named 0 to 9.
"""

import argparse
import gzip
import hashlib
import json
import math
import os
import struct
import zlib
from collections import Counter
from pathlib import Path

import images
import numpy as np
from PIL import Image

Split = tuple[np.ndarray, np.ndarray]
"""Images (count, 28, 28) uint8, light on dark, and labels (count,) uint8."""

SHOWN = 20
"""Files that an error names."""


def load_digits(seed: int) -> tuple[Split, Split]:
    """E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", 1998 (archive.ics.uci.edu/dataset/80):
    8 x 8 pixels from 0 to 16, here 20 x 20 in the middle of 28 x 28, as MNIST's digits are."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    edge = (images.SIZE - images.INNER) // 2
    enlarged = []
    for scan in scans.images:
        levels = Image.fromarray(np.round(scan * (255 / 16)).astype(np.uint8))
        inner = levels.resize((images.INNER, images.INNER), Image.Resampling.LANCZOS)
        enlarged.append(np.pad(np.asarray(inner), edge))
    return divide((np.stack(enlarged), scans.target.astype(np.uint8)), 5, seed)


def load_mnist() -> tuple[Split, Split]:
    """MNIST as keras.datasets has it, which checks what it downloads by its SHA-256."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from keras.datasets import mnist

    try:
        return mnist.load_data()
    except Exception as error:
        instead = "`dataset: digits`, or `dataset: idx` with a folder that has MNIST's own files"
        raise SystemExit(f"MNIST cannot be downloaded ({error}). Without a network write {instead}") from error


def load_idx(folder: Path, seed: int) -> tuple[Split, Split]:
    """A folder with MNIST's files, compressed or not; of one split alone a tenth becomes the test split."""
    train, test = (read_idx_split(folder, split) for split in ("train", "t10k"))
    only = train or test
    if only is None:
        raise SystemExit(f"{folder} has no train-images-idx3-ubyte[.gz] and no t10k-images-idx3-ubyte[.gz]")
    return (train, test) if train and test else divide(only, 10, seed)


def read_idx_split(folder: Path, split: str) -> Split | None:
    """One split; None where neither of its two files is there."""
    files = []
    for kind in ("images-idx3", "labels-idx1"):
        names = [f"{split}-{spelt}-ubyte{end}" for spelt in (kind, kind.replace("-", ".")) for end in ("", ".gz")]
        files.append(next((folder / name for name in names if (folder / name).is_file()), None))
    if files == [None, None]:
        return None
    if None in files:
        raise SystemExit(f"{folder} has {split} {'labels' if files[0] is None else 'images'} only, and needs both")
    pixels, labels = (read_idx(path) for path in files if path)
    if pixels.shape != (len(labels), 28, 28) or labels.ndim != 1 or (len(labels) and labels.max() > 9):
        shapes = f"images of {pixels.shape} and labels of {labels.shape}"
        raise SystemExit(f"{files[0]}: {shapes}; it needs (count, 28, 28) and (count,), with labels from 0 to 9")
    return pixels, labels


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of unsigned bytes: two zeros, the type 8, the number of dimensions, their sizes, the values
    (yann.lecun.com/exdb/mnist, read 2026-11)."""
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SystemExit(f"{path}: damaged gzip ({error})") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise SystemExit(f"{path}: not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        said = " x ".join(map(str, shape))
        raise SystemExit(f"{path}: says that it has {said} values, and has {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_images(folder: Path, seed: int) -> tuple[Split, Split]:
    """A folder of images with their digits. Folders `train` and `test` at its top are the splits; without, a tenth
    of each digit's images is for the test, chosen by `seed` and their pixels: neither names nor order matter, and
    equal images are on one side."""
    pixels, wrong = {}, []
    digits = images.find(folder)
    for name, label in digits.items():
        parent = Path(name).parent.name
        named = int(parent) if len(parent) == 1 and parent in "0123456789" else None
        if label is None and named is None:
            wrong.append(f"{name} has no digit: write it into labels.json beside it, or name its folder 0 to 9")
        elif label is not None and named is not None and label != named:
            wrong.append(f"{name} lies in the folder {named}, and labels.json says {label}")
        digits[name] = named if label is None else label
        try:
            pixels[name] = images.read(folder / name)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    for path in sorted(folder.rglob("labels.json")):
        lost = [name for name in images.read_labels(path) if not (path.parent / name).exists()]
        place = path.parent.relative_to(folder)
        wrong += [f"{place / name} is in labels.json, and is not there" for name in lost]
    tops = {top: [name for name in pixels if name.startswith(f"{top}/")] for top in ("train", "test")}
    given = all(tops.values())
    if given:
        outside = pixels.keys() - {*tops["train"], *tops["test"]}
        wrong += [f"{name} lies in neither train nor test" for name in sorted(outside)]
    refuse(folder, wrong)
    require_each(folder, pixels, digits, 1 if given else 3)
    if not given:
        tops = {"train": [], "test": []}
        for digit in range(10):
            keyed = {name: hashlib.sha256(f"{seed}:".encode() + pixels[name].tobytes()).hexdigest()
                     for name in pixels if digits[name] == digit}  # fmt: skip
            distinct = sorted({*keyed.values()})
            tested = {*distinct[: max(2, len(distinct) // 10)]}
            for name in sorted(keyed, key=lambda name: (keyed[name], name)):
                tops["test" if keyed[name] in tested else "train"].append(name)
    arrays = [(np.stack([pixels[name] for name in names]), np.array([digits[name] for name in names], np.uint8))
              for names in tops.values()]  # fmt: skip
    return arrays[0], arrays[1]


def require_each(folder: Path, pixels: dict[str, np.ndarray], digits: dict[str, int | None], fewest: int) -> None:
    """Ends the program where a digit has too few different images, or equal ones have two digits."""
    known: dict[bytes, str] = {}
    wrong = []
    for name, image in pixels.items():
        first = known.setdefault(image.tobytes(), name)
        if digits[first] != digits[name]:
            wrong.append(f"{first} ({digits[first]}) and {name} ({digits[name]}) are equal")
    counts = Counter(digits[name] for name in known.values())
    few = [f"{digit} ({counts[digit]})" for digit in range(10) if counts[digit] < fewest]
    refuse(folder, [*wrong, *([f"too few of {', '.join(few)}: each digit needs {fewest} or more"] if few else [])])


def refuse(folder: Path, wrong: list[str]) -> None:
    """Ends the program with all that is `wrong`, where there is anything."""
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise SystemExit(f"{folder}: {'; '.join(wrong[:SHOWN])}{more}")


def divide(everything: Split, share: int, seed: int) -> tuple[Split, Split]:
    """Shuffles by `seed`, and cuts off one image in `share` for the test."""
    order = np.random.default_rng(seed).permutation(len(everything[0]))
    parts = np.split(order, [len(order) - len(order) // share])
    train, test = ((everything[0][part], everything[1][part]) for part in parts)
    return train, test


def hold_out(test: Split) -> tuple[Split, Split]:
    """Takes the first image of each digit out of the test split; the rest, and the ten in the order of digits."""
    labels = test[1]
    absent = [str(digit) for digit in range(10) if digit not in labels]
    if absent:
        raise SystemExit(f"the test split has no image of {', '.join(absent)}: the source is too small")
    if len(labels) < 11:
        raise SystemExit("the test split has ten images only, and these are held out: the source is too small")
    chosen = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    rest = np.setdiff1d(np.arange(len(labels)), chosen)
    kept, held_out = ((test[0][part], labels[part]) for part in (rest, chosen))
    return kept, held_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", choices=("digits", "mnist", "idx", "images"), default="digits")
    parser.add_argument("--source", default="", help="the folder of `idx` and `images`")
    parser.add_argument("--store", type=Path, default=os.environ.get("STORE", "."), help="where `store:` begins")
    parser.add_argument("--seed", type=int, default=0, help="decides the test split of sources that have none")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    needs = options.dataset in ("idx", "images")
    if needs != bool(options.source):
        parser.error(f"--dataset {options.dataset} {'needs' if needs else 'has no'} --source")
    source = images.folder_of(options.source, options.store)
    if needs and not source.is_dir():
        raise SystemExit(f"--source {options.source}: there is no such folder")

    if options.dataset == "digits":
        train, test = load_digits(options.seed)
    elif options.dataset == "mnist":
        train, test = load_mnist()
    else:
        train, test = (load_idx if options.dataset == "idx" else load_images)(source, options.seed)
    test, held_out = hold_out(test)
    folder = options.output / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (pixels, labels) in {"train": train, "test": test}.items():
        np.savez_compressed(options.output / f"{name}.npz", images=pixels, labels=labels)
    names = {f"digit-{label}.png": int(label) for label in held_out[1]}
    for name, pixels in zip(names, held_out[0], strict=True):
        Image.fromarray(pixels).save(folder / name, optimize=True)
    (folder / "labels.json").write_text(json.dumps(names, indent=2) + "\n", encoding="utf-8")
    counts = f"{len(train[0]):,} training, {len(test[0]):,} test and {len(names)} held-out images"
    print(f"Prepared {counts} of {options.dataset}: {options.output}")


if __name__ == "__main__":
    main()
