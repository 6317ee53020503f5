"""The architecture of a stack as one picture: an SVG file that needs nothing else, in light and in dark.

Clusters with their node pools, the pipelines' Jobs and services on the pools that take them, from top to bottom in
the order in which they can run, and the identities through which the clusters reach the store.
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from slipway.infra.review.facts import Identity
from slipway.infra.review.stack import Stack
from slipway.offline.evaluated.phrasing import many
from slipway.offline.picture.scene import (
    Cell,
    Column,
    Route,
    Scene,
    Work,
    Zone,
    about,
    cells,
    count_kinds,
    legend,
    routes,
    scene,
)

# From a scene to boxes and lines with their places, in pixels.


# The width of texts. The reader's fonts are unknown, so it is estimated for one of the widest.


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


def fit(text: str, width: float, style: Style) -> str:
    """``text``, shortened to ``width`` pixels where it is wider."""
    text = clean(text)
    if style.width(text) <= width:
        return text
    while text and style.width(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, width: float, style: Style) -> tuple[str, str]:
    """``text`` in two lines, the second empty where one is enough. Names break behind a hyphen."""
    text = clean(text)
    if style.width(text) <= width:
        return text, ""
    breaks = [place + 1 for place, letter in enumerate(text[:-1]) if letter in "-_./ "]
    breaks = [place for place in breaks if style.width(text[:place]) <= width]
    if not breaks:
        return fit(text, width, style), ""
    place = min(breaks, key=lambda position: max(style.width(text[:position]), style.width(text[position:])))
    return text[:place].rstrip(), fit(text[place:], width, style)


def join(parts: list[str], width: float, style: Style) -> str:
    """As many of ``parts`` as fit in one line, from the first on."""
    while len(parts) > 1 and style.width(", ".join(parts)) > width:
        parts = parts[:-1]
    return fit(", ".join(parts), width, style)


def _width(character: str) -> float:
    if character in NARROW_ONES:
        return NARROW
    if character in WIDE_ONES or unicodedata.east_asian_width(character) in "WF":
        return WIDE
    return CAPITAL if character.isupper() or not character.isascii() else ORDINARY


MARGIN = 20
INDENT = 7
"""Between a box and its text."""

JOB_WIDTH, JOB_HEIGHT = 198, 38
LEAST_JOB_WIDTH = 140
"""Of Jobs in pictures that would be wider than `WIDEST`."""
POOL_PADDING = 9
GUTTER = 14
"""Between two pools, without the lanes there."""
BEHIND, CORNER, MOST_SHOWN = 3, 6, 3
"""Pods of one Job: how far each stands behind another, the radius of their corners, and how many are drawn."""
TIMES = "\N{MULTIPLICATION SIGN}"
LANE = 8
CHANNEL = 18
"""Between two rows of Jobs, without more tracks than one."""
LINE = 14
GAP = 22
"""Between clusters."""
DROP = 30
"""Between clusters, identities and the store."""
LEAST_WIDTH = 340
LEAST_IDENTITY = 260
"""Width of an identity in a crowded picture; where not all have so much, all but the first are listed."""
WIDEST = 1200
"""Width of a picture from which on pools without Jobs stand below each other, and boxes are narrower: what a page
shows without scrolling."""


@dataclass(frozen=True)
class Text:
    """A line of text; ``x`` is its left end, ``y`` its base line, ``room`` the width that it may take."""

    x: float
    y: float
    room: float
    style: Style
    text: str
    soft: bool = False


@dataclass(frozen=True)
class Box:
    """A rectangle with text. ``kind`` is its class, ``name`` what it stands for, ``about`` all there is to say.

    ``edges`` are the visible edges of boxes behind it, as path data, from back to front.
    """

    kind: str
    name: str
    x: float
    y: float
    width: float
    height: float
    texts: Sequence[Text]
    about: str
    edges: Sequence[str] = ()


@dataclass
class Picture:
    """Everything in the order in which it is drawn: areas below, then lines, then what is connected.

    ``connections`` are the lines from who connects to what it connects to.
    """

    width: float
    height: float = 0
    areas: list[Box] = field(default_factory=list[Box])
    lines: list[str] = field(default_factory=list[str])
    connections: list[str] = field(default_factory=list[str])
    boxes: list[Box] = field(default_factory=list[Box])
    texts: list[Text] = field(default_factory=list[Text])


def layout(scene: Scene) -> Picture:
    """The whole picture."""
    frame = _Frame(scene)
    picture = Picture(frame.width)
    counts = ", ".join(many(number, what) for what, number in count_kinds(scene).items())
    room = frame.width - 2 * MARGIN
    for y, style, text in (
        (34, TITLE, scene.title),
        (52, SMALL, counts),
        (66, SMALL, "Jobs run downwards: an arrow leads to what waits."),
        (80, SMALL, legend(scene)),
    ):
        picture.texts.append(Text(MARGIN, y, room, style, fit(text, room, style), soft=style is SMALL))
    frame.clusters(picture)
    frame.jobs(picture)
    y = _identities(scene, picture, frame)
    picture.height = _others(scene, picture, y) + MARGIN
    return picture


class _Frame:
    """Where the columns and rows of the grid are."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.job_width = JOB_WIDTH
        self.spans: list[tuple[float, float]] = []
        """Left and right end of each cluster."""
        self.width = self._place([[[column] for column in zone.columns] for zone in scene.zones])
        if self.width > WIDEST:
            stacks = [_stacked(zone.columns) for zone in scene.zones]
            over = self._place(stacks) - WIDEST
            if over > 0:
                narrower = math.ceil(over / sum(map(len, stacks)))
                self.job_width = max(JOB_WIDTH - narrower, LEAST_JOB_WIDTH)
            self.width = self._place(stacks)
        self.top = MARGIN + 74.0
        self._pools_y = self.top + 30 + LINE * max((len(zone.lines) for zone in scene.zones), default=0)
        columns = [column for zone in scene.zones for column in zone.columns]
        head = max((len(column.lines) for column in columns), default=0)
        self._rows_y = self._pools_y + 22 + head * LINE
        self._row_y = self._place_rows()
        self._jobs_bottom = self._row_y[-1] + POOL_PADDING + GUTTER
        below = (sum(map(_pool_height, stack[1:])) for stacks in self._stacks for stack in stacks)
        self.bottom = self._jobs_bottom + max(below, default=0)

    def _place(self, stacks: Sequence[Sequence[Sequence[Column]]]) -> float:
        """Places the columns, in each of which ``stacks`` has pools below each other, by cluster; the width."""
        self._stacks, ways = stacks, [*self._scene.edges, *self._scene.connections]
        columns = [stack for of_zone in stacks for stack in of_zone]
        jobs = {job.urn: index for index, stack in enumerate(columns) for pool in stack for job in pool.jobs}
        self.cells = cells(jobs, ways)
        self.routes = routes(self.cells, ways)
        self._pool_x = [0.0] * len(columns)
        self.spans.clear()
        return self._place_columns()

    @property
    def is_crowded(self) -> bool:
        """Whether boxes are narrower than in other pictures."""
        return self.job_width < JOB_WIDTH

    @property
    def _pool_width(self) -> int:
        return self.job_width + 2 * POOL_PADDING

    def _place_columns(self) -> float:
        lanes: dict[tuple[int, int], int] = {}
        for route in self.routes:
            if route.side:
                key = self.cells[route.start].column, route.side
                lanes[key] = max(lanes.get(key, 0), route.lane + 1)
        x, index = float(MARGIN), 0
        extra = self._missing(lanes)
        for stacks in self._stacks:
            left = x
            for _ in stacks:
                x += GUTTER + extra + LANE * lanes.get((index, -1), 0)
                self._pool_x[index] = x
                x += self._pool_width + LANE * lanes.get((index, 1), 0) + extra
                index += 1
            x += GUTTER if stacks else self._pool_width
            self.spans.append((left, x))
            x += GAP
        return max(x - GAP + MARGIN, LEAST_WIDTH)

    def _missing(self, lanes: Mapping[tuple[int, int], int]) -> float:
        """What a column needs at either side so that the picture has room for its title."""
        columns = len(self._pool_x)
        natural = 2 * MARGIN + columns * (self._pool_width + GUTTER) + GUTTER + LANE * sum(lanes.values())
        return max(LEAST_WIDTH - natural, 0) // (2 * columns) if columns else 0

    def _place_rows(self) -> list[float]:
        tracks: dict[int, int] = {}
        for route in self.routes:
            if route.side:
                row = self.cells[route.end].row
                tracks[row] = max(tracks.get(row, 0), route.track)
        rows = max((cell.row + 1 for cell in self.cells.values()), default=0)
        row_tops, y = list[float](), self._rows_y
        for row in range(rows):
            y += (CHANNEL if row else CHANNEL - 8) + LANE * tracks.get(row, 0)
            row_tops.append(y)
            y += JOB_HEIGHT
        return [*row_tops, y]

    def clusters(self, picture: Picture) -> None:
        """Draws the clusters and their pools."""
        index = 0
        for zone, stacks, (left, right) in zip(self._scene.zones, self._stacks, self.spans, strict=True):
            picture.areas.append(self._cluster(zone, left, right))
            for first, *others in stacks:
                y, bottom = self._pools_y, self._jobs_bottom if others else self.bottom
                for column in (first, *others):
                    picture.areas.append(self._pool(column, self._pool_x[index], y, bottom - GUTTER - y))
                    # Below the Jobs there are no lines that would cross what it says.
                    y, bottom = bottom, bottom + _pool_height(column)
                index += 1

    def _cluster(self, zone: Zone, left: float, right: float) -> Box:
        room = right - left - 2 * GUTTER
        texts = _lines((left + GUTTER, self.top + 20), room, CLUSTER, zone.name, zone.lines)
        about = ", ".join([f"Cluster {zone.name}", *zone.lines])
        return Box("cluster", zone.name, left, self.top, right - left, self.bottom - self.top, texts, about)

    def _pool(self, column: Column, x: float, y: float, height: float) -> Box:
        texts = _lines((x + POOL_PADDING, y + 17), self.job_width, NAME, column.title, column.lines)
        kind = f"pool {column.kind}" + (" spot" if column.spot else "")
        about = f"Pool {column.title}, {column.about}" if column.about else column.title
        return Box(kind, column.title, x, y, self._pool_width, height, texts, about)

    def jobs(self, picture: Picture) -> None:
        """Draws the Jobs and what leads from one to another."""
        works = {job.urn: job for job in self._scene.jobs}
        picture.boxes += [self._job(works[urn], cell) for urn, cell in self.cells.items()]
        connections = set(self._scene.connections)
        for route in self.routes:
            points = self._points(route)
            if (route.start, route.end) in connections:
                picture.connections.append(line(points[::-1]))
            else:
                picture.lines.append(line(points))

    def _job(self, job: Work, cell: Cell) -> Box:
        x, y = self._at(cell)
        room = self.job_width - 2 * INDENT
        times = f"{TIMES}{job.pods}" if job.pods > 1 else ""
        taken = SMALL.width(times) + INDENT if times else 0
        first, second = wrap(job.name, room - taken, JOB)
        if not second and not job.gate:
            below = Text(x + INDENT, y + 30, room, SMALL, join(list(job.parts), room, SMALL), soft=True)
        else:
            below = Text(x + INDENT, y + 30, room, JOB, second, soft=job.gate)
        texts = [Text(x + INDENT, y + (16 if below.text else 23), room, JOB, first, soft=job.gate)]
        if below.text:
            texts.append(below)
        if times:
            left = x + self.job_width - INDENT - SMALL.width(times)
            texts.append(Text(left, texts[0].y, taken, SMALL, times, soft=True))
        special = "gate" if job.gate else job.kind if job.kind != "Job" else ""
        kind = " ".join(filter(None, ["job", special, job.phase]))
        pods = [f"on {job.pods} nodes" if job.together else f"{job.pods} pods at once"] if times else []
        lines = [f"{job.kind[0].upper()}{job.kind[1:]} {job.name}", *pods, *job.parts]
        about = ", ".join([*lines, *filter(None, [job.phase.replace("-", " ")])])
        right = x + self.job_width
        behind = [
            _behind((x, right), y, BEHIND * number) for number in range(min(job.pods, MOST_SHOWN) - 1, 0, -1)
        ]
        return Box(kind, job.name, x, y, self.job_width, JOB_HEIGHT, texts, about, behind)

    def _at(self, cell: Cell) -> tuple[float, float]:
        return self._pool_x[cell.column] + POOL_PADDING, self._row_y[cell.row]

    def _points(self, route: Route) -> list[tuple[float, float]]:
        start, end = self.cells[route.start], self.cells[route.end]
        (x, y), (to_x, to_y) = self._at(start), self._at(end)
        target = to_x + self.job_width / 2
        if not route.side:
            return [(x + self.job_width / 2, y + JOB_HEIGHT), (target, to_y)]
        y += JOB_HEIGHT / 2
        pool = self._pool_x[start.column]
        away = GUTTER / 2 + LANE * route.lane
        lane = pool + self._pool_width + away if route.side > 0 else pool - away
        bus = to_y - 11 - LANE * route.track
        side = x + (self.job_width if route.side > 0 else 0)
        return [(side, y), (lane, y), (lane, bus), (target, bus), (target, to_y)]


def _pool_height(column: Column) -> float:
    """The height that a pool without Jobs takes below others."""
    return 22 + LINE * len(column.lines) + GUTTER


def _stacked(columns: Sequence[Column]) -> list[list[Column]]:
    """The pools of a cluster by the column in which they stand: those without Jobs below each other."""
    stacks: list[list[Column]] = []
    for column in columns:
        empty = next((stack for stack in stacks if not stack[0].jobs), None)
        if empty is not None and not column.jobs:
            empty.append(column)
        else:
            stacks.append([column])
    return stacks


def _behind(sides: tuple[float, float], y: float, by: float) -> str:
    """What is seen of a box that stands behind one of a Job, ``by`` pixels further down and to the right.

    ``sides`` are the left and the right one of the Job's.
    """
    (x, right), bottom = sides, y + JOB_HEIGHT
    return (
        f"M{right:g} {y + by + CORNER:g}Q{right + by:g} {y + by:g} {right + by:g} {y + by + CORNER:g}"
        f"V{bottom + by - CORNER:g}Q{right + by:g} {bottom + by:g} {right + by - CORNER:g} {bottom + by:g}"
        f"H{x + by + CORNER:g}Q{x + by:g} {bottom + by:g} {x + by:g} {bottom + by - CORNER:g}V{bottom:g}"
    )


def line(points: Sequence[tuple[float, float]], radius: float = 5) -> str:
    """Path data of a line through ``points`` with rounded corners, all of its parts upright or level."""
    parts = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, at, after in zip(points, points[1:], points[2:], strict=False):
        size = min(radius, _length(before, at) / 2, _length(at, after) / 2)
        enter, leave = _towards(at, before, size), _towards(at, after, size)
        parts.append(f"L{enter[0]:g} {enter[1]:g}Q{at[0]:g} {at[1]:g} {leave[0]:g} {leave[1]:g}")
    return "".join([*parts, f"L{points[-1][0]:g} {points[-1][1]:g}"])


def _length(start: tuple[float, float], other: tuple[float, float]) -> float:
    return abs(start[0] - other[0]) + abs(start[1] - other[1])


def _towards(at: tuple[float, float], to: tuple[float, float], size: float) -> tuple[float, float]:
    length = _length(at, to) or 1
    return at[0] + (to[0] - at[0]) * size / length, at[1] + (to[1] - at[1]) * size / length


def _lines(corner: tuple[float, float], room: float, style: Style, title: str, lines: Sequence[str]) -> list[Text]:
    """A title, whose base line begins at ``corner``, and what is said below it."""
    x, y = corner
    return [
        Text(x, y, room, style, fit(title, room, style)),
        *(
            Text(x, y + LINE * number, room, SMALL, fit(text, room, SMALL), soft=True)
            for number, text in enumerate(lines, start=1)
        ),
    ]


def _identities(scene: Scene, picture: Picture, frame: _Frame) -> float:
    """Draws the store, and between it and the clusters the identities through which they reach it."""
    clusters = {zone.name: span for zone, span in zip(scene.zones, frame.spans, strict=True)}
    reaching = [
        candidate
        for candidate in scene.identities
        if candidate.store and any(name in clusters for name in candidate.clusters)
    ]
    y = frame.bottom
    left, right = float(MARGIN), picture.width - MARGIN
    boxes: list[tuple[Identity, float, float]] = []
    for group in _groups(reaching, clusters):
        spans = [clusters[name] for member in group for name in member.clusters if name in clusters]
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        # Those that are not drawn are listed, with all that they may.
        has_room = len(group) * (LEAST_IDENTITY + GUTTER) <= last - first + GUTTER
        drawn = group if has_room or not frame.is_crowded else group[:1]
        width = (last - first - GUTTER * (len(drawn) - 1)) / len(drawn)
        boxes += [(member, first + index * (width + GUTTER), width) for index, member in enumerate(drawn)]
    height = 52.0
    if boxes:
        y += DROP
    for identity, x, width in boxes:
        texts = _lines(
            (x + INDENT, y + 17), width - 2 * INDENT, NAME, identity.name, [identity.of, f"may {identity.may}"]
        )
        picture.boxes.append(Box("identity", identity.name, x, y, width, height, texts, describe(identity)))
        for name in identity.clusters:
            if name in clusters:
                picture.lines.append(_connect_down(clusters[name], frame.bottom, (x, x + width), y))
    if boxes:
        y += height
    if not scene.store:
        return y
    store_y = y + DROP
    for _, x, width in boxes:
        picture.lines.append(line([(x + width / 2, y), (x + width / 2, store_y)]))
    served = {name for drawn, _, _ in boxes for name in drawn.clusters}
    for name, span in clusters.items():
        if name not in served:
            picture.lines.append(_connect_down(span, frame.bottom, span, store_y))
    room = right - left - 2 * INDENT
    texts = _lines(
        (left + INDENT, store_y + 17),
        room,
        NAME,
        f"Store: {scene.store[0]}",
        [join(list(scene.store[1:]), room, SMALL)] if scene.store[1:] else [],
    )
    about = ", ".join([f"Store {scene.store[0]}", *scene.store[1:]])
    picture.boxes.append(Box("store", scene.store[0], left, store_y, right - left, 40, texts, about))
    return store_y + 40


def _groups(identities: Sequence[Identity], clusters: Mapping[str, tuple[float, float]]) -> list[list[Identity]]:
    """Groups of identities that share a cluster: they stand side by side below all of their clusters."""
    groups: list[tuple[set[str], list[Identity]]] = []
    for identity in identities:
        names, members = {name for name in identity.clusters if name in clusters}, [identity]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, members = names | group[0], [*group[1], *members]
        groups.append((names, members))
    return [members for _, members in groups]


def _connect_down(span: tuple[float, float], y: float, to: tuple[float, float], to_y: float) -> str:
    """From the lower edge of one box to the upper edge of another, straight where they are below each other."""
    low, high = max(span[0], to[0]), min(span[1], to[1])
    if low < high:
        x = (low + high) / 2
        return line([(x, y), (x, to_y)])
    start, end, middle = sum(span) / 2, sum(to) / 2, (y + to_y) / 2
    return line([(start, y), (start, middle), (end, middle), (end, to_y)])


def _others(scene: Scene, picture: Picture, y: float) -> float:
    """Lists the identities that are not on the way to the store."""
    drawn = {box.about for box in picture.boxes if box.kind == "identity"}
    others = [identity for identity in scene.identities if describe(identity) not in drawn]
    if not others:
        return y
    y += GUTTER
    room = picture.width - 2 * MARGIN - 2 * INDENT
    texts = [Text(MARGIN + INDENT, y + 18, room, NAME, fit("Other identities", room, NAME))]
    shares = ((0, 0.3), (0.3, 0.35), (0.65, 0.35))
    for number, other in enumerate(others, start=1):
        for (start, share), text in zip(shares, (other.name, other.of, f"may {other.may}"), strict=True):
            width = room * share - INDENT
            texts.append(
                Text(
                    MARGIN + INDENT + room * start,
                    y + 19 + LINE * number,
                    width,
                    SMALL,
                    fit(text, width, SMALL),
                    soft=start > 0,
                )
            )
    height = 28 + LINE * len(others)
    about = "; ".join(map(describe, others))
    picture.boxes.append(
        Box("others", "Other identities", MARGIN, y, picture.width - 2 * MARGIN, height, texts, about)
    )
    return y + height


def describe(identity: Identity) -> str:
    """An identity in one sentence."""
    return f"{identity.name} ({identity.of}) may {identity.may}"


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).resolve().parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)
"""One for all pictures of a process: compiling the template takes longer than filling it in."""
TEMPLATES.filters.update(number=lambda value: f"{value:g}", clean=clean)


def picture(stack: Stack, phases: Mapping[str, str] | None = None) -> str:
    """The picture of ``stack``: the same text for the same stack.

    ``phases`` says of Jobs that were run, by their URNs, how they ended: ``succeeded``, ``unchanged``, ``failed``,
    ``interrupted`` or ``not-run``.
    """
    content = scene(stack, phases)
    placed = layout(content)
    return TEMPLATES.get_template("picture.svg.j2").render(
        name=clean(content.title),
        about=clean(about(content)),
        picture=placed,
        styles=STYLES,
        phases=bool(phases),
        kinds={word for box in placed.boxes for word in box.kind.split()},
        width=math.ceil(placed.width),
        height=math.ceil(placed.height),
    )
