"""Kueue as a stack declares it: what there is to hand out, who may have how much of it, and in which order.

Kueue suspends a Job that names a queue when it is created, and lets it start once there is quota for all of its
pods. Facts about its objects are those of API version v1beta2 (github.com/kubernetes-sigs/kueue,
apis/kueue/v1beta2, read in November 2026).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.features.kueue.feature import API, REPLICAS, REQUESTS, KueueSettings, section_of
from slipway.infra.api_server import ApiServer, RefusedError
from slipway.infra.charts import charts
from slipway.infra.kubernetes.cluster.workspace import Admission
from slipway.infra.kubernetes.labels import PART_OF, QUEUE_ANNOTATION, QUEUE_LABEL
from slipway.infra.objects import image, source, wait_for
from slipway.infra.pipelines.residents import Resident
from slipway.infra.platform import GPU_RESOURCE, Platform, Pool, Priority, QueueAccess, Resources
from slipway.infra.review.stack import strings
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit
from slipway.infra.schema.quantities import canonical, cpu_quantity, seconds, size_quantity
from slipway.infra.stack.clusters import held_on, host_pool
from slipway.infra.stack.placed_stack import PlacedStack


@dataclass(frozen=True)
class KueueArgs:
    """``namespace`` is that of the stack's own Jobs, after which objects outside namespaces are named.

    ``shares`` are by namespace: those whose Jobs are admitted here, and how the pools are divided among them.
    ``held`` is what is in no queue.
    """

    platform: Platform
    section: KueueSettings
    namespace: str
    shares: Mapping[str, int]
    held: Sequence[Resident] = ()

    @property
    def wait(self) -> int:
        """How many seconds somebody waits for a Job."""
        return seconds(self.section.wait)


CHART = "kueue"

LONGEST_BACKOFF = 1800
"""Seconds, at most, before Kueue tries again to start a Job whose nodes did not come."""


def kueue_release(
    name: str, args: KueueArgs, opts: pulumi.ResourceOptions
) -> "k8s.helm.v3.Release":  # As text: the SDK's Helm takes long to import, and few stacks need it.
    """Declares the release in a namespace of its own.

    It is ready when Kueue's webhooks answer, without which the API server refuses Jobs and Kueue's own objects.
    """
    pool = host_pool(args.platform)
    nodes = list(pool.resources) if pool else []
    namespace = k8s.core.v1.Namespace(
        f"{name}-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=args.section.namespace, labels={**PART_OF, "pod-security.kubernetes.io/enforce": "restricted"}
        ),
        opts=wait_for(opts, *nodes),
    )
    return k8s.helm.v3.Release(
        f"{name}-release",
        name=CHART,
        namespace=args.section.namespace,
        **source(charts()[CHART]),
        values=values(args, pool),
        # A first node may have to come.
        timeout=900,
        opts=wait_for(opts, namespace),
    )


def values(args: KueueArgs, pool: Pool | None) -> dict[str, Any]:
    """The chart's values (charts/kueue/values.yaml)."""
    manager: dict[str, Any] = {
        "image": {**image(charts()[CHART].image), "pullPolicy": "IfNotPresent"},
        "resources": {
            "requests": {"cpu": f"{REQUESTS.cpu}m", "memory": f"{REQUESTS.memory}Mi"},
            "limits": {"memory": f"{REQUESTS.memory}Mi"},
        },
    }
    controller: dict[str, Any] = {
        "replicas": REPLICAS,
        "manager": manager,
        "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
    }
    if pool:
        controller["nodeSelector"] = dict(pool.selector)
        controller["tolerations"] = [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in pool.taints
        ]
    return {
        "fullnameOverride": CHART,
        "controllerManager": controller,
        # YAML, and so may be JSON.
        "managerConfig": {"controllerManagerConfigYaml": json.dumps(configuration(args))},
    }


def configuration(args: KueueArgs) -> dict[str, Any]:
    """Kueue's configuration (apis/config/v1beta2/configuration_types.go)."""
    ready_within, namespaces = seconds(args.section.ready_within), sorted([*args.shares, *args.section.namespaces])
    values: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "integrations": {"frameworks": ["batch/job"]},
        # Whoever names no queue is not held up.
        "manageJobsWithoutQueueName": False,
        # Its webhooks see no Job of another namespace, so that nobody else waits for it while it is away.
        "managedJobsNamespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "In",
                    "values": namespaces,
                }
            ]
        },
        "waitForPodsReady": {
            "timeout": f"{ready_within}s",
            # A pod that is lost while the others run: what runs in them waits for it, or ends, by itself.
            "recoveryTimeout": f"{ready_within}s",
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                # Then the Job stays suspended: nobody waits for it any more, and its nodes would still be billed.
                "backoffLimitCount": max(1, math.ceil(args.wait / (ready_within + LONGEST_BACKOFF))),
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": LONGEST_BACKOFF,
            },
        },
    }
    if len(args.shares) > 1:
        values["fairSharing"] = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    return values


CPU, MEMORY, SCRATCH = "cpu", "memory", "ephemeral-storage"


def resources(pools: Iterable[Pool]) -> list[str]:
    """The resources that pods on any of the pools may ask for.

    Kueue admits no Job that asks for another one (`QuotaCheckStrategy`, default ``BlockUndeclared``, in
    apis/config/v1beta2/configuration_types.go of Kueue 0.19).
    """
    resources = [CPU, MEMORY, SCRATCH]
    for pool in pools:
        more = [GPU_RESOURCE] if pool.allocatable.gpus else []
        if pool.interconnect and pool.interconnect.resource:
            more.append(pool.interconnect.resource)
        resources += [resource for resource in more if resource not in resources]
    return resources


def amounts(resources: Resources) -> dict[str, int]:
    """Resources by Kubernetes' names: CPU in millicores, memory and storage in MiB."""
    return {
        CPU: resources.cpu,
        MEMORY: resources.memory,
        SCRATCH: resources.ephemeral_storage,
        GPU_RESOURCE: resources.gpus,
    }


def most(pool: Pool, held: Iterable[Resident] = ()) -> dict[str, int]:
    """What the nodes of ``pool``, as many as it can have, leave to Jobs: all but what is ``held``."""
    quotas = {name: amount * pool.max_nodes for name, amount in amounts(pool.allocatable).items()}
    if pool.interconnect and pool.interconnect.resource:
        quotas[pool.interconnect.resource] = pool.interconnect.count * pool.max_nodes
    for resident in held:
        if resident.pool == pool.name:
            for name, amount in amounts(resident.most).items():
                quotas[name] = max(0, quotas[name] - amount)
    return quotas


def divided(amount: int, shares: Sequence[int]) -> list[int]:
    """``amount`` in whole parts that stand to each other as ``shares`` do, as nearly as can be; they add up to it.

    Raises ValueError where all shares are 0.
    """
    total = sum(shares)
    if not total:
        raise ValueError("all shares are 0")
    parts = [amount * share // total for share in shares]
    # What is left over goes to those that rounding took most from, the first of them first.
    short = sorted(range(len(shares)), key=lambda index: -(amount * shares[index] % total))
    for index in short[: amount - sum(parts)]:
        parts[index] += 1
    return parts


def nominal(
    pools: Sequence[Pool], shares: Mapping[str, int], held: Sequence[Resident] = ()
) -> dict[str, dict[str, dict[str, int]]]:
    """Each namespace's quota by the pool's name and the resource's.

    ``shares`` are by namespace. Raises ValueError where all of them are 0.
    """
    quotas: dict[str, dict[str, dict[str, int]]] = {share: {} for share in shares}
    named = resources(pools)
    for pool in pools:
        room = most(pool, held)
        for name in named:
            parts = divided(room.get(name, 0), list(shares.values()))
            for namespace, part in zip(shares, parts, strict=True):
                quotas[namespace].setdefault(pool.name, {})[name] = part
    return quotas


def quantity(resource: str, amount: int) -> str:
    """An amount of `amounts` as Kubernetes writes it."""
    if resource == CPU:
        return cpu_quantity(amount)
    return size_quantity(amount) if resource in {MEMORY, SCRATCH} else canonical(str(amount))


LOCAL_QUEUE = "slipway"
"""Name of the LocalQueue in each namespace."""

PRIORITIES: Mapping[Priority, int] = {"low": 100, "normal": 200, "high": 300}
"""Values of the WorkloadPriorityClasses by a step's `priority`. A workload without a class has 0."""

PREEMPTION: Mapping[str, Mapping[str, str]] = {
    "never": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
    "lower-priority": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"},
    "shares": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
}
"""What Kueue may stop for a Job that waits, by the setting."""

CONTROLLER = "kueue.x-k8s.io/provisioning-request"
"""Kueue's controller for the admission check that asks the cluster's autoscaler for all nodes at once
(apis/kueue/v1beta2/provisioningrequestconfig_types.go)."""

RETRY_PAUSE = 1800
"""Seconds, at most, between two requests for nodes that did not come (`backoffMaxSeconds`, the default). The
default number of requests, 3, would leave a Job suspended for good within minutes."""


class WorkloadPriorityClass(pulumi.CustomResource):
    """A priority of Jobs in queues. It has no ``spec``, which is all that `CustomResource` of the SDK can have."""

    def __init__(
        self,
        name: str,
        metadata: k8s.meta.v1.ObjectMetaArgs,
        value: int,
        description: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        kind = type(self).__name__
        properties = {"apiVersion": API, "kind": kind, "metadata": metadata}
        properties |= {"value": value, "description": description}
        super().__init__(f"kubernetes:{API}:{kind}", name, properties, opts)


class Kueue(pulumi.ComponentResource):
    """Flavors, ClusterQueues and priorities of one cluster, and Kueue itself where the stack installs it.

    ``access`` is, by namespace, what a LocalQueue and Jobs there name. ``ready`` are the resources to wait for
    before a LocalQueue.
    """

    def __init__(self, name: str, args: KueueArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:Kueue", name, {}, opts)
        on_cluster = pulumi.ResourceOptions(parent=self, provider=args.platform.provider)
        installed = [kueue_release(name, args, on_cluster)] if args.section.install else []
        # Kueue has to be there for as long as they are: it keeps a queue or flavor from being deleted while
        # something uses it, and nobody else lets it go.
        after = wait_for(on_cluster, *installed)
        pools = list(args.platform.pools.values())
        classes = [
            WorkloadPriorityClass(
                f"{name}-priority-{level}",
                _metadata(called),
                PRIORITIES[level],
                f"Steps of Slipway with `priority: {level}`.",
                after,
            )
            for level, called in priorities(args.namespace).items()
        ]
        flavors = [
            _object(
                f"{name}-flavor-{pool.name}",
                "ResourceFlavor",
                _metadata(flavor_name(args.namespace, pool.name)),
                flavor(pool),
                after,
            )
            for pool in pools
        ]
        checks = _checks(name, pools, args, after)
        quotas = nominal(pools, args.shares, args.held)
        behind = wait_for(after, *flavors, *checks)
        queues = [
            _object(
                f"{name}-queue-{namespace}",
                "ClusterQueue",
                _metadata(namespace),
                cluster_queue(namespace, quotas[namespace], args),
                behind,
            )
            for namespace in args.shares
        ]
        rights = [_team_rights(name, args.namespace, after)] if len(args.shares) > 1 else []
        self.ready: Sequence[pulumi.Resource] = (*installed, *classes, *queues, *rights)
        self.access: Mapping[str, QueueAccess] = {
            namespace: QueueAccess(namespace, priorities(args.namespace)) for namespace in args.shares
        }
        self.register_outputs({"queues": list(args.shares)})


def _checks(
    name: str, pools: Sequence[Pool], args: KueueArgs, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """An admission check for each class by which an autoscaler brings all nodes at once."""
    made: list[pulumi.Resource] = []
    for kind in dict.fromkeys(pool.provisioning for pool in pools if pool.provisioning):
        called, parameters = check_name(args.namespace, kind), "ProvisioningRequestConfig"
        request = {
            "provisioningClassName": kind,
            "managedResources": [GPU_RESOURCE],
            "retryStrategy": {"backoffLimitCount": max(3, math.ceil(args.wait / RETRY_PAUSE))},
        }
        config = _object(f"{name}-provisioning-{kind}", parameters, _metadata(called), request, opts)
        reference = {"apiGroup": API.partition("/")[0], "kind": parameters, "name": called}
        check = {"controllerName": CONTROLLER, "parameters": reference}
        made += [
            config,
            _object(f"{name}-check-{kind}", "AdmissionCheck", _metadata(called), check, wait_for(opts, config)),
        ]
    return made


def priorities(namespace: str) -> dict[Priority, str]:
    """The WorkloadPriorityClasses of a stack with that namespace, by a step's `priority`."""
    return {level: f"{namespace}-{level}" for level in PRIORITIES}


def flavor_name(namespace: str, pool: str) -> str:
    """The ResourceFlavor of a pool: a namespace has no dot, so that no two stacks have one name."""
    return f"{namespace}.{pool}"


def check_name(namespace: str, kind: str) -> str:
    """The AdmissionCheck for a class of provisioning, and its parameters.

    A dot would be refused in the name of parameters (`AdmissionCheckParametersReference`).
    """
    return fit(f"{namespace}--{kind.partition('.')[0]}", KUBERNETES_NAME_LIMIT)


def flavor(pool: Pool) -> dict[str, Any]:
    """The ResourceFlavor's specification: which nodes it stands for, and which pods may be on them."""
    spec: dict[str, Any] = {
        "nodeTaints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in pool.taints]
    }
    if pool.selector:
        spec["nodeLabels"] = dict(pool.selector)
    return spec


def cluster_queue(namespace: str, quotas: Mapping[str, Mapping[str, int]], args: KueueArgs) -> dict[str, Any]:
    """The ClusterQueue's specification: what the Jobs of ``namespace`` may have, by pool and resource.

    ``quotas`` are amounts as `amounts` counts them.
    """
    pools = args.platform.pools
    named = resources(pools.values())
    spec: dict[str, Any] = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        # A Job that waits for GPUs holds up none that needs a CPU.
        "queueingStrategy": "BestEffortFIFO",
        "preemption": dict(PREEMPTION[args.section.preemption]),
        "resourceGroups": [
            {
                "coveredResources": named,
                "flavors": [
                    {
                        "name": flavor_name(args.namespace, pool),
                        "resources": [
                            {"name": resource, "nominalQuota": quantity(resource, quotas[pool][resource])}
                            for resource in named
                        ],
                    }
                    for pool in pools
                ],
            }
        ],
    }
    if len(args.shares) > 1:
        spec["cohortName"] = args.namespace
        spec["fairSharing"] = {"weight": str(args.shares[namespace])}
    on: dict[str, list[str]] = {}
    for pool in pools.values():
        if pool.provisioning:
            kind = check_name(args.namespace, pool.provisioning)
            on.setdefault(kind, []).append(flavor_name(args.namespace, pool.name))
    if on:
        spec["admissionChecksStrategy"] = {
            "admissionChecks": [{"name": kind, "onFlavors": flavors} for kind, flavors in on.items()]
        }
    return spec


def _team_rights(name: str, namespace: str, opts: pulumi.ResourceOptions) -> k8s.rbac.v1.ClusterRole:
    """Lets who administers a namespace make its LocalQueue, and see what waits there.

    Kueue's own roles are part of no role of Kubernetes (charts/kueue/templates/rbac/localqueue_editor_role.yaml).
    """
    labels = {**PART_OF, "rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    return k8s.rbac.v1.ClusterRole(
        f"{name}-team-queues",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=f"{namespace}-team-queues", labels=labels),
        rules=[
            k8s.rbac.v1.PolicyRuleArgs(
                api_groups=["kueue.x-k8s.io"],
                resources=["localqueues"],
                verbs=["create", "delete", "get", "list", "patch", "update", "watch"],
            ),
            k8s.rbac.v1.PolicyRuleArgs(
                api_groups=["kueue.x-k8s.io"],
                resources=["localqueues/status", "workloads", "workloads/status"],
                verbs=["get", "list", "watch"],
            ),
        ],
        opts=opts,
    )


def _object(
    name: str, kind: str, metadata: k8s.meta.v1.ObjectMetaArgs, spec: Any, opts: pulumi.ResourceOptions
) -> k8s.apiextensions.CustomResource:
    return k8s.apiextensions.CustomResource(
        name, api_version=API, kind=kind, metadata=metadata, spec=spec, opts=opts
    )


def _metadata(name: str, namespace: str | None = None) -> k8s.meta.v1.ObjectMetaArgs:
    return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace, labels=PART_OF)


def admissions(stack: PlacedStack) -> dict[str, Admission]:
    """What holds back the stack's Jobs, by the cluster where something does."""
    settings, declared = stack.settings, _declared(stack)
    section = section_of(settings) or KueueSettings()
    wait, queues = seconds(section.wait), dict[str, Admission]()
    for name, platform in stack.platforms.items():
        if kueue := declared.get(name):
            access = kueue.access[settings.namespace]
            queues[name] = _of_queue(access, wait, kueue.ready, kueue.access)
        elif platform.queue:
            queues[name] = _of_queue(platform.queue, wait)
        elif section.local_queue:
            queues[name] = Admission(section.local_queue, wait)
    return queues


def _declared(stack: PlacedStack) -> dict[str, Kueue]:
    """What the stack declares of Kueue, by cluster."""
    settings, section = stack.settings, section_of(stack.settings)
    if section is None or section.local_queue:
        return {}
    shares = section.shares_of(settings.namespace, settings.teams, runs_pipelines=bool(settings.pipelines))
    return {
        name: Kueue(
            f"{name}-kueue", KueueArgs(platform, section, settings.namespace, shares, held_on(stack, platform))
        )
        for name, platform in stack.platforms.items()
        if platform.owned
    }


def _of_queue(
    access: QueueAccess,
    wait: int,
    ready: Sequence[pulumi.Resource] = (),
    teams: Mapping[str, QueueAccess] = MappingProxyType({}),
) -> Admission:
    """By a LocalQueue for the ClusterQueue of ``access``, which the namespace has of its own."""

    def local_queue(name: str, namespace: str, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        # Kueue refuses to change it.
        behind = wait_for(opts, *ready, replace_on_changes=["spec.clusterQueue"], delete_before_replace=True)
        spec = {"clusterQueue": access.cluster_queue}
        metadata = _metadata(LOCAL_QUEUE, namespace)
        return _object(f"{name}-local-queue", "LocalQueue", metadata, spec, behind)

    return Admission(LOCAL_QUEUE, wait, access.priorities, local_queue, ready, teams)


def creation_problem(server: ApiServer, metadata: Mapping[str, Any]) -> str:
    """What keeps the Job with these ``metadata`` from waiting in its queue; empty where nothing does."""
    queue = queue_of(metadata)
    return queue_problem(server, metadata.get("namespace") or "", queue) if queue else ""


@cache
def queue_problem(server: ApiServer, namespace: str, queue: str) -> str:
    """What keeps a Job in ``namespace`` from waiting in the LocalQueue ``queue``; empty where nothing does.

    Raises UnreadableError where a Job may not be tried.
    """
    # Who administers one namespace may have no right to read queues, and sees by the Job alone.
    with suppress(RefusedError):
        if server.find(API, "LocalQueue", queue, namespace) is None:
            return (
                f"there is no LocalQueue `{queue}` ({API}) in namespace {namespace}: Kueue would never let its "
                "Jobs run, and without Kueue they would run at once, whatever the quota"
            )
    container = {"name": "x", "image": "x"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "slipway-queue-test", "namespace": namespace, "labels": {QUEUE_LABEL: queue}},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }
    if server.try_out(job)["spec"].get("suspend"):
        return ""
    return (
        f"Kueue does not hold back Jobs of namespace {namespace}, which would run at once, whatever the quota: it "
        "is not there, does not answer, or looks after other namespaces (`managedJobsNamespaceSelector`)"
    )


def queue_of(metadata: Mapping[str, Any]) -> str:
    """The queue of the Job with these metadata, now or once somebody lets it run."""
    labels, annotations = (strings(metadata.get(key)) for key in ("labels", "annotations"))
    return labels.get(QUEUE_LABEL) or annotations.get(QUEUE_ANNOTATION, "")
