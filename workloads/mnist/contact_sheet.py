"""A contact sheet: every image enlarged, with the digit that was read and the confidence, wrong ones marked.
numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# 5 x 7 pixels per character, one string per row of pixels.
_GLYPHS = {
    "0": "01110 10001 10001 10001 10001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    "%": "11000 11001 00010 00100 01000 10011 00011",
    ".": "00000 00000 00000 00000 00000 01100 01100",
    ":": "00000 01100 01100 00000 01100 01100 00000",
    "n": "00000 00000 10110 11001 10001 10001 10001",
    "o": "00000 00000 01110 10001 10001 10001 01110",
    "t": "01000 01000 11100 01000 01000 01001 00110",
    " ": "00000 00000 00000 00000 00000 00000 00000",
}
_ENLARGED = 4
"""Each pixel of a 28 x 28 image becomes this many pixels square."""
_TILE = 28 * _ENLARGED
_MARGIN = 14
_CAPTION = 44
_PAPER, _INK, _QUIET, _WRONG = (255, 255, 255), (32, 33, 36), (110, 115, 120), (200, 30, 30)
MOST = 200
"""Images on a sheet; the first ones of a larger set."""


@dataclass(frozen=True)
class Tile:
    """One image (28, 28) uint8, the digit read in it, the confidence from 0 to 1, and the true digit where it
    is known.
    """

    image: NDArray[np.uint8]
    digit: int
    confidence: float
    label: int | None = None


def draw(tiles: Sequence[Tile]) -> NDArray[np.uint8]:
    """The sheet as RGB, (height, width, 3): up to ten images in a row, at most MOST of them."""
    tiles = tiles[:MOST]
    columns = min(len(tiles), 5 if len(tiles) <= 10 else 10)
    rows = -(-len(tiles) // columns)
    width = _MARGIN + columns * (_TILE + _MARGIN)
    height = _MARGIN + rows * (_TILE + _CAPTION + _MARGIN)
    sheet = np.full((height, width, 3), _PAPER, np.uint8)
    for place, tile in enumerate(tiles):
        row, column = divmod(place, columns)
        _draw_tile(sheet, _MARGIN + row * (_TILE + _CAPTION + _MARGIN), _MARGIN + column * (_TILE + _MARGIN), tile)
    return sheet


def _draw_tile(sheet: NDArray[np.uint8], top: int, left: int, tile: Tile) -> None:
    wrong = tile.label is not None and tile.label != tile.digit
    if wrong:
        sheet[top - 5 : top + _TILE + _CAPTION + 3, left - 5 : left + _TILE + 5] = _WRONG
        sheet[top - 2 : top + _TILE + _CAPTION, left - 2 : left + _TILE + 2] = _PAPER
    enlarged = tile.image.repeat(_ENLARGED, 0).repeat(_ENLARGED, 1)
    sheet[top : top + _TILE, left : left + _TILE] = enlarged[..., np.newaxis]
    baseline = top + _TILE + 8
    _write(sheet, baseline, left, str(tile.digit), scale=4, colour=_WRONG if wrong else _INK)
    text = f"{100 * tile.confidence:.2f}%"
    _write(
        sheet,
        baseline + (0 if wrong else 7),
        left + _TILE - _width(text, 2),
        text,
        scale=2,
        colour=_WRONG if wrong else _QUIET,
    )
    if wrong:
        note = f"not {tile.label}"
        _write(sheet, baseline + 17, left + _TILE - _width(note, 2), note, scale=2, colour=_WRONG)


def _width(text: str, scale: int) -> int:
    return (6 * len(text) - 1) * scale


def _write(
    sheet: NDArray[np.uint8], top: int, left: int, text: str, *, scale: int, colour: tuple[int, int, int]
) -> None:
    for place, character in enumerate(text):
        rows = [[int(bit) for bit in row] for row in _GLYPHS[character].split()]
        dots = np.array(rows, bool).repeat(scale, 0).repeat(scale, 1)
        start = left + place * 6 * scale
        sheet[top : top + dots.shape[0], start : start + dots.shape[1]][dots] = colour
