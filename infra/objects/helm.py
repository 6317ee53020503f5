"""What every Helm release of a pinned chart says alike: which chart it is, from where, and with which image."""

from typing import TypedDict

import pulumi_kubernetes as k8s

from infra.charts import Chart


class Source(TypedDict):
    """The arguments of a `Release` that say which chart it is of."""

    chart: str
    version: str
    repository_opts: k8s.helm.v3.RepositoryOptsArgs | None


def source(chart: Chart, copy: str | None, version: str | None) -> Source:
    """The pinned ``chart``, or a ``copy`` of one's own in its place, which may be of another ``version``."""
    repository = None if copy else k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository)
    return Source(chart=chart.place(copy), version=version or chart.version, repository_opts=repository)


def image(reference: str) -> dict[str, str]:
    """An image as most charts take it in their values; a digest goes with the tag."""
    repository, _, tag = reference.partition(":")
    return {"repository": repository, "tag": tag}
