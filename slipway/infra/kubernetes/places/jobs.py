"""The Jobs of the places of a step, of which one at a time runs, and what asks for nodes of others.

All of them are created suspended; `slipway.infra.kubernetes.places.mover` declares what lets them run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import (
    HeldJob,
    StepJob,
    StepJobArgs,
    declare_held,
    declare_objects,
    devices_of,
    disruptions_ignored,
)
from slipway.infra.kubernetes.labels import (
    PLACE_ANNOTATION,
    QUEUE_ANNOTATION,
    RUNS_ANNOTATION,
    outside_queue,
    step_labels,
)
from slipway.infra.kubernetes.pods.node_group import one_a_node
from slipway.infra.kubernetes.pods.pod import container_security, limits, of_pool, pod_security, requests
from slipway.infra.kubernetes.run import Hold, Run
from slipway.infra.kubernetes.schedules.cluster_run import Attempts
from slipway.infra.pipelines.places import mover_account, orders_folder
from slipway.infra.placed import MOVER, Places, Step
from slipway.infra.platform import DECLARED_ALONE
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest


@dataclass(frozen=True)
class MovedStepArgs:
    """``jobs`` are those of the step as if it had one place, one a cluster of its places, the mover's first;
    its `attempts` are those of the mover's Job. ``image`` is one with Python, and ``root`` the repository.
    """

    jobs: Sequence[StepJobArgs]
    places: Places
    image: str
    root: Path

    @property
    def run(self) -> Run:
        """What runs at one of its places."""
        return self.jobs[0].run

    @property
    def workspace(self) -> Workspace:
        """Where its mover is."""
        return self.jobs[0].workspace

    @property
    def account(self) -> str:
        """The Kubernetes name of what moves it."""
        return mover_account(self.run.step.pipeline, self.run.step.name)

    @property
    def every(self) -> list[str]:
        """The Kubernetes names of the step's Jobs at all pools of its mover's cluster."""
        return [
            place_job_name(self.run, replace(self.run.step, pool=pool))
            for pool in self.workspace.platform.pools.values()
        ]

    @property
    def orders(self) -> str:
        """The folder below the store's root with its mover's orders; empty where all places are in one cluster."""
        return orders_folder(self.run.step.pipeline, self.run.step.name) if self.jobs[1:] else ""


@dataclass(frozen=True)
class PlaceJobs:
    """``entries`` are the places as the plan has them, ``held`` the Jobs by cluster and Kubernetes name."""

    entries: Sequence[Mapping[str, Any]]
    held: Mapping[str, Mapping[str, k8s.batch.v1.Job]]

    @property
    def jobs(self) -> dict[str, k8s.batch.v1.Job]:
        """Those of all clusters, by their Kubernetes names."""
        return {name: job for jobs in self.held.values() for name, job in jobs.items()}


def declare_places(name: str, args: MovedStepArgs, attempts: Attempts, step_job: StepJob) -> PlaceJobs:
    """Declares the Jobs of a step's places and their probes, all suspended, as parts of ``step_job``.

    ``attempts`` are those that are due of Jobs that failed. The names of the resources begin with ``name``.
    """
    run = args.run
    home = args.workspace.platform.name
    on_clusters = {job.workspace.platform.name: replace(job, attempts=attempts) for job in args.jobs}
    objects = {
        cluster: declare_objects(run, job.workspace, step_job, elsewhere=cluster != home)
        for cluster, job in on_clusters.items()
    }
    held: dict[str, dict[str, k8s.batch.v1.Job]] = {cluster: {} for cluster in on_clusters}
    entries: list[dict[str, Any]] = []
    for index, step in enumerate(args.places.steps):
        cluster, called = step.platform.name, place_job_name(run, step)
        # Where a cluster is cut off, nobody but the pods themselves can end their program.
        hold = Hold(f"{args.orders}/{cluster}", called) if cluster != home else None
        at_place = replace(on_clusters[cluster], run=replace(run, step=step, hold=hold))
        last = index == len(args.places.steps) - 1
        place = {"of": step_job.job_name, "index": index, "pool": step.pool.name}
        held[cluster][called] = declare_held(
            f"{name}-at-{step.pool.name}",
            at_place,
            job_name=called,
            objects=objects[cluster],
            by=MOVER,
            parent=step_job,
            more={PLACE_ANNOTATION: json.dumps(place)},
        )
        # Nodes of a ProvisioningRequest are for the Job that made it: after its probe, it would wait anew.
        probe = "" if last or step.pool.provisioning else probe_job_name(run, step)
        if probe:
            held[cluster][probe] = _declare_probe(
                f"{name}-at-{step.pool.name}-probe", probe, at_place, args.image, step_job
            )
        where = {"cluster": cluster if cluster != home else ""} if args.orders else {}
        entries.append({**_entry(step, called, probe), **where})
    return PlaceJobs(entries, held)


def place_job_name(run: Run, step: Step) -> str:
    """The Kubernetes name of the Job that runs ``run`` at the place of ``step``."""
    name = f"{run.name}-{short_digest(run.digest)}-{step.pool.name}"
    return fit(name, KUBERNETES_NAME_LIMIT - len(run.last_index))


def probe_job_name(run: Run, step: Step) -> str:
    """The Kubernetes name of the Job that asks for nodes of the place of ``step`` while ``run`` is at another."""
    name = f"{run.name}-{short_digest(run.digest)}-{step.pool.name}-probe"
    return fit(name, KUBERNETES_NAME_LIMIT - len(run.last_index))


def _declare_probe(
    name: str, called: str, job: StepJobArgs, image: str, parent: pulumi.Resource
) -> k8s.batch.v1.Job:
    """Declares what asks for as many nodes as the step of ``job`` needs there, and does nothing on them."""
    workspace, step = job.workspace, job.run.step
    labels = {**step_labels(MOVER, job.run.name)}
    # All that runs comes before what is only asked for.
    queued, queue = outside_queue(workspace.job_labels(MOVER, job.run.name, "low"))
    pod = k8s.core.v1.PodTemplateSpecArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
        spec=k8s.core.v1.PodSpecArgs(
            restart_policy="Never",
            automount_service_account_token=False,
            enable_service_links=False,
            termination_grace_period_seconds=0,
            security_context=pod_security(step.platform),
            **of_pool(step.pool),
            affinity=one_a_node(step, labels) if step.is_group else None,
            containers=[
                k8s.core.v1.ContainerArgs(
                    name="probe",
                    image=image,
                    command=["sleep", "infinity"],
                    resources=k8s.core.v1.ResourceRequirementsArgs(
                        requests=requests(step.requests), limits=limits(step.requests)
                    ),
                    security_context=container_security(),
                )
            ],
        ),
    )
    return k8s.batch.v1.Job(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=called,
            namespace=workspace.namespace,
            labels=queued,
            annotations={**DECLARED_ALONE, RUNS_ANNOTATION: MOVER, **queue},
        ),
        spec=k8s.batch.v1.JobSpecArgs(
            suspend=True,
            completions=step.pods,
            parallelism=step.pods,
            backoff_limit=0,
            pod_failure_policy=disruptions_ignored(),
            pod_replacement_policy="Failed",
            # Counted from each time that it is let run: it ends where nobody is there to end it.
            active_deadline_seconds=step.time_limit,
            template=pod,
        ),
        opts=pulumi.ResourceOptions(
            parent=HeldJob(name, pulumi.ResourceOptions(parent=parent)),
            provider=workspace.platform.provider,
            depends_on=[
                *workspace.ready,
                *step.pool.resources,
                *devices_of(step, workspace),
                *(before.job for before in job.after),
            ],
            delete_before_replace=True,
            ignore_changes=["spec.suspend"],
            # As of Jobs of steps: Kueue may have given it quota.
            replace_on_changes=[f'metadata.annotations["{QUEUE_ANNOTATION}"]'],
        ),
    )


def _entry(step: Step, called: str, probe: str) -> dict[str, Any]:
    """A place as the mover reads it; `price` is what an hour of all nodes of the step costs there."""
    rate = step.rate
    return {
        "pool": step.pool.name,
        "job": called,
        "probe": probe,
        "pods": step.pods,
        "sure": step.pool.sale == "on-demand",
        "price": round(rate.dollars * step.pods, 6) if rate else None,
    }
