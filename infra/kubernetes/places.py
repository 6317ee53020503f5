"""A step that runs at one of several places: a suspended Job for each, and a Job that lets one of them run.

Autoscalers bring nodes and Kubernetes schedules pods, as for any Job. What none of them can express is when to
stop waiting for one kind of node and to take another: an order with times, a deadline, a price, and a move at a
checkpoint only. `slipway.workloads.schedule.places.move` decides that and nothing else, by `spec.suspend` of Jobs
that are there.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.bundle import config_map
from slipway.infra.kubernetes.cluster_run import Attempts, declare_notes
from slipway.infra.kubernetes.gates import KUBERNETES_API, SERVICE_ACCOUNT, cheapest_pool
from slipway.infra.kubernetes.job import (
    INTERRUPTED,
    KILLED,
    HeldJob,
    StepJob,
    StepJobArgs,
    declare_held,
    declare_objects,
    devices_of,
    disruptions_ignored,
    job_annotations,
)
from slipway.infra.kubernetes.labels import (
    MOVES_ANNOTATION,
    PLACE_ANNOTATION,
    PLAN_ANNOTATION,
    RUNS_ANNOTATION,
    job_labels,
    step_labels,
)
from slipway.infra.kubernetes.network_policy import everywhere
from slipway.infra.kubernetes.node_group import one_a_node
from slipway.infra.kubernetes.pod import bundle_map, container_security, limits, pod_security, requests, template
from slipway.infra.kubernetes.pod import tolerations as tolerations_of
from slipway.infra.kubernetes.run import Run, plan
from slipway.infra.kubernetes.schedule import RUNNER, identity
from slipway.infra.kubernetes.workspace import Workspace
from slipway.infra.objects import wait_for
from slipway.infra.pipelines.places import mover_account
from slipway.infra.placed import MOVER, Places, Step
from slipway.infra.platform import DECLARED_ALONE
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest

MODULE = "slipway.workloads.schedule.places.move"

NO_API = 12
"""Exit code of a mover that the Kubernetes API does not answer, or whose Jobs another pod moves: the next pod goes
on. After any other one, the step has failed, was too late, or too dear."""

PATIENCE = 900
"""Seconds that the mover's Job has past the time limit of the step, to stop what runs and to say why."""

ABOUT = "which Job of the step may run, and the number of the attempt that is due of each that failed"


@dataclass(frozen=True)
class MovedStepArgs:
    """``job`` are those of the step as if it had one place, `attempts` left out. ``image`` is one with Python, and
    ``root`` the repository.
    """

    job: StepJobArgs
    places: Places
    image: str
    root: Path


class MovedStep(StepJob):
    """A step with places. ``job``, for which `up` and other steps wait, is that of the mover: it is complete when
    the step is.
    """

    def __init__(self, name: str, args: MovedStepArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        # The Jobs of a step with one place are others.
        pulumi.ComponentResource.__init__(self, "slipway:kubernetes:MovedStep", name, {}, opts)
        run, workspace = args.job.run, args.job.workspace
        self.run, self.priority, self.after, self.held = run, args.job.priority, args.job.after, False
        self.job_name = run.job_name
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        )
        job_args = replace(args.job, attempts=_declare_notes(name, self, workspace))
        objects = declare_objects(run, workspace, self)
        jobs: list[k8s.batch.v1.Job] = []
        entries: list[dict[str, Any]] = []
        for index, step in enumerate(args.places.steps):
            at_place = replace(run, step=step)
            called, last = place_job_name(run, step), index == len(args.places.steps) - 1
            place = {"of": run.job_name, "index": index, "pool": step.pool.name}
            jobs.append(
                declare_held(
                    f"{name}-at-{step.pool.name}",
                    replace(job_args, run=at_place),
                    job_name=called,
                    objects=objects,
                    by=MOVER,
                    parent=self,
                    more={PLACE_ANNOTATION: json.dumps(place)},
                )
            )
            probe = "" if last else probe_job_name(run, step)
            if probe:
                jobs.append(_declare_probe(f"{name}-at-{step.pool.name}-probe", probe, step, args, self))
            entries.append(_entry(step, called, probe))
        self.job = self._declare_mover(name, args, jobs, entries, on_cluster)
        self.register_outputs({"job": self.job_name, "path": run.path})

    def _declare_mover(
        self,
        name: str,
        args: MovedStepArgs,
        jobs: Sequence[k8s.batch.v1.Job],
        entries: Sequence[dict[str, Any]],
        opts: pulumi.ResourceOptions,
    ) -> k8s.batch.v1.Job:
        workspace, run = args.job.workspace, args.job.run
        called = mover_account(run.step.pipeline, run.step.name)
        labels = step_labels(MOVER, run.name)
        metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=workspace.namespace, labels=labels)
        names = [name for entry in entries for name in (entry["job"], entry["probe"]) if name]
        binding = identity(
            f"{name}-mover",
            called,
            workspace.namespace,
            labels=labels,
            rules=_rules(called, notes_name(called), names),
            annotations=workspace.platform.app_annotations.get(called),
            opts=opts,
        )
        rules = _rules_of(run, args.places)
        written = pulumi.Output.all(*(job.metadata.uid for job in jobs)).apply(
            lambda uids: json.dumps(
                {**rules, "places": list(entries), "jobs": dict(zip(names, uids, strict=True))}
            )
        )
        plan_map = k8s.core.v1.ConfigMap(f"{name}-plan", metadata=metadata, data={"plan.json": written}, opts=opts)
        mover = plan(_mover(args, called), args.root)
        pod = template(mover, called)
        assert isinstance(pod.metadata, k8s.meta.v1.ObjectMetaArgs)
        declared = pulumi.Output.from_input(pod.metadata.annotations)
        pod.metadata.annotations = pulumi.Output.all(declared, written).apply(
            lambda values: {**(values[0] or {}), PLAN_ANNOTATION: _digest(values[1])}
        )
        limit = f"{mover.step.time_limit + PATIENCE + workspace.wait}s"
        step = run.step
        return k8s.batch.v1.Job(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=self.job_name,
                namespace=workspace.namespace,
                labels=job_labels(step.pipeline, step.name, None),
                annotations={
                    "pulumi.com/replaceUnready": "true",
                    **job_annotations(run),
                    MOVES_ANNOTATION: json.dumps(
                        {
                            **rules,
                            "plan": called,
                            "notes": notes_name(called),
                            "places": [entry["pool"] for entry in entries],
                            "sure": [entry["sure"] for entry in entries],
                        }
                    ),
                },
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                # As of a step with one place (`slipway.infra.kubernetes.job.job_spec`): `up` waits for it.
                backoff_limit=0,
                pod_failure_policy=disruptions_ignored(NO_API, KILLED, INTERRUPTED),
                pod_replacement_policy="Failed",
                active_deadline_seconds=mover.step.time_limit,
                template=pod,
            ),
            opts=wait_for(
                opts,
                binding,
                plan_map,
                config_map(bundle_map(mover), mover.bundle, workspace.namespace, labels, opts),
                *_egress(f"{name}-mover", called, workspace, labels, opts),
                *jobs,
                delete_before_replace=True,
                replace_with=[*step.platform.store.replaced_with],
                custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit),
            ),
        )


def declare(root: Path, image: str) -> Callable[[str, StepJobArgs], StepJob]:
    """What declares a step with places under a name; ``image`` is one with Python, ``root`` the repository."""

    def moved(name: str, args: StepJobArgs) -> StepJob:
        places = args.run.step.places
        assert places is not None
        return MovedStep(name, MovedStepArgs(args, places, image, root))

    return moved


def place_job_name(run: Run, step: Step) -> str:
    """The Kubernetes name of the Job that runs ``run`` at the place of ``step``."""
    name = f"{run.name}-{short_digest(run.digest)}-{step.pool.name}"
    return fit(name, KUBERNETES_NAME_LIMIT - len(run.last_index))


def probe_job_name(run: Run, step: Step) -> str:
    """The Kubernetes name of the Job that asks for nodes of the place of ``step`` while ``run`` is at another."""
    name = f"{run.name}-{short_digest(run.digest)}-{step.pool.name}-probe"
    return fit(name, KUBERNETES_NAME_LIMIT - len(run.last_index))


def notes_name(called: str) -> str:
    """The name of the ConfigMap in which the mover called ``called`` keeps what it knows."""
    return fit(f"{called}-notes", KUBERNETES_NAME_LIMIT)


def _declare_notes(name: str, step_job: StepJob, workspace: Workspace) -> Attempts:
    """Declares the ConfigMap of what the mover knows, and reads what is noted there of failed Jobs."""
    step = step_job.run.step
    metadata = k8s.meta.v1.ObjectMetaArgs(
        name=notes_name(mover_account(step.pipeline, step.name)),
        namespace=workspace.namespace,
        labels=step_labels(MOVER, step_job.run.name),
    )
    return declare_notes(f"{name}-notes", metadata, ABOUT, workspace, parent=step_job)


def _declare_probe(
    name: str, called: str, step: Step, args: MovedStepArgs, parent: pulumi.Resource
) -> k8s.batch.v1.Job:
    """Declares what asks for as many nodes as the step needs there, and does nothing on them."""
    workspace = args.job.workspace
    labels = {**step_labels(MOVER, args.job.run.name)}
    pod = k8s.core.v1.PodTemplateSpecArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
        spec=k8s.core.v1.PodSpecArgs(
            restart_policy="Never",
            automount_service_account_token=False,
            enable_service_links=False,
            termination_grace_period_seconds=0,
            security_context=pod_security(step.platform),
            node_selector=dict(step.pool.selector),
            tolerations=tolerations_of(step.pool) or None,
            affinity=one_a_node(step, labels) if step.nodes else None,
            containers=[
                k8s.core.v1.ContainerArgs(
                    name="probe",
                    image=args.image,
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
            labels=labels,
            annotations={**DECLARED_ALONE, RUNS_ANNOTATION: MOVER},
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
                *(before.job for before in args.job.after),
            ],
            delete_before_replace=True,
            ignore_changes=["spec.suspend"],
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


def _rules_of(run: Run, places: Places) -> dict[str, Any]:
    return {
        "step": f"{run.step.pipeline}.{run.step.name}",
        "directory": run.path if run.step.publishes else "",
        "time_limit": run.step.time_limit,
        "next_after": places.next_after,
        "returns": places.returns,
        "deadline": places.deadline,
        "work": places.work,
        "max_price": places.max_price,
    }


def _rules(called: str, notes: str, jobs: Sequence[str]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """What the mover may do: change its Jobs, look at pods and events, and keep its notes."""
    rule = k8s.rbac.v1.PolicyRuleArgs
    return [
        rule(api_groups=["batch"], resources=["jobs"], resource_names=sorted(jobs), verbs=["get", "patch"]),
        rule(api_groups=[""], resources=["pods", "events"], verbs=["list"]),
        rule(api_groups=[""], resources=["configmaps"], resource_names=[called], verbs=["get"]),
        rule(api_groups=[""], resources=["configmaps"], resource_names=[notes], verbs=["get", "patch"]),
    ]


def _mover(args: MovedStepArgs, called: str) -> Step:
    """What the mover's pod runs. It reads the store, to see checkpoints."""
    step = args.job.run.step
    return Step(
        pipeline=MOVER,
        name=args.job.run.name,
        module=MODULE,
        arguments=[
            *("--api", KUBERNETES_API, "--service-account", SERVICE_ACCOUNT),
            *("--namespace", args.job.workspace.namespace),
            *("--plan", called, "--notes", notes_name(called), "--store", "{store}"),
        ],
        image=args.image,
        platform=step.platform,
        pool=cheapest_pool(step.platform),
        resources=RUNNER,
        time_limit=step.time_limit + PATIENCE,
        reads_nodes=True,
    )


def _egress(
    name: str, called: str, workspace: Workspace, labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Lets the mover connect to the Kubernetes API."""
    if not workspace.limits_egress:
        return []
    metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=workspace.namespace, labels=labels)
    return [everywhere(f"{name}-egress", metadata, labels, opts)]


def _digest(plan: str) -> str:
    """Changes with what the mover does; prices, which change by themselves, are left out."""
    content = json.loads(plan)
    for place in content["places"]:
        del place["price"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
