"""A folder of labelled PNG and JPEG files as training data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from slipway.workloads.runtime.exits import BAD_INPUT, StepError
from slipway.workloads.runtime.store import check
from tests.workloads.steps import only_error, run
from workloads.mnist.batches import load
from workloads.mnist.prepare_images import Image, divide, find_labelled, read_all


def scans(count: int) -> list[tuple[Pillow.Image, int]]:
    """Real scans of digits, dark on light and larger than MNIST's, with what they are."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return [
        (Pillow.fromarray((255 - scan * 15.9).astype(np.uint8)).resize((48, 48)), int(digit))
        for scan, digit in zip(digits.images[:count], digits.target[:count], strict=True)
    ]


def write(folder: Path, count: int, *, by_folder: bool) -> Path:
    """`count` scans, PNG and JPEG by turns, in folders named after their digits or beside a `labels.json`."""
    labels = {}
    for index, (scan, digit) in enumerate(scans(count)):
        name = f"scan {index}.{('png', 'JPG', 'jpeg')[index % 3]}"
        place = folder / str(digit) if by_folder else folder
        place.mkdir(parents=True, exist_ok=True)
        scan.save(place / name)
        labels[name] = digit
    if not by_folder:
        (folder / "labels.json").write_text(json.dumps(labels))
    return folder


@pytest.mark.slow
def test_every_image_is_trained_on_tested_or_held_out(tmp_path: Path) -> None:
    source = write(tmp_path / "source", 60, by_folder=True)
    arguments = ("--source", source, "--output", tmp_path / "out", "--seed", 3)

    output = run("mnist.prepare_images", *arguments)

    assert output.splitlines()[-1] == f"Prepared 40 training, 10 test and 10 held-out images in {tmp_path / 'out'}"
    train, test = load(tmp_path / "out" / "train.npz"), load(tmp_path / "out" / "test.npz")
    labels = json.loads((tmp_path / "out" / "images" / "labels.json").read_text())
    assert labels == {f"digit-{digit}.png": digit for digit in range(10)}
    assert sorted([*train[1], *test[1], *labels.values()]) == sorted(digit for _, digit in scans(60))
    held_out = [np.asarray(Pillow.open(tmp_path / "out" / "images" / name)) for name in labels]
    everything = np.concatenate([train[0], test[0], held_out])
    assert len(np.unique(everything, axis=0)) == 60
    assert everything[:, 0].max() == 0, "white on black, in MNIST's frame"
    assert check(tmp_path / "out").summary["dataset"] == "images"
    assert run("mnist.prepare_images", *arguments).startswith("Nothing to do: ")


def test_digits_come_from_labels_beside_the_images_or_from_their_folders(tmp_path: Path) -> None:
    truth = [digit for _, digit in scans(30)]
    for by_folder in (True, False):
        images = find_labelled(write(tmp_path / str(by_folder), 30, by_folder=by_folder))
        digits = {int(image.path.stem.split()[1]): image.label for image in images}
        assert [digits[index] for index in range(30)] == truth


@pytest.mark.slow
def test_folders_named_train_and_test_are_the_splits(tmp_path: Path) -> None:
    write(tmp_path / "train", 30, by_folder=True)
    write(tmp_path / "test", 25, by_folder=False)

    train, test = divide(tmp_path, read_all(tmp_path, find_labelled(tmp_path)), 0)

    assert (len(train), len(test)) == (30, 25)
    assert all(image.name.startswith("train/") for image in train)


def test_all_that_cannot_be_used_is_named_at_once(tmp_path: Path) -> None:
    """Nothing is left out in silence: a model would be trained on less than somebody thinks."""
    source = write(tmp_path / "source", 30, by_folder=True)
    scan, _ = scans(1)[0]
    scan.save(source / "stray.png")
    scan.save(source / "7" / "photo.webp")
    scan.save(source / "7" / "eight.png")
    (source / "7" / "labels.json").write_text('{"eight.png": 8, "lost.png": 7}')
    (source / "not copied").mkdir()
    (source / "not copied" / "labels.json").write_text('{"a.png": 1}')

    output = run("mnist.prepare_images", "--source", source, "--output", tmp_path / "out", code=BAD_INPUT)

    error = only_error(output)
    for words in (
        "stray.png has no digit",
        "7/photo.webp is neither PNG nor JPEG",
        "7/eight.png lies in the folder 7, and labels.json says 8",
        "7/lost.png is in labels.json, and is not there",
        "not copied/a.png is in labels.json, and is not there",
        "An image's digit is in labels.json beside it, or its folder is named 0 to 9",
    ):
        assert words in error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_all_that_cannot_be_read_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "source", 30, by_folder=True)
    whole = (source / "0" / "scan 0.png").read_bytes()
    (source / "0" / "cut off.png").write_bytes(whole[:-20])
    (source / "1" / "text.jpg").write_text("no image")
    Pillow.new("L", (40, 40), 255).save(source / "2" / "blank.jpeg")
    (source / "notes.txt").write_text("who wrote them")

    with pytest.raises(StepError) as caught:
        read_all(source, find_labelled(source))

    assert caught.value.code == BAD_INPUT
    for words in (
        "0/cut off.png: truncated or damaged PNG",
        "1/text.jpg: neither a PNG nor",
        "2/blank.jpeg: blank",
    ):
        assert words in str(caught.value)
    assert capsys.readouterr().out == "Left out, for they are no images: 'notes.txt'\n"


@pytest.mark.parametrize(
    ("content", "words"), [("[", "is not JSON"), ('{"a.png": "seven"}', "must map file names to digits 0 to 9")]
)
def test_labels_that_are_none_are_refused(tmp_path: Path, content: str, words: str) -> None:
    scans(1)[0][0].save(tmp_path / "a.png")
    (tmp_path / "labels.json").write_text(content)

    with pytest.raises(StepError, match=words):
        find_labelled(tmp_path)


def pictures(count: int, *digits: int) -> list[Image]:
    """`count` different pictures of each digit."""
    return [
        Image(
            f"{digit}/{number}.png",
            digit,
            np.random.default_rng((digit, number)).integers(0, 256, (28, 28), np.uint8),
        )
        for digit in digits or range(10)
        for number in range(count)
    ]


def pixels_of(images: list[Image]) -> set[bytes]:
    return {image.pixels.tobytes() for image in images}


def test_neither_names_nor_order_decide_what_is_tested(tmp_path: Path) -> None:
    images = pictures(30)
    renamed = [replace(image, name=f"{image.digit}/{index}.jpg") for index, image in enumerate(images)]

    train, test = divide(tmp_path, images, 0)

    assert (len(train), len(test)) == (270, 30)
    assert [image.digit for image in test] == sorted([*range(10)] * 3)
    assert pixels_of(divide(tmp_path, renamed[::-1], 0)[1]) == pixels_of(test)
    assert pixels_of(divide(tmp_path, images, 1)[1]) != pixels_of(test)


def test_equal_images_are_not_in_both_splits(tmp_path: Path) -> None:
    images = pictures(6)
    copies = [Image(f"{image.digit}/copy of {image.name[2:]}", image.digit, image.pixels) for image in images]

    train, test = divide(tmp_path, [*images, *copies], 0)

    assert not pixels_of(train) & pixels_of(test)
    assert len(train) + len(test) == 120


def test_digits_with_too_few_images_are_named(tmp_path: Path) -> None:
    images = [*pictures(5, 0, 1, 2, 3, 4, 6, 7, 8), *pictures(2, 9)]
    with pytest.raises(StepError, match=r"needs 3 or more different images of each digit, .* of 5 \(0\), 9 \(2\)"):
        divide(tmp_path, images, 0)


def test_an_image_that_is_two_digits_is_named(tmp_path: Path) -> None:
    images = pictures(5)
    with pytest.raises(StepError, match=r"0/0.png \(0\) and 8/same.png \(8\) are equal"):
        divide(tmp_path, [*images, Image("8/same.png", 8, images[0].pixels)], 0)


def test_an_image_outside_the_splits_is_named(tmp_path: Path) -> None:
    images = [
        Image(f"{split}/{picture.name}", picture.digit, picture.pixels)
        for split in ("train", "test")
        for picture in pictures(3)
    ]
    with pytest.raises(StepError, match=r"extra/1\.png lies in neither train nor test"):
        divide(tmp_path, [*images, Image("extra/1.png", 1, images[0].pixels)], 0)


@pytest.mark.slow
def test_a_model_learns_from_a_folder_of_images(tmp_path: Path) -> None:
    """From PNG and JPEG files to predictions of others, by the steps that a pod runs."""
    source = write(tmp_path / "source", 1200, by_folder=True)
    run("mnist.prepare_images", "--source", source, "--output", tmp_path / "data", loaded=True)
    run("mnist.train", "--data", tmp_path / "data", "--output", tmp_path / "model", "--epochs", 5,
        "--batch-size", 16, "--min-accuracy", 0.85, loaded=True)  # fmt: skip

    run("mnist.predict", "--model", tmp_path / "model", "--images", tmp_path / "data" / "images",
        "--output", tmp_path / "predictions", loaded=True)  # fmt: skip

    predictions = json.loads((tmp_path / "predictions" / "predictions.json").read_text())
    assert len(predictions["images"]) == 10
    assert predictions["accuracy"] >= 0.8
