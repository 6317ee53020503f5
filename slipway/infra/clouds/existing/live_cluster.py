"""What a cluster that is there contradicts in the pools and claims of a stack file.

A pod that no node takes waits without a word until its Job's time limit ends, half an hour for a gate. These
checks give the scheduler's reason before anything is declared.
"""

import re
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path as File
from typing import Any

import pulumi

from slipway.infra.api_server import ApiServer, KubeconfigError, UnreachableError, UnreadableError, read_kubeconfig
from slipway.infra.clouds.existing.settings import ExistingCluster, ExistingPool, PvcStore
from slipway.infra.clouds.existing.store import claim_name
from slipway.infra.platform import GPU_RESOURCE, Taint
from slipway.infra.review.stack import at, mappings, text
from slipway.infra.schema.problems import Finding, Path, Problem, key_of, listed
from slipway.infra.schema.quantities import size_in_bytes
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section, rules_of
from slipway.infra.schema.taints import as_taints

RULES = rules_of(File(__file__).parent / "data" / "live_rules.toml")

CONDITIONS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
)
"""Beginnings of the keys of taints that Kubernetes and autoscalers set and remove themselves: a node that is
cordoned, starting, not ready or short of memory (kubernetes.io/docs/reference/labels-annotations-taints), or about
to be taken away (cluster-autoscaler/FAQ.md; karpenter.sh/docs/concepts/disruption); seen November 2026."""

PATCHES = "pulumi-kubernetes"
"""How the names begin by which Pulumi's patches own fields of an object (seen with its provider 4.32)."""

SHOWN = 5
"""Most names that a text lists."""


@dataclass(frozen=True)
class LiveNode:
    """A node as it will be once the stack has labelled and tainted its own.

    ``taints`` are those that keep pods off; ``marked`` says that a stack gave it all of them. ``allocatable`` has
    bytes, cores and devices by resource; a resource that the node does not report is missing.
    """

    name: str
    labels: Mapping[str, str]
    taints: frozenset[Taint]
    allocatable: Mapping[str, Fraction]
    marked: bool = False

    def refuses(self, pool: ExistingPool) -> frozenset[Taint]:
        """The taints that the pods of ``pool`` do not tolerate."""
        return self.taints - frozenset(as_taints(pool.taints))


def examine(
    name: str, cluster: ExistingCluster, objects: Sequence[Mapping[str, Any]]
) -> tuple[list[Finding], list[str]]:
    """What `check_nodes` finds, and what it warns of."""
    warnings: list[str] = []
    return list(check_nodes(name, cluster, objects, warnings.append)), warnings


def check_nodes(
    name: str,
    cluster: ExistingCluster,
    objects: Sequence[Mapping[str, Any]],
    warn: Callable[[str], object] | None = None,
) -> Iterator[Finding]:
    """Findings about the pools of the cluster ``name``, whose nodes are ``objects`` of the API server.

    Warns of what may pass without a change of the stack file: a node that is cordoned, one that is yet to come;
    without ``warn``, in Pulumi's log.
    """
    nodes = [_node(node, cluster) for node in objects]
    for key, pool in cluster.pools.items():
        here = Section(RULES["pool"], ("clusters", name, "pools", key), pool)
        missing = list(_missing(here, pool, nodes))
        yield from missing
        if missing:
            continue
        chosen = [node for node in nodes if pool.selector.items() <= node.labels.items()]
        if chosen:
            yield from _unusable(here, cluster, pool, chosen, warn or pulumi.log.warn)
        elif not pool.autoscaled:
            yield _no_match(here, pool, nodes)


def _node(node: Mapping[str, Any], cluster: ExistingCluster) -> LiveNode:
    # The kubernetes package takes two seconds to import, and is there already where its nodes were read.
    from kubernetes.utils import parse_quantity  # noqa: PLC0415  # pyright: ignore  # It has no types.

    name = str(node["metadata"]["name"])
    labels: dict[str, str] = dict(node["metadata"].get("labels") or {})
    listed_taints: Sequence[Any] = node.get("spec", {}).get("taints") or []
    taints = {
        Taint(listed_taint["key"], listed_taint.get("value") or "", listed_taint["effect"])
        for listed_taint in listed_taints
    }
    pools = [pool for pool in cluster.pools.values() if name in pool.label_nodes]
    owners = [
        text(entry.get("manager"))
        for entry in mappings(at(node, "metadata", "managedFields"))
        if at(entry, "fieldsV1", "f:spec", "f:taints") is not None
    ]
    marked = bool(owners) and all(owner.startswith(PATCHES) for owner in owners)
    if marked and any(pool.taint_nodes for pool in pools):
        # The stack's own list takes the place of the one that it gave before.
        taints.clear()
    for pool in pools:
        labels |= pool.selector
        taints |= set(as_taints(pool.taints)) if pool.taint_nodes else set()
    allocatable: Mapping[str, str] = node.get("status", {}).get("allocatable") or {}
    return LiveNode(
        name,
        labels,
        frozenset(taint for taint in taints if taint.effect != "PreferNoSchedule"),
        {resource: Fraction(parse_quantity(amount)) for resource, amount in allocatable.items()},
        marked and bool(pools),
    )


def _missing(here: Section, pool: ExistingPool, nodes: Sequence[LiveNode]) -> Iterator[Finding]:
    names = [node.name for node in nodes]
    for index, wanted in enumerate(pool.label_nodes):
        if wanted not in names:
            yield here.found("no-such-node", index, nodes=_some(names))


def _no_match(here: Section, pool: ExistingPool, nodes: Sequence[LiveNode]) -> Finding:
    """No node has all labels of the selector: names what the nodes have instead."""
    labels: list[str] = []
    for key, value in pool.selector.items():
        values = sorted({node.labels[key] for node in nodes if key in node.labels})
        if not values:
            labels.append(f"no node has a label `{key}`")
        elif value not in values:
            labels.append(f"the nodes have {_some([f'{key}={labelled}' for labelled in values])}")
    why = "; ".join(labels) or "each of the labels is on a node, and all of them on none"
    wanted = " ".join(f"{key}={value}" for key, value in pool.selector.items())
    return here.found("no-match", why=why, nodes=_some([node.name for node in nodes]), labels=wanted)


def _unusable(
    here: Section,
    cluster: ExistingCluster,
    pool: ExistingPool,
    chosen: Sequence[LiveNode],
    warn: Callable[[str], object],
) -> Iterator[Finding]:
    lasting = {node.name: _lasting(node.refuses(pool)) for node in chosen}
    usable = [node for node in chosen if not lasting[node.name]]
    if not usable:
        fewest = min(chosen, key=lambda node: len(lasting[node.name]))
        taints = sorted(lasting[fewest.name], key=lambda taint: taint.key)
        said = [f"{taint.key}={taint.value}:{taint.effect}" for taint in pool.taints] or None
        names = listed(map(_spell, taints), "and")
        if fewest.marked:
            yield here.found("own-taint", shown=said, node=fewest, taints=names)
            return
        rows = [f'`{{key: {taint.key}, value: "{taint.value}", effect: {taint.effect}}}`' for taint in taints]
        yield here.found("unnamed-taint", shown=said, node=fewest, taints=names, rows=", ".join(rows))
        return
    yield from _short(here, cluster, pool, usable)
    if pool.autoscaled:
        # Others come.
        return
    if all(node.refuses(pool) for node in usable):
        taints = sorted({_spell(taint) for node in usable for taint in node.refuses(pool)})
        warn(
            f"{key_of((*here.at, 'selector'))}: Kubernetes lets no pod on its nodes now ({_some(taints)}): "
            f"{_some([node.name for node in usable])}. Steps wait until one is uncordoned or ready again."
        )
    elif len(usable) < pool.most_nodes:
        warn(
            f"{key_of((*here.at, 'nodes'))}: the cluster has {len(usable)} of {pool.most_nodes} nodes: "
            f"{_some([node.name for node in usable])}. Steps on more nodes than that wait for the others."
        )


def _short(
    here: Section, cluster: ExistingCluster, pool: ExistingPool, nodes: Sequence[LiveNode]
) -> Iterator[Finding]:
    """What no node of the pool has as much of as the file says."""
    claims = {
        "cpu": Fraction(pool.node().cpu, 1000),
        "memory": size_in_bytes(pool.memory),
        "ephemeral_storage": size_in_bytes(pool.ephemeral_storage),
    }
    for key, claim in claims.items():
        resource = key.replace("_", "-")
        amounts = {node.name: node.allocatable[resource] for node in nodes if resource in node.allocatable}
        if len(amounts) == len(nodes) and max(amounts.values()) < claim:
            most = max(amounts, key=lambda name: amounts[name])
            amount = amounts[most]
            text = f"{int(amount * 1000)}m" if key == "cpu" else f"{int(amount / 2**20)}Mi"
            yield here.found("too-large", key, amount=text, node=most)
    yield from _interconnect(here, pool, nodes)
    # The stack's own device plugin has yet to start, and multiplies GPUs that are shared.
    if pool.gpus and not cluster.device_plugin.declare:
        best = max(nodes, key=lambda node: node.allocatable.get(GPU_RESOURCE, Fraction(0)))
        amount = int(best.allocatable.get(GPU_RESOURCE, 0))
        if not amount:
            yield here.found("no-gpus", resource=GPU_RESOURCE, node=best.name)
        elif amount < pool.gpus:
            yield here.found("too-large", "gpus", amount=amount, node=best.name)


def _interconnect(here: Section, pool: ExistingPool, nodes: Sequence[LiveNode]) -> Iterator[Finding]:
    """Fewer devices of the network than each pod of a step with `nodes` asks for."""
    said = pool.interconnect
    if said is None or said.resource is None:
        return
    amounts = {node.name: int(node.allocatable.get(said.resource, 0)) for node in nodes}
    most = max(amounts, key=lambda name: amounts[name])
    if not amounts[most]:
        yield here.found("no-device", node=most)
    elif amounts[most] < said.count:
        yield here.found("too-large", "interconnect", "count", amount=amounts[most], node=most)


def check_runtime_classes(name: str, cluster: ExistingCluster, server: ApiServer) -> Iterator[Finding]:
    """Findings about pools of the cluster ``name`` whose RuntimeClass it does not have.

    It is asked only where a pool names one. Raises UnreadableError where they may not be read.
    """
    named = {key: pool.runtime_class for key, pool in cluster.pools.items() if pool.runtime_class}
    if not named:
        return
    known = [str(item["metadata"]["name"]) for item in server.all_of("node.k8s.io/v1", "RuntimeClass")]
    for key, runtime_class in named.items():
        if runtime_class not in known:
            here = Section(RULES["pool"], ("clusters", name, "pools", key), cluster.pools[key])
            yield here.found("no-runtime-class", known=known, classes=_some(sorted(known)))


def _lasting(taints: frozenset[Taint]) -> frozenset[Taint]:
    return frozenset(taint for taint in taints if not taint.key.startswith(CONDITIONS))


def _spell(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _some(names: Sequence[str]) -> str:
    if not names:
        return "none"
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + rest


@dataclass(frozen=True)
class _WantedClaim:
    """A claim, and the size that the stack file asks for ``at`` one place; ``other`` is the end of the fix."""

    name: str
    size: str
    at: Path
    other: str = ""


def check_claims(server: ApiServer, request: Request, cluster: str) -> Iterator[Finding]:
    """Findings about sizes that claims of ``cluster`` cannot take: Kubernetes lets a bound claim only grow.

    These are the store's claim and those of apps that keep data. A service whose volume changes is another
    StatefulSet with another claim. Nothing where there is no claim yet. Raises UnreadableError where the claims
    may not be read. A change of the store to another class, access mode or folder is another claim.
    """
    for claim in _wanted_claims(request, cluster):
        yield from _check(server, claim, request.namespace)


def _wanted_claims(request: Request, cluster: str) -> Iterator[_WantedClaim]:
    store = request.store
    if isinstance(store, PvcStore) and store.host_path is None:
        yield _WantedClaim(
            claim_name(store, request.namespace),
            store.size,
            ("store", "size"),
            ". Another `storage_class` deletes this claim and everything in it",
        )
    for volume in request.app_volumes_on(cluster):
        yield _WantedClaim(volume.claim, volume.size, volume.at)


def _check(server: ApiServer, wish: _WantedClaim, namespace: str) -> Iterator[Finding]:
    claim = server.find("v1", "PersistentVolumeClaim", wish.name, namespace)
    if claim is None:
        return
    size = str(claim["spec"]["resources"]["requests"]["storage"])
    capacity = str(claim.get("status", {}).get("capacity", {}).get("storage") or size)
    wanted, old = size_in_bytes(wish.size), _bytes(size)
    # A size whose growth failed may shrink again to anything above what the volume has (Kubernetes 1.34,
    # kubernetes.io/docs/concepts/storage/persistent-volumes, "Recovering from failure when expanding volumes").
    here = Section(RULES["claim"], wish.at, None)
    words: dict[str, Any] = {"claim": wish.name, "namespace": namespace, "key": wish.at[-1], "size": size}
    if wanted < old and wanted <= _bytes(capacity):
        yield here.found("smaller", shown=wish.size, **words)
    elif wanted > old and (reason := _why_fixed(server, claim)):
        yield here.found("larger", shown=wish.size, **words, why=reason, other=wish.other)


def _why_fixed(server: ApiServer, claim: Mapping[str, Any]) -> str | None:
    """Why the claim cannot grow; None where it can, or where the user may not read whether it can."""
    name = claim["spec"].get("storageClassName")
    if not name:
        return "it has no StorageClass"
    with suppress(UnreadableError):
        class_ = server.find("storage.k8s.io/v1", "StorageClass", name)
        if class_ is None:
            return f"its StorageClass `{name}` is gone"
        if class_.get("allowVolumeExpansion") is not True:
            return f"its StorageClass `{name}` does not set `allowVolumeExpansion`"
    return None


def _bytes(amount: str) -> Fraction:
    # The kubernetes package takes two seconds to import, and is there already where the claim was read.
    from kubernetes.utils import parse_quantity  # noqa: PLC0415  # pyright: ignore  # It has no types.

    return Fraction(parse_quantity(amount))


UNREAD: ContextVar[bool] = ContextVar("unread", default=False)
"""Whether the program is evaluated without its clusters, and so the same on every machine."""


def as_argument(kubeconfig: str) -> str:
    """The path as one word of a shell command, which still expands ``~`` or ``~name`` at its beginning."""
    home, slash, rest = kubeconfig.partition("/")
    if slash and re.fullmatch(r"~[A-Za-z0-9_.-]*", home):
        return f"{home}/{shlex.quote(rest)}"
    return shlex.quote(kubeconfig)


TIMEOUTS = (3, 10)
"""Seconds to wait for a connection and for an answer: what cannot be asked is passed over."""


def connect(cluster: ExistingCluster) -> ApiServer:
    """The API server of the cluster. Raises KubeconfigError where the file or the context is not there."""
    context = read_kubeconfig(cluster.kubeconfig).context(cluster.context)
    return ApiServer(cluster.kubeconfig, context, TIMEOUTS)


def preflight_problems(request: Request | None) -> list[Problem]:
    """What the stack's existing clusters contradict in ``request``; nothing where these are None.

    A cluster that cannot be reached is passed over, and so is what its user may not read: a preview needs no
    cluster, and what is wrong then shows in `pulumi up`.
    """
    if request is None or UNREAD.get():
        return []
    return [
        finding.problem()
        for name, cluster in request.clusters_of(ExistingCluster).items()
        for finding in _preflight_findings(name, cluster, request)
    ]


def _preflight_findings(name: str, cluster: ExistingCluster, request: Request) -> Iterator[Finding]:
    try:
        server = connect(cluster)
        with _unread():
            yield from check_nodes(name, cluster, server.all_of("v1", "Node"))
        with _unread():
            yield from check_runtime_classes(name, cluster, server)
        with _unread():
            yield from check_claims(server, request, name)
    except (KubeconfigError, UnreachableError):
        return


@contextmanager
def _unread() -> Generator[None]:
    """Passes over what the cluster's user may not read."""
    try:
        yield
    except UnreachableError:
        raise
    except UnreadableError:
        pass
