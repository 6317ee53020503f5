"""The network of GKE nodes: its interface, and whether they are to stand close together.

Sources, read in November 2026: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/compact-placement,
"Limitations"; what is bought as flex-start or from a reservation: the documents of
GoogleCloudPlatform/cluster-toolkit on GKE ("Compact Placement", "Specific Reservations"), and its module
gke-node-pool.
"""

from collections.abc import Iterator, Sequence

from infra.clouds.gcp.catalogue import compact_placement, is_zone, machine_type
from infra.clouds.gcp.settings import GcpCluster, GcpPool
from infra.schema.problems import Finding, Path, listed
from infra.schema.request import Request

IMPOSSIBLE = {
    "flex_start": "Google places flex-start nodes by workload policies, which Slipway does not declare",
    "reservation": "the machines of a reservation stay in the place that it was made with",
}
"""Ways to buy nodes that a pool with a placement policy cannot be bought in."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about `gvnic` and `placement`."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        for key, pool in cluster.pools.items():
            # What Autopilot has no use for is reported as that.
            if cluster.autopilot:
                continue
            yield from _gvnic(("clusters", name, "pools", key), pool)
            if pool.placement is not None:
                yield from _placement(("clusters", name), cluster, key, pool)


def _gvnic(at: Path, pool: GcpPool) -> Iterator[Finding]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/using-gvnic, "Requirements", read on 2026-11-20."""
    if pool.gvnic and pool.image_type != "COS_CONTAINERD":
        unset = "gvnic" not in pool.model_fields_set
        yield Finding(
            (*at, "gvnic"),
            True,
            f"{'the default, and ' if unset else ''}GKE has gVNIC only on Container-Optimized OS",
            "write `gvnic: false`, or `image_type: COS_CONTAINERD`",
            read=((*at, "image_type"),),
        )


def _placement(cluster_at: Path, cluster: GcpCluster, key: str, pool: GcpPool) -> Iterator[Finding]:
    at, allowed, machine = (*cluster_at, "pools", key), compact_placement(), machine_type(pool.machine_type)
    if machine is not None and machine.family not in allowed.families:
        yield Finding(
            (*at, "placement"),
            pool.placement,
            f"Google cannot place `{machine.name}` nodes close together",
            f"remove it, or take a machine type of {listed(name.upper() for name in allowed.families)}",
            read=((*at, "machine_type"),),
        )
    for way, reason in IMPOSSIBLE.items():
        if getattr(pool, way):
            yield Finding((*at, "placement"), pool.placement, reason, f"remove it, or `{way}`", read=((*at, way),))
    zones = _zones(cluster, pool)
    if len(zones) != 1:
        yield Finding(
            (*at, "zones"),
            None if pool.zones is None else list(pool.zones),
            "nodes stand close together within one zone only",
            f"name one zone{', such as ' + listed(zones) if zones else ''}, or remove `placement`",
            read=((*at, "placement"), (*cluster_at, "zones"), (*cluster_at, "location")),
        )
    most = max(pool.nodes.count or 0, pool.nodes.max or 0, pool.nodes.total_max or 0)
    if most > allowed.most_nodes:
        yield Finding(
            (*at, "nodes"),
            pool.nodes.model_dump(exclude_none=True),
            f"Google places at most {allowed.most_nodes:,} nodes of a pool close together",
            "write less, or remove `placement`",
            read=((*at, "placement"),),
        )


def _zones(cluster: GcpCluster, pool: GcpPool) -> Sequence[str]:
    """The zones that are named for the pool; none where the choice is left to others."""
    own = [cluster.location] if is_zone(cluster.location) else []
    return pool.zones or sorted({*(cluster.zones or ()), *own})
