"""Services and apps: whether their nodes stay, their probes, and who may connect to them."""

from collections.abc import Iterator

from infra.kubernetes.labels import RUN_ANNOTATION, inputs_of
from infra.kubernetes.review import CLIENT_SERVICE, addresses
from infra.review.contract import Harm, Policy, Severity, Violation
from infra.review.stack import (
    JOB,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    known,
    mapping,
    mappings,
    number,
    strings,
)
from offline.evaluated.pod_rules import EGRESS, lets_all_in, refuses
from offline.evaluated.scheduling import find_shortages, has_gpus, pools_of
from offline.evaluated.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET, Workload, as_patched, workloads


def list_servers(stack: Stack) -> Iterator[tuple[Resource, Workload]]:
    """Each Service with what its selector picks, in the same namespace."""
    pods = list(workloads(stack))
    for service in as_patched(stack, CLIENT_SERVICE):
        selector = strings(at(service.properties, "spec", "selector"))
        namespace = at(service.properties, "metadata", "namespace") or "default"
        for pod in pods:
            same = pod.resource.provider == service.provider and pod.namespace == namespace
            if same and selector and selector.items() <= pod.labels.items():
                yield service, pod


def _servers(stack: Stack) -> list[Workload]:
    """What a Service leads to and runs beside Jobs, each once.

    A Job with a Service is none: its pods find one another by it, and it ends.
    """
    return list({server.resource.urn: server for _, server in list_servers(stack) if not server.job}.values())


def _list_staying(stack: Stack) -> list[Workload]:
    """What serves, and every StatefulSet, each once."""
    workloads_ = [*_servers(stack), *workloads(stack, STATEFUL_SET)]
    return list({workload.resource.urn: workload for workload in workloads_}.values())


def _find_on_spot(stack: Stack) -> Iterator[Violation]:
    for workload in _list_staying(stack):
        pools = workload.suitable_pools(stack)
        if not pools or not all(map(_goes, pools)):
            continue
        others = [pool.name for pool in pools_of(stack, workload.cluster) if _could_take(pool, workload)]
        fix = f"place it on {' or '.join(f'`{name}`' for name in others)}" if others else "add a pool for it"
        why = ", ".join(f"{pool.name}: {_why(pool)}" for pool in pools)
        yield Violation(
            workload.resource.urn,
            f"its nodes are taken back ({why}), and all that connect to it wait until it has come up on another",
            f"{fix}, whose nodes stay",
        )


def _goes(pool: NodePool) -> bool:
    return pool.spot or pool.run_limit is not None


def _why(pool: NodePool) -> str:
    return "Spot" if pool.spot else "each runs for a limited time"


def _could_take(pool: NodePool, workload: Workload) -> bool:
    """Whether the pool's nodes stay and have room for the pod, whatever it selects now."""
    wanted = workload.requests
    return (
        not _goes(pool)
        and not has_gpus(pool)
        and pool.max_nodes > 0
        and wanted is not None
        and not find_shortages(wanted, pool.allocatable)
    )


def _find_without_probe(stack: Stack) -> Iterator[Violation]:
    for workload in _servers(stack):
        containers = workload.spec.get("containers")
        if known(containers) and not any(container.get("readinessProbe") for container in mappings(containers)):
            yield Violation(
                workload.resource.urn,
                "it has no readinessProbe: it counts as ready as soon as it has started, and Jobs connect before "
                "it answers",
                "add a readinessProbe, such as `tcpSocket` with its port",
            )


def _find_open(stack: Stack) -> Iterator[Violation]:
    for service, workload in list_servers(stack):
        if lets_all_in(stack, workload):
            yield Violation(
                service.urn,
                f"every pod of the cluster may connect to {workload.resource.name}: no NetworkPolicy says who may",
                "add a NetworkPolicy for its pods whose ingress comes from the pods that need it",
            )


def _find_unreachable(stack: Stack) -> Iterator[Violation]:
    served_all = list(list_servers(stack))
    for client in workloads(stack):
        for host, port in dict.fromkeys(addresses(client.spec)):
            for service, server in served_all:
                if (
                    at(service.properties, "metadata", "name") != host
                    or server.cluster != client.cluster
                    or server.namespace != client.namespace
                ):
                    continue
                if side := refuses(stack, client, server, _target(service, server, port)):
                    whose = client.resource.name if side == EGRESS else server.resource.name
                    yield Violation(
                        client.resource.urn,
                        f"it connects to {host}:{port}, and the NetworkPolicies of {whose} do not let it "
                        f"({side.lower()})",
                        f"let the pods of {client.resource.name} connect to those of {server.resource.name}",
                    )


def _target(service: Resource, server: Workload, port: int) -> int | None:
    """The pod's port behind a port of the Service; None if it is not known."""
    for service_port in mappings(at(service.properties, "spec", "ports")):
        if number(service_port.get("port")) == port:
            target = service_port.get("targetPort", port)
            if isinstance(target, str) and not target.isdigit():
                return next(
                    (number(port.get("containerPort")) for port in _ports(server) if port.get("name") == target),
                    None,
                )
            return int(target) if isinstance(target, int | str) else None
    return port


def _ports(server: Workload) -> list[Properties]:
    return [mapping(port) for container in server.containers for port in mappings(container.get("ports"))]


def _find_behind_schedule(stack: Stack) -> Iterator[Violation]:
    """Apps that read the results of the last update only, while the same steps run again by the clock."""
    scheduled = {
        at(stack.resources[job].properties, "metadata", "annotations", RUN_ANNOTATION): resource.name
        for resource in stack.of_type(CRON_JOB)
        for job in resource.dependencies
        if job in stack.resources and stack.resources[job].type == JOB
    }
    for workload in workloads(stack, DEPLOYMENT, STATEFUL_SET):
        read = inputs_of(mapping(at(workload.template, "metadata", "annotations")))
        steps = {name: scheduled[path] for name, path in read.items() if path in scheduled}
        if steps:
            names = ", ".join(f"`{name}`" for name in steps)
            by = ", ".join(dict.fromkeys(steps.values()))
            yield Violation(
                workload.resource.urn,
                f"it reads {names} of the last `up` for ever: the results that {by} makes are billed, and it does "
                "not show them",
                "write `follow: newest` at the app in the stack file, or remove the pipeline's `schedule`",
            )


POLICIES = (
    Policy(
        "app-behind-schedule",
        Severity.WARNING,
        "An app that reads results of a pipeline with a schedule follows the newest good run.",
        _find_behind_schedule,
        "Write `follow: newest` at the app.",
    ),
    Policy(
        "service-on-spot",
        Severity.ERROR,
        "A service, and every StatefulSet, runs on nodes that are not taken back: no Spot, preemptible or "
        "flex-start nodes.",
        _find_on_spot,
        "Place it on a pool whose nodes stay.",
    ),
    Policy(
        "service-without-probe",
        Severity.ERROR,
        "What a Service leads to says when it is ready.",
        _find_without_probe,
        "Add a readinessProbe.",
    ),
    Policy(
        "service-open-to-all",
        Severity.ERROR,
        "A NetworkPolicy says who may connect to what a Service leads to.",
        _find_open,
        "Add a NetworkPolicy with the pods that may connect.",
        harm=Harm.OPENING,
    ),
    Policy(
        "service-out-of-reach",
        Severity.ERROR,
        "The NetworkPolicies on both sides let a pod connect to the Services that it names.",
        _find_unreachable,
        "Add the ingress at the service, or the egress at the pod.",
    ),
)
