"""The content of the picture of a stack: clusters, pools, Jobs, services, identities and the store."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.clouds.registry import CLOUDS
from infra.kubernetes.review.clients import addresses
from infra.review.facts import Identity
from infra.review.properties import Secret, Unknown, at, items, mapping, mappings, strings, text, whole
from infra.review.stack import JOB, UNLIMITED, NodePool, Stack
from infra.schema.problems import PREFIX
from infra.step import GATES
from offline.engine.scheduling import has_gpus, pools_of
from offline.picture.grid import reduced
from offline.policies.services import served
from offline.policies.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET, Workload, workloads
from offline.preview.phrasing import duration, many

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
    """Everything. ``edges`` are pairs of URNs of Jobs: the second waits for the first, and no third says so.

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
    jobs = list(workloads(stack, *KINDS))
    declared = mapping(stack.configuration.get(f"{PREFIX}clusters"))
    names = dict.fromkeys(
        [*(pool.cluster for pool in stack.pools), *declared, *(each.cluster for each in jobs)], None
    )
    return Scene(
        title=stack.name,
        zones=[
            Zone(
                name or "cluster not known",
                _about_cluster(declared.get(name), stack.endpoints.get(name)),
                _columns(stack, name, [each for each in jobs if each.cluster == name], phases or {}),
            )
            for name in names
        ],
        edges=_edges(stack, [each.resource.urn for each in jobs if each.resource.type == JOB]),
        identities=stack.identities,
        store=_about_store(stack),
        connections=_connections(stack, jobs),
    )


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
    if zones := [text(each) for each in items(at(settings, "zones"))]:
        place += f" ({', '.join(zones)})"
    if place:
        lines.append(place)
    if endpoint:
        lines.append(f"API: {endpoint}")
    return lines


def _columns(stack: Stack, cluster: str, jobs: Sequence[Workload], phases: Mapping[str, str]) -> list[Column]:
    pools = pools_of(stack, cluster)
    taken: dict[str, list[Work]] = {pool.name: [] for pool in pools}
    nowhere: list[Work] = []
    anywhere: list[Work] = []
    for job in sorted(jobs, key=lambda each: each.resource.name):
        suitable = job.suitable_pools(stack)
        group = taken[suitable[0].name] if suitable else nowhere if job.request else anywhere
        group.append(_work(job, phases.get(job.resource.urn, "")))
    columns = [_column(pool, taken[pool.name]) for pool in pools]
    if anywhere:
        columns.append(Column(ANYWHERE, [], "cpu", anywhere))
    if nowhere:
        columns.append(Column(NOWHERE, [], "nowhere", nowhere))
    return columns


def _column(pool: NodePool, jobs: Sequence[Work]) -> Column:
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
    lines += [f"taint {taint.key}" for taint in pool.taints]
    taints = [f"taint {each.key}={each.value}:{each.effect}" for each in pool.taints]
    about = ", ".join([*lines[: 3 if has_gpus(pool) else 2], *taints])
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
            whole(port.get("containerPort")) for each in job.containers for port in mappings(each.get("ports"))
        ]
        parts = [*(f"port {port}" for port in ports if port), *parts]
    if kind == "schedule":
        parts = [
            *filter(None, (text(at(job.resource.properties, "spec", key)) for key in ("schedule", "timeZone")))
        ]
    return Work(job.resource.urn, job.resource.name, parts, gate, phase, kind, job.pods, job.together)


def _connections(stack: Stack, jobs: Sequence[Workload]) -> list[tuple[str, str]]:
    """Each service with the Jobs that name it; one that two Services lead to, once."""
    found: dict[tuple[str, str], None] = {}
    for service, server in sorted(served(stack), key=lambda each: each[1].resource.urn):
        host = text(at(service.properties, "metadata", "name"))
        for job in jobs:
            same = job.resource.provider == service.provider and job.resource.type == JOB
            if same and host in {name for name, _ in addresses(job.spec)}:
                found[server.resource.urn, job.resource.urn] = None
    return sorted(found)


def _edges(stack: Stack, jobs: Sequence[str]) -> list[tuple[str, str]]:
    after: dict[str, set[str]] = {urn: set() for urn in sorted(jobs)}
    for urn in jobs:
        for needed in stack.resources[urn].dependencies:
            if needed in after and needed != urn:
                after[needed].add(urn)
    return reduced(after, sorted(jobs))


def _about_store(stack: Stack) -> list[str]:
    """The kind of the store and those of its settings that fit in one word."""
    settings = mapping(stack.configuration.get(f"{PREFIX}store"))
    kind = text(settings.get("kind"))
    if not kind:
        return []
    said = {key: word for key, value in settings.items() if key != "kind" and (word := _said(value)) is not None}
    first = [key for key in (*PLACES, "server", "path", "endpoint", "bucket", "storage_class") if key in said]
    order = [*first, *sorted(key for key in said if key not in first)]
    return [kind, *(f"{key} {said[key]}".rstrip() for key in order)]


def _said(value: object) -> str | None:
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
    parts += [f"{each.name} ({each.of}) may {each.may}." for each in scene.identities]
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


def counted(scene: Scene) -> Mapping[str, int]:
    """The numbers of clusters, pools and Jobs, and of services and schedules where there are any."""
    pools = [column for zone in scene.zones for column in zone.columns if column.about]
    kinds = Counter(job.kind for job in scene.jobs)
    more = {kind: kinds[kind] for kind in ("service", "schedule") if kinds[kind]}
    return {"cluster": len(scene.zones), "node pool": len(pools), "Job": kinds["Job"], **more}
