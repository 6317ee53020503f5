from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image

from slipway.workloads.runtime.exits import BAD_INPUT, NO_NETWORK, StepError
from slipway.workloads.runtime.store import MANIFEST, check
from tests.workloads.steps import MNIST_FILES, only_error, run
from workloads.mnist import prepare
from workloads.mnist.batches import load
from workloads.mnist.prepare import IdxError, decode_idx, read_idx


def encode_idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of unsigned bytes."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@given(arrays(np.uint8, array_shapes(max_dims=4, max_side=6)), st.booleans())
@settings(deadline=None)
def test_idx_round_trip(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, packed: bool) -> None:
    path = tmp_path_factory.mktemp("idx") / "file"
    content = encode_idx(array)
    path.write_bytes(gzip.compress(content) if packed else content)

    np.testing.assert_array_equal(read_idx(path), array)


@pytest.mark.slow
@given(arrays(np.uint8, array_shapes(max_dims=3, max_side=6)), st.data())
@settings(deadline=None)
def test_a_truncated_idx_file_is_never_read(array: np.ndarray, data: st.DataObject) -> None:
    content = encode_idx(array)
    end = data.draw(st.integers(0, len(content) - 1))

    with pytest.raises(IdxError, match="the-file"):
        decode_idx(content[:end], "the-file")


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_idx_or_one_error(content: bytes) -> None:
    try:
        array = decode_idx(content, "the-file")
    except IdxError:
        return
    assert encode_idx(array) == content


def make_idx(folder: Path, split: str, count: int = 400, suffix: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (count, 28, 28), np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        content = encode_idx(array)
        path = folder / f"{split}-{kind}-ubyte{suffix}"
        path.write_bytes(gzip.compress(content) if suffix else content)
    return folder


def test_digits_are_all_there_and_none_twice(data: Path) -> None:
    from sklearn.datasets import load_digits

    train, test = load(data / "train.npz"), load(data / "test.npz")
    labels = json.loads((data / "images" / "labels.json").read_text())
    held_out = {name: np.asarray(Image.open(data / "images" / name)) for name in labels}

    assert len(train[0]) + len(test[0]) + 10 == 1797
    assert sorted(labels.values()) == list(range(10))
    assert sorted(held_out) == sorted(path.name for path in (data / "images").glob("*.png"))
    counts = np.bincount(np.concatenate([train[1], test[1], np.arange(10)]))
    np.testing.assert_array_equal(counts, np.bincount(load_digits().target))

    def names(images: np.ndarray) -> set[bytes]:
        return {image.tobytes() for image in images}

    everything = [names(train[0]), names(test[0]), names(np.stack(list(held_out.values())))]
    # Two scans of the collection are equal; the ten and the test images must still not be trained on.
    assert not everything[2] & (everything[0] | everything[1])
    assert len(everything[0] & everything[1]) <= 1


def test_digits_look_like_mnist(data: Path) -> None:
    images, labels = load(data / "train.npz")

    assert images.dtype == np.uint8
    frame = np.ones((28, 28), bool)
    frame[4:24, 4:24] = False
    assert not images[:, frame].any(), "a digit lies outside the centre of 20 x 20"
    assert images.max() > 240
    assert 15 < images.mean() < 80, "white on black means mostly dark"
    assert len(labels) == len(images)


@pytest.mark.slow
def test_preparing_is_deterministic_and_idempotent(data: Path, tmp_path: Path) -> None:
    first = run("mnist.prepare", "--dataset", "digits", "--output", tmp_path / "same")
    again = run("mnist.prepare", "--dataset", "digits", "--output", tmp_path / "same")
    run("mnist.prepare", "--dataset", "digits", "--seed", 7, "--output", tmp_path / "other")

    assert first.startswith("Prepared 1,438 training, 349 test and 10 held-out images")
    assert again.startswith("Nothing to do")
    assert (tmp_path / "same" / MANIFEST).read_bytes() == (data / MANIFEST).read_bytes()
    assert (tmp_path / "other" / MANIFEST).read_bytes() != (data / MANIFEST).read_bytes()


@pytest.mark.slow
def test_damaged_data_is_prepared_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = make_idx(tmp_path / "source", "train")
    run("mnist.prepare", "--dataset", "idx", "--source", source, "--output", out)
    whole = (out / "train.npz").read_bytes()
    (out / "train.npz").write_bytes(whole[:5000])

    output = run("mnist.prepare", "--dataset", "idx", "--source", source, "--output", out)

    assert "train.npz has 5000 bytes" in output
    assert (out / "train.npz").read_bytes() == whole


def test_idx_with_both_splits_keeps_them(tmp_path: Path) -> None:
    source = make_idx(tmp_path / "source", "train", 300)
    make_idx(source, "t10k", 100, ".gz")

    run("mnist.prepare", "--dataset", "idx", "--source", source, "--output", tmp_path / "out")

    summary = check(tmp_path / "out").summary
    assert (summary["train_images"], summary["test_images"], summary["held_out_images"]) == (300, 90, 10)


def test_idx_with_one_split_is_cut_nine_to_one(tmp_path: Path) -> None:
    source = make_idx(tmp_path / "source", "t10k", 1000)

    run("mnist.prepare", "--dataset", "idx", "--source", source, "--output", tmp_path / "out")

    summary = check(tmp_path / "out").summary
    assert (summary["train_images"], summary["test_images"]) == (900, 90)


@pytest.mark.slow
def test_another_source_is_prepared_again(tmp_path: Path) -> None:
    source = make_idx(tmp_path / "source", "train", 400)
    arguments = ("--dataset", "idx", "--source", source, "--output", tmp_path / "out")
    run("mnist.prepare", *arguments)
    make_idx(source, "train", 500)

    output = run("mnist.prepare", *arguments)

    assert "other inputs or settings" in output
    assert check(tmp_path / "out").summary["train_images"] == 450


def drop_labels(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte").unlink()


def truncate_images(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])


def truncate_gzip(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(path.read_bytes())[:-100])


def not_idx(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").write_bytes(b"<html>moved</html>")


def wrong_type(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:2] + b"\x0d" + content[3:])


def wrong_shape(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").write_bytes(encode_idx(np.zeros((400, 27, 28), np.uint8)))


def other_count(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte").write_bytes(encode_idx(np.zeros(399, np.uint8)))


def letter(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte").write_bytes(encode_idx(np.full(400, 10, np.uint8)))


def one_digit(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte").write_bytes(encode_idx(np.zeros(400, np.uint8)))


def nothing(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_labels, "train images only"),
        (truncate_images, "train-images-idx3-ubyte: states 400 x 28 x 28 = 313600 values, but holds 313599"),
        (truncate_gzip, "train-images-idx3-ubyte: damaged gzip"),
        (not_idx, "train-images-idx3-ubyte: not an IDX file"),
        (wrong_type, "type 0x0d"),
        (wrong_shape, "needs count x 28 x 28"),
        (other_count, "holds 399 labels for 400 images"),
        (letter, "holds the label 10"),
        (one_digit, "no image of the digit 1"),
        (nothing, "holds no train-images-idx3-ubyte"),
    ],
)
def test_malformed_idx_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], words: str
) -> None:
    source = make_idx(tmp_path / "source", "train")
    damage(source)
    monkeypatch.setattr(prepare, "stop_on_sigterm", lambda _: None)

    with pytest.raises(StepError, match=re.escape(words)) as caught:
        prepare.main(["--dataset", "idx", "--source", str(source), "--output", str(tmp_path / "out")])

    assert caught.value.code == BAD_INPUT
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "out" / MANIFEST).exists()


def test_a_missing_source_is_one_error(tmp_path: Path) -> None:
    output = run(
        "mnist.prepare", "--dataset", "idx", "--source", tmp_path / "no", "--output", tmp_path, code=BAD_INPUT
    )
    assert "there is no such folder" in only_error(output)


def test_mnist_without_a_network_fails_and_names_the_alternatives(tmp_path: Path) -> None:
    output = run(
        "mnist.prepare", "--dataset", "mnist", "--output", tmp_path / "out", code=NO_NETWORK,
        https_proxy="http://127.0.0.1:9", HTTPS_PROXY="http://127.0.0.1:9", no_proxy="", NO_PROXY="",
    )  # fmt: skip

    assert "--dataset digits" in only_error(output)
    assert "--dataset idx" in only_error(output)


def test_prepared_data_that_is_something_else_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "float.npz", images=np.zeros((3, 28, 28)), labels=np.zeros(3, np.uint8))
    np.savez(tmp_path / "short.npz", images=np.zeros((3, 28, 28), np.uint8), labels=np.zeros(2, np.uint8))
    np.savez(tmp_path / "other.npz", pictures=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    for name in ("float", "short", "other", "text"):
        with pytest.raises(StepError, match=f"{name}.npz is not a prepared data set"):
            load(tmp_path / f"{name}.npz")


@pytest.mark.slow
@pytest.mark.skipif(not MNIST_FILES, reason="SLIPWAY_MNIST_DIR names no folder with MNIST's files")
def test_real_mnist_files(tmp_path: Path) -> None:
    run("mnist.prepare", "--dataset", "idx", "--source", MNIST_FILES, "--output", tmp_path / "out")

    summary = check(tmp_path / "out").summary
    assert summary["train_images"] + summary["test_images"] + 10 in (10_000, 60_000, 70_000)
    images, _ = load(tmp_path / "out" / "train.npz")
    assert 25 < images.mean() < 45, "MNIST's mean is 33"
