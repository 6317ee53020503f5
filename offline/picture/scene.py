"""The content of the picture of a stack: clusters, pools, Jobs, services, identities and the store."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.kubernetes.review import addresses
from slipway.infra.placed import GATES
from slipway.infra.review.facts import Identity
from slipway.infra.review.stack import (
    JOB,
    UNLIMITED,
    NodePool,
    Secret,
    Stack,
    Unknown,
    at,
    items,
    mapping,
    mappings,
    strings,
    text,
    whole,
)
from slipway.infra.schema.problems import PREFIX
from slipway.offline.evaluated.phrasing import duration, many
from slipway.offline.evaluated.places import MovedStep, is_held, moved_steps
from slipway.offline.evaluated.scheduling import has_gpus, pools_of
from slipway.offline.evaluated.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET, Workload, workloads
from slipway.offline.policies.services import list_servers

# The cells of Jobs: a column for each pool; each Job is in a row below the Jobs that it waits for.
#
# A graph is a mapping from each node to those that come after it.


K = TypeVar("K", str, tuple[str, int])


@dataclass(frozen=True)
class Cell:
    """A place in the grid that all clusters share."""

    column: int
    row: int


def cells(columns: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> dict[str, Cell]:
    """A cell for each key, in its column; ``columns`` has the column of each. Edges lead downwards.

    Keys are placed by the number of edges on the longest path to them, fewest first. Among equals, the key with
    the longest path from it is first.
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
        depth[key] = max((depth[parent] + 1 for parent in before[key]), default=0)
    for key in reversed(order):
        height[key] = max((height[child] + 1 for child in after[key]), default=0)
    free: dict[int, int] = defaultdict(int)
    placed: dict[str, Cell] = {}
    for key in sorted(columns, key=lambda name: (depth[name], -height[name], name)):
        row = max([free[columns[key]], *(placed[parent].row + 1 for parent in before[key])])
        placed[key] = Cell(columns[key], row)
        free[columns[key]] = row + 1
    return placed


@dataclass(frozen=True)
class Route:
    """How an edge gets from one box to another: straight down, where ``side`` is 0, or around other boxes.

    Then it leaves its box to the right (``side`` 1) or to the left (-1), goes down in a lane beside the column,
    and along a track above the row of the other box. Lanes count from the column, tracks from the row upwards.
    """

    start: str
    end: str
    side: int = 0
    lane: int = 0
    track: int = 0


def routes(placed: Mapping[str, Cell], edges: Sequence[tuple[str, str]]) -> list[Route]:
    """A route for each edge. None crosses a box; two share a lane or a track only if they share an end."""
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
        lanes.update(_number_spans(gutter))
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
        tracks.update(_number_spans(channel))
    return [
        Route(start, end, side, lanes[start, side], tracks[end]) if side else Route(start, end)
        for (start, end), side in sides.items()
    ]


def _side(start: Cell, end: Cell, taken: set[tuple[int, int]]) -> int:
    if start.column != end.column:
        return 1 if end.column > start.column else -1
    between = range(start.row + 1, end.row)
    return 1 if any((start.column, row) in taken for row in between) else 0


def _number_spans(spans: list[tuple[float, float, K]]) -> dict[K, int]:
    """Numbers the spans from 0 so that no two that touch have the same number. Short spans choose first."""
    chosen: list[tuple[float, float, int]] = []
    numbers: dict[K, int] = {}
    for first, last, key in sorted(spans, key=lambda span: (span[1] - span[0], span[0])):
        used = {number for start, end, number in chosen if start <= last and first <= end}
        numbers[key] = next(number for number in range(len(spans)) if number not in used)
        chosen.append((first, last, numbers[key]))
    return numbers


def topological(after: Mapping[str, set[str]], nodes: Iterable[str]) -> list[str]:
    """The nodes and what comes after them in topological order. Edges that close a circle are ignored."""
    seen: set[str] = set()
    order: list[str] = []

    def visit(node: str) -> None:
        if node not in seen:
            seen.add(node)
            for follower in sorted(after.get(node, ())):
                visit(follower)
            order.append(node)

    for node in nodes:
        visit(node)
    return order[::-1]


def reduce_edges(after: Mapping[str, set[str]], nodes: Iterable[str]) -> list[tuple[str, str]]:
    """The edges without those that others imply, and without those that close a circle."""
    order = topological(after, nodes)
    rank = {node: index for index, node in enumerate(order)}
    forward = {
        node: {follower for follower in after.get(node, ()) if rank[follower] > rank[node]} for node in order
    }
    reachable: dict[str, set[str]] = {}
    for node in reversed(order):
        reachable[node] = set[str]().union(*(reachable[follower] | {follower} for follower in forward[node]))
    return [
        (node, follower)
        for node in order
        for follower in sorted(forward[node], key=rank.__getitem__)
        if not any(follower in reachable[via] for via in forward[node] if via != follower)
    ]


KINDS = {JOB: "Job", STATEFUL_SET: "service", DEPLOYMENT: "service", CRON_JOB: "schedule"}
"""What is drawn, and what it is called."""

NOWHERE = "no pool can take it"
ANYWHERE = "any node, as far as known"

PLACES = ("location", "region", "context", "kubeconfig")
"""Keys of a cluster in the stack file that say where it is; the first that is there counts."""

WITHOUT_CONTEXT = "kubeconfig"


@dataclass(frozen=True)
class Work:
    """A Job, a service or a schedule, which is its ``kind``.

    ``parts`` are what its pod asks for and how long it may take, the most important first. ``phase`` is how it
    ended, as a class of the picture's styles; empty where it did not run. ``pods`` is how many pods it has at
    once, ``together`` whether these work together, each on a node of its own.
    """

    urn: str
    name: str
    parts: Sequence[str]
    gate: bool = False
    phase: str = ""
    kind: str = "Job"
    pods: int = 1
    together: bool = False


@dataclass(frozen=True)
class Column:
    """A node pool with its Jobs, or the Jobs that no pool takes. ``kind`` is ``cpu``, ``gpu`` or ``nowhere``."""

    title: str
    lines: Sequence[str]
    kind: str
    jobs: Sequence[Work]
    about: str = ""
    spot: bool = False


@dataclass(frozen=True)
class Zone:
    """A cluster."""

    name: str
    lines: Sequence[str]
    columns: Sequence[Column]


@dataclass(frozen=True)
class Scene:
    """Everything. ``edges`` are pairs of URNs of Jobs: the second waits for the first. None follows from others.

    ``connections`` are pairs of a service and a Job that connects to it.
    """

    title: str
    zones: Sequence[Zone]
    edges: Sequence[tuple[str, str]]
    identities: Sequence[Identity]
    store: Sequence[str]
    connections: Sequence[tuple[str, str]] = ()

    @property
    def jobs(self) -> list[Work]:
        """All Jobs, services and schedules, cluster by cluster and pool by pool."""
        return [job for zone in self.zones for column in zone.columns for job in column.jobs]


def scene(stack: Stack, phases: Mapping[str, str] | None = None) -> Scene:
    """What is to be drawn of ``stack``. ``phases`` says of Jobs that were run, by their URNs, how they ended."""
    jobs = list(_drawn(stack))
    declared = mapping(stack.configuration.get(f"{PREFIX}clusters"))
    names = dict.fromkeys(
        [*(pool.cluster for pool in stack.pools), *declared, *(job.cluster for job in jobs)], None
    )
    return Scene(
        title=stack.name,
        zones=[
            Zone(
                name or "cluster not known",
                _about_cluster(declared.get(name), stack.endpoints.get(name)),
                _columns(stack, name, [job for job in jobs if job.cluster == name], phases or {}),
            )
            for name in names
        ],
        edges=_edges(stack, [job.resource.urn for job in jobs if job.resource.type == JOB]),
        identities=stack.identities,
        store=_about_store(stack),
        connections=_connections(stack, jobs),
    )


def _drawn(stack: Stack) -> Iterator[Workload]:
    """What is drawn: of a step with places one Job, at the first of them."""
    steps = moved_steps(stack)
    for workload in workloads(stack, *KINDS):
        if step := steps.get(workload.resource.urn):
            first = step.places[0]
            yield replace(first, resource=replace(step.job, properties=first.resource.properties))
        elif not is_held(workload.resource):
            yield workload


def _about_cluster(settings: object, endpoint: str | None) -> list[str]:
    lines: list[str] = []
    if cloud := CLOUDS.get(text(at(settings, "cloud"))):
        lines.append(cloud.title)
    if other := text(at(settings, "stack")):
        lines.append(f"{text(at(settings, 'cluster'))} of stack {other}")
    key = next((key for key in PLACES if text(at(settings, key))), "")
    place = text(at(settings, key))
    if key == WITHOUT_CONTEXT:
        place = f"current context of {place}"
    if zones := [text(zone) for zone in items(at(settings, "zones"))]:
        place += f" ({', '.join(zones)})"
    if place:
        lines.append(place)
    if endpoint:
        lines.append(f"API: {endpoint}")
    return lines


def _columns(stack: Stack, cluster: str, jobs: Sequence[Workload], phases: Mapping[str, str]) -> list[Column]:
    pools, moved = pools_of(stack, cluster), moved_steps(stack)
    taken: dict[str, list[Work]] = {pool.name: [] for pool in pools}
    nowhere: list[Work] = []
    anywhere: list[Work] = []
    for job in sorted(jobs, key=lambda workload: workload.resource.name):
        suitable = job.suitable_pools(stack)
        group = taken[suitable[0].name] if suitable else nowhere if job.request else anywhere
        work = _work(job, phases.get(job.resource.urn, ""))
        places = len(moved[job.resource.urn].places) if job.resource.urn in moved else 0
        group.append(
            replace(work, parts=[f"or {many(places - 1, 'other pool')}", *work.parts]) if places else work
        )
    places = _find_places(stack, moved.values())
    columns = [_column(pool, taken[pool.name], places.get(pool.name, ())) for pool in pools]
    if anywhere:
        columns.append(Column(ANYWHERE, [], "cpu", anywhere))
    if nowhere:
        columns.append(Column(NOWHERE, [], "nowhere", nowhere))
    return columns


def _find_places(stack: Stack, steps: Iterable[MovedStep]) -> dict[str, list[str]]:
    """The steps that may run on a pool, by its name, with which of their places it is; the first is drawn."""
    places: dict[str, list[str]] = {}
    for step in steps:
        for number, name in enumerate(step.pools(stack)[1:], start=2):
            places.setdefault(name, []).append(f"place {number} of {step.job.name}")
    return places


def _column(pool: NodePool, jobs: Sequence[Work], places: Sequence[str]) -> Column:
    size = f"{_number(pool.allocatable.cpu / 1000)} CPU, {_memory(pool.allocatable.memory)}"
    if pool.allocatable.cpu >= UNLIMITED:
        size = "machine type not known"
    count = str(pool.max_nodes) if pool.min_nodes == pool.max_nodes else f"{pool.min_nodes} to {pool.max_nodes}"
    lines = [
        pool.machine or size,
        f"{count} {'node' if pool.max_nodes == 1 else 'nodes'}" + (", Spot" if pool.spot else ""),
    ]
    if has_gpus(pool):
        lines.append(f"{pool.gpus} {pool.accelerator}" if pool.accelerator else many(pool.gpus, "GPU"))
    lines += [*(f"taint {taint.key}" for taint in pool.taints), *places]
    taints = [f"taint {taint.key}={taint.value}:{taint.effect}" for taint in pool.taints]
    about = ", ".join([*lines[: 3 if has_gpus(pool) else 2], *taints, *places])
    return Column(pool.name, lines, "gpu" if has_gpus(pool) else "cpu", jobs, about, pool.spot)


def _work(job: Workload, phase: str) -> Work:
    parts: list[str] = []
    if (asks := job.requests) is not None:
        if asks.gpus:
            parts.append(many(asks.gpus, "GPU"))
        if asks.cpu:
            parts.append(f"{_number(asks.cpu / 1000)} CPU")
        if asks.memory:
            parts.append(_memory(asks.memory))
    if limit := whole(job.job.get("activeDeadlineSeconds")):
        parts.append(f"≤ {duration(limit)}")
    labels = strings(at(job.resource.properties, "metadata", "labels"))
    gate = labels.get("app.kubernetes.io/name") in GATES
    kind = KINDS[job.resource.type]
    if kind == "service":
        ports = [
            whole(port.get("containerPort"))
            for container in job.containers
            for port in mappings(container.get("ports"))
        ]
        parts = [*(f"port {port}" for port in ports if port), *parts]
    if kind == "schedule":
        parts = [
            *filter(None, (text(at(job.resource.properties, "spec", key)) for key in ("schedule", "timeZone")))
        ]
    return Work(job.resource.urn, job.resource.name, parts, gate, phase, kind, job.pods, job.together)


def _connections(stack: Stack, jobs: Sequence[Workload]) -> list[tuple[str, str]]:
    """Each service with the Jobs that name it; one that two Services lead to, once."""
    connections: dict[tuple[str, str], None] = {}
    for service, server in sorted(list_servers(stack), key=lambda pair: pair[1].resource.urn):
        host = text(at(service.properties, "metadata", "name"))
        for job in jobs:
            same = job.resource.provider == service.provider and job.resource.type == JOB
            if same and host in {name for name, _ in addresses(job.spec)}:
                connections[server.resource.urn, job.resource.urn] = None
    return sorted(connections)


def _edges(stack: Stack, jobs: Sequence[str]) -> list[tuple[str, str]]:
    after: dict[str, set[str]] = {urn: set() for urn in sorted(jobs)}
    held = {urn: [place.resource for place in step.places] for urn, step in moved_steps(stack).items()}
    for urn in jobs:
        # What a step with places waits for, its Jobs at them do.
        waiting = [stack.resources[urn], *held.get(urn, ())]
        for needed in {needed for job in waiting for needed in job.dependencies}:
            if needed in after and needed != urn:
                after[needed].add(urn)
    return reduce_edges(after, sorted(jobs))


def _about_store(stack: Stack) -> list[str]:
    """The kind of the store and those of its settings that fit in one word."""
    settings = mapping(stack.configuration.get(f"{PREFIX}store"))
    kind = text(settings.get("kind"))
    if not kind:
        return []
    words = {
        key: word
        for key, value in settings.items()
        if key != "kind" and (word := _describe_setting(value)) is not None
    }
    first = [key for key in (*PLACES, "server", "path", "endpoint", "bucket", "storage_class") if key in words]
    order = [*first, *sorted(key for key in words if key not in first)]
    return [kind, *(f"{key} {words[key]}".rstrip() for key in order)]


def _describe_setting(value: object) -> str | None:
    """A setting in one word; "" if its key is enough, None if one word is not."""
    if isinstance(value, bool):
        return "" if value else None
    if isinstance(value, Secret | Unknown):
        return repr(value)
    return str(value) if isinstance(value, str | int | float) else None


def _memory(mebibytes: int) -> str:
    return f"{_number(mebibytes / 1024)} GiB" if mebibytes >= 1024 else f"{mebibytes} MiB"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def about(scene: Scene) -> str:
    """The picture as text, for screen readers."""
    parts = [
        f"Cluster {zone.name} ({', '.join(zone.lines)}): "
        + "; ".join(
            f"{column.title} ({column.about}) runs {', '.join(job.name for job in column.jobs) or 'nothing'}"
            if column.about
            else f"{column.title}: {', '.join(job.name for job in column.jobs)}"
            for column in zone.columns
        )
        + "."
        for zone in scene.zones
    ]
    if scene.store:
        parts.append(f"Store: {', '.join(scene.store)}.")
    parts += [f"{identity.name} ({identity.of}) may {identity.may}." for identity in scene.identities]
    names = {job.urn: job.name for job in scene.jobs}
    parts += [f"{names[job]} connects to {names[service]}." for service, job in scene.connections]
    return " ".join(parts)


def legend(scene: Scene) -> str:
    """The meaning of the picture's colours."""
    columns = [column for zone in scene.zones for column in zone.columns]
    parts = [
        *(["Grey: gates."] if any(job.gate for job in scene.jobs) else []),
        *(["Green: GPUs."] if any(column.kind == "gpu" for column in columns) else []),
        *(["Dashed: Spot."] if any(column.spot for column in columns) else []),
        *(["Violet: services."] if any(job.kind == "service" for job in scene.jobs) else []),
        *(["Dotted: who connects."] if scene.connections else []),
    ]
    return " ".join(parts)


def count_kinds(scene: Scene) -> Mapping[str, int]:
    """How many clusters, pools and Jobs there are, and how many services and schedules if any."""
    pools = [column for zone in scene.zones for column in zone.columns if column.about]
    kinds = Counter(job.kind for job in scene.jobs)
    more = {kind: kinds[kind] for kind in ("service", "schedule") if kinds[kind]}
    return {"cluster": len(scene.zones), "node pool": len(pools), "Job": kinds["Job"], **more}
