"""What data is prepared: scikit-learn's digits, MNIST's own files, and a folder of labelled images."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.steps import MNIST_FILES, run

FAILED = 1
Split = tuple[np.ndarray, np.ndarray]


def load(path: Path) -> Split:
    with np.load(path) as file:
        return file["images"], file["labels"]


def prepare(output: Path, *arguments: object, code: int = 0) -> str:
    return run("mnist.prepare", *arguments, "--output", output, code=code)


def names(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}


def held_out(folder: Path) -> dict[str, np.ndarray]:
    labels = json.loads((folder / "images" / "labels.json").read_text())
    assert labels == {f"digit-{digit}.png": digit for digit in range(10)}
    return {name: np.asarray(Image.open(folder / "images" / name)) for name in labels}


def test_digits_are_all_there_none_twice_and_look_like_mnist(data: Path) -> None:
    from sklearn.datasets import load_digits

    train, test, ten = load(data / "train.npz"), load(data / "test.npz"), held_out(data)
    assert (len(train[0]), len(test[0])) == (1438, 349)
    counts = np.bincount(np.concatenate([train[1], test[1], np.arange(10)]))
    np.testing.assert_array_equal(counts, np.bincount(load_digits().target))
    # Two scans of the collection are equal; the ten must still not be trained on or tested with.
    assert not names(np.stack([*ten.values()])) & (names(train[0]) | names(test[0]))
    assert len(names(train[0]) & names(test[0])) <= 1
    assert train[0].dtype == train[1].dtype == np.uint8
    frame = np.ones((28, 28), bool)
    frame[4:24, 4:24] = False
    assert not train[0][:, frame].any(), "a digit lies outside the centre of 20 x 20"
    assert train[0].max() > 240
    assert 15 < train[0].mean() < 80, "light on dark means mostly dark"


def test_preparing_is_deterministic(data: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "same")
    prepare(tmp_path / "other", "--seed", 7)
    files = {path.relative_to(data) for path in data.rglob("*") if path.is_file()}
    assert all((tmp_path / "same" / file).read_bytes() == (data / file).read_bytes() for file in files)
    assert (tmp_path / "other" / "train.npz").read_bytes() != (data / "train.npz").read_bytes()


def test_mnist_without_a_network_fails_and_names_what_works_without(tmp_path: Path) -> None:
    output = run(
        "mnist.prepare", "--dataset", "mnist", "--output", tmp_path / "out", code=FAILED, HOME=str(tmp_path),
        https_proxy="http://127.0.0.1:9", HTTPS_PROXY="http://127.0.0.1:9", no_proxy="", NO_PROXY="",
    )  # fmt: skip
    assert "dataset: digits" in output.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [("idx",), ("images", "--source", "no"), ("digits", "--source", "x")])
def test_a_source_that_is_missing_or_not_read_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    output = prepare(tmp_path / "out", "--dataset", *arguments, code=FAILED if "no" in arguments else 2)
    assert "--source" in output
    assert not (tmp_path / "out").exists()


def encode_idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of unsigned bytes."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def make_idx(folder: Path, split: str, count: int = 400, suffix: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    images = np.random.default_rng(1).integers(0, 256, (count, 28, 28), np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        content = encode_idx(array)
        (folder / f"{split}-{kind}-ubyte{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    return folder


@pytest.mark.parametrize(("test", "expected"), [(100, (1000, 90)), (0, (900, 90))])
def test_idx_keeps_both_splits_and_cuts_one_nine_to_one(
    tmp_path: Path, test: int, expected: tuple[int, int]
) -> None:
    source = make_idx(tmp_path / "source", "train", 1000)
    if test:
        make_idx(source, "t10k", test, ".gz")
    prepare(tmp_path / "out", "--dataset", "idx", "--source", "store:source", "--store", tmp_path)
    counts = [len(load(tmp_path / "out" / f"{split}.npz")[0]) for split in ("train", "test")]
    assert tuple(counts) == expected
    assert len(held_out(tmp_path / "out")) == 10


def cut(name: str, end: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:end]) and None


def replace(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def remove(*files: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in files] and None


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove(LABELS), "train images only"),
        (remove(LABELS, IMAGES), f"no {IMAGES}"),
        (cut(IMAGES, -1), "313599"),
        (cut(IMAGES, 3), "not an IDX file"),
        (replace(IMAGES, gzip.compress(bytes(9999))[:-9]), "damaged gzip"),
        (replace(IMAGES, b"<html>moved</html>"), "not an IDX file"),
        (replace(IMAGES, encode_idx(np.zeros((400, 27, 28), np.uint8))), "27"),
        (replace(LABELS, encode_idx(np.zeros(399, np.uint8))), "399"),
        (replace(LABELS, encode_idx(np.full(400, 10, np.uint8))), "from 0 to 9"),
        (replace(LABELS, encode_idx(np.zeros(400, np.uint8))), "1, 2, 3"),
    ],
)
def test_malformed_idx_is_one_error(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    source = make_idx(tmp_path / "source", "train")
    damage(source)
    output = prepare(tmp_path / "out", "--dataset", "idx", "--source", source, code=FAILED)
    assert words in output
    assert len(output.splitlines()) == 1, output
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not MNIST_FILES, reason="SLIPWAY_MNIST_DIR names no folder with MNIST's files")
def test_real_mnist_files(tmp_path: Path) -> None:
    prepare(tmp_path / "out", "--dataset", "idx", "--source", MNIST_FILES)
    train, test = load(tmp_path / "out" / "train.npz"), load(tmp_path / "out" / "test.npz")
    assert len(train[0]) + len(test[0]) + 10 in (10_000, 60_000, 70_000)
    assert 25 < train[0].mean() < 45, "MNIST's mean is 33"


def scans(count: int) -> list[tuple[Image.Image, int]]:
    """Real scans of digits, dark on light and larger than MNIST's, with what they are."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return [
        (Image.fromarray((255 - scan * 15.9).astype(np.uint8)).resize((48, 48)), int(digit))
        for scan, digit in zip(digits.images[:count], digits.target[:count], strict=True)
    ]


def write(folder: Path, count: int, *, by_folder: bool, prefix: str = "scan") -> Path:
    """`count` scans, PNG and JPEG by turns, in folders named after their digits or beside a `labels.json`."""
    labels = {}
    for index, (scan, digit) in enumerate(scans(count)):
        name = f"{prefix} {index}.{('png', 'JPG', 'jpeg')[index % 3]}"
        place = folder / str(digit) if by_folder else folder
        place.mkdir(parents=True, exist_ok=True)
        scan.save(place / name)
        labels[name] = digit
    if not by_folder:
        (folder / "labels.json").write_text(json.dumps(labels))
    return folder


def images(output: Path, source: Path, code: int = 0) -> str:
    return prepare(output, "--dataset", "images", "--source", source, code=code)


@pytest.mark.parametrize("by_folder", [True, False])
def test_every_image_is_trained_on_tested_or_held_out(tmp_path: Path, by_folder: bool) -> None:
    images(tmp_path / "out", write(tmp_path / "source", 60, by_folder=by_folder))
    train, test = load(tmp_path / "out" / "train.npz"), load(tmp_path / "out" / "test.npz")
    assert (len(train[0]), len(test[0])) == (40, 10)
    assert sorted([*train[1], *test[1], *range(10)]) == sorted(digit for _, digit in scans(60))
    everything = np.concatenate([train[0], test[0], [*held_out(tmp_path / "out").values()]])
    assert len(names(everything)) == 60
    assert everything[:, 0].max() == 0, "light on dark, in MNIST's frame"


def test_neither_names_nor_order_decide_what_is_tested(tmp_path: Path) -> None:
    """And equal images are on one side."""
    source = write(tmp_path / "source", 60, by_folder=True)
    other = write(tmp_path / "other", 60, by_folder=True, prefix="zz renamed")
    write(other, 60, by_folder=True, prefix="copy of")
    for name, folder in (("one", source), ("two", other)):
        images(tmp_path / name, folder)
    tested = [
        names(load(tmp_path / name / "test.npz")[0]) | names(np.stack([*held_out(tmp_path / name).values()]))
        for name in ("one", "two")
    ]
    assert tested[0] == tested[1]
    assert not names(load(tmp_path / "two" / "train.npz")[0]) & tested[1]


def test_folders_named_train_and_test_are_the_splits(tmp_path: Path) -> None:
    write(tmp_path / "source" / "train", 30, by_folder=True)
    write(tmp_path / "source" / "test", 25, by_folder=False)
    images(tmp_path / "out", tmp_path / "source")
    assert len(load(tmp_path / "out" / "train.npz")[0]) == 30
    assert len(load(tmp_path / "out" / "test.npz")[0]) == 15
    scans(1)[0][0].save(tmp_path / "source" / "0.png")
    assert "0.png" in images(tmp_path / "again", tmp_path / "source", code=FAILED)


def test_all_that_cannot_be_used_is_named_at_once(tmp_path: Path) -> None:
    """Nothing is left out in silence: a model would be trained on less than somebody thinks."""
    source = write(tmp_path / "source", 30, by_folder=True)
    scan, _ = scans(1)[0]
    scan.save(source / "stray.png")
    scan.save(source / "7" / "photo.webp")
    scan.save(source / "7" / "eight.png")
    (source / "7" / "labels.json").write_text('{"eight.png": 8, "lost.png": 7}')
    whole = (source / "0" / "scan 0.png").read_bytes()
    (source / "0" / "cut off.png").write_bytes(whole[: len(whole) // 2])
    (source / "1" / "text.jpg").write_text("no image")
    Image.new("L", (40, 40), 255).save(source / "2" / "blank.jpeg")
    (source / "notes.txt").write_text("who wrote them")
    output = images(tmp_path / "out", source, code=FAILED)
    for words in (
        "stray.png has no digit",
        "7/photo.webp: neither a PNG nor a JPEG",
        "7/eight.png lies in the folder 7, and labels.json says 8",
        "7/lost.png is in labels.json, and is not there",
        "0/cut off.png: truncated",
        "1/text.jpg: neither a PNG nor",
        "2/blank.jpeg: blank",
        "Left out, for they are no images: 'notes.txt'",
    ):
        assert words in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["[", "[1]", '{"scan 0.png": "seven"}', '{"scan 0.png": 10}'])
def test_labels_that_are_none_are_refused(tmp_path: Path, content: str) -> None:
    source = write(tmp_path / "source", 30, by_folder=False)
    (source / "labels.json").write_text(content)
    assert "labels.json" in images(tmp_path / "out", source, code=FAILED).splitlines()[-1]


def test_too_few_images_of_a_digit_and_one_of_two_digits_are_named(tmp_path: Path) -> None:
    source = write(tmp_path / "source", 60, by_folder=True)
    for path in sorted((source / "9").iterdir())[2:]:
        path.unlink()
    twin = next((source / "0").glob("*.png"))
    (source / "8" / "twin.png").write_bytes(twin.read_bytes())
    output = images(tmp_path / "out", source, code=FAILED)
    assert "too few of 9 (2)" in output
    assert f"0/{twin.name} (0) and 8/twin.png (8) are equal" in output
