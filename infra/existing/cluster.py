"""Platforms on clusters that are already there."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.existing.kubeconfig import KubeconfigError, context_of
from infra.existing.settings import ExistingCluster, ExistingPool, PvcStore
from infra.existing.store import declare_store
from infra.platform import Platform, Pool, Taint
from infra.settings.model import Settings


def platforms(settings: Settings) -> Mapping[str, Platform]:
    """One platform per existing cluster of the stack.

    Raises ValueError for a store that is no volume; the settings' own checks come first.
    """
    found: dict[str, Platform] = {}
    for name, cluster in settings.clusters.items():
        if isinstance(cluster, ExistingCluster):
            if not isinstance(settings.store, PvcStore):
                raise ValueError(f"cluster {name} cannot mount a store of kind {settings.store.kind}")
            args = ClusterArgs(cluster, settings.store, settings.namespace, settings.protect)
            found[name] = Cluster(name, args).platform
    return found


def pool_of(cluster: str, name: str, pool: ExistingPool) -> Pool:
    """The pool as pods see it."""
    return Pool(
        name=name,
        cluster=cluster,
        selector=pool.selector,
        taints=[Taint(taint.key, taint.value, taint.effect) for taint in pool.taints],
        allocatable=pool.node(),
        max_nodes=pool.nodes,
        accelerator=pool.accelerator,
        fingerprint=f"{pool.gpus}x{pool.accelerator}" if pool.gpus else "",
    )


@dataclass(frozen=True)
class ClusterArgs:
    """``namespace`` is where the store is claimed; ``protect`` keeps Pulumi from deleting the store's volume."""

    cluster: ExistingCluster
    store: PvcStore
    namespace: str
    protect: bool


class Cluster(pulumi.ComponentResource):
    """A cluster by kubeconfig and context. Nothing of the cluster itself is created or changed."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:existing:Cluster", name, {}, opts)
        cluster = args.cluster
        context = _context(name, cluster)
        provider = k8s.Provider(
            name,
            # The path, so that no token of the user's own gets into the state.
            kubeconfig=cluster.kubeconfig,
            # Spelt out even where it is the current one: `kubectl config use-context` would otherwise send the
            # next `up` to another cluster unnoticed; this way it plans to move there.
            context=context,
            # A Job that a killed `up` left running is taken over, not started a second time.
            upsert_existing_objects=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        store, ready = declare_store(
            f"{name}-store-volume",
            args.store,
            args.namespace,
            pulumi.ResourceOptions(parent=self, provider=provider, protect=args.protect),
        )
        kubectl = f"kubectl --kubeconfig {cluster.kubeconfig}" + (f" --context {context}" if context else "")
        self.platform = Platform(
            name=name,
            provider=provider,
            kubeconfig=pulumi.Output.secret(cluster.kubeconfig),
            pools={key: pool_of(name, key, pool) for key, pool in cluster.pools.items()},
            store=store,
            service_account_annotations={},
            ready=ready,
            connect=f"{kubectl} cluster-info",
            kubectl=kubectl,
        )
        self.register_outputs({"kubectl": kubectl})


def _context(name: str, cluster: ExistingCluster) -> str | None:
    try:
        return context_of(cluster.kubeconfig, cluster.context)
    except KubeconfigError as error:
        # No error: a preview needs no cluster. `pulumi up` fails on the first resource.
        pulumi.log.warn(
            f"slipway:clusters.{name}: {error}. `pulumi up` needs it: start the cluster (for example with "
            "`kind create cluster`), or name another kubeconfig or context."
        )
        return cluster.context
