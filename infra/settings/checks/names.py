"""Names that every stack has, and that Kubernetes would refuse or Pulumi confuse."""

from collections.abc import Iterator

from infra.schema.kubernetes_names import name_findings
from infra.schema.problems import Finding
from infra.settings.parsing import Reading


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the namespace, the service account, and every cluster's and pool's name."""
    draft = reading.draft
    yield from name_findings(("namespace",), draft.namespace)
    if draft.namespace == "default" or draft.namespace.startswith("kube-"):
        yield Finding(
            ("namespace",),
            draft.namespace,
            "a namespace that every cluster has already, and Slipway labels and owns its own",
            "choose another name, such as `slipway`",
        )
    yield from name_findings(("service_account",), draft.service_account)
    if draft.service_account == "default":
        yield Finding(
            ("service_account",),
            draft.service_account,
            "Kubernetes makes a service account of that name in every namespace",
            "choose another name, such as `runner`",
        )
    for name, cluster in draft.clusters.items():
        yield from name_findings(("clusters", name), name)
        for pool in cluster.pools:
            yield from name_findings(("clusters", name, "pools", pool), pool)


def same_pool_names(reading: Reading) -> Iterator[Finding]:
    """A step names a pool alone, so two clusters may not both have one of that name."""
    first: dict[str, str] = {}
    for cluster, pool in sorted(reading.names):
        if pool in first and first[pool] != cluster:
            yield Finding(
                ("clusters", cluster, "pools", pool),
                pool,
                f"cluster `{first[pool]}` has a pool of that name too, and a step names only the pool",
                "rename one of them",
            )
        first.setdefault(pool, cluster)


def same_resource_names(reading: Reading) -> Iterator[Finding]:
    """Pulumi tells node pools apart by ``<cluster>-<pool>``: `b-c` of `a` and `c` of `a-b` would be one."""
    first: dict[str, tuple[str, str]] = {}
    for cluster, pool in sorted(reading.names):
        taken, of = first.setdefault(f"{cluster}-{pool}", (pool, cluster))
        if of != cluster:
            yield Finding(
                ("clusters", cluster, "pools", pool),
                pool,
                f"with its cluster's name it reads `{cluster}-{pool}`, like pool `{taken}` of cluster `{of}`",
                "rename one of them",
            )
