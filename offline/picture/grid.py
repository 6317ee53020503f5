"""Where Jobs stand: a column for each pool, and rows in which everything is below what it waits for.

A graph is a mapping from each node to those that come after it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", str, tuple[str, int])


@dataclass(frozen=True)
class Cell:
    """A place in the grid that all clusters share."""

    column: int
    row: int


def cells(columns: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> dict[str, Cell]:
    """A cell for each key of ``columns``, in its column. ``edges`` lead down.

    Those that the longest way leads to come last, and of those that could be next the ones with the longest way
    before them come first.
    """
    after: dict[str, set[str]] = {key: set() for key in columns}
    before: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        after[start].add(end)
        before[end].append(start)
    order = topological(after, sorted(columns))
    depth: dict[str, int] = {}
    height: dict[str, int] = {}
    for key in order:
        depth[key] = max((depth[each] + 1 for each in before[key]), default=0)
    for key in reversed(order):
        height[key] = max((height[each] + 1 for each in after[key]), default=0)
    free: dict[int, int] = defaultdict(int)
    placed: dict[str, Cell] = {}
    for key in sorted(columns, key=lambda each: (depth[each], -height[each], each)):
        row = max([free[columns[key]], *(placed[each].row + 1 for each in before[key])])
        placed[key] = Cell(columns[key], row)
        free[columns[key]] = row + 1
    return placed


@dataclass(frozen=True)
class Route:
    """How an edge gets from one cell to another.

    A straight one leads down from box to box. Any other leaves its box by the side ``side`` (1 right, -1 left),
    goes down in lane number ``lane`` of that side, and in track number ``track`` of the channel above the other
    box to that box. Lanes are counted from the box that they start at, tracks upwards.
    """

    start: str
    end: str
    side: int = 0
    lane: int = 0
    track: int = 0


def routes(placed: Mapping[str, Cell], edges: Sequence[tuple[str, str]]) -> list[Route]:
    """Ways on which no edge crosses a box, and none runs along another that has neither end in common with it."""
    taken = {(cell.column, cell.row) for cell in placed.values()}
    sides = {(start, end): _side(placed[start], placed[end], taken) for start, end in edges}
    trunks: dict[tuple[str, int], int] = {}
    for (start, end), side in sides.items():
        if side:
            trunks[start, side] = max(trunks.get((start, side), 0), placed[end].row)
    lanes: dict[tuple[str, int], int] = {}
    by_gutter: dict[tuple[int, int], list[tuple[float, float, tuple[str, int]]]] = defaultdict(list)
    for (start, side), last in trunks.items():
        cell = placed[start]
        by_gutter[cell.column, side].append((cell.row, last - 0.5, (start, side)))
    for gutter in by_gutter.values():
        lanes.update(_numbered(gutter))
    buses: dict[str, list[float]] = defaultdict(list)
    for (start, end), side in sides.items():
        if side:
            # Of lanes it is enough to know on which side of their column they are.
            buses[end] += [placed[start].column + side * 0.5, placed[end].column]
    tracks: dict[str, int] = {}
    by_row: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for end, span in buses.items():
        by_row[placed[end].row].append((min(span), max(span), end))
    for channel in by_row.values():
        tracks.update(_numbered(channel))
    return [
        Route(start, end, side, lanes[start, side], tracks[end]) if side else Route(start, end)
        for (start, end), side in sides.items()
    ]


def _side(start: Cell, end: Cell, taken: set[tuple[int, int]]) -> int:
    if start.column != end.column:
        return 1 if end.column > start.column else -1
    between = range(start.row + 1, end.row)
    return 1 if any((start.column, row) in taken for row in between) else 0


def _numbered(spans: list[tuple[float, float, K]]) -> dict[K, int]:
    """The lowest number for each span that none of those that it touches has; short ones choose first."""
    chosen: list[tuple[float, float, int]] = []
    numbers: dict[K, int] = {}
    for first, last, key in sorted(spans, key=lambda each: (each[1] - each[0], each[0])):
        used = {number for start, end, number in chosen if start <= last and first <= end}
        numbers[key] = next(number for number in range(len(spans)) if number not in used)
        chosen.append((first, last, numbers[key]))
    return numbers


def topological(after: Mapping[str, set[str]], nodes: Iterable[str]) -> list[str]:
    """``nodes`` and what comes after them, each behind all that it comes after, as far as there are no circles."""
    seen: set[str] = set()
    order: list[str] = []

    def visit(node: str) -> None:
        if node not in seen:
            seen.add(node)
            for each in sorted(after.get(node, ())):
                visit(each)
            order.append(node)

    for node in nodes:
        visit(node)
    return order[::-1]


def reduced(after: Mapping[str, set[str]], nodes: Iterable[str]) -> list[tuple[str, str]]:
    """The edges without those that others imply, and without those that close a circle."""
    order = topological(after, nodes)
    rank = {node: index for index, node in enumerate(order)}
    forward = {node: {each for each in after.get(node, ()) if rank[each] > rank[node]} for node in order}
    reachable: dict[str, set[str]] = {}
    for node in reversed(order):
        reachable[node] = set[str]().union(*(reachable[each] | {each} for each in forward[node]))
    return [
        (node, each)
        for node in order
        for each in sorted(forward[node], key=rank.__getitem__)
        if not any(each in reachable[via] for via in forward[node] if via != each)
    ]
