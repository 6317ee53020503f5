"""Pools of clusters that are already there."""

from collections.abc import Iterator

from infra.accelerators import accelerator, accelerators
from infra.existing.settings import ExistingCluster
from infra.settings.finding import Finding, did_you_mean, listed
from infra.settings.reading import Reading
from infra.settings.spelling import label_findings, taint_findings


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about what the file says of existing nodes."""
    for name, cluster in reading.draft.of(ExistingCluster).items():
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
