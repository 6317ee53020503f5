"""Platforms on clusters that are already there, and what stands in for them offline."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra import emulator
from slipway.infra.api_server import KubeconfigError, read_kubeconfig
from slipway.infra.clouds.existing.live_cluster import UNREAD, as_argument
from slipway.infra.clouds.existing.settings import ExistingCluster, ExistingPool
from slipway.infra.clouds.existing.store import MountedStore, declare_store, folder_of
from slipway.infra.objects import cluster_provider, wait_for
from slipway.infra.platform import (
    POD_USER,
    DevicePlugin,
    Egress,
    Interconnect,
    Node,
    Platform,
    Pool,
    Resources,
    TeamAccess,
    dns_of,
)
from slipway.infra.schema.base import Team
from slipway.infra.schema.request import Request
from slipway.infra.schema.taints import as_taints


# Labels and taints of nodes are server-side applied without force, so that what someone else has set is refused,
# never overwritten. Labels are owned one by one: those of others stay, and one that somebody else sets to the same
# value stays when the stack goes. Taints are one list with one owner (``listType: atomic`` in ``core/v1``). Seen
# with Kubernetes 1.34 and Pulumi's provider 4.32 in November 2026: applying to a node that someone else gave other
# taints is a conflict, and one that has exactly these keeps them when the stack goes; and whoever taints a node
# later, as the node controller does when it is cordoned or not ready, owns the whole list from then on, and the
# stack's taint stays, too.
def mark_nodes(name: str, pool: ExistingPool, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The patches that give the nodes of ``pool`` its labels and, where it says so, its taints."""
    patches: list[pulumi.Resource] = []
    for node in pool.label_nodes:
        # A patch of a node that is not there would create it.
        node_ = k8s.core.v1.Node.get(f"{name}-{node}", node, opts)
        on_node = wait_for(opts, node_)
        patches.append(
            k8s.core.v1.NodePatch(
                f"{name}-{node}-labels",
                metadata=k8s.meta.v1.ObjectMetaPatchArgs(name=node, labels=pool.selector),
                opts=on_node,
            )
        )
        if pool.taint_nodes:
            patches.append(
                k8s.core.v1.NodePatch(
                    f"{name}-{node}-taints",
                    metadata=k8s.meta.v1.ObjectMetaPatchArgs(name=node),
                    spec=k8s.core.v1.NodeSpecPatchArgs(
                        taints=[
                            k8s.core.v1.TaintPatchArgs(key=taint.key, value=taint.value, effect=taint.effect)
                            for taint in pool.taints
                        ]
                    ),
                    opts=on_node,
                )
            )
    return patches


EGRESS = (
    # NodeLocal DNSCache, where the cluster has it (kubernetes.io/docs/tasks/administer-cluster/nodelocaldns, seen
    # November 2026).
    Egress("169.254.20.10/32", (53,), ("UDP", "TCP")),
    dns_of("kube-system", 53),
)
"""What pods need beside HTTPS to public addresses. Volumes are mounted by the node."""

OPENSHIFT_EGRESS = (dns_of("openshift-dns", 53, 5353),)
"""The same on OpenShift, whose name servers listen on another port than their Service
(docs.openshift.com, "DNS Operator in OpenShift", seen November 2026)."""


def platforms(request: Request) -> Mapping[str, Platform]:
    """One platform per existing cluster of the stack.

    Raises ValueError for a store that is no volume; the settings' own checks come first.
    """
    store, platforms = request.store, dict[str, Platform]()
    for name, cluster in request.clusters_of(ExistingCluster).items():
        if not isinstance(store, MountedStore):
            raise ValueError(f"cluster {name} cannot mount a store of kind {store and store.kind}")
        args = ClusterArgs(cluster, store, request.namespace, request.protect, request.teams, request.has_secrets)
        platforms[name] = Cluster(name, args).platform
    return platforms


def pool_of(cluster: str, name: str, pool: ExistingPool, resources: Sequence[pulumi.Resource] = ()) -> Pool:
    """The pool as pods see it; its nodes are as described once ``resources`` are there."""
    return Pool(
        name=name,
        cluster=cluster,
        selector=pool.selector,
        taints=as_taints(pool.taints),
        allocatable=pool.node(),
        max_nodes=pool.most_nodes,
        min_nodes=0 if pool.autoscaled else pool.most_nodes,
        accelerator=pool.accelerator,
        resources=resources,
        shared_gpus=pool.shares_gpus,
        gpu_clients=pool.gpu_clients,
        mig_strategy=pool.mig_strategy,
        interconnect=interconnect_of(pool),
        runtime_class=pool.runtime_class,
    )


def interconnect_of(pool: ExistingPool) -> Interconnect | None:
    """The network between the pool's nodes, where the file says what it is."""
    said = pool.interconnect
    if said is None:
        return None
    count = said.count if said.resource else 0
    return Interconnect(said.resource or "", count, said.environment)


def device_plugin_of(cluster: ExistingCluster) -> DevicePlugin | None:
    """The device plugin that the stack declares; None where the cluster has one."""
    plugin = cluster.device_plugin
    return DevicePlugin(cluster.openshift) if plugin.declare else None


@dataclass(frozen=True)
class ClusterArgs:
    """``namespace`` is where the store is claimed; ``protect`` keeps Pulumi from deleting the store's volume.

    ``teams`` are those whose stacks claim the store in namespaces of their own.
    """

    cluster: ExistingCluster
    store: MountedStore
    namespace: str
    protect: bool
    teams: Mapping[str, Team] = field(default_factory=dict[str, Team])
    has_secrets: bool = False


class Cluster(pulumi.ComponentResource):
    """A cluster by kubeconfig and context. Nothing of it is changed but the nodes that its pools name."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:existing:Cluster", name, {}, opts)
        cluster = args.cluster
        context = _context(name, cluster)
        provider = cluster_provider(
            name,
            # The path, so that no token of the user's own gets into the state.
            cluster.kubeconfig,
            self,
            has_secrets=args.has_secrets,
            # Spelt out even where it is the current one: `kubectl config use-context` would otherwise send the
            # next `up` to another cluster unnoticed; this way it plans to move there.
            context=context,
        )
        on_cluster = pulumi.ResourceOptions(parent=self, provider=provider)
        of_store = pulumi.ResourceOptions.merge(on_cluster, pulumi.ResourceOptions(protect=args.protect))
        store, ready = declare_store(f"{name}-store-volume", args.store, args.namespace, of_store)
        teams = {
            team: TeamAccess(
                declare_store(
                    f"{name}-store-volume-{team}", folder_of(args.store, team), access.namespace, of_store
                )[0]
            )
            for team, access in args.teams.items()
        }
        pools = {
            key: pool_of(name, key, pool, mark_nodes(f"{name}-{key}", pool, on_cluster))
            for key, pool in cluster.pools.items()
        }
        kubectl = f"kubectl --kubeconfig {as_argument(cluster.kubeconfig)}"
        if context:
            kubectl += f" --context {shlex.quote(context)}"
        self.platform = Platform(
            name=name,
            provider=provider,
            kubeconfig=pulumi.Output.secret(cluster.kubeconfig),
            pools=pools,
            store=store,
            service_account_annotations={},
            ready=ready,
            connect=f"{kubectl} cluster-info",
            kubectl=kubectl,
            device_plugin=device_plugin_of(cluster),
            pod_user=None if cluster.openshift else POD_USER,
            egress=OPENSHIFT_EGRESS if cluster.openshift else EGRESS,
            creates_namespace=cluster.owns_namespace,
            whole_cluster=cluster.access == "cluster",
            context=context,
            teams=teams,
            ingress_controller=cluster.ingress_controller,
        )
        self.register_outputs({"kubectl": kubectl})


def _context(name: str, cluster: ExistingCluster) -> str | None:
    if UNREAD.get():
        return cluster.context
    try:
        return read_kubeconfig(cluster.kubeconfig).context(cluster.context)
    except KubeconfigError as error:
        # No error: a preview needs no cluster. `pulumi up` fails on the first resource.
        pulumi.log.warn(
            f"slipway:clusters.{name}: {error}. `pulumi up` needs it: sign in to the cluster or start one "
            "(`oc login`, `kind create cluster`), or name another kubeconfig or context."
        )
        return cluster.context


class Emulator(emulator.Emulator):
    """The nodes that the settings describe: an existing cluster declares nothing that a cloud would compute."""

    def __init__(self, request: Request) -> None:
        self._clusters = request.clusters_of(ExistingCluster)
        self._namespace = request.namespace

    def prepare(self) -> None:
        """No kubeconfig of this machine is read."""
        UNREAD.set(True)

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes of every existing cluster: those that two pools select are there once."""
        nodes: list[Node] = []
        for name, cluster in self._clusters.items():
            same: dict[frozenset[tuple[str, str]], list[Pool]] = {}
            for key, settings in cluster.pools.items():
                pool = pool_of(name, key, settings)
                same.setdefault(frozenset(pool.selector.items()), []).append(pool)
            nodes += [_nodes(pools) for pools in same.values()]
        return nodes

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """The namespace, in clusters where the stack does not create it."""
        return [(name, self._namespace) for name, cluster in self._clusters.items() if not cluster.owns_namespace]


def _nodes(pools: Sequence[Pool]) -> Node:
    """The nodes that all ``pools`` describe, with the largest amount of each resource that one of them names."""
    most = max(pools, key=lambda pool: pool.allocatable.gpus)
    sizes = [pool.allocatable for pool in pools]
    return Node(
        cluster=most.cluster,
        pool=most.name,
        labels=most.selector,
        taints=most.taints,
        allocatable=Resources(
            cpu=max(size.cpu for size in sizes),
            memory=max(size.memory for size in sizes),
            ephemeral_storage=max(size.ephemeral_storage for size in sizes),
            gpus=most.allocatable.gpus,
        ),
        count=most.max_nodes,
        accelerator=most.accelerator,
    )
