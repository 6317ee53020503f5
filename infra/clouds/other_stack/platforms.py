"""Clusters of another stack as platforms: a Kubernetes provider for each, and nothing of a cloud."""

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from infra.clouds.other_stack.outputs import kubeconfig
from infra.clouds.other_stack.settings import OtherStackCluster
from infra.clouds.registry import CLOUDS
from infra.platform import Claim, Egress, Platform, Pool, Store
from infra.platform_output import PoolFacts, StoreFacts
from infra.schema.request import Request


def platforms(request: Request) -> Mapping[str, Platform]:
    """One platform for each cluster of another stack. Raises ValueError where that stack's output was not read."""
    return {
        name: OtherCluster(name, cluster, has_secrets=request.has_secrets).platform
        for name, cluster in request.clusters_of(OtherStackCluster).items()
    }


def pool_of(cluster: str, name: str, facts: PoolFacts) -> Pool:
    """The pool as pods see it."""
    return Pool(
        name=name,
        cluster=cluster,
        selector=facts.selector,
        taints=[each.taint() for each in facts.taints],
        allocatable=facts.node(),
        max_nodes=facts.max_nodes,
        accelerator=facts.accelerator,
        fingerprint=facts.fingerprint,
        shared_gpus=facts.shared_gpus,
        min_nodes=facts.min_nodes,
        gpu_clients=facts.gpu_clients,
        mig_strategy=facts.mig_strategy,
        requests=facts.requests.rules() if facts.requests else None,
        movable=facts.movable,
        interconnect=facts.interconnect.interconnect() if facts.interconnect else None,
    )


def store_of(facts: StoreFacts, cloud: str) -> Store:
    """The store as pods mount it, and as the package of ``cloud`` reads it."""
    csi, claimed, claim = facts.volume.csi, facts.volume.persistent_volume_claim, facts.claim
    store = Store(
        url=facts.url,
        volume=k8s.core.v1.VolumeArgs(
            name=facts.volume.name,
            csi=k8s.core.v1.CSIVolumeSourceArgs(driver=csi.driver, volume_attributes=csi.volume_attributes)
            if csi
            else None,
            persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(
                claim_name=claimed.claim_name
            )
            if claimed
            else None,
        ),
        pod_annotations=facts.pod_annotations,
        sidecar=facts.sidecar.resources(),
        claim=Claim(claim.name, claim.size, claim.access_mode, claim.storage_class, claim.volume_name)
        if claim
        else None,
        reader=facts.reader,
    )
    return CLOUDS[cloud].readable(store, facts.reader) if facts.reader else store


class OtherCluster(pulumi.ComponentResource):
    """A cluster of another stack: its provider is all that is declared of it."""

    def __init__(
        self,
        name: str,
        cluster: OtherStackCluster,
        opts: pulumi.ResourceOptions | None = None,
        *,
        has_secrets: bool = False,
    ) -> None:
        super().__init__("slipway:other_stack:Cluster", name, {}, opts)
        facts, access = cluster.facts, cluster.access
        if facts is None or access is None:
            raise ValueError(f"the output of stack {cluster.stack} was not read")
        config, context = kubeconfig(cluster.stack, cluster.cluster), facts.context
        if cluster.kubeconfig is not None:
            # The path, so that no token of the user's own gets into the state.
            config, context = pulumi.Output.secret(cluster.kubeconfig), cluster.context
        provider = k8s.Provider(
            name,
            kubeconfig=config,
            context=context,
            # A Job that a killed `up` left running is taken over, not started a second time.
            upsert_existing_objects=True,
            enable_secret_mutable=has_secrets or None,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.platform = Platform(
            name=name,
            provider=provider,
            kubeconfig=config,
            pools={key: pool_of(name, key, pool) for key, pool in cluster.pools.items()},
            store=store_of(access.store, facts.cloud),
            service_account_annotations=access.service_account_annotations,
            ready=(),
            connect=facts.connect,
            kubectl=facts.kubectl,
            # The other stack declares it: two stacks cannot both.
            device_plugin=None,
            pod_user=facts.pod_user,
            egress=[
                Egress(each.cidr, each.ports, each.protocols, each.excepted, each.namespace)
                for each in facts.egress
            ],
            creates_namespace=cluster.owns_namespace,
            reads_nodes=facts.reads_nodes,
            context=context,
            owned=False,
            app_annotations={
                account: each.annotations for account, each in access.apps.items() if each.annotations
            },
            queue=access.queue.access() if access.queue else None,
        )
        self.register_outputs({"stack": cluster.stack})
