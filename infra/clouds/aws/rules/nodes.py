"""How many nodes an EKS node group has."""

from collections.abc import Iterator

from infra.clouds.aws.rules.subject import subjects
from infra.clouds.aws.settings import Nodes
from infra.schema.findings import Finding, Path, listed
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about the node counts of each pool on AWS."""
    for subject in subjects(request):
        yield from _counts((*subject.at, "nodes"), subject.pool.nodes)


def _counts(place: Path, nodes: Nodes) -> Iterator[Finding]:
    here = {key: (*place, key) for key in Nodes.model_fields}
    limits = [key for key in ("min", "max") if getattr(nodes, key) is not None]
    if nodes.count is not None and limits:
        yield Finding(
            here["count"],
            nodes.count,
            f"a fixed number, and {listed(limits, 'and')} let the autoscaler choose",
            "keep `count`, or the limits",
            read=tuple(here[key] for key in limits),
        )
    if nodes.min is not None and nodes.max is None:
        yield Finding(
            here["min"],
            nodes.min,
            "the autoscaler needs `max` as well",
            f"add `max`, or write `count: {nodes.min}`",
            read=(here["max"],),
        )
    elif nodes.min is not None and nodes.max is not None and nodes.min > nodes.max:
        yield Finding(
            here["min"],
            nodes.min,
            f"more than `max`, which is {nodes.max}",
            f"write `min: {nodes.max}` or less",
            read=(here["max"],),
        )
