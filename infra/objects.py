"""What several clouds, and what is the same everywhere, declare alike in clusters."""

from typing import TypedDict

import pulumi_kubernetes as k8s

from infra.charts import Chart
from infra.platform import Backend

# What every Helm release of a pinned chart says alike: which chart it is, from where, and with which image.


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


# What every Ingress says alike: the host, and the Service to which all of its paths lead.


def rule(backend: Backend) -> k8s.networking.v1.IngressRuleArgs:
    """All paths of the host of ``backend`` lead to its Service."""
    service = k8s.networking.v1.IngressBackendArgs(
        service=k8s.networking.v1.IngressServiceBackendArgs(
            name=backend.service, port=k8s.networking.v1.ServiceBackendPortArgs(number=backend.port)
        )
    )
    path = k8s.networking.v1.HTTPIngressPathArgs(path="/", path_type="Prefix", backend=service)
    return k8s.networking.v1.IngressRuleArgs(
        host=backend.host, http=k8s.networking.v1.HTTPIngressRuleValueArgs(paths=[path])
    )
