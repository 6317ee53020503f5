"""Which Jobs the program declares for a stack: their names, order, pools and prices, found out without a cloud."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from slipway.command.clusters import Place
from slipway.command.watch.states import Cost, Nodes, PodState
from slipway.evaluated.paid import kept_after
from slipway.evaluated.places import MovedStep, is_held, moved_steps, moves_of
from slipway.evaluated.workloads import Workload, gpus_of, node_rate, pod_rate, section_of, workload_of
from slipway.infra.kubernetes.labels import COMPONENT, INSTANCE, NAME
from slipway.infra.review.stack import (
    JOB,
    KUBERNETES_PROVIDER,
    NodePool,
    Resource,
    Stack,
    at,
    mapping,
    strings,
    text,
)
from slipway.preview.revisions import evaluate_trees


class PlanError(Exception):
    """The stack cannot be evaluated. The message says why."""


@dataclass(frozen=True)
class Expected:
    """A step as the program declares it.

    ``name`` is ``<pipeline>-<step>``, ``job`` its Job's Kubernetes name, which ends in the digest of the run.
    ``pods`` run at once, ``gpus`` is what each asks for. ``after`` are the names of the steps that it waits for.
    ``section`` is the key of its settings in the stack file, empty where it has none. ``rate`` is the list price
    of an hour of one node of its pool, of a pod with ``by_pod``; None where none is known. ``places`` are the Jobs
    of which one at a time runs it, ``probes`` those that ask for their nodes or act for their mover in other
    clusters, and ``notes`` is the ConfigMap with what that says. ``nodes`` are those that it asks for; ``kept`` is
    for how many seconds one with GPUs that comes and goes is kept after its last pod, None for others.
    """

    name: str
    job: str
    pipeline: str
    step: str
    cluster: str
    namespace: str
    pool: str = ""
    pods: int = 1
    gpus: int = 0
    items: bool = False
    after: Sequence[str] = ()
    section: str = ""
    rate: float | None = None
    by_pod: bool = False
    places: Sequence["Expected"] = ()
    probes: Sequence["Expected"] = ()
    notes: str = ""
    nodes: Nodes = field(default_factory=Nodes)
    kept: float | None = None


@dataclass(frozen=True)
class Plan:
    """``steps`` in the order of their declaration, ``places`` their clusters, ``namespaces`` by the cluster.

    ``instance`` is the value of the label that all objects of the stack have.
    """

    stack: str
    steps: Sequence[Expected]
    places: Sequence[Place]
    namespaces: Mapping[str, str] = field(default_factory=dict[str, str])
    instance: str = ""


def evaluate(stack: str, root: Path) -> Stack:
    """The stack as its program declares it, in the checkout at ``root``. Raises PlanError."""
    evaluated = evaluate_trees(root, None, [stack]).head[stack]
    if evaluated.stack is not None:
        return evaluated.stack
    assert evaluated.failure is not None
    problems = [
        f"{problem['key']}: {problem['reason']}; {problem['fix']}" for problem in evaluated.failure.problems
    ]
    raise PlanError("\n".join(problems) or evaluated.failure.message)


def plan_of(stack: Stack) -> Plan:
    """What is to be seen in the clusters of ``stack``."""
    jobs = stack.of_type(JOB)
    names = {job.urn: job.name for job in jobs}
    every = {job.urn: _step(workload_of(job, stack), stack, names) for job in jobs}
    moved, held = moved_steps(stack), [job for job in jobs if is_held(job)]
    steps = [
        _moved(every[job.urn], moved[job.urn], every, held) if job.urn in moved else every[job.urn]
        for job in jobs
        if not is_held(job)
    ]
    namespaces = {job.cluster: job.namespace for step in steps for job in (step, *step.places)}
    providers = [resource for resource in stack.resources.values() if resource.type == KUBERNETES_PROVIDER]
    instances = {strings(at(job.properties, "metadata", "labels")).get(INSTANCE, "") for job in jobs}
    return Plan(
        stack.name,
        steps,
        [_place(provider) for provider in providers if provider.name in namespaces],
        namespaces,
        min(instances, default=""),
    )


def _place(provider: Resource) -> Place:
    path = provider.properties.get("kubeconfig")
    context = text(provider.properties.get("context")) or None
    # A kubeconfig that a cloud gives is a secret, or not known yet.
    return Place(provider.name, path if isinstance(path, str) else "", context)


def _step(workload: Workload, stack: Stack, names: Mapping[str, str]) -> Expected:
    job = workload.resource
    labels = strings(at(job.properties, "metadata", "labels"))
    pool = workload.pool(stack)
    by_pod = pool is not None and pool.bills_pods
    step = stack.step_of(job)
    section = section_of(step, mapping(stack.configuration.get("slipway:pipelines")))
    return Expected(
        name=job.name,
        job=text(at(job.properties, "metadata", "name")),
        pipeline=labels.get(NAME, ""),
        step=labels.get(COMPONENT, ""),
        cluster=stack.cluster_of(job),
        namespace=text(workload.namespace),
        pool=pool.name if pool else "",
        pods=workload.pods,
        gpus=gpus_of(workload),
        items=step is not None and "workers" in step.tells,
        section=section,
        after=[names[urn] for urn in names if urn in job.dependencies],
        rate=pod_rate(stack, job) if by_pod else node_rate(stack, pool),
        by_pod=by_pod,
        nodes=_nodes(pool, section) if pool else Nodes(),
        kept=kept_after(pool) if pool else None,
    )


def _nodes(pool: NodePool, section: str) -> Nodes:
    """The nodes of the pool; ``section`` is that of the step which asks for them, empty where it has none."""
    return Nodes(
        pool.name,
        pool.described,
        ", ".join(pool.zones) or pool.labels.get("topology.kubernetes.io/region", ""),
        pool.queued,
        f"write further pools under `{section}.places`" if section else "",
    )


def _moved(mover: Expected, step: MovedStep, every: Mapping[str, Expected], held: Sequence[Resource]) -> Expected:
    """A step with places, which waits for what its Jobs wait for; ``held`` are those of all such steps."""
    at_places = {place.resource.urn for place in step.places}
    places = [every[place.resource.urn] for place in step.places]
    after = dict.fromkeys(name for job in (mover, *places) for name in job.after)
    for job in held:
        after.pop(job.name, None)
    return replace(
        mover,
        places=places,
        probes=[every[job.urn] for job in held if job.urn in step.job.dependencies - at_places],
        notes=text(moves_of(step.job).get("notes")),
        after=[*after],
    )


@dataclass(frozen=True)
class Stay:
    """A pod on a node, from when it got it until it ended; None while it is there.

    ``billed`` is what is paid for: the node, or the pod itself. ``rate`` is dollars an hour, None where it is not
    known.
    """

    billed: str
    began: datetime
    ended: datetime | None
    rate: float | None


def stay_of(pod: PodState, step: Expected) -> Stay | None:
    """The stay of a pod; None where it never had a node."""
    if not pod.node or pod.began is None:
        return None
    return Stay(pod.uid if step.by_pod else f"{step.cluster}/{pod.node}", pod.began, pod.ended, step.rate)


def cost(stays: Iterable[Stay], now: datetime, *, least: bool = False) -> Cost:
    """What the stays cost up to ``now``; a node on which several pods are at once is counted once."""
    groups: dict[str, list[Stay]] = {}
    for stay in stays:
        if stay.rate is None:
            least = True
        else:
            groups.setdefault(stay.billed, []).append(stay)
    if not groups:
        return Cost(None, least=least)
    total, hourly = 0.0, 0.0
    for group in groups.values():
        rate = max(stay.rate or 0.0 for stay in group)
        total += rate * _covered_seconds([(stay.began, stay.ended or now) for stay in group]) / 3600
        if any(stay.ended is None for stay in group):
            hourly += rate
    return Cost(total, hourly, least)


def _covered_seconds(spans: Sequence[tuple[datetime, datetime]]) -> float:
    """The seconds that the spans cover, overlaps counted once."""
    total, until = 0.0, min(spans)[0]
    for begin, end in sorted(spans):
        total += max((end - max(begin, until)).total_seconds(), 0.0)
        until = max(until, end)
    return total
