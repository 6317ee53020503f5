"""The dependency graph of a stack, small enough to look at: what to draw, and where."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from infra.review.resource import Resource
from infra.review.stack import JOB
from offline.engine.dag import reduced, topological

WIDTH, HEIGHT = 200, 40
GAP_X, GAP_Y = 18, 30
LANE = 26
"""Width of the place that an edge gets where it passes a layer."""

SWEEPS = 8


@dataclass
class Vertex:
    """One box: a Job, a node pool, or everything else of a component or of a type together."""

    key: str
    title: str
    detail: str
    urns: list[str] = field(default_factory=list[str])
    job: str = ""
    """URN of the Job, where it is one."""
    layer: int = 0
    x: float = 0.0
    """Of its centre."""
    real: bool = True
    """False for the points that edges bend at."""

    @property
    def y(self) -> float:
        """Of its upper edge."""
        return self.layer * (HEIGHT + GAP_Y)

    @property
    def width(self) -> int:
        """Of the place that it takes in its layer."""
        return WIDTH if self.real else LANE


@dataclass(frozen=True)
class Drawing:
    """Boxes with their places, and edges as SVG path data with the keys of their ends."""

    vertices: list[Vertex]
    edges: list[tuple[str, str, str]]
    width: float
    height: float


def draw(resources: Mapping[str, Resource], pools: Collection[str]) -> Drawing:
    """The graph of ``resources``. ``pools`` are the URNs of those that bring nodes; each gets a box of its own."""
    vertices, owner = _group(resources, pools)
    # Grouping can make circles, which the reduction opens.
    edges = reduced(_edges(resources, owner), vertices)
    _assign_layers(vertices, edges)
    chains = _split_long(vertices, edges)
    layers = _order(vertices, chains)
    _place(layers, chains)
    left = min((each.x - each.width / 2 for each in vertices.values()), default=0)
    for each in vertices.values():
        each.x -= left
    right = max((each.x + each.width / 2 for each in vertices.values()), default=0)
    return Drawing(
        vertices=[each for each in vertices.values() if each.real],
        edges=[(chain[0], chain[-1], _path([vertices[key] for key in chain])) for chain in chains],
        width=right,
        height=max((each.y for each in vertices.values()), default=0) + HEIGHT,
    )


def _group(resources: Mapping[str, Resource], pools: Collection[str]) -> tuple[dict[str, Vertex], dict[str, str]]:
    vertices: dict[str, Vertex] = {}
    owner: dict[str, str] = {}
    jobs_of = {
        each.parent: urn for urn, each in resources.items() if each.type == JOB and each.parent in resources
    }
    for urn, resource in resources.items():
        if not resource.custom:
            continue
        kind = resource.type.rpartition(":")[2]
        if resource.type == JOB or urn in pools:
            key, title, detail = urn, resource.name, kind
        elif resource.parent in jobs_of:
            # What a Job alone mounts is part of it.
            owner[urn] = jobs_of[resource.parent]
            continue
        elif resource.parent in resources:
            key = _outermost(resource, resources)
            title, detail = resources[key].name, resources[key].type.rpartition(":")[2]
        else:
            key, title, detail = resource.type, resource.name, kind
        vertex = vertices.setdefault(key, Vertex(key, title, detail))
        vertex.urns.append(urn)
        vertex.job = urn if resource.type == JOB else ""
        owner[urn] = key
    for vertex in vertices.values():
        if len(vertex.urns) > 1 and vertex.key not in resources:
            vertex.title, vertex.detail = vertex.detail, f"{len(vertex.urns)} resources"
        elif len(vertex.urns) > 1:
            vertex.detail += f", {len(vertex.urns)} resources"
    return vertices, owner


def _outermost(resource: Resource, resources: Mapping[str, Resource]) -> str:
    parent = resource.parent
    while resources[parent].parent in resources:
        parent = resources[parent].parent
    return parent


def _edges(resources: Mapping[str, Resource], owner: Mapping[str, str]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    for urn, resource in resources.items():
        for needed in resource.needs:
            if urn in owner and needed in owner and owner[urn] != owner[needed]:
                edges[owner[needed]].add(owner[urn])
    return edges


def _assign_layers(vertices: Mapping[str, Vertex], edges: list[tuple[str, str]]) -> None:
    """Each below all that it needs, and then as near as possible to what needs it."""
    after: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        after[start].append(end)
    order = topological({key: set(ends) for key, ends in after.items()}, vertices)
    for key in order:
        for end in after[key]:
            vertices[end].layer = max(vertices[end].layer, vertices[key].layer + 1)
    for key in reversed(order):
        if after[key]:
            vertices[key].layer = min(vertices[end].layer for end in after[key]) - 1
    top = min((each.layer for each in vertices.values()), default=0)
    for each in vertices.values():
        each.layer -= top


def _split_long(vertices: dict[str, Vertex], edges: list[tuple[str, str]]) -> list[list[str]]:
    """Each edge as the chain of its ends and a point in every layer between them."""
    chains: list[list[str]] = []
    for start, end in edges:
        chain = [start]
        for layer in range(vertices[start].layer + 1, vertices[end].layer):
            point = Vertex(f"{start}→{end}@{layer}", "", "", layer=layer, real=False)
            vertices[point.key] = point
            chain.append(point.key)
        chains.append([*chain, end])
    return chains


def _neighbours(chains: list[list[str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    return above, below


def _order(vertices: Mapping[str, Vertex], chains: list[list[str]]) -> list[list[Vertex]]:
    """The layers, each in an order that crosses few edges: by the mean place of the neighbours."""
    layers: list[list[Vertex]] = [
        [] for _ in range(max((each.layer for each in vertices.values()), default=-1) + 1)
    ]
    for each in vertices.values():
        layers[each.layer].append(each)
    above, below = _neighbours(chains)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            place = {each.key: index for other in layers for index, each in enumerate(other)}
            beside = above if down else below

            def mean(
                each: Vertex, beside: Mapping[str, list[str]] = beside, place: Mapping[str, int] = place
            ) -> float:
                found = beside.get(each.key)
                return sum(place[key] for key in found) / len(found) if found else place[each.key]

            layer.sort(key=mean)
    return layers


def _place(layers: list[list[Vertex]], chains: list[list[str]]) -> None:
    """X coordinates: near the mean of the neighbours, in the layer's order, and apart."""
    vertices = {each.key: each for layer in layers for each in layer}
    above, below = _neighbours(chains)
    for layer in layers:
        x = 0.0
        for each in layer:
            each.x = x + each.width / 2
            x += each.width + GAP_X
        for each in layer:
            each.x -= x / 2
    for sweep in range(SWEEPS):
        beside = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wanted = [
                sum(vertices[key].x for key in beside[each.key]) / len(beside[each.key])
                if beside.get(each.key)
                else each.x
                for each in layer
            ]
            _spread(layer, wanted)


def _spread(layer: list[Vertex], wanted: list[float]) -> None:
    """Puts each vertex as near to where it wants to be as its neighbours let it, all taken together."""
    blocks: list[tuple[float, float, list[tuple[Vertex, float]]]] = []
    for vertex, x in zip(layer, wanted, strict=True):
        block = (x, 1.0, [(vertex, 0.0)])
        while blocks:
            at, weight, members = blocks[-1]
            last, offset = members[-1]
            distance = offset + (last.width + block[2][0][0].width) / 2 + GAP_X
            if at + distance <= block[0]:
                break
            blocks.pop()
            merged = (at * weight + (block[0] - distance) * block[1]) / (weight + block[1])
            block = (
                merged,
                weight + block[1],
                [*members, *((each, distance + shift) for each, shift in block[2])],
            )
        blocks.append(block)
    for at, _, members in blocks:
        for vertex, offset in members:
            vertex.x = at + offset


def _path(points: list[Vertex]) -> str:
    path = f"M{points[0].x:.0f},{points[0].y + HEIGHT:.0f}"
    y = points[0].y + HEIGHT
    x = points[0].x
    for point in points[1:]:
        middle = (y + point.y) / 2
        path += f" C{x:.0f},{middle:.0f} {point.x:.0f},{middle:.0f} {point.x:.0f},{point.y:.0f}"
        x, y = point.x, point.y + (0 if point.real else HEIGHT)
        if not point.real:
            path += f" V{y:.0f}"
    return path
