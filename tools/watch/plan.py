"""Which Jobs the program declares for a stack: their names, order, pools and prices, found out without a cloud."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from infra.kubernetes.labels import COMPONENT, INSTANCE, NAME, VARIANT_ANNOTATION
from infra.review.stack import JOB, KUBERNETES_PROVIDER, Resource, Stack, at, mapping, strings, text, texts
from infra.schema.problems import key_of
from offline.evaluated.cost import node_rate, pod_rate
from offline.evaluated.workloads import CRON_JOB, Workload, gpus_of, workload_of
from offline.preview.revisions import evaluate_trees
from tools.watch.states import Cost, PodState

WORKER = "workloads.runtime.worker"
"""The module that runs a program once for each item."""


class PlanError(Exception):
    """The stack cannot be evaluated. The message says why."""


@dataclass(frozen=True)
class Expected:
    """A step as the program declares it.

    ``name`` is ``<pipeline>-<step>``, ``job`` its Job's Kubernetes name, which ends in the digest of the run.
    ``pods`` run at once, ``gpus`` is what each asks for. ``after`` are the names of the steps that it waits for.
    ``section`` is the key of its settings in the stack file, empty where it has none. ``rate`` is the list price
    of an hour of one node of its pool, of a pod with ``by_pod``; None where none is known.
    """

    name: str
    job: str
    pipeline: str
    step: str
    cluster: str
    namespace: str
    pool: str = ""
    accelerator: str = ""
    pods: int = 1
    gpus: int = 0
    items: bool = False
    after: Sequence[str] = ()
    section: str = ""
    rate: float | None = None
    by_pod: bool = False


@dataclass(frozen=True)
class Place:
    """A cluster of the stack. ``kubeconfig`` is the path of its kubeconfig, where the stack file names one."""

    name: str
    kubeconfig: str = ""
    context: str | None = None


@dataclass(frozen=True)
class Plan:
    """``steps`` in the order of their declaration; ``schedules`` are the CronJobs by cluster and namespace."""

    stack: str
    steps: Sequence[Expected]
    places: Sequence[Place]
    namespaces: Mapping[str, str] = field(default_factory=dict[str, str])
    schedules: Sequence[tuple[str, str]] = ()
    instance: str = ""


def evaluated(stack: str, root: Path) -> Stack:
    """The stack as its program declares it, in the checkout at ``root``. Raises PlanError."""
    found = evaluate_trees(root, None, [stack]).head[stack]
    if found.stack is not None:
        return found.stack
    assert found.failure is not None
    problems = [f"{problem['key']}: {problem['reason']}; {problem['fix']}" for problem in found.failure.problems]
    raise PlanError("\n".join(problems) or found.failure.message)


def plan(stack: Stack) -> Plan:
    """What is to be seen in the clusters of ``stack``."""
    jobs = stack.of_type(JOB)
    names = {job.urn: job.name for job in jobs}
    steps = [_expected(workload_of(job, stack), stack, names) for job in jobs]
    places = [_place(resource) for resource in stack.resources.values() if resource.type == KUBERNETES_PROVIDER]
    instances = {strings(at(job.properties, "metadata", "labels")).get(INSTANCE, "") for job in jobs}
    return Plan(
        stack.name,
        steps,
        [place for place in places if any(step.cluster == place.name for step in steps)],
        {step.cluster: step.namespace for step in steps},
        [(stack.cluster_of(each), each.name) for each in stack.of_type(CRON_JOB)],
        next(iter(sorted(instances)), ""),
    )


def _place(provider: Resource) -> Place:
    path = provider.properties.get("kubeconfig")
    context = text(provider.properties.get("context")) or None
    # A kubeconfig that a cloud gives is a secret, or not known yet.
    return Place(provider.name, path if isinstance(path, str) else "", context)


def _expected(workload: Workload, stack: Stack, names: Mapping[str, str]) -> Expected:
    job = workload.resource
    labels = strings(at(job.properties, "metadata", "labels"))
    pool = workload.pool(stack)
    by_pod = pool is not None and pool.bills_pods
    return Expected(
        name=job.name,
        job=text(at(job.properties, "metadata", "name")),
        pipeline=labels.get(NAME, ""),
        step=labels.get(COMPONENT, ""),
        cluster=stack.cluster_of(job),
        namespace=text(workload.namespace),
        pool=pool.name if pool else "",
        accelerator=(pool.accelerator or "") if pool else "",
        pods=workload.pods,
        gpus=gpus_of(workload),
        items=any(WORKER in texts(container.get("command")) for container in workload.containers),
        section=_section(stack, labels.get(NAME, ""), _declared_as(job, labels.get(COMPONENT, ""))),
        after=[names[urn] for urn in names if urn in job.dependencies],
        rate=pod_rate(stack, job) if by_pod else node_rate(stack, pool),
        by_pod=by_pod,
    )


def _declared_as(job: Resource, step: str) -> str:
    """The step of the stack file that the Job was made from: of the steps of a matrix, the one that has it."""
    with contextlib.suppress(ValueError):
        variant = strings(at(job.properties, "metadata", "annotations")).get(VARIANT_ANNOTATION, "{}")
        return text(mapping(json.loads(variant)).get("of")) or step
    return step


def _section(stack: Stack, pipeline: str, step: str) -> str:
    """The key of the step's settings; empty where the stack file has no such section, as for gates."""
    pipelines = mapping(stack.configuration.get("slipway:pipelines"))
    if step not in mapping(at(pipelines, pipeline, "steps")):
        return ""
    return key_of(("pipelines", pipeline, "steps", step))


# What the nodes cost that the pods of a run hold, at list prices.


@dataclass(frozen=True)
class Stay:
    """A pod on a node, from when it got it until it ended; None while it is there.

    ``rate`` is dollars an hour, None where it is not known; it is that of the pod itself with ``by_pod``.
    """

    uid: str
    node: str
    began: datetime
    ended: datetime | None
    rate: float | None
    by_pod: bool = False


def stay(pod: PodState, step: Expected) -> Stay | None:
    """The stay of a pod; None where it never had a node."""
    if not pod.node or pod.began is None:
        return None
    node = f"{step.cluster}/{pod.node}"
    return Stay(pod.uid, node, pod.began, pod.ended, step.rate, step.by_pod)


def cost(stays: Iterable[Stay], now: datetime, *, least: bool = False) -> Cost:
    """What the stays cost up to ``now``; a node on which several pods are at once is counted once."""
    known = list(stays)
    priced = [each for each in known if each.rate is not None]
    if not priced:
        return Cost(None, least=least)
    total, hourly = 0.0, 0.0
    groups: dict[str, list[Stay]] = {}
    for each in priced:
        groups.setdefault(each.uid if each.by_pod else each.node, []).append(each)
    for group in groups.values():
        rate = max(each.rate or 0.0 for each in group)
        total += rate * _covered([(each.began, each.ended or now) for each in group]) / 3600
        if any(each.ended is None for each in group):
            hourly += rate
    return Cost(total, hourly, least or len(priced) < len(known))


def _covered(spans: Sequence[tuple[datetime, datetime]]) -> float:
    """The seconds that the spans cover, overlaps counted once."""
    total, until = 0.0, None
    for begins, ends in sorted(spans):
        start = begins if until is None else max(begins, until)
        if ends > start:
            total += (ends - start).total_seconds()
        until = ends if until is None else max(until, ends)
    return total
