"""Pools of clusters that are already there."""

from collections.abc import Iterator

from infra.accelerators import accelerator, accelerators
from infra.clouds.existing.settings import ExistingCluster, ExistingPool
from infra.schema.kubernetes_names import label_findings
from infra.schema.problems import Finding, Path, did_you_mean, listed
from infra.schema.request import Request
from infra.schema.taints import taint_findings


def check(request: Request) -> Iterator[Finding]:
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
                        f"known: {listed(accelerators(), 'and')}; a new one is added in infra/data",
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
        first = next((each for each in names[:index] if pools[each].selector == pool.selector), None)
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
    elif _taints(one) != _taints(other):
        yield Finding(
            (*place, name, "taints"),
            sorted(_taints(other)),
            f"{same}, which says {listed(sorted(_taints(one)), 'and') or 'no taints'}: they cannot have both",
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


def _taints(pool: ExistingPool) -> set[str]:
    return {f"{taint.key}={taint.value}:{taint.effect}" for taint in pool.taints}
