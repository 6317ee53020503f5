"""What image files give: JPEG as PNG, upright, and bounded before anything is decoded."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workloads.mnist import images
from workloads.mnist.images import ImageError, find_images


def page() -> Image.Image:
    """Dark on light, no two of its sides alike."""
    drawn = Image.new("L", (64, 48), 240)
    drawn.paste(20, (8, 8, 40, 16))
    drawn.paste(20, (8, 8, 16, 40))
    return drawn


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def header(width: int, height: int) -> bytes:
    """The beginning of a PNG file that promises this many pixels."""
    content = struct.pack(">4sIIBBBBB", b"IHDR", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + content + struct.pack(">I", zlib.crc32(content))


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ImageError, match="8000 x 8000 pixels; an image may have 16,000,000"):
        images.decode(header(8000, 8000))


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "large.png"
    file.touch()
    os.truncate(file, images.LARGEST_FILE + 1)
    with pytest.raises(ImageError, match="more than 128 MiB"):
        images.read(file)


def test_other_kinds_of_image_are_found_and_other_files_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("1.png", "2.JPG", "3.jpeg", "4.gif", "notes.txt", "labels.json", ".hidden.png"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    (tmp_path / "5.png").symlink_to(tmp_path / "gone")
    assert [image.name for image in find_images(tmp_path)] == ["1.png", "2.JPG", "3.jpeg", "4.gif", "5.png"]
    assert capsys.readouterr().out == "Left out, for they are no images: 'notes.txt'\n"
    with pytest.raises(ImageError, match="No such file"):
        images.read(tmp_path / "5.png")


@pytest.mark.slow  # TensorFlow decodes them.
def test_a_jpeg_is_read_as_the_same_image_in_png(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(encoded(page(), "PNG"))
    (tmp_path / "page.jpg").write_bytes(encoded(page().convert("RGB"), "JPEG", quality=95))
    difference = np.abs(
        images.read(tmp_path / "page.png").astype(int) - images.read(tmp_path / "page.jpg").astype(int)
    )
    assert difference.max() < 16


@pytest.mark.slow
def test_a_jpeg_is_turned_as_the_camera_says() -> None:
    upright = images.decode(encoded(page(), "PNG"))
    turned = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    for orientation, how in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        content = encoded(page().transpose(how), "JPEG", quality=95, exif=exif)
        assert images._decode_jpeg(content).shape == upright.shape, orientation
        assert np.abs(images.decode(content) - upright).max() < 0.1, orientation


@pytest.mark.slow
def test_a_damaged_jpeg_is_one_plain_error() -> None:
    whole = encoded(page(), "JPEG")
    for content in (whole[:4], whole[:20], whole[: len(whole) // 2], b"\xff\xd8\xff\xe1\0\x10Exif\0\0II"):
        with pytest.raises(ImageError, match="truncated or damaged JPEG"):
            images.decode(content)
