"""What a stack file may not say of a cluster that is already there."""

import re
from collections import Counter
from collections.abc import Iterator

from slipway.infra.accelerators import PLACE, accelerator, accelerators
from slipway.infra.clouds.existing.rules import store
from slipway.infra.clouds.existing.settings import ExistingCluster, ExistingPool, InterconnectSettings
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.schema.names import is_subdomain, key_problem, label_findings, node_label_findings
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.request import Request
from slipway.infra.schema.taints import taint_findings


def check_clusters(request: Request) -> Iterator[Finding]:
    """Findings about each cluster by itself."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        at: Path = ("clusters", name)
        yield from _device_plugin((*at, "device_plugin"), cluster, at)
        if cluster.access == "namespace":
            yield from _beyond_the_namespace(at, cluster)


def _device_plugin(place: Path, cluster: ExistingCluster, at: Path) -> Iterator[Finding]:
    plugin = cluster.device_plugin
    read = ((*place, "declare"),)
    if plugin.declare and cluster.pools and not any(pool.has_gpus for pool in cluster.pools.values()):
        yield Finding(
            (*place, "declare"),
            plugin.declare,
            "no pool of the cluster has GPUs",
            "remove it, or say which pool has GPUs",
            all_of=((*at, "pools"),),
        )
    for name, pool in cluster.pools.items():
        if pool.shares_gpus and not plugin.declare:
            key = "gpu_sharing" if pool.gpu_sharing else "mig_strategy"
            yield Finding(
                (*at, "pools", name, key),
                pool.model_dump()[key],
                "a setting of the device plugin, which the stack does not declare",
                "set it where the cluster's own plugin is configured, and count the shares in `gpus`; or write "
                "`device_plugin: {declare: true}`",
                read=read,
            )


def _beyond_the_namespace(at: Path, cluster: ExistingCluster) -> Iterator[Finding]:
    read = ((*at, "access"),)
    if cluster.device_plugin.declare:
        yield Finding(
            (*at, "device_plugin", "declare"),
            cluster.device_plugin.declare,
            "with `access: namespace` the stack declares nothing outside its namespace, and the device plugin "
            "runs in one of its own",
            "ask an administrator for the GPU Operator, and remove it",
            read=read,
        )
    for name, pool in cluster.pools.items():
        if pool.label_nodes:
            yield Finding(
                (*at, "pools", name, "label_nodes"),
                pool.label_nodes,
                "with `access: namespace` the stack declares nothing outside its namespace, and nodes are",
                "ask an administrator to label them, and remove it",
                read=read,
            )


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

OURS = ("SLIPWAY_", "TF_CONFIG")
"""What variables begin with that only Slipway sets."""


def check_interconnect(request: Request) -> Iterator[Finding]:
    """Findings about `interconnect`."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        for key, pool in cluster.pools.items():
            if pool.interconnect is not None:
                at: Path = ("clusters", name, "pools", key, "interconnect")
                yield from _resource(at, pool.interconnect)
                yield from _environment(at, pool.interconnect)


def _resource(at: Path, interconnect: InterconnectSettings) -> Iterator[Finding]:
    resource = interconnect.resource
    if resource is None:
        if interconnect.count != 1:
            yield Finding(
                (*at, "count"),
                interconnect.count,
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


def _environment(at: Path, interconnect: InterconnectSettings) -> Iterator[Finding]:
    for name in interconnect.environment:
        if not VARIABLE.fullmatch(name):
            reason, fix = "not the name of an environment variable", "use letters, digits and `_`: `NCCL_IB_HCA`"
        elif name.startswith(OURS):
            reason, fix = "Slipway sets it", "remove it"
        else:
            continue
        yield Finding((*at, "environment", name), name, reason, fix)


def check_nodes(request: Request) -> Iterator[Finding]:
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
    # An empty list takes back what the stack gave them.
    if not pool.label_nodes or "taints" not in pool.model_fields_set:
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


def check_pools(request: Request) -> Iterator[Finding]:
    """Findings about what the file says of existing nodes."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        for key, pool in cluster.pools.items():
            at = ("clusters", name, "pools", key)
            yield from label_findings((*at, "selector"), pool.selector)
            yield from taint_findings((*at, "taints"), pool.taints)
            if pool.accelerator is not None and accelerator(pool.accelerator) is None:
                yield Finding(
                    (*at, "accelerator"),
                    pool.accelerator,
                    "not in the catalogue of accelerators",
                    did_you_mean(
                        pool.accelerator,
                        accelerators(),
                        f"known: {listed(accelerators(), 'and')}; a new one is added in Slipway's {PLACE}",
                    ),
                )
            elif pool.accelerator is not None and not pool.gpus:
                yield Finding(
                    (*at, "gpus"),
                    pool.gpus,
                    f"the pool has `{pool.accelerator}`, and no number of them",
                    "write what `kubectl describe node` shows under Allocatable as `nvidia.com/gpu`",
                    read=((*at, "accelerator"),),
                )
            elif pool.gpus and pool.accelerator is None:
                yield Finding(
                    (*at, "accelerator"),
                    None,
                    f"the pool has {pool.gpus} GPU(s), and what they are is not said",
                    f"write one of {listed(accelerators())}",
                    read=((*at, "gpus"),),
                )
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
    same = f"it selects the same nodes as `{first}`"
    keys = ("selector", "taints", "nodes", "label_nodes", "accelerator", "gpus")
    both: tuple[Path, ...] = tuple((*place, pool, key) for pool in (first, name) for key in keys)
    if one.has_gpus and other.has_gpus:
        yield Finding(
            (*place, name, "selector"),
            other.selector,
            f"{same}, and both have GPUs: steps of one pool would get those of the other",
            f"select by a label that only its own nodes have, or remove it and name pool `{first}` in the steps",
            all_of=both,
        )
    elif _pool_taints(one) != _pool_taints(other):
        yield Finding(
            (*place, name, "taints"),
            sorted(_pool_taints(other)),
            f"{same}, which says {listed(sorted(_pool_taints(one)), 'and') or 'no taints'}: they cannot have both",
            "write the same taints in both pools",
            all_of=both,
        )
    elif one.most_nodes != other.most_nodes:
        yield Finding(
            (*place, name, "nodes"),
            other.most_nodes,
            f"{same}, of which there are {one.most_nodes}",
            "write how many nodes have the label, in both pools",
            all_of=both,
        )


def _pool_taints(pool: ExistingPool) -> set[str]:
    return {f"{taint.key}={taint.value}:{taint.effect}" for taint in pool.taints}


CHECKS = (check_clusters, check_pools, check_interconnect, check_nodes, store.check)
