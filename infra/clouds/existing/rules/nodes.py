"""Nodes that the stack labels and taints."""

from collections import Counter
from collections.abc import Iterator

from infra.clouds.existing.settings import ExistingCluster, ExistingPool
from infra.schema.kubernetes_names import is_subdomain, node_label_findings
from infra.schema.problems import Finding, Path
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about what is to be done to nodes."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        for key, pool in cluster.pools.items():
            at: Path = ("clusters", name, "pools", key)
            if pool.label_nodes:
                yield from _labels(at, pool)
            if pool.taint_nodes:
                yield from _taints(at, pool)
        yield from _once(name, cluster)


def _labels(at: Path, pool: ExistingPool) -> Iterator[Finding]:
    yield from node_label_findings((*at, "selector"), pool.selector, ("kubernetes.io", "k8s.io"), "Kubernetes")
    for index, node in enumerate(pool.label_nodes):
        if not is_subdomain(node):
            yield Finding(
                (*at, "label_nodes", index),
                node,
                "not the name of a node",
                "write what `kubectl get nodes` shows under NAME",
            )
    if "nodes" in pool.model_fields_set and pool.nodes != len(pool.label_nodes):
        yield Finding(
            (*at, "nodes"),
            pool.nodes,
            f"`label_nodes` names {len(pool.label_nodes)}, and it has to name all of the pool",
            "remove `nodes`, or name the others as well",
            read=((*at, "label_nodes"),),
        )


def _taints(at: Path, pool: ExistingPool) -> Iterator[Finding]:
    if not pool.label_nodes or not pool.taints:
        missing = "label_nodes" if not pool.label_nodes else "taints"
        yield Finding(
            (*at, "taint_nodes"),
            pool.taint_nodes,
            f"the pool has no `{missing}`, so that there is nothing to taint",
            f"add `{missing}`, or remove it",
            read=((*at, "label_nodes"), (*at, "taints")),
        )
    for index, taint in enumerate(pool.taints):
        if taint.effect == "NoExecute":
            yield Finding(
                (*at, "taints", index, "effect"),
                taint.effect,
                "whatever runs on the nodes now would be evicted, the cluster's own agents included",
                "write `NoSchedule`",
                read=((*at, "taint_nodes"),),
            )


def _once(name: str, cluster: ExistingCluster) -> Iterator[Finding]:
    times = Counter(node for pool in cluster.pools.values() for node in pool.label_nodes)
    for key, pool in cluster.pools.items():
        for index, node in enumerate(pool.label_nodes):
            if times[node] > 1:
                yield Finding(
                    ("clusters", name, "pools", key, "label_nodes", index),
                    node,
                    f"the node is named {times[node]} times, and a node's labels and taints are given once",
                    "name it in one pool; another pool on the same node takes the same `selector`",
                )
