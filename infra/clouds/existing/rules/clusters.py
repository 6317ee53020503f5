"""Clusters that are already there: what the kubeconfig's user may do, and who brings the device plugin."""

from collections.abc import Iterator

from infra.charts import copy_problem
from infra.clouds.existing.settings import ExistingCluster
from infra.schema.problems import Finding, Path
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about each cluster by itself."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        at: Path = ("clusters", name)
        yield from _device_plugin((*at, "device_plugin"), cluster, at)
        if cluster.access == "namespace":
            yield from _beyond_the_namespace(at, cluster)


def _device_plugin(place: Path, cluster: ExistingCluster, at: Path) -> Iterator[Finding]:
    plugin = cluster.device_plugin
    read = ((*place, "declare"),)
    for key in ("chart", "version"):
        if getattr(plugin, key) is not None and not plugin.declare:
            yield Finding(
                (*place, key),
                getattr(plugin, key),
                "the stack does not declare the device plugin, so that no chart is used",
                "remove it, or write `declare: true`",
                read=read,
            )
    if (
        plugin.declare
        and plugin.chart
        and (why := copy_problem("nvidia-device-plugin", plugin.chart, plugin.version))
    ):
        yield Finding((*place, "chart"), plugin.chart, why, "fetch it again, or name its `version`", read=read)
    if plugin.declare and plugin.version and not plugin.chart:
        yield Finding(
            (*place, "version"),
            plugin.version,
            "the version of a chart of your own, and which is not said; the public one's is pinned",
            "remove it, or name its `chart`",
            read=((*place, "chart"),),
        )
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
