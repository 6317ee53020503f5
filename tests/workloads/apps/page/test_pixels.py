"""From files to what a model takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slipway.workloads.apps.page.pixels import Form, ImageError, decode, prepare, values
from tests.workloads.apps.page.conftest import file, seven
from workloads.mnist import images as mnist

DIGIT = Form(28, 28, 1, ink="light", fit="content")


def test_a_drawing_becomes_what_the_pipeline_predicts_from(tmp_path: Path) -> None:
    """The page and the step `predict` read a file alike, or a page would show another answer than the step."""
    for name, image in {"black": seven(), "white": Image.eval(seven(), lambda level: 255 - level)}.items():
        path = tmp_path / f"{name}.png"
        path.write_bytes(file(image))
        ours = np.asarray(prepare(decode(path.read_bytes()), DIGIT), np.float64)
        theirs = mnist.read(path).astype(np.float64)
        assert np.abs(ours - theirs).mean() < 3
        assert np.abs(ours - theirs).max() < 60


def test_an_image_of_the_right_size_keeps_its_pixels() -> None:
    noise = np.random.default_rng(0).integers(0, 120, (28, 28), np.uint8)
    noise[10:20, 10:20] = 255
    assert np.array_equal(np.asarray(prepare(Image.fromarray(noise), DIGIT)), noise)


@pytest.mark.parametrize("shift", [(0, 0), (-60, 40), (50, -50)])
def test_where_on_the_paper_it_is_drawn_does_not_matter(shift: tuple[int, int]) -> None:
    paper = Image.new("L", (400, 400), 255)
    paper.paste(seven(200), (100 + shift[0], 100 + shift[1]))
    moved = np.asarray(prepare(paper, DIGIT, drawn=True), np.float64)
    still = np.asarray(prepare(seven(200), DIGIT, drawn=True), np.float64)
    assert np.abs(moved - still).mean() < 4


def test_a_drawing_that_fills_the_edge_is_still_dark_ink_on_paper() -> None:
    paper = Image.new("L", (280, 280), 0)
    paper.paste(255, (60, 60, 220, 220))
    # Of an upload nobody knows: its edge is taken for its ground.
    assert prepare(paper, DIGIT).getpixel((0, 0)) == 0
    drawn = prepare(paper, DIGIT, drawn=True)
    assert drawn.getpixel((14, 14)) == 0
    assert drawn.getpixel((5, 14)) == 255


def test_dark_ink_where_the_model_reads_that() -> None:
    form = Form(28, 28, 1, ink="dark", fit="content")
    for image in (seven(), Image.eval(seven(), lambda level: 255 - level)):
        assert prepare(image, form).getpixel((0, 0)) == 255


@pytest.mark.parametrize(
    ("fit", "corner", "middle"), [("cover", 200, 100), ("contain", 200, 100), ("stretch", 200, 100)]
)
def test_a_photograph_is_fitted(fit: str, corner: int, middle: int) -> None:
    image = Image.new("RGB", (200, 100), (corner,) * 3)
    image.paste((middle,) * 3, (90, 40, 110, 60))
    form = Form(20, 20, 3, fit=fit)  # type: ignore[arg-type]
    prepared = prepare(image, form)
    assert (prepared.size, prepared.mode) == ((20, 20), "RGB")
    assert prepared.getpixel((0, 0)) == (corner,) * 3
    assert abs(prepared.getpixel((10, 10))[0] - middle) < 40  # type: ignore[index]


def test_transparent_paper_is_white_and_black_under_white_ink() -> None:
    for level in (0, 255):
        image = Image.new("LA", (280, 280), (level, 0))
        image.paste((level, 255), mask=Image.eval(seven(), lambda grey: 255 - grey))
        assert prepare(decode(file(image)), DIGIT).getpixel((0, 0)) == 0
        expected = np.asarray(prepare(seven(), DIGIT), np.float64)
        assert np.abs(np.asarray(prepare(decode(file(image)), DIGIT), np.float64) - expected).mean() < 2


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16", "LA"])
def test_every_kind_of_png(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.asarray(seven(), np.uint16) * 257)
    else:
        image = seven().convert("RGBA" if mode == "RGBA" else "RGB").convert(mode)
    prepared = np.asarray(prepare(decode(file(image)), DIGIT), np.float64)
    assert np.abs(prepared - np.asarray(prepare(seven(), DIGIT), np.float64)).mean() < 4


def test_cmyk_jpegs_are_read() -> None:
    assert prepare(decode(file(seven().convert("CMYK"), "JPEG")), DIGIT).size == (28, 28)


def test_a_thin_line_and_a_dot_are_drawings() -> None:
    for box in ((10, 10, 11, 270), (10, 10, 270, 11), (100, 100, 101, 101)):
        image = Image.new("L", (280, 280), 255)
        image.paste(0, box)
        assert prepare(image, DIGIT, drawn=True).getextrema()[1] > 100


def test_a_large_jpeg_is_decoded_small() -> None:
    """A photograph of 12 million pixels would have 36 MB."""
    image = decode(file(Image.new("RGB", (4000, 3000), (9, 99, 199)), "JPEG"))
    assert max(image.size) <= 1000


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_nothing_is_decoded_of_an_image_that_is_too_large() -> None:
    with pytest.raises(ImageError, match=r"12\.5 million"):
        decode(file(Image.new("1", (4001, 4000)), "PNG"))


def test_numbers() -> None:
    grey = Image.new("L", (3, 2), 255)
    assert values(grey, range(256), last=False) == [[255, 255, 255], [255, 255, 255]]
    assert values(grey, [level / 255 for level in range(256)], last=True)[1][2] == [1.0]
    assert values(Image.new("RGB", (1, 1), (1, 2, 3)), range(256), last=True) == [[[1, 2, 3]]]
