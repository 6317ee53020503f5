"""Altered copies of the training images: what they are, and what a model reads that was trained on them."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import label

from slipway.infra.pipelines.discovery import pipeline
from tests.features.page.conftest import file, seven
from tests.support.once import made_once
from tests.support.steps import ROOT, run

# Each imports TensorFlow.
pytestmark = pytest.mark.slow

COUNT = 24

Pairs = list[tuple[np.ndarray, np.ndarray]]


def dots() -> tuple[np.ndarray, np.ndarray]:
    """One dot or two, each in a place of its own: how many there are can be told of an altered image, too."""
    images, labels = np.zeros((COUNT, 28, 28), np.uint8), np.arange(COUNT, dtype=np.uint8) % 2
    for number, (image, two) in enumerate(zip(images, labels, strict=True)):
        column = 7 + number // 2
        image[7:12, column : column + 4] = 255
        image[16:21, column : column + 4] = 255 * two
    return images, labels


def feed(seed: int = 5, epochs: range = range(2), batch: int = 12, **given: Any) -> Pairs:
    network = runpy.run_path(str(ROOT / "workloads/mnist/network.py"))
    given = {"mine": range(1), "copies": 0, "replicas": 1, **given}
    return list(network["batches"](*dots(), seed=seed, epochs=epochs, batch=batch, **given).as_numpy_iterator())


def images_of(pairs: Pairs) -> np.ndarray:
    return np.concatenate([images for images, _ in pairs])


def test_an_altered_image_keeps_its_label_and_each_is_there_as_often_as_asked() -> None:
    pairs = feed(epochs=range(1), copies=4)

    images, labels = images_of(pairs), np.concatenate([labels for _, labels in pairs])
    assert (len(images), images.dtype, images.shape[1:]) == (4 * COUNT, np.uint8, (28, 28, 1))
    assert np.bincount(labels).tolist() == [2 * COUNT, 2 * COUNT]
    assert [label(image[..., 0] > 100)[1] for image in images] == (labels + 1).tolist()
    assert len({image.tobytes() for image in images}) == 4 * COUNT, "no two are altered alike"


def test_strokes_become_thinner_and_thicker() -> None:
    inked = images_of(feed(epochs=range(4), copies=4)).mean(axis=(1, 2, 3)) / dots()[0][0].mean()
    assert inked.min() < 0.75
    assert inked.max() > 1.3


def test_without_copies_the_images_are_what_they_were() -> None:
    assert {image.tobytes() for image in images_of(feed())} == {image.tobytes() for image in dots()[0]}


def test_how_an_image_is_altered_depends_on_seed_and_epoch_alone() -> None:
    whole = images_of(feed(epochs=range(3), copies=2))
    resumed = images_of(feed(epochs=range(1, 3), copies=2))

    assert np.array_equal(whole[2 * COUNT :], resumed)
    assert not {image.tobytes() for image in whole[: 2 * COUNT]} & {image.tobytes() for image in resumed}
    assert not np.array_equal(whole, images_of(feed(seed=6, epochs=range(3), copies=2)))


def test_the_shares_of_a_batch_are_altered_as_the_whole_is() -> None:
    whole = images_of(feed(copies=2))
    shares = [images_of(feed(copies=2, replicas=4, mine=mine)) for mine in (range(2), range(2, 4))]

    parts = [share.reshape(-1, 6, 28, 28, 1) for share in shares]
    assert np.array_equal(np.concatenate(parts, axis=1).reshape(whole.shape), whole)


def of_demo(data: Path) -> list[object]:
    """The arguments that the stack `demo` trains with."""
    content = yaml.safe_load((ROOT / "stacks/Pulumi.demo.yaml").read_text(encoding="utf-8"))
    declared = pipeline("mnist")
    settings = declared.settings.model_validate(content["config"]["slipway:pipelines"]["mnist"])
    (train,) = (step for step in declared.steps(settings) if step.name == "train")
    words = train.arguments[2 : train.arguments.index("--output")]
    return [data if word == "{prepare}" else word for word in words]


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the demo."""
    return made_once(
        tmp_path_factory,
        "model-of-the-demo",
        lambda folder: run("mnist.train", *of_demo(data), "--output", folder, loaded=True),
    )[0]


def strokes(*places: tuple[int, int], width: int = 22) -> Image.Image:
    image = Image.new("L", (280, 280), 255)
    ImageDraw.Draw(image).line(places, fill=0, width=width, joint="curve")
    return image


def sevens() -> Iterator[Image.Image]:
    """Without a bar: drawn with pens of three widths, and printed."""
    yield seven()
    for width in (14, 22, 30):
        yield strokes((84, 60), (196, 60), (120, 230), width=width)
        yield strokes((88, 64), (140, 58), (190, 64), (160, 130), (142, 226), width=width)
    for size in (60, 180):
        image = Image.new("L", (280, 280), 255)
        ImageDraw.Draw(image).text((140, 140), "7", fill=0, font=ImageFont.load_default(size), anchor="mm")
        yield image


def test_the_model_of_the_demo_reads_a_seven_without_a_bar(model: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for number, image in enumerate(sevens()):
        (images / f"seven-{number}.png").write_bytes(file(image))

    run("mnist.predict", "--model", model, "--images", images, "--output", tmp_path / "read", loaded=True)

    read = json.loads((tmp_path / "read" / "predictions.json").read_text(encoding="utf-8"))["images"]
    assert [image["digit"] for image in read] == [7] * 9


def test_the_model_is_tested_on_the_held_out_images_as_they_are(model: Path, data: Path) -> None:
    """What is published alters nothing that it is asked about."""
    import tensorflow as tf

    test = np.load(data / "test.npz")
    served = tf.saved_model.load(str(model / "saved_model"))
    answers = [served.serve(tf.constant(test["images"][..., np.newaxis])).numpy() for _ in range(2)]

    assert np.array_equal(*answers)
    right = (answers[0].argmax(axis=1) == test["labels"]).mean()
    assert right == pytest.approx(json.loads((model / "metrics.json").read_text())["test"]["accuracy"])
    assert right > 0.96
