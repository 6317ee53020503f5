"""What a stack file may not say of a cluster that is already there."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from slipway.infra.accelerators import accelerator, accelerators
from slipway.infra.clouds.existing.rules import store
from slipway.infra.clouds.existing.rules.store import RULES
from slipway.infra.clouds.existing.settings import ExistingCluster, ExistingPool, InterconnectSettings
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.schema.names import is_subdomain, key_problem, label_findings, node_label_findings
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section
from slipway.infra.schema.taints import taint_findings


def _pools(name: str, cluster: ExistingCluster) -> Iterator[tuple[Section, ExistingPool]]:
    """The pools of a cluster, each with its section."""
    for key, pool in cluster.pools.items():
        yield Section(RULES["pool"], ("clusters", name, "pools", key), pool), pool


def check_clusters(request: Request) -> Iterator[Finding]:
    """Findings about each cluster: what the kubeconfig's user may do, and who brings the device plugin."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        here = Section(RULES["cluster"], ("clusters", name), cluster)
        declared, beyond = cluster.device_plugin.declare, cluster.access == "namespace"
        if declared and cluster.pools and not any(pool.has_gpus for pool in cluster.pools.values()):
            yield here.found("plugin-without-gpus")
        if declared and beyond:
            yield here.found("plugin-outside-namespace")
        for below, pool in _pools(name, cluster):
            if pool.shares_gpus and not declared:
                key = "gpu_sharing" if pool.gpu_sharing else "mig_strategy"
                yield below.found("setting-of-plugin", key, read=((*here.at, "device_plugin", "declare"),))
            if pool.label_nodes and beyond:
                yield below.found("label-outside-namespace", read=((*here.at, "access"),))


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

OURS = ("SLIPWAY_", "TF_CONFIG")
"""What variables begin with that only Slipway sets."""


def check_interconnect(request: Request) -> Iterator[Finding]:
    """Findings about `interconnect`."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        for key, pool in cluster.pools.items():
            if pool.interconnect is not None:
                at: Path = ("clusters", name, "pools", key, "interconnect")
                here = Section(RULES["interconnect"], at, pool.interconnect)
                yield from here.exclusions()
                yield from _resource(here, pool.interconnect.resource)
                yield from _environment(here, pool.interconnect)


def _resource(here: Section, resource: str | None) -> Iterator[Finding]:
    # Kubernetes takes names of extended resources as it takes keys of labels, with a domain that is not its own
    # (kubernetes.io/docs/tasks/administer-cluster/extended-resource-node, seen November 2026).
    if resource is None:
        return
    problem = key_problem(resource) or ("" if "/" in resource else "it has no domain")
    if problem or resource.partition("/")[0].endswith("kubernetes.io") or resource == GPU_RESOURCE:
        yield here.found("resource", why=f": {problem}" if problem else "")


def _environment(here: Section, interconnect: InterconnectSettings) -> Iterator[Finding]:
    for name in interconnect.environment:
        if not VARIABLE.fullmatch(name):
            yield here.found("variable", name, shown=name)
        elif name.startswith(OURS):
            yield here.found("own-variable", name, shown=name)


def check_nodes(request: Request) -> Iterator[Finding]:
    """Findings about nodes that the stack labels and taints."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        times = Counter(node for pool in cluster.pools.values() for node in pool.label_nodes)
        for here, pool in _pools(name, cluster):
            if pool.label_nodes:
                yield from _labels(here, pool)
            if pool.taint_nodes:
                yield from _taints(here, pool)
            for index, node in enumerate(pool.label_nodes):
                if times[node] > 1:
                    yield here.found("node-twice", index, times=times[node])


def _labels(here: Section, pool: ExistingPool) -> Iterator[Finding]:
    selector = (*here.at, "selector")
    yield from node_label_findings(selector, pool.selector, ("kubernetes.io", "k8s.io"), "Kubernetes")
    for index, node in enumerate(pool.label_nodes):
        if not is_subdomain(node):
            yield here.found("node-name", index)
    if "nodes" in pool.model_fields_set and pool.nodes != len(pool.label_nodes):
        yield here.found("node-count", count=len(pool.label_nodes))


def _taints(here: Section, pool: ExistingPool) -> Iterator[Finding]:
    # An empty list takes back what the stack gave them.
    if not pool.label_nodes or "taints" not in pool.model_fields_set:
        yield here.found("nothing-to-taint", missing="taints" if pool.label_nodes else "label_nodes")
    for index, taint in enumerate(pool.taints):
        if taint.effect == "NoExecute":
            yield here.found("evicts", index, "effect")


def check_pools(request: Request) -> Iterator[Finding]:
    """Findings about what the file says of existing nodes."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        for here, pool in _pools(name, cluster):
            yield from label_findings((*here.at, "selector"), pool.selector)
            yield from taint_findings((*here.at, "taints"), pool.taints)
            if pool.accelerator is not None and accelerator(pool.accelerator) is None:
                yield here.found("unknown-accelerator", known=accelerators(), all=listed(accelerators(), "and"))
            elif pool.accelerator is not None and not pool.gpus:
                yield here.found("no-number", pool=pool)
            elif pool.gpus and pool.accelerator is None:
                yield here.found("no-accelerator", pool=pool, all=listed(accelerators()))
        yield from _same_nodes(("clusters", name, "pools"), cluster.pools)


def _same_nodes(place: Path, pools: dict[str, ExistingPool]) -> Iterator[Finding]:
    """Pools that select the same nodes, and say of them what cannot be true of one node."""
    names = list(pools)
    for index, name in enumerate(names):
        pool = pools[name]
        first = next((other for other in names[:index] if pools[other].selector == pool.selector), None)
        if first is not None:
            yield from _contradictions(place, first, pools[first], name, pool)


def _contradictions(
    place: Path, first: str, one: ExistingPool, name: str, other: ExistingPool
) -> Iterator[Finding]:
    here = Section(RULES["same-nodes"], (*place, name), other)
    if one.has_gpus and other.has_gpus:
        finding = here.found("gpus", first=first)
    elif _pool_taints(one) != _pool_taints(other):
        taints = listed(sorted(_pool_taints(one)), "and") or "no taints"
        finding = here.found("taints", shown=sorted(_pool_taints(other)), first=first, taints=taints)
    elif one.most_nodes != other.most_nodes:
        finding = here.found("nodes", shown=other.most_nodes, first=first, one=one)
    else:
        return
    keys = ("selector", "taints", "nodes", "label_nodes", "accelerator", "gpus")
    yield replace(finding, all_of=tuple((*place, pool, key) for pool in (first, name) for key in keys))


def _pool_taints(pool: ExistingPool) -> set[str]:
    return {f"{taint.key}={taint.value}:{taint.effect}" for taint in pool.taints}


CHECKS = (check_clusters, check_pools, check_interconnect, check_nodes, store.check)
