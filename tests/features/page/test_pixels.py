"""From a drawing to what a model takes, and test images from a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slipway.features.page.pod.pixels import SIDE, Form, load, of_drawing, of_sample
from tests.features.page.conftest import file, seven
from workloads.mnist import images as mnist

DIGIT = Form(28, 28, "L", "light")


def drawn(image: Image.Image, form: Form = DIGIT) -> Image.Image:
    return of_drawing(image.tobytes(), form)


def test_a_drawing_becomes_what_the_pipeline_predicts_from(tmp_path: Path) -> None:
    """The page and the step `predict` read a drawing alike, or a page would show another answer than the step."""
    path = tmp_path / "seven.png"
    path.write_bytes(file(seven()))
    ours, theirs = np.asarray(drawn(seven()), np.float64), mnist.read(path).astype(np.float64)
    assert np.abs(ours - theirs).mean() < 3
    assert np.abs(ours - theirs).max() < 60


@pytest.mark.parametrize("shift", [(0, 0), (-60, 40), (50, -50)])
def test_where_on_the_paper_and_how_large_it_is_drawn_does_not_matter(shift: tuple[int, int]) -> None:
    paper = Image.new("L", (SIDE, SIDE), 255)
    paper.paste(seven(140), (70 + shift[0], 70 + shift[1]))
    moved, still = np.asarray(drawn(paper), np.float64), np.asarray(drawn(seven()), np.float64)
    assert np.abs(moved - still).mean() < 4


def test_a_drawing_that_fills_the_edge_is_still_dark_ink_on_paper() -> None:
    paper = Image.new("L", (SIDE, SIDE), 0)
    paper.paste(255, (60, 60, 220, 220))
    assert drawn(paper).getpixel((14, 14)) == 0
    assert drawn(paper).getpixel((5, 14)) == 255


def test_dark_ink_and_colours_where_the_model_reads_that() -> None:
    image = drawn(seven(), Form(40, 30, "RGB", "dark"))
    assert (image.size, image.mode, image.getpixel((0, 0))) == ((40, 30), "RGB", (255, 255, 255))


def test_a_thin_line_and_a_dot_are_drawings() -> None:
    for box in ((10, 10, 11, 270), (10, 10, 270, 11), (100, 100, 101, 101)):
        image = Image.new("L", (SIDE, SIDE), 255)
        image.paste(0, box)
        assert max(drawn(image).tobytes()) > 100


def test_test_images_have_the_labels_of_their_folder(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.png").write_bytes(file(seven(28).convert("RGB" if name == "b" else "L")))
    (tmp_path / "labels.json").write_text('{"a.png": 7, "b.png": "rose"}')
    digit, named, unknown = load(str(tmp_path))
    assert (digit.truth([*"0123456789"]), digit.truth(["x"])) == (7, None)
    assert (named.truth(["daisy", "rose"]), unknown.truth(["rose"])) == (1, None)
    assert of_sample(named, DIGIT).tobytes() == seven(28).tobytes()


@pytest.mark.parametrize("files", [{}, {"labels.json": "["}, {"labels.json": "[]", "a.png": ""}])
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(argparse.ArgumentTypeError, match=tmp_path.name):
        load(str(tmp_path))
