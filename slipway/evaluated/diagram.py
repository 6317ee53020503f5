"""The architecture of a stack as a Mermaid diagram, which GitHub and others draw in Markdown.

Clusters, their node pools, on each the Jobs, services and schedules that it takes, and who waits for whom.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from slipway.evaluated.phrasing import duration, many
from slipway.evaluated.places import MovedStep, is_held, moved_steps
from slipway.evaluated.scheduling import has_gpus, pools_of
from slipway.evaluated.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET, Workload, workloads
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.review.stack import JOB, UNLIMITED, NodePool, Resource, Stack, at, mapping, text, whole
from slipway.infra.schema.problems import PREFIX, printable

SHAPES = {JOB: ("[", "]"), STATEFUL_SET: ("([", "])"), DEPLOYMENT: ("([", "])"), CRON_JOB: ("{{", "}}")}
"""What is drawn, and what stands around its label: services are round, schedules have six corners."""

NOWHERE = "no pool can take it"
ANYWHERE = "any node, as far as known"
UNKNOWN_CLUSTER = "cluster not known"

MOST = 200
"""Boxes of Jobs, services and schedules: a diagram with more is not drawn, since nobody could read it. Mermaid 11
refuses more than 500 arrows and 50,000 characters."""

LONGEST = 60
"""Characters of a part of a label."""

PLAIN = frozenset(" -_.,:/()=+≤…")
"""Beside letters and digits, what stands for itself in a label."""


def diagram(stack: Stack) -> str:
    """Lines of Mermaid, the same whatever order resources and keys have; empty where there is nothing to draw, or
    too much.
    """
    steps = moved_steps(stack)
    drawn = sorted(_drawn(stack, steps), key=lambda work: (work.resource.name, work.resource.urn))
    names = {work.resource.urn: f"n{number}" for number, work in enumerate(drawn)}
    declared = mapping(stack.configuration.get(f"{PREFIX}clusters"))
    clusters = sorted({*declared, *(pool.cluster for pool in stack.pools), *(work.cluster for work in drawn)})
    if not clusters or len(drawn) > MOST:
        return ""
    lines = ["flowchart TD"]
    for number, cluster in enumerate(clusters):
        title = ": ".join(filter(None, [cluster or UNKNOWN_CLUSTER, _about_cluster(declared.get(cluster))]))
        boxes_by_pool: dict[str, list[str]] = {}
        for work in drawn:
            if work.cluster == cluster:
                box = _work(names[work.resource.urn], work, steps.get(work.resource.urn))
                boxes_by_pool.setdefault(_pool(stack, work), []).append(box)
        pools = _pools(stack, cluster, boxes_by_pool)
        boxes = [line for index, pool in enumerate(pools) for line in _box(f"p{number}_{index}", *pool)]
        lines += _box(f"c{number}", [title], boxes)
    edges = _edges({urn: _needs(stack.resources[urn], steps.get(urn)) & names.keys() for urn in names})
    return "\n".join([*lines, *(f"{names[needed]} --> {names[urn]}" for needed, urn in edges)])


def _drawn(stack: Stack, steps: Mapping[str, MovedStep]) -> Iterator[Workload]:
    """Of a step with places one Job, at the first of them."""
    for work in workloads(stack, *SHAPES):
        if step := steps.get(work.resource.urn):
            first = step.places[0]
            yield replace(first, resource=replace(step.job, properties=first.resource.properties))
        elif not is_held(work.resource):
            yield work


def _about_cluster(settings: object) -> str:
    cloud = CLOUDS.get(text(at(settings, "cloud")))
    other = text(at(settings, "stack"))
    place = next(filter(None, (text(at(settings, key)) for key in ("location", "region", "context"))), "")
    parts = [cloud.title if cloud else "", f"{text(at(settings, 'cluster'))} of stack {other}" if other else ""]
    return ", ".join(filter(None, [*parts, place]))


def _pool(stack: Stack, work: Workload) -> str:
    suitable = work.suitable_pools(stack)
    return suitable[0].name if suitable else NOWHERE if work.request else ANYWHERE


def _pools(
    stack: Stack, cluster: str, boxes: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The label of each pool, and the boxes in it; at the end what any pool might take, or none can."""
    pools = {pool.name: _about_pool(pool) for pool in pools_of(stack, cluster)}
    for title in dict.fromkeys([*sorted(pools), *sorted(boxes)]):
        yield pools.get(title, [title]), boxes.get(title, [])


def _about_pool(pool: NodePool) -> list[str]:
    size = f"{pool.allocatable.cpu / 1000:g} CPU, {round(pool.allocatable.memory / 1024, 1):g} GiB"
    machine = pool.machine or ("machine type not known" if pool.allocatable.cpu >= UNLIMITED else size)
    count = str(pool.max_nodes) if pool.min_nodes == pool.max_nodes else f"{pool.min_nodes} to {pool.max_nodes}"
    nodes = f"{count} {'node' if pool.max_nodes == 1 else 'nodes'}{', Spot' if pool.spot else ''}"
    gpus = f"{pool.gpus} {pool.accelerator}" if pool.accelerator else many(pool.gpus, "GPU")
    return [pool.name, machine, nodes, *([gpus] if has_gpus(pool) else [])]


def _work(name: str, work: Workload, step: MovedStep | None) -> str:
    asks, limit = work.requests, whole(work.job.get("activeDeadlineSeconds"))
    parts = [
        f"{work.pods} pods" if work.pods > 1 else "",
        f"or {many(len(step.places) - 1, 'other pool')}" if step else "",
        many(asks.gpus, "GPU") if asks and asks.gpus else "",
        f"{asks.cpu / 1000:g} CPU" if asks and asks.cpu else "",
        f"≤ {duration(limit)}" if limit else "",
        text(at(work.resource.properties, "spec", "schedule")) if work.resource.type == CRON_JOB else "",
    ]
    begin, end = SHAPES[work.resource.type]
    return f"{name}{begin}{_label([work.resource.name, ', '.join(filter(None, parts))])}{end}"


def _needs(job: Resource, step: MovedStep | None) -> set[str]:
    """What a Job waits for; of a step with places, what its Jobs at them do."""
    waiting = [job, *(place.resource for place in (step.places if step else ()))]
    return {needed for resource in waiting for needed in resource.dependencies} - {job.urn}


def _edges(needs: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Who is waited for by whom, without what follows from others."""
    edges: list[tuple[str, str]] = []
    for urn, direct in needs.items():
        behind, ahead = set[str](), [*direct]
        while ahead:
            further = needs[ahead.pop()] - behind
            behind |= further
            ahead += further
        edges += [(needed, urn) for needed in sorted(direct - behind)]
    return edges


def _box(key: str, label: Sequence[str], content: Sequence[str]) -> list[str]:
    """A box around the content; Mermaid wants a node where there is none."""
    return [f"subgraph {key}[{_label(label)}]", *content, "end"] if content else [f"{key}[{_label(label)}]"]


def _label(parts: Sequence[str]) -> str:
    """A text of several lines in quotes. What could end it, or be markup, is written as a number."""
    return f'"{"<br>".join(map(_escape, filter(None, parts)))}"'


def _escape(part: str) -> str:
    line = printable(part)
    short = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    return "".join(letter if letter.isalnum() or letter in PLAIN else f"#{ord(letter)};" for letter in short)
