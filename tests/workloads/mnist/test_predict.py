"""Which images are read, in whatever dress, and what is said of those that are none."""

from __future__ import annotations

import io
import json
import re
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.steps import run

# A model has to be trained first, which takes longer than all of these.
pytestmark = pytest.mark.slow

LINE = re.compile(r"The image (.+) is the number (\d) with a (\d{1,3}(?:\.\d{1,2})?) percent confidence\.")
FAILED = 1


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + checksum


def png_16_bit(levels: np.ndarray) -> bytes:
    """A grey PNG with 16 bits for each pixel, written by hand: its low bytes are set too."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels.astype(np.uint16) * 257)
    header = struct.pack(">II5B", levels.shape[1], levels.shape[0], 16, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def turned(image: Image.Image, how: Image.Transpose, orientation: int) -> bytes:
    """A JPEG that lies as a camera was held, and says so."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image.resize((300, 300)).transpose(how), "JPEG", quality=95, exif=exif)


@pytest.fixture(scope="module")
def zoo(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One digit in every dress that an image may wear, and files that are none."""
    folder = tmp_path_factory.mktemp("zoo")
    seven = Image.open(data / "images" / "digit-7.png")
    levels = np.asarray(seven)
    ink = Image.new("RGBA", (28, 28), (0, 0, 0, 0))
    ink.paste((20, 20, 160, 255), mask=seven)
    chalk = Image.new("RGBA", (28, 28), (0, 0, 0, 0))
    chalk.paste((255, 255, 255, 255), mask=seven)
    page = Image.new("L", (900, 600), 235)
    page.paste(30, (100, 80), seven.resize((400, 400), Image.Resampling.BICUBIC))
    good = {
        "plain.png": encoded(seven),
        "CAPITAL.PNG": encoded(seven),
        "sixteen-bit.png": png_16_bit(levels),
        "palette.png": encoded(seven.convert("RGB").quantize(16)),
        "palette-with-a-transparent-colour.png": encoded(seven.convert("RGB").quantize(16), transparency=0),
        "rgb.png": encoded(seven.convert("RGB")),
        "grey-alpha.png": encoded(seven.convert("LA")),
        "ink-on-nothing.png": encoded(ink),
        "chalk-on-nothing.png": encoded(chalk),
        "dark-on-light.png": encoded(Image.fromarray(255 - levels)),
        "one-bit.png": encoded(seven.point(lambda level: 255 if level > 100 else 0).convert("1")),
        "large.png": encoded(seven.resize((2000, 2000), Image.Resampling.BICUBIC)),
        "corner-of-a-page.png": encoded(page),
        "a name with spaces.png": encoded(seven.resize((50, 40))),
        "below/deeper/small.png": encoded(seven.crop((4, 4, 24, 24))),
        "photo.jpg": encoded(seven.resize((300, 300)), "JPEG", quality=95),
        "on-its-side.jpg": turned(seven, Image.Transpose.ROTATE_90, 6),
        "on-its-head.jpg": turned(seven, Image.Transpose.ROTATE_180, 3),
        "mirrored.jpg": turned(seven, Image.Transpose.TRANSVERSE, 7),
    }
    whole = encoded(seven)
    bad = {
        "bad/truncated.png": whole[: len(whole) // 2],
        "bad/header-only.png": whole[:20],
        "bad/text.png": b"this is a text file\n",
        "bad/empty.png": b"",
        "bad/half.jpg": good["photo.jpg"][: len(good["photo.jpg"]) // 2],
        "bad/one-pixel.png": encoded(Image.new("L", (1, 1), 200)),
        "bad/blank.png": encoded(Image.new("L", (28, 28), 255)),
        "bad/transparent.png": encoded(Image.new("RGBA", (28, 28), (0, 0, 0, 0))),
        "bad/wide.png": encoded(Image.new("1", (4001, 4001), 1)),
        "bad/animated.gif": b"GIF89a",
        "bad/wrong-checksum.png": whole[:60] + bytes([whole[60] ^ 0xFF]) + whole[61:],
    }
    for name, content in {**good, **bad, "notes.txt": b"not an image", ".hidden.png": b""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "gone.png").symlink_to(folder / "nowhere")
    (folder / "labels.json").write_text(json.dumps({"plain.png": 7, "large.png": 3}))
    return folder


@pytest.fixture(scope="module")
def read(zoo: Path, training: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("read") / "out"
    arguments = ("--model", training[0], "--images", zoo, "--output", folder)
    return folder, run("mnist.predict", *arguments, loaded=True)


def test_the_ten_held_out_images_are_read(data: Path, training: tuple[Path, str], tmp_path: Path) -> None:
    held_out = data / "images"
    output = run("mnist.predict", "--model", training[0], "--held-out", held_out, "--output", tmp_path / "out")
    lines = [match for line in output.splitlines() if (match := LINE.fullmatch(line))]
    result = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [match[1] for match in lines] == [str(held_out / f"digit-{digit}.png") for digit in range(10)]
    right = sum(image["digit"] == image["label"] for image in result["images"])
    assert right >= 8
    assert result["accuracy"] == right / 10
    assert f"{right} of 10 images with a known label were read correctly" in output
    for match, image in zip(lines, result["images"], strict=True):
        assert len(image["probabilities"]) == 10
        assert sum(image["probabilities"]) == pytest.approx(1)
        assert image["confidence"] == max(image["probabilities"]) == image["probabilities"][image["digit"]]
        assert float(match[3]) == pytest.approx(100 * image["confidence"], abs=0.0051)


def test_every_dress_is_read_and_the_same_pixels_alike(read: tuple[Path, str], zoo: Path) -> None:
    result = json.loads((read[0] / "predictions.json").read_text())
    images = {str(Path(image["path"]).relative_to(zoo)): image for image in result["images"]}
    names = sorted(
        path.relative_to(zoo).as_posix()
        for path in zoo.rglob("*")
        if path.suffix.lower() in (".png", ".jpg") and path.name[0] != "." and path.is_file()
    )
    assert list(images) == [name for name in names if not name.startswith("bad/")]
    assert {image["digit"] for image in images.values()} == {7}, images
    plain = images["plain.png"]["confidence"]
    for name in ("CAPITAL.PNG", "sixteen-bit.png", "rgb.png", "grey-alpha.png", "dark-on-light.png"):
        assert images[name]["confidence"] == pytest.approx(plain, abs=0.01), name
    for name in ("on-its-side.jpg", "on-its-head.jpg", "mirrored.jpg"):
        assert images[name]["confidence"] == pytest.approx(images["photo.jpg"]["confidence"], abs=0.05), name


def test_what_is_no_image_is_named_with_its_reason(read: tuple[Path, str], zoo: Path) -> None:
    result = json.loads((read[0] / "predictions.json").read_text())
    reasons = {Path(error["path"]).name: error["reason"] for error in result["errors"]}
    expected = {
        **dict.fromkeys(("truncated.png", "header-only.png", "wrong-checksum.png", "half.jpg"), "truncated"),
        **dict.fromkeys(("one-pixel.png", "blank.png", "transparent.png"), "blank"),
        **dict.fromkeys(("text.png", "animated.gif"), "neither a PNG nor a JPEG file"),
        "empty.png": "the file is empty",
        "wide.png": "4001 x 4001 pixels",
        "gone.png": "there is no such file",
    }
    assert set(reasons) == set(expected)
    for name, reason in expected.items():
        assert reason in reasons[name], name
        assert f"{name} could not be read: {reasons[name]}" in read[1]
    assert "Left out, for they are no images: 'notes.txt'" in read[1]


def test_labels_beside_the_images_are_compared_and_the_sheet_marks_the_wrong(read: tuple[Path, str]) -> None:
    result = json.loads((read[0] / "predictions.json").read_text())
    labels = {Path(image["path"]).name: image["label"] for image in result["images"] if "label" in image}
    assert labels == {"plain.png": 7, "large.png": 3}
    assert result["accuracy"] == 0.5
    sheet = np.asarray(Image.open(read[0] / "contact_sheet.png"))
    assert sheet.shape[2] == 3
    reds = (sheet[..., 0] > 150) & (sheet[..., 1] < 80)
    assert reds.sum() > 500, "large.png was labelled 3 and read as 7"


def test_where_nothing_can_be_read_nothing_is_written(
    training: tuple[Path, str], zoo: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    labelled = Path(shutil.copytree(data / "images", tmp_path / "labelled"))
    (labelled / "labels.json").write_text('{"digit-0.png": 10}')
    for images, words in (
        (tmp_path / "no", "there is no such folder"),
        (tmp_path / "empty", "no *.png, *.jpg or *.jpeg file"),
        (labelled, "labels.json"),
        (zoo / "bad", "none of the 11 images"),
    ):
        arguments = ("--model", training[0], "--images", images, "--output", tmp_path / "out")
        output = run("mnist.predict", *arguments, code=FAILED, loaded=True)
        assert words in output.splitlines()[-1]
        assert not (tmp_path / "out").exists()


def test_a_mounted_config_map_shows_each_image_once(
    training: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    """Kubernetes keeps the files in a folder `..<time>` and shows them through links."""
    folder = tmp_path / "store" / "mounted"
    hidden = folder / "..2026_11_20_18_00_00.123"
    shutil.copytree(data / "images", hidden)
    (folder / "..data").symlink_to(hidden.name)
    for path in hidden.iterdir():
        (folder / path.name).symlink_to(f"..data/{path.name}")
    arguments = ("--model", training[0], "--store", tmp_path / "store", "--output", tmp_path / "out")
    output = run("mnist.predict", *arguments, "--images", "store:mounted", loaded=True)
    assert output.count("is the number") == 10
