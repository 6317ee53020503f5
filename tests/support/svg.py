"""Architecture pictures taken apart, to see what is in them and where."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.offline.picture.svg import STYLES

NAMESPACE = "{http://www.w3.org/2000/svg}"

LINES = ("edge", "edge connects")
"""Classes of lines: to what waits, and to what is connected to."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Rectangle:
    """A box with its lines of text, each with its left and right end."""

    kinds: frozenset[str]
    name: str
    about: str
    x: float
    y: float
    width: float
    height: float
    texts: Sequence[tuple[str, float, float]]

    def holds(self, other: "Rectangle") -> bool:
        """Whether ``other`` is inside."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )

    def meets(self, other: "Rectangle") -> bool:
        """Whether both have points in common."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def crossed_by(self, start: Point, end: Point) -> bool:
        """Whether an upright or level line passes through its inside."""
        (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
        inside_x = left < self.x + self.width - 0.1 and right > self.x + 0.1
        return inside_x and top < self.y + self.height - 0.1 and bottom > self.y + 0.1


@dataclass(frozen=True)
class Drawing:
    """A picture's size, its boxes, and its lines as the points that they turn at."""

    root: ET.Element
    width: float
    height: float
    boxes: Sequence[Rectangle]
    lines: Sequence[Sequence[Point]]
    connections: Sequence[Sequence[Point]] = ()

    def of(self, kind: str) -> list[Rectangle]:
        """The boxes of one kind."""
        return [box for box in self.boxes if kind in box.kinds]

    def between(self, *, connections: bool = False) -> set[tuple[str, str]]:
        """Which Jobs lines lead from and to; with ``connections``, who connects to what."""
        jobs = self.of("job")
        pairs: set[tuple[str, str]] = set()
        for line in self.connections if connections else self.lines:
            start = [job.name for job in jobs if _touches(job, line[0])]
            end = [job.name for job in jobs if _touches(job, line[-1])]
            pairs.update(zip(start, end, strict=False))
        return pairs


def parse(text: str) -> Drawing:
    """Raises ParseError for what is not well-formed."""
    root = ET.fromstring(text)
    paths = list(root.iter(f"{NAMESPACE}path"))
    return Drawing(
        root,
        float(root.attrib["width"]),
        float(root.attrib["height"]),
        [_box(group) for group in root.iter(f"{NAMESPACE}g") if "data-name" in group.attrib],
        *([turns(path.attrib["d"]) for path in paths if path.attrib["class"] == kind] for kind in LINES),
    )


def turns(path: str) -> list[Point]:
    """The points that a path with rounded corners leads through."""
    points: list[Point] = []
    for command, numbers in re.findall(r"([MLQ])([^MLQ]*)", path):
        values = [float(part) for part in numbers.split()]
        points.append((values[0], values[1]))
        if command == "Q":
            # What is before is where the corner begins.
            points[-2:] = [points[-1]]
    return points


def _touches(box: Rectangle, point: Point) -> bool:
    x, y = point
    return -0.1 <= x - box.x <= box.width + 0.1 and -0.1 <= y - box.y <= box.height + 0.1


def _box(group: ET.Element) -> Rectangle:
    rect = group.find(f"{NAMESPACE}rect")
    assert rect is not None
    styles = {style.name: style for style in STYLES}
    texts: list[tuple[str, float, float]] = []
    for element in group.findall(f"{NAMESPACE}text"):
        left, text = float(element.attrib["x"]), element.text or ""
        texts.append((text, left, left + styles[element.attrib["class"].split()[0]].width(text)))
    x, y, width, height = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
    about = group.findtext(f"{NAMESPACE}title") or ""
    kinds = frozenset(rect.attrib["class"].split())
    return Rectangle(kinds, group.attrib["data-name"], about, x, y, width, height, texts)
