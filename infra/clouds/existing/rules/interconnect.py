"""What a stack file says of the network between the nodes of a pool."""

import re
from collections.abc import Iterator

from infra.clouds.existing.settings import ExistingCluster, InterconnectSettings
from infra.platform import GPU_RESOURCE
from infra.schema.kubernetes_names import key_problem
from infra.schema.problems import Finding, Path
from infra.schema.request import Request

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

OURS = ("SLIPWAY_", "TF_CONFIG")
"""What variables begin with that only Slipway sets."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about `interconnect`."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        for key, pool in cluster.pools.items():
            if pool.interconnect is not None:
                at: Path = ("clusters", name, "pools", key, "interconnect")
                yield from _resource(at, pool.interconnect)
                yield from _environment(at, pool.interconnect)


def _resource(at: Path, found: InterconnectSettings) -> Iterator[Finding]:
    resource = found.resource
    if resource is None:
        if found.count != 1:
            yield Finding(
                (*at, "count"),
                found.count,
                "a number of no resource",
                "name the `resource`, or remove it",
                read=((*at, "resource"),),
            )
        return
    # Kubernetes takes names of extended resources as it takes keys of labels, with a domain that is not its own
    # (kubernetes.io/docs/tasks/administer-cluster/extended-resource-node, seen November 2026).
    problem = key_problem(resource) or ("" if "/" in resource else "it has no domain")
    if problem or resource.partition("/")[0].endswith("kubernetes.io") or resource == GPU_RESOURCE:
        yield Finding(
            (*at, "resource"),
            resource,
            f"not the name of a device plugin's resource{': ' + problem if problem else ''}",
            "write it as `kubectl describe node` shows it under Allocatable: `rdma/hca_shared_devices_a`",
        )


def _environment(at: Path, found: InterconnectSettings) -> Iterator[Finding]:
    for name in found.environment:
        if not VARIABLE.fullmatch(name):
            reason, fix = "not the name of an environment variable", "use letters, digits and `_`: `NCCL_IB_HCA`"
        elif name.startswith(OURS):
            reason, fix = "Slipway sets it", "remove it"
        else:
            continue
        yield Finding((*at, "environment", name), name, reason, fix)
