"""Clusters of another stack as platforms: a Kubernetes provider for each, and nothing of a cloud."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra import emulator
from slipway.infra.clouds.contract import Cloud
from slipway.infra.clouds.other_stack.settings import OtherStackCluster
from slipway.infra.objects import cluster_provider
from slipway.infra.platform import Claim, Node, Platform, Pool, Store
from slipway.infra.platform_output import PoolFacts, StoreFacts, UnreadableStackError
from slipway.infra.schema.request import Request

READ_STACK_OUTPUTS = "pulumi:pulumi:readStackOutputs"
"""The engine's own function behind stack references (pkg/resource/deploy/builtins.go, Pulumi 3.260).

A reference to a stack that is not there ends the program; this function fails, so that the problem can be told
together with all others.
"""

KUBECONFIG = "kubeconfig"
"""The secret output with the kubeconfigs of a stack's clusters, by cluster."""

_references: ContextVar[Mapping[str, pulumi.StackReference]] = ContextVar(
    "references", default=MappingProxyType({})
)
"""Those of the program that is running: a program may have one reference to a stack."""


def full_name(stack: str) -> str:
    """The stack's name with organization and project: of this stack, where it stands alone."""
    if "/" in stack:
        return stack
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"


def reference(stack: str) -> pulumi.StackReference:
    """The program's one reference to a stack."""
    name, known = full_name(stack), _references.get()
    if name not in known:
        known = {**known, name: pulumi.StackReference(name)}
        _references.set(known)
    return known[name]


def outputs_of(stack: str) -> Mapping[str, Any]:
    """The outputs of ``stack`` that are not secret, as an `slipway.infra.platform_output.Resolve`.

    The settings are checked against them before anything is declared, so the program waits for them here.
    Raises UnreadableStackError where the backend has no such stack, or does not let the user read it.
    """
    name = full_name(stack)
    try:
        outputs = pulumi.runtime.invoke(READ_STACK_OUTPUTS, {"name": name}).value
    except Exception as error:
        # The SDK's text repeats the function's name before the engine's own words.
        reason = str(error).rpartition("returned an error: ")[2]
        raise UnreadableStackError(
            f"the outputs of `{name}` cannot be read: {reason}",
            "correct the name (`pulumi stack ls --all` lists what you may read), or bring that stack up first",
        ) from error
    secret = set(outputs.get("secretOutputNames") or ())
    return {key: value for key, value in outputs["outputs"].items() if key not in secret}


def kubeconfig(stack: str, cluster: str) -> pulumi.Output[str]:
    """The kubeconfig of a cluster of ``stack``, as a secret."""
    kubeconfig = reference(stack).require_output(KUBECONFIG)
    return pulumi.Output.secret(kubeconfig.apply(lambda by_cluster: str(by_cluster[cluster])))


def platforms(request: Request, clouds: Mapping[str, Cloud]) -> Mapping[str, Platform]:
    """One platform for each cluster of another stack, which is on one of ``clouds``.

    Raises ValueError where that stack's output was not read.
    """
    return {
        name: OtherCluster(name, cluster, clouds, has_secrets=request.has_secrets).platform
        for name, cluster in request.clusters_of(OtherStackCluster).items()
    }


def pool_of(cluster: str, name: str, facts: PoolFacts) -> Pool:
    """The pool as pods see it."""
    return Pool(
        name=name,
        cluster=cluster,
        selector=facts.selector,
        taints=[taint.taint() for taint in facts.taints],
        allocatable=facts.node(),
        max_nodes=facts.max_nodes,
        accelerator=facts.accelerator,
        shared_gpus=facts.shared_gpus,
        min_nodes=facts.min_nodes,
        gpu_clients=facts.gpu_clients,
        mig_strategy=facts.mig_strategy,
        requests=facts.requests,
        movable=facts.movable,
        interconnect=facts.interconnect,
        runtime_class=facts.runtime_class,
        notice=UNKNOWN_NOTICE,
    )


UNKNOWN_NOTICE = 25
"""Seconds that a pod gets to end itself: whether its node may be taken back is not among what the stack tells."""


def store_of(facts: StoreFacts, cloud: str, clouds: Mapping[str, Cloud]) -> Store:
    """The store as pods mount it, and as the one of ``clouds`` that is called ``cloud`` reads it."""
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
        sidecar=facts.sidecar,
        claim=Claim(claim.name, claim.size, claim.access_mode, claim.storage_class, claim.volume_name)
        if claim
        else None,
        reader=facts.reader,
    )
    return clouds[cloud].readable(store, facts.reader) if facts.reader else store


class OtherCluster(pulumi.ComponentResource):
    """A cluster of another stack: its provider is all that is declared of it."""

    def __init__(
        self,
        name: str,
        cluster: OtherStackCluster,
        clouds: Mapping[str, Cloud],
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
        provider = cluster_provider(name, config, self, has_secrets=has_secrets, context=context)
        self.platform = Platform(
            name=name,
            provider=provider,
            kubeconfig=config,
            pools={key: pool_of(name, key, pool) for key, pool in cluster.pools.items()},
            store=store_of(access.store, facts.cloud, clouds),
            service_account_annotations=access.service_account_annotations,
            ready=(),
            connect=facts.connect,
            kubectl=facts.kubectl,
            # The other stack declares it: two stacks cannot both.
            device_plugin=None,
            pod_user=facts.pod_user,
            egress=facts.egress,
            creates_namespace=cluster.owns_namespace,
            context=context,
            owned=False,
            app_annotations={account: app.annotations for account, app in access.apps.items() if app.annotations},
            queue=access.queue,
        )
        self.register_outputs({"stack": cluster.stack})


class Emulator(emulator.Emulator):
    """The nodes that the other stack's pools can have, and the namespaces that are there."""

    def __init__(self, request: Request) -> None:
        self._clusters = request.clusters_of(OtherStackCluster)
        self._namespace = request.namespace

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes of every pool, as many as it can grow to."""
        return [
            Node(
                cluster=name,
                pool=pool,
                labels=facts.selector,
                taints=[taint.taint() for taint in facts.taints],
                allocatable=facts.node(),
                count=facts.max_nodes,
                accelerator=facts.accelerator,
            )
            for name, cluster in self._clusters.items()
            for pool, facts in cluster.pools.items()
        ]

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """The namespace, in clusters where the stack does not create it."""
        return [(name, self._namespace) for name, cluster in self._clusters.items() if not cluster.owns_namespace]
