"""What of an image file a decoder is given: its pixels, without all that can be hung on them to keep it busy.

Pillow walks through each part of a PNG and of a JPEG file in Python, unpacks colour profiles, and reads EXIF;
libjpeg goes over the whole image for each scan. A file of 8 MB can have 700,000 of either: minutes, for 512 x 512
pixels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

SCANS = 32
"""Scans of a JPEG file. Progressive ones have about ten (github.com/mozilla/mozjpeg and libjpeg-turbo's jpegtran,
November 2026)."""

PARTS = 20_000
"""Chunks of a PNG or WebP file, and segments before the first scan of a JPEG file: 8 MiB of pixels in chunks of
8 KiB, as libpng writes them, are a thousand."""

TAGS = 256
"""Entries of EXIF data among which the orientation is looked for. It is among the first twenty."""

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
"""The chunks of a PNG file without which its pixels are others."""

_SCAN, _END = b"\xff\xda", b"\xff\xd9"
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers of JPEG without a length."""

_SAID_OF_COLOURS = frozenset({0xE0, 0xEE})
"""Segments of applications that say what the colours are: JFIF and Adobe."""

_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112
_SHORT = 3


class PartsError(ValueError):
    """A file has far more parts than any that shows something."""


@dataclass(frozen=True)
class Pixels:
    """A file with as little as its pixels need. ``orientation`` is how it has to be turned, as EXIF numbers it."""

    content: bytes
    orientation: int = 1


def pixels_of(content: bytes) -> Pixels:
    """What of a PNG, JPEG or WebP file is for its pixels; of another one all.

    Raises:
        PartsError: see there.
        ValueError: it is damaged.
    """
    try:
        if content.startswith(_PNG):
            return _png(content)
        if content.startswith(_JPEG):
            return _jpeg(content)
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return _webp(content)
    except (struct.error, IndexError):
        raise ValueError("it ends too early") from None
    return Pixels(content)


def orientation_of(exif: bytes) -> int:
    """The orientation that EXIF data say, 1 to 8; 1, upright, where they say none."""
    data = exif.removeprefix(_EXIF)
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, start)
        for place in range(min(count, TAGS)):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", data, start + 2 + 12 * place)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def _png(content: bytes) -> Pixels:
    kept: list[bytes] = []
    data: list[bytes] = []
    exif = b""
    for start, name, size in _chunks(content, len(_PNG), ">"):
        chunk = content[start : start + size]
        if name == b"eXIf":
            exif = chunk
        if name not in _CHUNKS:
            continue
        if struct.unpack_from(">I", content, start + size)[0] != zlib.crc32(chunk, zlib.crc32(name)):
            raise ValueError("a checksum is wrong")
        if name == b"IDAT":
            data.append(chunk)
            continue
        if name == b"IEND":
            break
        kept.append(_chunk(name, chunk))
    whole = [_PNG, *kept, _chunk(b"IDAT", b"".join(data)), _chunk(b"IEND", b"")]
    return Pixels(b"".join(whole), orientation_of(exif))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))


def _webp(content: bytes) -> Pixels:
    orientation = 1
    for start, name, size in _chunks(content, 12, "<"):
        if name == b"EXIF":
            orientation = orientation_of(content[start : start + min(size, 2**16)])
    return Pixels(content, orientation)


def _chunks(content: bytes, start: int, order: str) -> Iterator[tuple[int, bytes, int]]:
    """Where each chunk of a PNG file or, with ``order`` `<`, of a WebP file has its content, its name and size."""
    place = start
    for _ in range(PARTS):
        if place + 8 > len(content):
            return
        if order == ">":
            size, name = struct.unpack_from(">I4s", content, place)
            yield place + 8, name, size
            place += 12 + size
        else:
            name, size = struct.unpack_from("<4sI", content, place)
            yield place + 8, name, size
            place += 8 + size + size % 2
    raise PartsError("it has too many parts")


def _jpeg(content: bytes) -> Pixels:
    kept = [_JPEG]
    orientation, place = 1, len(_JPEG)
    for _ in range(PARTS):
        if content[place] != 0xFF:
            raise ValueError("a marker is missing")
        marker = content[place + 1]
        if marker == _SCAN[1]:
            return Pixels(b"".join([*kept, _scans(content[place:])]), orientation)
        if marker == 0xFF:
            place += 1
            continue
        if marker in _ALONE:
            place += 2
            continue
        (size,) = struct.unpack_from(">H", content, place + 2)
        segment = content[place : place + 2 + size]
        if marker == 0xE1 and segment[4:].startswith(_EXIF):
            orientation = orientation_of(segment[4:])
        if marker in _SAID_OF_COLOURS or not (0xE0 <= marker <= 0xEF or marker == 0xFE):
            kept.append(segment)
        place += 2 + size
    raise PartsError("it has too many parts")


def _scans(content: bytes) -> bytes:
    """The scans up to the first end: of what a camera appends, such as a second image, nothing is read."""
    end = content.find(_END)
    scans = content if end < 0 else content[: end + len(_END)]
    # Within a scan, 0xFF is followed by 0: what looks like a marker is one, or stands in a table.
    if scans.count(_SCAN) > SCANS:
        raise PartsError("it has too many scans")
    return scans
