"""The store of clusters that are already there: who can mount it, and on how many nodes."""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from slipway.infra.clouds.existing.settings import (
    ExistingCluster,
    NfsStore,
    PvcStore,
    S3CompatibleStore,
    s3_drivers,
    single_node_classes,
    system_folder,
)
from slipway.infra.schema.names import LAST_PORT, is_subdomain
from slipway.infra.schema.paths import absolute_problem, below_problem
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.request import STORE_KIND, Request

ENDPOINT = re.compile(r"https?://(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?::(?P<port>[0-9]{1,9}))?/?")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, as documented in 2025.
BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
PREFIX = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")

Clusters = Mapping[str, ExistingCluster]


def check(request: Request) -> Iterator[Finding]:
    """Findings about the store by itself, and with the clusters that are to mount it."""
    store, clusters = request.store, request.clusters_of(ExistingCluster)
    if isinstance(store, PvcStore):
        yield from _pvc(store, clusters, request)
    elif isinstance(store, NfsStore):
        yield from _nfs(store)
    elif isinstance(store, S3CompatibleStore):
        yield from _bucket(store)
        yield from _driver(store)
    elif store is not None and clusters:
        yield Finding(
            STORE_KIND,
            store.kind,
            f"{listed(clusters, 'and')} was there before Slipway, which cannot know whether its pods can mount a "
            "cloud's own store, and as whom",
            "write `kind: pvc`, `nfs` or `s3_compatible`, or give that cluster a stack of its own",
            read=request.cloud_places,
        )
    if isinstance(store, NfsStore | S3CompatibleStore) or (isinstance(store, PvcStore) and store.host_path):
        yield from _volume_of_the_cluster(store.kind, clusters)


def _pvc(store: PvcStore, clusters: Clusters, request: Request) -> Iterator[Finding]:
    if len(clusters) > 1:
        yield Finding(
            STORE_KIND,
            store.kind,
            f"a volume belongs to one cluster, and there are {listed(clusters, 'and')}",
            "keep one cluster in this stack, or write `kind: nfs` or `s3_compatible`",
            read=request.cloud_places,
        )
    if store.host_path is not None:
        yield from _host_path(store, store.host_path, clusters)
    else:
        yield from _check_access_mode(store, clusters)


def _host_path(store: PvcStore, path: str, clusters: Clusters) -> Iterator[Finding]:
    place = ("store", "host_path")
    if store.storage_class is not None:
        yield Finding(
            place,
            path,
            "a folder on the node has no StorageClass, and `storage_class` is set too",
            "remove one of them",
            read=(("store", "storage_class"),),
        )
    if why := absolute_problem(path):
        reason = f"not the absolute path of a folder: {why}"
        yield Finding(place, path, reason, "write for example `/var/lib/slipway`")
    elif folder := system_folder(path):
        yield Finding(
            place,
            path,
            f"`{folder}` is the node's own, and the Jobs write and delete in the store",
            "name a folder that is the store's alone, such as `/var/lib/slipway`",
        )
    for name, cluster in clusters.items():
        nodes = _nodes(cluster)
        if nodes > 1:
            yield Finding(
                place,
                path,
                f"a folder on one node is not on the others, and the pools of `{name}` have {nodes}",
                "use a StorageClass or `kind: nfs`, or give all pools the `selector` of one node",
                read=_node_count_places(name, cluster),
            )
        if cluster.openshift:
            yield Finding(
                place,
                path,
                f"`{name}` is OpenShift, where SELinux keeps pods from the folders of their node",
                "use a StorageClass or `kind: nfs`",
                read=(("clusters", name, "openshift"),),
            )


def _check_access_mode(store: PvcStore, clusters: Clusters) -> Iterator[Finding]:
    if store.access_mode == "ReadWriteMany":
        why = single_node_classes().get(store.storage_class or "")
        if why:
            yield Finding(
                ("store", "storage_class"),
                store.storage_class,
                f"a volume of this class {why}, so that it cannot be ReadWriteMany",
                "name a class of shared file systems, such as `ocs-storagecluster-cephfs`, or write `kind: nfs`",
                read=(("store", "access_mode"),),
            )
        return
    for name, cluster in clusters.items():
        nodes = _nodes(cluster)
        if nodes > 1:
            yield Finding(
                ("store", "access_mode"),
                store.access_mode,
                f"the pools of `{name}` have {nodes} nodes, and while one of them has the volume, steps on the "
                "others wait",
                "write `ReadWriteMany` and a `storage_class` that offers it, or `kind: nfs`, or give all pools "
                "the `selector` of one node",
                read=_node_count_places(name, cluster),
            )


def _node_count_places(name: str, cluster: ExistingCluster) -> tuple[Path, ...]:
    """Where the keys stand that say how many nodes the pools of a cluster have."""
    keys = ("selector", "nodes", "label_nodes")
    return tuple(("clusters", name, "pools", pool, key) for pool in cluster.pools for key in keys)


def _nodes(cluster: ExistingCluster) -> int:
    """The nodes of all pools; pools with the same selector are on the same nodes."""
    pools = {frozenset(pool.selector.items()): pool.most_nodes for pool in cluster.pools.values()}
    return sum(pools.values())


def _volume_of_the_cluster(kind: str, clusters: Clusters) -> Iterator[Finding]:
    for name, cluster in clusters.items():
        if cluster.access == "namespace":
            yield Finding(
                STORE_KIND,
                kind,
                f"the volume belongs to the cluster `{name}`, and with `access: namespace` the stack declares "
                "nothing outside its namespace",
                "write `kind: pvc` with a `storage_class`",
                read=(("clusters", name, "access"), ("store", "host_path")),
            )


def _nfs(store: NfsStore) -> Iterator[Finding]:
    if not _is_host(store.server):
        yield Finding(
            ("store", "server"),
            store.server,
            "neither a host name nor an address",
            "write for example `filer.example.com`, without a port, and the folder under `path`",
        )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_host(text: str) -> bool:
    """Whether ``text`` is the name of a host or an IP address."""
    # A name of digits and dots alone is an address with a slip in it.
    return _is_address(text) or (is_subdomain(text.lower()) and not re.fullmatch(r"[0-9.]+", text))


def _bucket(store: S3CompatibleStore) -> Iterator[Finding]:
    example = "write for example `https://s3.example.com:9000`, and the bucket under `bucket`"
    match = ENDPOINT.fullmatch(store.endpoint)
    if match is None or not _is_host(match["host"]):
        yield Finding(("store", "endpoint"), store.endpoint, "not the URL of a server", example)
    elif match["port"] and not 0 < int(match["port"]) <= LAST_PORT:
        reason = f"`{match['port']}` is no port: ports are 1 to {LAST_PORT}"
        yield Finding(("store", "endpoint"), store.endpoint, reason, example)
    if not BUCKET.fullmatch(store.bucket) or _is_address(store.bucket):
        yield Finding(
            ("store", "bucket"),
            store.bucket,
            "not a bucket name: 3 to 63 lower-case letters, digits, `-` and `.`, a letter or digit on both sides "
            "of each `.` and at both ends, and no IP address",
            "write the name alone, and a folder in the bucket under `prefix`",
        )
    if store.prefix and (below_problem(store.prefix) or not PREFIX.fullmatch(store.prefix)):
        yield Finding(
            ("store", "prefix"), store.prefix, "not a folder in a bucket", "write for example `teams/digits`"
        )


def _driver(store: S3CompatibleStore) -> Iterator[Finding]:
    driver = s3_drivers().get(store.driver)
    able = [name for name, known in s3_drivers().items() if known.renames and known.appends]
    if driver is None:
        yield Finding(
            ("store", "driver"),
            store.driver,
            "not a driver whose volumes Slipway can declare",
            did_you_mean(store.driver, able, f"install {listed(able)}, or use a StorageClass with `kind: pvc`"),
        )
    elif not (driver.renames and driver.appends):
        lacking = [words for words, can in (("rename", driver.renames), ("append", driver.appends)) if not can]
        yield Finding(
            ("store", "driver"),
            store.driver,
            f"it mounts buckets with {driver.mount}, which cannot {' or '.join(lacking)}, as the steps do to "
            "publish whole results",
            f"install {listed(able)}",
        )
