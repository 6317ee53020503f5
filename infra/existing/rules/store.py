"""The store on a cluster's own volumes."""

from collections.abc import Iterator

from infra.existing.settings import ExistingCluster, PvcStore
from infra.settings.finding import Finding, listed
from infra.settings.reading import STORE_KIND, Draft, Reading


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about a volume as the store, and about another store for clusters that are already there."""
    draft = reading.draft
    clusters = draft.of(ExistingCluster)
    if isinstance(draft.store, PvcStore):
        if len(clusters) > 1:
            yield Finding(
                STORE_KIND,
                draft.store.kind,
                f"a volume belongs to one cluster, and there are {listed(clusters, 'and')}",
                "keep one cluster in this stack",
                read=reading.clouds,
            )
        yield from _claim(draft.store, draft)
    elif draft.store is not None and clusters:
        yield Finding(
            STORE_KIND,
            draft.store.kind,
            f"{listed(clusters, 'and')} was there before Slipway, which cannot know whether its pods can mount a "
            "bucket, and as whom",
            "write `kind: pvc`, or give that cluster a stack of its own",
            read=reading.clouds,
        )


def _claim(store: PvcStore, draft: Draft) -> Iterator[Finding]:
    if store.host_path is None:
        return
    if store.storage_class is not None:
        yield Finding(
            ("store", "host_path"),
            store.host_path,
            "a folder on the node has no StorageClass, and `storage_class` is set too",
            "remove one of them",
            read=(("store", "storage_class"),),
        )
    if not store.host_path.startswith("/") or store.host_path == "/":
        yield Finding(
            ("store", "host_path"),
            store.host_path,
            "not the absolute path of a folder",
            "write for example `/var/lib/slipway`",
        )
    mnist = draft.pipelines.mnist
    used = {step.pool for step in mnist.steps.values()} if mnist else set[str]()
    for name, cluster in draft.of(ExistingCluster).items():
        for key, pool in cluster.pools.items():
            if pool.nodes > 1 and key in used:
                yield Finding(
                    ("store", "host_path"),
                    store.host_path,
                    f"a folder on one node is not on the others, and pool `{key}` of the steps has {pool.nodes}",
                    "use a StorageClass, or say that the pool has one node",
                    read=(("clusters", name, "pools", key, "nodes"),),
                )
