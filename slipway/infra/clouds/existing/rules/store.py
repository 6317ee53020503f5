"""The store of clusters that are already there: who can mount it, and on how many nodes."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as File

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
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section, rules_of

RULES = rules_of(File(__file__).parents[1] / "data" / "rules.toml")

ENDPOINT = re.compile(r"https?://(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?::(?P<port>[0-9]{1,9}))?/?")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, as documented in 2025.
BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
PREFIX = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")

Clusters = Mapping[str, ExistingCluster]


def check(request: Request) -> Iterator[Finding]:
    """Findings about the store by itself, and with the clusters that are to mount it."""
    store, clusters = request.store, request.clusters_of(ExistingCluster)
    here = Section(RULES["store"], ("store",), store)
    if isinstance(store, PvcStore):
        if len(clusters) > 1:
            yield here.found("one-cluster", read=request.cloud_places, clusters=listed(clusters, "and"))
        if store.host_path is not None:
            yield from _host_path(here, store.host_path, clusters)
        else:
            yield from _check_access_mode(here, store, clusters)
    elif isinstance(store, NfsStore):
        if not _is_host(store.server):
            yield here.found("server")
    elif isinstance(store, S3CompatibleStore):
        yield from _bucket(here, store)
        yield from _driver(here, store)
    elif store is not None and clusters:
        yield here.found("elsewhere", read=request.cloud_places, clusters=listed(clusters, "and"))
    if isinstance(store, NfsStore | S3CompatibleStore) or (isinstance(store, PvcStore) and store.host_path):
        for name, cluster in clusters.items():
            if cluster.access == "namespace":
                yield here.found("outside-namespace", read=(("clusters", name, "access"),), name=name)


def _host_path(here: Section, path: str, clusters: Clusters) -> Iterator[Finding]:
    yield from here.exclusions()
    if why := absolute_problem(path):
        yield here.found("path-absolute", why=why)
    elif folder := system_folder(path):
        yield here.found("path-of-system", folder=folder)
    for name, cluster in clusters.items():
        if (nodes := _nodes(cluster)) > 1:
            yield here.found("path-on-nodes", read=_node_count_places(name, cluster), name=name, nodes=nodes)
        if cluster.openshift:
            yield here.found("path-on-openshift", read=(("clusters", name, "openshift"),), name=name)


def _check_access_mode(here: Section, store: PvcStore, clusters: Clusters) -> Iterator[Finding]:
    if store.access_mode == "ReadWriteMany":
        if why := single_node_classes().get(store.storage_class or ""):
            yield here.found("single-node", why=why)
        return
    for name, cluster in clusters.items():
        if (nodes := _nodes(cluster)) > 1:
            yield here.found("nodes-wait", read=_node_count_places(name, cluster), name=name, nodes=nodes)


def _node_count_places(name: str, cluster: ExistingCluster) -> tuple[Path, ...]:
    """Where the keys stand that say how many nodes the pools of a cluster have."""
    keys = ("selector", "nodes", "label_nodes")
    return tuple(("clusters", name, "pools", pool, key) for pool in cluster.pools for key in keys)


def _nodes(cluster: ExistingCluster) -> int:
    """The nodes of all pools; pools with the same selector are on the same nodes."""
    pools = {frozenset(pool.selector.items()): pool.most_nodes for pool in cluster.pools.values()}
    return sum(pools.values())


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


def _bucket(here: Section, store: S3CompatibleStore) -> Iterator[Finding]:
    match = ENDPOINT.fullmatch(store.endpoint)
    if match is None or not _is_host(match["host"]):
        yield here.found("no-url")
    elif match["port"] and not 0 < int(match["port"]) <= LAST_PORT:
        yield here.found("no-port", port=match["port"], last=LAST_PORT)
    if not BUCKET.fullmatch(store.bucket) or _is_address(store.bucket):
        yield here.found("bucket")
    if store.prefix and (below_problem(store.prefix) or not PREFIX.fullmatch(store.prefix)):
        yield here.found("prefix")


def _driver(here: Section, store: S3CompatibleStore) -> Iterator[Finding]:
    driver = s3_drivers().get(store.driver)
    able = [name for name, known in s3_drivers().items() if known.renames and known.appends]
    if driver is None:
        yield here.found("unknown-driver", known=able, able=listed(able))
    elif not (driver.renames and driver.appends):
        lacking = [words for words, can in (("rename", driver.renames), ("append", driver.appends)) if not can]
        yield here.found("driver", driver=driver, lacking=" or ".join(lacking), able=listed(able))
