"""Which Jobs the program declares for a stack: their names, order, pools and prices, found out without a cloud."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.kubernetes.labels import COMPONENT, INSTANCE, NAME, VARIANT_ANNOTATION
from infra.review.properties import at, mapping, strings, text, texts
from infra.review.stack import JOB, KUBERNETES_PROVIDER, Resource, Stack
from infra.schema.problems import key_of
from offline.policies.workloads import CRON_JOB, Workload, gpus_of, workload_of
from offline.preview.revisions import evaluate_trees
from offline.preview.run_cost import node_rate, pod_rate

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
    problems = [f"{each['key']}: {each['reason']}; {each['fix']}" for each in found.failure.problems]
    raise PlanError("\n".join(problems) or found.failure.message)


def plan(stack: Stack) -> Plan:
    """What is to be seen in the clusters of ``stack``."""
    jobs = stack.of_type(JOB)
    names = {job.urn: job.name for job in jobs}
    steps = [_expected(workload_of(job, stack), stack, names) for job in jobs]
    places = [_place(each) for each in stack.resources.values() if each.type == KUBERNETES_PROVIDER]
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
        items=any(WORKER in texts(each.get("command")) for each in workload.containers),
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
