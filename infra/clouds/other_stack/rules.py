"""What a stack file may not say of a cluster that another stack has."""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.clouds.other_stack.settings import OtherStackCluster
from infra.schema.problems import Finding, Problem
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters of another stack, and about what cannot stand beside them."""
    others = request.clusters_of(OtherStackCluster)
    if not others:
        return
    first, reference = next(iter(others.items()))
    for name in request.clusters:
        if name not in others:
            yield Finding(
                ("clusters", name),
                None,
                f"`{first}` is a cluster of stack `{reference.stack}`, whose store a cluster of this stack's own "
                "cannot mount, and all clusters of a stack share one store",
                "give one of the two a stack of its own",
            )
    for name, cluster in others.items():
        if cluster.stack != reference.stack:
            yield Finding(
                ("clusters", name, "stack"),
                cluster.stack,
                f"`{first}` is a cluster of stack `{reference.stack}`, and clusters of one stack share one store",
                "give one of the two a stack of its own",
                read=(("clusters", first, "stack"),),
            )
        if cluster.context is not None and cluster.kubeconfig is None:
            yield Finding(
                ("clusters", name, "context"),
                cluster.context,
                "the context of a kubeconfig file, and none is named",
                "add `kubeconfig: <path>`, or remove it",
                read=(("clusters", name, "kubeconfig"),),
            )
    for team in request.teams:
        yield Finding(
            ("teams", team),
            None,
            f"`{first}` is a cluster of stack `{reference.stack}`, which alone says who may use it",
            f"remove it, and name the team in the file of `{reference.stack}`",
        )


CHECKS = (check,)


def provider_problems(_: Mapping[str, Any]) -> list[Problem]:
    """None: nothing of a cloud is declared."""
    return []
