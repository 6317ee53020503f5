"""Clusters on GKE Autopilot: what they have no use for, and which ways there are to ask for nodes."""

from collections.abc import Iterator, Mapping

from infra.accelerators import accelerator as accelerator_of
from infra.clouds.gcp import autopilot
from infra.clouds.gcp.autopilot import PERFORMANCE
from infra.clouds.gcp.catalogue import is_zone, region_of
from infra.clouds.gcp.rules.pools import CATALOGUE
from infra.clouds.gcp.settings import GcpCluster, GcpPool
from infra.schema.problems import Finding, Path, did_you_mean, listed
from infra.schema.request import Request

_GOOGLES = "Autopilot's nodes are Google's, which sets them up"
_SIZED = "Autopilot gives each pod the scratch space that it asks for"
_STANDARD = "remove it, or use a cluster with `mode: standard`"

REFUSED: Mapping[str, tuple[str, str]] = {
    "machine_type": (
        "Autopilot chooses machines by what pods ask for",
        "remove it, or write `compute_class: Performance` and the `machine_family`",
    ),
    "nodes": (
        "Autopilot has no node pools: nodes come and go with pods",
        "remove it; `most_pods` limits the pods",
    ),
    "zones": (
        "a way to ask for nodes has no zones of its own",
        "remove it, or name the zones under `zones` of the cluster",
    ),
    "preemptible": ("Autopilot has Spot pods in place of preemptible nodes", "write `spot: true`"),
    "reservation": ("Slipway asks Autopilot for no reservations", _STANDARD),
    "flex_start": ("Slipway asks Autopilot for no flex-start nodes", _STANDARD),
    "queued_provisioning": ("Slipway asks Autopilot for no flex-start nodes", _STANDARD),
    "max_run_duration": (
        "Autopilot's nodes go once no pod needs them",
        "remove it; the steps' `time_limit` ends their pods",
    ),
    "gpu_sharing": ("Slipway asks Autopilot for whole GPUs", _STANDARD),
    "gpu_partition": ("Slipway asks Autopilot for whole GPUs", _STANDARD),
    "placement": ("Slipway asks Autopilot for no place of its nodes", _STANDARD),
    "disk_type": (_SIZED, "remove it"),
    "disk_size_gb": (_SIZED, "remove it; it is `ephemeral_storage` of the steps"),
    "local_ssd_count": (_SIZED, "remove it; it is `ephemeral_storage` of the steps"),
    "local_ssd_block_count": (_SIZED, _STANDARD),
    "labels": (_GOOGLES, "remove it"),
    "resource_labels": (_GOOGLES, "remove it; `labels` of the cluster are on what it bills"),
    "taints": (_GOOGLES, "remove it"),
    "service_account": (
        "a cluster on Autopilot has one account for all nodes, which is the stack's",
        "remove it",
    ),
    **dict.fromkeys(
        (
            "image_type",
            "image_streaming",
            "gvnic",
            "max_pods_per_node",
            "logging_variant",
            "auto_repair",
            "auto_upgrade",
        ),
        (_GOOGLES, "remove it"),
    ),
}
"""The keys of a node pool that a way to ask for nodes has no use for: why, and what to do."""

ONLY = ("compute_class", "machine_family", "most_pods")
"""The keys that a node pool has no use for."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters on Autopilot, and about keys that only these have."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        at: Path = ("clusters", name)
        if cluster.autopilot:
            yield from _cluster(at, cluster)
        for key, pool in cluster.pools.items():
            place = (*at, "pools", key)
            if cluster.autopilot:
                yield from _way(place, pool, (*at, "mode"))
            else:
                yield from _standard(place, pool, (*at, "mode"))


def _cluster(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    mode = ((*at, "mode"),)
    if is_zone(cluster.location):
        yield Finding(
            (*at, "location"),
            cluster.location,
            "a zone, and clusters on Autopilot are regional",
            f"write `{region_of(cluster.location)}`",
            read=mode,
        )
    if cluster.release_channel == "UNSPECIFIED":
        yield Finding(
            (*at, "release_channel"),
            cluster.release_channel,
            "clusters on Autopilot are in a release channel",
            "write `REGULAR`, or remove it",
            read=mode,
        )
    if cluster.pools and all(pool.accelerator for pool in cluster.pools.values()):
        yield Finding(
            (*at, "pools"),
            sorted(cluster.pools),
            "none is without GPUs: some pods need none, such as gates, and Autopilot refuses these beside GPUs",
            "add one: `cpu: {}`",
            read=(*mode, *((*at, "pools", name, "accelerator") for name in cluster.pools)),
        )


def _standard(at: Path, pool: GcpPool, mode: Path) -> Iterator[Finding]:
    for key in ONLY:
        if _says(pool, key):
            yield Finding(
                (*at, key),
                getattr(pool, key),
                "only clusters on Autopilot have it, and this one has node pools",
                "remove it, or write `mode: autopilot` for the cluster",
                read=(mode,),
            )


def _way(at: Path, pool: GcpPool, mode: Path) -> Iterator[Finding]:
    for key, (reason, fix) in REFUSED.items():
        if _says(pool, key):
            value = pool.model_dump(exclude_unset=True)[key]
            yield Finding((*at, key), value, reason, fix, read=(mode,))
    if pool.gpu_driver == "INSTALLATION_DISABLED":
        reason = "on Autopilot GKE always installs the driver"
        yield Finding((*at, "gpu_driver"), pool.gpu_driver, reason, "write `LATEST` or `DEFAULT`", read=(mode,))
    yield from _class(at, pool)
    yield from _accelerator(at, pool)


def _says(pool: GcpPool, key: str) -> bool:
    """Whether the file gives the key another value than it has by itself."""
    default: object = GcpPool.model_fields[key].get_default(call_default_factory=True)
    return getattr(pool, key) != default


def _class(at: Path, pool: GcpPool) -> Iterator[Finding]:
    family, read = pool.machine_family, ((*at, "compute_class"), (*at, "accelerator"))
    if pool.compute_class and pool.accelerator:
        yield Finding(
            (*at, "compute_class"),
            pool.compute_class,
            "pods with GPUs have a class of their own, and take no other",
            "remove it, or the `accelerator`",
            read=read,
        )
    elif pool.compute_class == PERFORMANCE and family is None:
        yield Finding(
            (*at, "machine_family"),
            None,
            "which machines such pods have to themselves decides how large they can be, and what they cost",
            f"write {listed(autopilot.families())}",
            read=read,
        )
    if family is None:
        return
    if pool.compute_class != PERFORMANCE:
        yield Finding(
            (*at, "machine_family"),
            family,
            "only pods of the class Performance choose their machines",
            "write `compute_class: Performance`, or remove it",
            read=read,
        )
    elif family not in autopilot.families():
        yield Finding(
            (*at, "machine_family"),
            family,
            "not a machine family of the class Performance, as of the catalogue",
            did_you_mean(family, autopilot.families(), f"write {listed(autopilot.families())}"),
        )


def _accelerator(at: Path, pool: GcpPool) -> Iterator[Finding]:
    name, read = pool.accelerator, ((*at, "accelerator"),)
    if name is None:
        if pool.gpus is not None:
            fix = "name one, such as `accelerator: nvidia-tesla-t4`, or remove `gpus`"
            yield Finding((*at, "gpus"), pool.gpus, "there is no accelerator", fix, read=read)
        return
    known = autopilot.accelerators()
    if name not in known:
        reason, fix = "Autopilot does not have it", f"write {listed(known)}, or `mode: standard` for the cluster"
        if not accelerator_of(name):
            reason = "not in the catalogue of accelerators"
            fix = did_you_mean(name, known, f"known: {listed(known, 'and')}; a new one is added in {CATALOGUE}")
        yield Finding((*at, "accelerator"), name, reason, fix)
    elif pool.gpus is not None and pool.gpus not in autopilot.counts(name):
        choice = listed(autopilot.counts(name))
        yield Finding((*at, "gpus"), pool.gpus, f"no machine has so many `{name}`", f"write {choice}", read=read)
