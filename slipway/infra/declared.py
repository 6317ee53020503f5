"""What `slipway.run` returns: what the rest of a program may refer to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.platform import ClusterNetwork


@dataclass(frozen=True)
class Store:
    """The store of the stack.

    ``url`` is its root: ``gs://…``, ``s3://…``, ``pvc://…``. ``bucket`` is the name of the bucket that it is in;
    None where it is a file system or a volume.
    """

    url: pulumi.Output[str]
    bucket: pulumi.Output[str] | None


@dataclass(frozen=True)
class Cluster:
    """A cluster of the stack, with the namespace of its Jobs.

    ``provider`` is for the option ``provider`` of whatever is to be in the cluster. What names ``namespace`` or
    ``service_account`` is created once the namespace is ready for pods: with its limits, the rights of the
    service account and the claim of the store. ``identity`` is what the cloud calls these pods where it gives
    them rights: a member in IAM's form, or the ARN of a role; None elsewhere. ``volume`` mounts the store in a
    pod of the namespace that has the ``pod_annotations`` and the service account. ``kubeconfig`` is a secret:
    the text of a kubeconfig, or the path of one. ``network`` is what the stack declares for the cluster; None
    where the cluster was there before it.
    """

    provider: k8s.Provider
    namespace: pulumi.Output[str]
    service_account: pulumi.Output[str]
    identity: pulumi.Output[str] | None
    volume: k8s.core.v1.VolumeArgs
    pod_annotations: Mapping[str, str]
    kubeconfig: pulumi.Output[str]
    network: ClusterNetwork | None


@dataclass(frozen=True)
class Declared:
    """What the stack file asked for, as resources and outputs.

    ``clusters`` are by their names in the stack file. ``jobs`` are by ``<pipeline>-<step>``, for the option
    ``depends_on``. ``results`` are the paths in the store of what these Jobs make: what names one is created once
    the Job is complete.
    """

    store: Store
    clusters: Mapping[str, Cluster]
    jobs: Mapping[str, pulumi.Resource]
    results: Mapping[str, pulumi.Output[str]]


def declared(workspaces: Mapping[str, Workspace], jobs: Mapping[str, StepJob]) -> Declared:
    """``workspaces`` are by cluster, and ``jobs`` by ``<pipeline>-<step>``."""
    store = next(iter(workspaces.values())).platform.store
    bucket = (store.reader or {}).get("bucket")
    return Declared(
        Store(pulumi.Output.from_input(store.url), None if bucket is None else pulumi.Output.from_input(bucket)),
        {name: _cluster(workspace) for name, workspace in workspaces.items()},
        dict(jobs),
        {
            name: _after([step_job.job], step_job.run.path)
            for name, step_job in jobs.items()
            if step_job.run.step.publishes
        },
    )


def _cluster(workspace: Workspace) -> Cluster:
    platform = workspace.platform
    return Cluster(
        provider=platform.provider,
        namespace=_after(workspace.ready, workspace.namespace),
        service_account=_after(workspace.ready, workspace.service_account),
        identity=platform.identity,
        volume=platform.store.volume,
        pod_annotations=dict(platform.store.pod_annotations),
        kubeconfig=pulumi.Output.secret(platform.kubeconfig),
        network=platform.network,
    )


def _after(resources: Iterable[pulumi.Resource], value: str) -> pulumi.Output[str]:
    """``value``, which is known at once; what names it waits for ``resources``."""
    # A URN is known in a preview, too.
    return pulumi.Output.all(*(resource.urn for resource in resources)).apply(lambda _: value)
