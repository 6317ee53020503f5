"""The workspace: the namespace that steps run in, and what guards it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.device_plugin import NvidiaDevicePlugin, NvidiaDevicePluginArgs, gpu_pools
from slipway.infra.kubernetes.cluster.network_policy import (
    PUBLIC_HTTPS,
    NetworkPoliciesArgs,
    everywhere,
    network_policies,
)
from slipway.infra.kubernetes.labels import PART_OF, job_labels
from slipway.infra.kubernetes.run import PodImage, Usage
from slipway.infra.objects import wait_for
from slipway.infra.platform import GPU_RESOURCE, Claim, Collector, Egress, Platform, Priority, QueueAccess
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit
from slipway.infra.schema.quantities import canonical, cpu_quantity, size_quantity

# Which metrics the pods of a cluster have, and who may read them.
#
# They have none where a stack file has no `slipway:metrics`.


NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label of every namespace with its name (kubernetes.io/docs/reference/labels-annotations-taints, seen
November 2026)."""

OPERATOR_API = "monitoring.coreos.com/v1"
"""The API of the Prometheus operator's PodMonitor (github.com/prometheus-operator/prometheus-operator,
v0.93.1)."""


@dataclass(frozen=True)
class Measured:
    """``collector`` reads metrics every ``interval`` seconds; None: nobody does. ``usage`` None: Jobs are not
    measured.
    """

    collector: Collector | None
    interval: int
    usage: Usage | None = None


def scrapers(measured: Measured | None) -> list[k8s.networking.v1.NetworkPolicyPeerArgs]:
    """The pods that may read metrics: peers of an ingress rule. Empty where nobody reads any, and then no rule may
    be made of it: one without peers lets everybody in.
    """
    if measured is None or measured.collector is None:
        return []
    collector = measured.collector
    return [
        k8s.networking.v1.NetworkPolicyPeerArgs(
            namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={NAMESPACE_NAME: collector.namespace}),
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=dict(collector.pod_labels)),
        )
    ]


POD_SECURITY_VERSION = "v1.34"
"""The version of the Pod Security Standards that the namespace holds pods to, so that a cluster upgrade cannot
begin to refuse them. An older cluster applies its newest
(kubernetes.io/docs/concepts/security/pod-security-admission)."""

HUNDRED, FEW = 100, 50
"""Jobs that the namespace may hold, finished ones included, and how many of them are the stack's own where it has
more: of those beyond, there is room for full hundreds, so that one more changes no quota."""

JOBS_OF_PLACE = 3
"""Jobs at most for each place of a step beside those: that which runs it, its probe, and an agent."""


@dataclass(frozen=True)
class Admission:
    """What holds back the Jobs of a namespace: the ``queue`` that they name, and how many seconds somebody waits
    until each is let in.

    ``priorities`` are what Jobs name by the `priority` of their steps. ``declare`` declares the queue, given a
    resource's name, the namespace and options; None: it is there already. ``ready`` are the resources behind it,
    and ``teams`` what other namespaces name there.
    """

    queue: str
    wait: int
    priorities: Mapping[Priority, str] = field(default_factory=dict[Priority, str])
    declare: Callable[[str, str, pulumi.ResourceOptions], pulumi.Resource] | None = None
    ready: Sequence[pulumi.Resource] = ()
    teams: Mapping[str, QueueAccess] = field(default_factory=dict[str, QueueAccess])


@dataclass(frozen=True)
class WorkspaceArgs:
    """``platform`` is the cluster; ``protect`` keeps Pulumi from deleting what holds data.

    ``egress`` is where pods may connect to beyond what every stack needs; None leaves that open. ``services`` is
    how many services pipelines have there, and ``scheduled`` whether one runs by the clock. ``admission``
    holds its Jobs back; None: each starts at once. ``groups`` is how many steps
    there run on several nodes, ``places`` at how many places there steps may run, and ``apps`` how many apps there
    are, with the login proxies in front of them. ``jobs`` is how many Jobs the steps there have, those of runs by
    the clock included.
    ``measured`` is what is measured there; None: nothing. ``images`` are
    those that the stack builds, by what steps name them by, and ``pull`` is a Docker configuration with the login
    that they are pulled with.
    """

    platform: Platform
    namespace: str
    service_account: str
    protect: bool
    egress: Sequence[Egress] | None = ()
    services: int = 0
    scheduled: bool = False
    admission: Admission | None = None
    groups: int = 0
    places: int = 0
    measured: Measured | None = None
    apps: int = 0
    jobs: int = 0
    images: Mapping[str, PodImage] = field(default_factory=dict[str, PodImage])
    pull: pulumi.Output[str] | None = None


PULL_SECRET = "registry-pull"
"""The Secret with the login of a registry that is named."""


class Workspace(pulumi.ComponentResource):
    """A namespace under the *restricted* Pod Security Standard, with the identity, limits and store of its pods.

    A namespace that is there already keeps the labels and quotas that it has: the role ``admin`` of a namespace
    may write neither (kubernetes.io/docs/reference/access-authn-authz/rbac, seen November 2026).
    Nothing can connect to its pods, and they can connect only to what
    `slipway.infra.kubernetes.cluster.network_policy` says. ``protect`` keeps Pulumi from deleting what holds
    data there. ``ready`` are the resources to wait for before the first pod, and ``devices``, by pool, those to
    wait for before a pod that uses the pool's GPUs. ``limits_egress`` says that its pods can connect only to
    what a policy allows, and ``egress`` is what that is; None: everything. ``queue`` is what its
    Jobs wait in, ``priorities`` are what they name by a step's `priority`, and ``wait`` is how many seconds
    somebody waits for the admission of a Job. ``measured`` is what is measured of its pods; `scrapers` says of
    it who may read that. ``frees_claim`` are what takes the store's claim away where it is replaced: what leaves
    pods behind that the stack does not know is replaced with them.
    """

    def __init__(self, name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:Workspace", name, {}, opts)
        platform = args.platform
        self.platform = platform
        self.namespace = args.namespace
        self.service_account = args.service_account
        self.protect = args.protect
        self.limits_egress = args.egress is not None
        self.egress = _egress(args)
        self.images = args.images
        admission = args.admission
        self.queue = admission.queue if admission else None
        self.measured = args.measured
        self.priorities: Mapping[Priority, str] = admission.priorities if admission else {}
        self.wait = admission.wait if admission else 0
        child = pulumi.ResourceOptions(parent=self)
        on_cluster = pulumi.ResourceOptions(parent=self, provider=platform.provider)

        created = _own_namespace(name, args, on_cluster) if platform.creates_namespace else []
        in_namespace = wait_for(on_cluster, *created)
        # The namespace takes claims away with all that holds them, pods that the stack's state lacks included.
        self.goes_with = created[0] if created else None
        service_account = k8s.core.v1.ServiceAccount(
            f"{name}-service-account",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.service_account,
                namespace=args.namespace,
                labels=PART_OF,
                annotations=dict(platform.service_account_annotations),
            ),
            automount_service_account_token=False,
            opts=in_namespace,
        )
        # A namespace that was there before may hold pods of others.
        pods = None if created else PART_OF
        limits = NetworkPoliciesArgs(
            args.namespace,
            _egress(args),
            pods,
            services=args.services > 0,
            scheduled=args.scheduled,
            apps=args.apps > 0,
        )
        policies = network_policies(name, limits, in_namespace)
        ready: list[pulumi.Resource] = [*created, service_account, *policies]
        of_claim = pulumi.ResourceOptions.merge(in_namespace, pulumi.ResourceOptions(deleted_with=self.goes_with))
        claim = _claim(name, platform.store.claim, args, of_claim) if platform.store.claim else None
        # Kubernetes keeps a claim while a pod names it, one that is done included.
        self.frees_claim: Sequence[pulumi.Resource] = (*platform.store.replaced_with, claim) if claim else ()
        ready.extend([claim] if claim else [])
        if admission and admission.declare:
            ready.append(admission.declare(name, args.namespace, in_namespace))
        if args.pull is not None:
            ready.append(_pull_secret(name, args, args.pull, in_namespace))
        self.ready: Sequence[pulumi.Resource] = (*ready, *platform.ready)
        self.devices: Mapping[str, pulumi.Resource] = _devices(name, args, child)
        self.register_outputs({"namespace": args.namespace, "serviceAccount": args.service_account})

    def job_labels(self, pipeline: str, step: str, priority: Priority = "normal") -> dict[str, str]:
        """The labels of a Job of the step here."""
        return job_labels(pipeline, step, self.queue, self.priorities.get(priority))

    def api_egress(
        self, name: str, called: str, labels: Mapping[str, str], opts: pulumi.ResourceOptions
    ) -> list[pulumi.Resource]:
        """Lets pods with ``labels`` connect to the Kubernetes API, by a policy of the name ``called``.

        Nothing is declared where pods may connect to everything anyway.
        """
        if not self.limits_egress:
            return []
        metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=self.namespace, labels=dict(labels))
        return [everywhere(name, metadata, labels, opts)]


def _egress(args: WorkspaceArgs) -> list[Egress] | None:
    return None if args.egress is None else [*args.platform.egress, PUBLIC_HTTPS, *args.egress]


def _pull_secret(
    name: str, args: WorkspaceArgs, login: pulumi.Output[str], opts: pulumi.ResourceOptions
) -> k8s.core.v1.Secret:
    return k8s.core.v1.Secret(
        f"{name}-registry",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=PULL_SECRET, namespace=args.namespace, labels=PART_OF),
        type="kubernetes.io/dockerconfigjson",
        string_data={".dockerconfigjson": login},
        opts=opts,
    )


def _own_namespace(name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    namespace = k8s.core.v1.Namespace(
        f"{name}-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=args.namespace, labels={**PART_OF, **pod_security_labels()}),
        # Deleted before the nodes of the cluster's own services: once the metrics API has no node left,
        # the deletion of a namespace does not end.
        # And before what holds Jobs back, without which nothing that it looks after in the namespace goes.
        opts=wait_for(
            opts,
            *_service_nodes(args.platform),
            *(args.admission.ready if args.admission else ()),
            protect=_protects(args),
        ),
    )
    quota = k8s.core.v1.ResourceQuota(
        f"{name}-quota",
        metadata=k8s.meta.v1.ObjectMetaArgs(name="pools", namespace=args.namespace, labels=PART_OF),
        spec=k8s.core.v1.ResourceQuotaSpecArgs(
            hard=quota_of(
                args.platform,
                args.services + args.groups + args.apps,
                JOBS_OF_PLACE * args.places + max(0, args.jobs - FEW),
            )
        ),
        opts=wait_for(opts, namespace),
    )
    return [namespace, quota]


def pod_security_labels() -> dict[str, str]:
    """Refuse, warn of and record every pod that is not *restricted*."""
    return {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode in ("enforce", "warn", "audit")
        for suffix, value in (("", "restricted"), ("-version", POD_SECURITY_VERSION))
    }


def quota_of(platform: Platform, services: int = 0, more: int = 0) -> dict[str, str]:
    """All that the cluster's pools can ever hold: what asks for more is refused at once, not pending for ever.

    Of Services there may be as many as ``services``, those that the stack declares, and none that opens a way in
    from outside. There is room for ``more`` Jobs beside a `HUNDRED`.

    Only requests are counted: a quota on limits would refuse containers without a CPU limit. A quota on requests
    makes them mandatory for every container, also for those that a cloud injects (Cloud Storage FUSE's has them).
    """
    pools = platform.pools.values()
    return {
        "requests.cpu": cpu_quantity(sum(pool.allocatable.cpu * pool.max_nodes for pool in pools)),
        "requests.memory": size_quantity(sum(pool.allocatable.memory * pool.max_nodes for pool in pools)),
        "requests.ephemeral-storage": size_quantity(
            sum(pool.allocatable.ephemeral_storage * pool.max_nodes for pool in pools)
        ),
        f"requests.{GPU_RESOURCE}": canonical(str(sum(pool.allocatable.gpus * pool.max_nodes for pool in pools))),
        "count/jobs.batch": str(HUNDRED * (1 + math.ceil(more / HUNDRED))),
        # A load balancer would be billed and open a way in.
        "count/services": str(services),
        **({"services.loadbalancers": "0", "services.nodeports": "0"} if services else {}),
    }


def _devices(name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions) -> Mapping[str, pulumi.Resource]:
    platform = args.platform
    if platform.device_plugin is None or not gpu_pools(platform):
        return {}
    plugin = NvidiaDevicePluginArgs(
        platform.device_plugin,
        platform,
        fit(f"{args.namespace}-device-plugin", KUBERNETES_NAME_LIMIT),
        after=tuple(_service_nodes(platform)),
    )
    return NvidiaDevicePlugin(f"{name}-device-plugin", plugin, opts).releases


def _service_nodes(platform: Platform) -> list[pulumi.Resource]:
    return [resource for pool in platform.pools.values() if not pool.accelerator for resource in pool.resources]


def _protects(args: WorkspaceArgs) -> bool:
    # Deleting a namespace deletes the claims in it.
    return args.protect and args.platform.store.claim is not None


def _claim(
    name: str, claim: Claim, args: WorkspaceArgs, opts: pulumi.ResourceOptions
) -> k8s.core.v1.PersistentVolumeClaim:
    return k8s.core.v1.PersistentVolumeClaim(
        f"{name}-store",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=claim.name,
            namespace=args.namespace,
            labels=PART_OF,
            # Pulumi waits for a claim unless its class says that it binds with its first pod. Who administers one
            # namespace may not read classes: `pulumi up` then waited five minutes, and failed.
            annotations=None if args.platform.creates_namespace else {"pulumi.com/skipAwait": "true"},
        ),
        spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
            access_modes=[claim.access_mode],
            storage_class_name=claim.storage_class,
            volume_name=claim.volume_name,
            resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": canonical(claim.size)}),
        ),
        opts=pulumi.ResourceOptions.merge(
            opts,
            pulumi.ResourceOptions(
                protect=args.protect,
                # The API server lets no claim of a static volume grow ("only dynamically provisioned pvc can be
                # resized"). What is behind the volume grows without it, and the claim's size limits nothing.
                ignore_changes=["spec.resources"] if claim.storage_class == "" else None,
            ),
        ),
    )
