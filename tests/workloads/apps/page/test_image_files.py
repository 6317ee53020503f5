"""Files that are made to keep whoever opens them busy, and those that only have more on them than pixels."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from slipway.workloads.apps.page.image_files import PARTS, SCANS, orientation_of, pixels_of
from slipway.workloads.apps.page.pixels import ImageError, decode, measure
from tests.workloads.apps.page.conftest import file, seven


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def png_with(extra: bytes) -> bytes:
    """A PNG file with chunks behind its header."""
    whole = file(seven())
    return whole[:33] + extra + whole[33:]


def jpeg_with(extra: bytes) -> bytes:
    """A JPEG file with segments behind its beginning."""
    whole = file(seven(), "JPEG")
    return whole[:2] + extra + whole[2:]


def many_scans(count: int) -> bytes:
    """A progressive JPEG file whose last scan comes again and again."""
    whole = file(seven(512), "JPEG", progressive=True)
    last = whole.rindex(b"\xff\xda")
    return whole[:-2] + count * whole[last:-2] + whole[-2:]


BUSY = {
    "scans": many_scans(100_000)[: 2**23] + b"\xff\xd9",
    "chunks": png_with(chunk(b"teSt") * 600_000),
    "empty data": png_with(chunk(b"IDAT") * 600_000),
    "applications": jpeg_with(b"\xff\xe5\0\2" * 2_000_000),
    "comments": jpeg_with(b"\xff\xfe\0\2" * 2_000_000),
    "fill": jpeg_with(b"\xff" * 2**23),
    "webp chunks": b"RIFF\0\0\x80\0WEBP" + b"teSt\0\0\0\0" * 900_000,
}


@pytest.mark.parametrize("kind", BUSY)
def test_a_file_of_countless_parts_is_refused_before_a_decoder_has_it(kind: str) -> None:
    """Each took Pillow between five seconds and more than eight minutes."""
    for opening in (measure, decode):
        with pytest.raises(ImageError, match="too many parts"):
            opening(BUSY[kind])


PACKED = zlib.compress(bytes(1_000_000), 9)
HUNG_ON = {
    "profiles": png_with(chunk(b"iCCP", b"a\0\0" + PACKED) * 5_000),
    "texts": png_with(chunk(b"zTXt", b"a\0\0" + PACKED) * 5_000),
    "thumbnails": jpeg_with(segment(0xED, b"Photoshop 3.0\0" + b"8BIM\0\0\0\0\0\0\0\0" * 5_000) * 100),
}


@pytest.mark.parametrize("kind", HUNG_ON)
def test_what_hangs_on_an_image_is_not_unpacked(kind: str) -> None:
    assert len(pixels_of(HUNG_ON[kind]).content) < 100_000
    assert decode(HUNG_ON[kind]).tobytes()


def test_progressive_images_are_read() -> None:
    assert decode(many_scans(SCANS - 20)).size == (512, 512)
    assert PARTS > 8 * 2**20 / 512


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_image_lies_as_its_orientation_says(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x010E], exif[0x0112] = "a description that is stored elsewhere", orientation
    image = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 60, 3), np.uint8))
    content = file(image, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    with Image.open(io.BytesIO(content)) as opened:
        wanted = ImageOps.exif_transpose(opened)
    assert np.array_equal(np.asarray(decode(content)), np.asarray(wanted))


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"MM\0*\0\0\0\x08\xff\xff",
        b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x63\0\0\0",
    ],
)
def test_damaged_exif_says_nothing(exif: bytes) -> None:
    assert orientation_of(exif) == 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "I;16"])
def test_pixels_are_those_of_the_whole_file(mode: str) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    colours = Image.fromarray(np.random.default_rng(2).integers(0, 255, (30, 50, 4), np.uint8), "RGBA")
    if mode == "I;16":
        image = Image.fromarray(np.arange(1500, dtype=np.uint16).reshape(30, 50) * 40)
    elif mode in {"P", "PA"}:
        image = colours.convert("RGB").quantize(16)
    else:
        image = colours.convert(mode)
    options = {"transparency": 3} if mode == "PA" else {}
    content = file(image, icc_profile=profile, dpi=(300, 300), **options)
    with (
        Image.open(io.BytesIO(content)) as whole,
        Image.open(io.BytesIO(pixels_of(content).content)) as kept,
    ):
        assert whole.mode == kept.mode
        assert whole.convert("RGBA").tobytes() == kept.convert("RGBA").tobytes()


@pytest.mark.parametrize("options", [{}, {"quality": 95, "subsampling": 0}, {"progressive": True}])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpegs_keep_their_colours(mode: str, options: dict[str, object]) -> None:
    image = Image.radial_gradient("L").convert("RGB").convert(mode)
    content = file(image, "JPEG", comment=b"a word", **options) + file(image, "JPEG")
    with Image.open(io.BytesIO(content)) as whole, Image.open(io.BytesIO(pixels_of(content).content)) as kept:
        assert whole.tobytes() == kept.tobytes()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_half_a_file_is_damaged(kind: str) -> None:
    whole = file(Image.effect_noise((200, 200), 80), kind)
    for length in (9, 30, 60, len(whole) // 2):
        with pytest.raises(ImageError):
            decode(whole[:length])
