from __future__ import annotations

import io
import json
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slipway.workloads.runtime.exits import BAD_INPUT
from slipway.workloads.runtime.store import MANIFEST, whole
from tests.workloads.steps import only_error, run
from workloads.mnist.images import find_images
from workloads.mnist.predict import Tile, draw_sheet

# A model has to be trained first, which takes longer than all of these.
pytestmark = pytest.mark.slow

LINE = re.compile(r"The image (.+) is the number (\d) with a (\d{1,3}(?:\.\d{1,2})?) percent confidence\.")


def png(image: Image.Image, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


def png_16_bit(levels: np.ndarray) -> bytes:
    """A grey PNG with 16 bits per pixel, written by hand: its low bytes are set too."""
    wide = levels.astype(np.uint16) * 257
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + kind + content + checksum

    header = levels.shape[1].to_bytes(4, "big") + levels.shape[0].to_bytes(4, "big") + bytes((16, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def bomb() -> bytes:
    """A valid PNG header that promises 10 gigapixels."""
    content = bytearray(png_16_bit(np.zeros((4, 4), np.uint8)))
    content[16:24] = (100_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    return bytes(content)


@pytest.fixture(scope="module")
def zoo(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One digit in every dress a PNG may wear, and files that are none."""
    folder = tmp_path_factory.mktemp("zoo")
    seven = Image.open(data / "images" / "digit-7.png")
    levels = np.asarray(seven)
    dark_on_light = Image.fromarray(255 - levels)
    ink = Image.new("RGBA", (28, 28), (0, 0, 0, 0))
    ink.paste((20, 20, 160, 255), mask=seven)
    chalk = Image.new("RGBA", (28, 28), (0, 0, 0, 0))
    chalk.paste((255, 255, 255, 255), mask=seven)
    page = Image.new("L", (900, 600), 235)
    page.paste(30, (100, 80), seven.resize((400, 400), Image.Resampling.BICUBIC))
    good = {
        "plain.png": png(seven),
        "CAPITAL.PNG": png(seven),
        "sixteen-bit.png": png_16_bit(levels),
        "palette.png": png(seven.convert("RGB").quantize(16)),
        "palette-with-a-transparent-colour.png": png(seven.convert("RGB").quantize(16), transparency=0),
        "rgb.png": png(seven.convert("RGB")),
        "grey-alpha.png": png(seven.convert("LA")),
        "ink-on-nothing.png": png(ink),
        "chalk-on-nothing.png": png(chalk),
        "dark-on-light.png": png(dark_on_light),
        "one-bit.png": png(seven.point(lambda level: 255 if level > 100 else 0).convert("1")),
        "large.png": png(seven.resize((2000, 2000), Image.Resampling.BICUBIC)),
        "corner-of-a-page.png": png(page),
        "a name with spaces.png": png(seven.resize((50, 40))),
        "below/deeper/small.png": png(seven.crop((4, 4, 24, 24))),
    }
    whole_file = png(seven)
    bad = {
        "bad/truncated.png": whole_file[: len(whole_file) // 2],
        "bad/header-only.png": whole_file[:20],
        "bad/text.png": b"this is a text file\n",
        "bad/jpeg.png": b"\xff\xd8\xff\xe0" + b"\0" * 100,
        "bad/empty.png": b"",
        "bad/one-pixel.png": png(Image.new("L", (1, 1), 200)),
        "bad/blank.png": png(Image.new("L", (28, 28), 255)),
        "bad/transparent.png": png(Image.new("RGBA", (28, 28), (0, 0, 0, 0))),
        "bad/bomb.png": bomb(),
        "bad/animated.gif": b"GIF89a",
        "bad/wrong-checksum.png": whole_file[:60] + bytes([whole_file[60] ^ 0xFF]) + whole_file[61:],
    }
    for name, content in {**good, **bad, "notes.txt": b"not an image, and not named as one"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "labels.json").write_text(json.dumps({"plain.png": 7, "large.png": 3}))
    return folder


@pytest.fixture(scope="module")
def zoo_predictions(
    zoo: Path, training: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("zoo-predictions") / "out"
    return folder, run(
        "mnist.predict", "--model", training[0], "--images", zoo, "--output", folder, "--batch-size", 4,
        loaded=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def predictions(
    data: Path, training: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("predictions") / "out"
    return folder, run("mnist.predict", "--model", training[0], "--images", data / "images", "--output", folder)


def test_the_ten_held_out_images_are_read(predictions: tuple[Path, str], data: Path) -> None:
    folder, output = predictions
    lines = [match for line in output.splitlines() if (match := LINE.fullmatch(line))]
    result = json.loads((folder / "predictions.json").read_text())

    assert [match[1] for match in lines] == [str(data / "images" / f"digit-{digit}.png") for digit in range(10)]
    assert [int(match[2]) for match in lines] == [image["digit"] for image in result["images"]]
    right = sum(image["digit"] == image["label"] for image in result["images"])
    assert right >= 8
    assert result["accuracy"] == right / 10
    assert f"{right} of 10 images with a known label were read correctly" in output
    for match, image in zip(lines, result["images"], strict=True):
        assert len(image["probabilities"]) == 10
        assert sum(image["probabilities"]) == pytest.approx(1)
        assert image["confidence"] == max(image["probabilities"]) == image["probabilities"][image["digit"]]
        assert float(match[3]) == pytest.approx(100 * image["confidence"], abs=0.0051)
    assert result["errors"] == []
    assert whole(folder)[0]


def test_every_dress_of_a_png_is_read(zoo_predictions: tuple[Path, str], zoo: Path) -> None:
    result = json.loads((zoo_predictions[0] / "predictions.json").read_text())
    digits = {str(Path(image["path"]).relative_to(zoo)): image["digit"] for image in result["images"]}

    names = [str(path.relative_to(zoo)) for path in sorted(zoo.rglob("*")) if path.suffix.lower() == ".png"]
    assert list(digits) == [name for name in names if not name.startswith("bad/")]
    assert set(digits.values()) == {7}, digits


def test_the_same_pixels_in_another_dress_are_the_same_image(zoo_predictions: tuple[Path, str]) -> None:
    result = json.loads((zoo_predictions[0] / "predictions.json").read_text())
    confidence = {Path(image["path"]).name: image["confidence"] for image in result["images"]}

    for name in (
        "CAPITAL.PNG",
        "sixteen-bit.png",
        "rgb.png",
        "grey-alpha.png",
        "dark-on-light.png",
        "chalk-on-nothing.png",
    ):
        assert confidence[name] == pytest.approx(confidence["plain.png"], abs=0.01), name


def test_what_is_no_image_is_named_with_its_reason(zoo_predictions: tuple[Path, str], zoo: Path) -> None:
    folder, output = zoo_predictions
    result = json.loads((folder / "predictions.json").read_text())
    reasons = {Path(error["path"]).name: error["reason"] for error in result["errors"]}

    expected = {
        "truncated.png": "truncated or damaged PNG",
        "header-only.png": "truncated or damaged PNG",
        "wrong-checksum.png": "truncated or damaged PNG",
        "text.png": "neither a PNG nor a JPEG file",
        "jpeg.png": "truncated or damaged JPEG",
        "empty.png": "the file is empty",
        "one-pixel.png": "blank",
        "blank.png": "blank",
        "transparent.png": "blank",
        "bomb.png": "100000 x 100000 pixels",
        "animated.gif": "neither a PNG nor a JPEG file",
    }
    assert set(reasons) == set(expected)
    for name, reason in expected.items():
        assert reason in reasons[name]
        assert f"The image {zoo / 'bad' / name} could not be read: {reasons[name]}" in output.splitlines()
    assert "nan" not in output.lower()


def test_labels_beside_the_images_are_compared(zoo_predictions: tuple[Path, str]) -> None:
    folder, output = zoo_predictions
    result = json.loads((folder / "predictions.json").read_text())

    labels = {Path(image["path"]).name: image["label"] for image in result["images"] if "label" in image}
    assert labels == {"plain.png": 7, "large.png": 3}
    assert result["accuracy"] == 0.5
    assert "1 of 2 images with a known label were read correctly" in output


def test_the_contact_sheet_shows_all_and_marks_the_wrong(zoo_predictions: tuple[Path, str]) -> None:
    sheet = np.asarray(Image.open(zoo_predictions[0] / "contact_sheet.png"))

    assert sheet.shape[2] == 3
    reds = (sheet[..., 0] > 150) & (sheet[..., 1] < 80)
    assert reds.sum() > 500, "large.png was labelled 3 and read as 7"
    image = np.arange(784, dtype=np.uint8).reshape(28, 28)
    right = draw_sheet([Tile(image, 3, 0.5, 3), Tile(image, 4, 1.0)])
    assert not ((right[..., 0] > 150) & (right[..., 1] < 80)).any()
    assert draw_sheet([Tile(image, 1, 0.123)] * 300).shape[0] < 4000


def test_predicting_again_does_nothing_and_says_the_same(
    predictions: tuple[Path, str], training: tuple[Path, str], data: Path
) -> None:
    folder, first = predictions
    before = (folder / MANIFEST).stat().st_mtime_ns

    again = run("mnist.predict", "--model", training[0], "--images", data / "images", "--output", folder)

    assert [line for line in again.splitlines() if LINE.fullmatch(line)] == [
        line for line in first.splitlines() if LINE.fullmatch(line)
    ]
    assert "Nothing to do" in again
    assert (folder / MANIFEST).stat().st_mtime_ns == before


@pytest.mark.slow
def test_another_image_is_predicted_again(model: Path, data: Path, tmp_path: Path) -> None:
    images = Path(shutil.copytree(data / "images", tmp_path / "images"))
    for digit in range(1, 10):
        (images / f"digit-{digit}.png").unlink()
    run("mnist.predict", "--model", model, "--images", images, "--output", tmp_path / "out", loaded=True)
    shutil.copy(data / "images" / "digit-1.png", images / "new.png")

    output = run("mnist.predict", "--model", model, "--images", images, "--output", tmp_path / "out", loaded=True)

    assert "other inputs or settings" in output
    assert "new.png is the number" in output


@pytest.mark.parametrize("name", ["mnist.keras", "saved_model/saved_model.pb", MANIFEST])
def test_a_model_that_is_not_whole_is_refused(model: Path, data: Path, tmp_path: Path, name: str) -> None:
    (model / name).write_bytes((model / name).read_bytes()[:-3])

    output = run(
        "mnist.predict",
        "--model",
        model,
        "--images",
        data / "images",
        "--output",
        tmp_path / "out",
        code=BAD_INPUT,
    )

    assert name in only_error(output)


def test_no_image_is_one_error(training: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    missing = run(
        "mnist.predict", "--model", training[0], "--images", tmp_path / "no", "--output", out, code=BAD_INPUT
    )
    empty = run(
        "mnist.predict", "--model", training[0], "--images", tmp_path / "empty", "--output", out, code=BAD_INPUT
    )

    assert "there is no such folder" in only_error(missing)
    assert "no *.png, *.jpg or *.jpeg file" in only_error(empty)


def test_a_mounted_config_map_shows_each_image_once(data: Path, tmp_path: Path) -> None:
    """Kubernetes keeps the files in a folder `..<time>` and shows them through links."""
    hidden = tmp_path / "..2026_11_20_18_00_00.123"
    shutil.copytree(data / "images", hidden)
    (tmp_path / "..data").symlink_to(hidden.name)
    for path in hidden.iterdir():
        (tmp_path / path.name).symlink_to(f"..data/{path.name}")

    images = find_images(tmp_path)

    assert [(image.name, image.label) for image in images] == [
        (f"digit-{digit}.png", digit) for digit in range(10)
    ]


@pytest.mark.slow
def test_nothing_but_bad_images_is_an_error(training: tuple[Path, str], zoo: Path, tmp_path: Path) -> None:
    output = run(
        "mnist.predict",
        "--model",
        training[0],
        "--images",
        zoo / "bad",
        "--output",
        tmp_path / "out",
        code=BAD_INPUT,
        loaded=True,
    )

    assert "none of the 11 images" in only_error(output)
    assert output.count(" could not be read: ") == 11
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["{", "[1]", '{"a.png": "7"}', '{"a.png": 10}'])
def test_labels_that_are_none_are_one_error(
    training: tuple[Path, str], data: Path, tmp_path: Path, text: str
) -> None:
    shutil.copy(data / "images" / "digit-0.png", tmp_path / "a.png")
    (tmp_path / "labels.json").write_text(text)

    output = run(
        "mnist.predict", "--model", training[0], "--images", tmp_path, "--output", tmp_path / "out", code=BAD_INPUT
    )

    assert "labels.json" in only_error(output)
