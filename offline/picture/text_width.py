"""How much room text takes. Nobody knows the reader's fonts, so it is estimated, for one of the widest."""

import re
import unicodedata
from dataclasses import dataclass

NARROW, ORDINARY, CAPITAL, WIDE = 0.42, 0.65, 0.78, 1.0
"""Width of a character by the font's size: at least that of DejaVu Sans 2.37, which is wider than Helvetica, Segoe
UI and San Francisco."""

NARROW_ONES = frozenset(" fijlrtIJ.,:;'|!·()[]/-")
WIDE_ONES = frozenset("mwMWQ@%…—")
BOLDER = 1.12

NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: https://www.w3.org/TR/xml/#charsets, 2008-11-26."""


@dataclass(frozen=True)
class Style:
    """A class of text in the style sheet, with its font's size in pixels."""

    name: str
    size: float
    bold: bool = False

    def width(self, text: str) -> float:
        """Of ``text``, in pixels."""
        return sum(map(_width, text)) * self.size * (BOLDER if self.bold else 1)


TITLE = Style("t1", 18, bold=True)
CLUSTER = Style("t2", 14, bold=True)
NAME = Style("t3", 11.5, bold=True)
JOB = Style("t4", 11)
SMALL = Style("t5", 10)
STYLES = (TITLE, CLUSTER, NAME, JOB, SMALL)


def clean(text: str) -> str:
    """``text`` in one line, with what XML cannot hold replaced."""
    return " ".join(NOT_IN_XML.sub("\ufffd", text).split())


def fitted(text: str, width: float, style: Style) -> str:
    """``text``, shortened to ``width`` pixels where it is wider."""
    text = clean(text)
    if style.width(text) <= width:
        return text
    while text and style.width(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def wrapped(text: str, width: float, style: Style) -> tuple[str, str]:
    """``text`` in two lines, the second empty where one is enough. Names break behind a hyphen."""
    text = clean(text)
    if style.width(text) <= width:
        return text, ""
    breaks = [place + 1 for place, each in enumerate(text[:-1]) if each in "-_./ "]
    breaks = [place for place in breaks if style.width(text[:place]) <= width]
    if not breaks:
        return fitted(text, width, style), ""
    place = min(breaks, key=lambda each: max(style.width(text[:each]), style.width(text[each:])))
    return text[:place].rstrip(), fitted(text[place:], width, style)


def joined(parts: list[str], width: float, style: Style) -> str:
    """As many of ``parts`` as fit in one line, from the first on."""
    while len(parts) > 1 and style.width(", ".join(parts)) > width:
        parts = parts[:-1]
    return fitted(", ".join(parts), width, style)


def _width(character: str) -> float:
    if character in NARROW_ONES:
        return NARROW
    if character in WIDE_ONES or unicodedata.east_asian_width(character) in "WF":
        return WIDE
    return CAPITAL if character.isupper() or not character.isascii() else ORDINARY
