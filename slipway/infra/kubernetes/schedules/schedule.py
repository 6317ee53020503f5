"""A pipeline that runs by itself: a CronJob whose pod creates the pipeline's Jobs, one after the other."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.features import added
from slipway.infra.kubernetes.cluster.api_access import api_step, identity
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import StepJob, disruptions_ignored, job_annotations, job_spec
from slipway.infra.kubernetes.labels import NAME, PART_OF
from slipway.infra.kubernetes.pods.pod import RECORD_VARIABLE, bundle_map, from_secret, template
from slipway.infra.kubernetes.run import Run, plan
from slipway.infra.kubernetes.schedules.admission import admit_only
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.placed import CLUSTER_RUN, SCHEDULED_RUN, Step
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

CRON_JOB_NAME_LIMIT = 52
"""The controller adds eleven characters for the Job's name (kubernetes.io/docs/concepts/workloads/controllers/
cron-jobs, seen November 2026)."""

MARK_LENGTH = len("-20261122-0300")
"""Characters that a run by the clock adds to the names of its Jobs (`slipway.runtime.schedule.run`)."""

START_DEADLINE = 3600
"""Seconds after its time in which a run that could not start still does: the control plane may have been away."""

WEBHOOK = "NOTIFY_URL"
"""The environment variable of that pod with the address that is notified of how runs end, and the key of its
Secret."""

HISTORY = 3
"""Runs that are kept with their Jobs, for their logs; of those that failed as many."""

MOST_RUNS = 2 * HISTORY + 1
"""Runs of one pipeline that have Jobs at a time: the one that runs is one of them."""


@dataclass(frozen=True)
class PipelineScheduleArgs:
    """``jobs`` are those of the pipeline, ``root`` is the repository, and ``image`` one with Python.

    ``webhook`` is the address that is notified of how runs end; None: no address is.
    """

    pipeline: str
    cron: str
    time_zone: str
    jobs: Sequence[StepJob]
    workspace: Workspace
    image: str
    root: Path
    webhook: str | None = None


class PipelineSchedule(pulumi.ComponentResource):
    """Runs a pipeline by the clock, never twice at a time.

    Its pod may create the pipeline's Jobs in the namespace, and look at Jobs; where the stack may declare nothing
    that is in no namespace, it may create any Job, which may use every service account there. It talks to the
    Kubernetes API, and so is outside the policy that limits what pods connect to.
    """

    def __init__(self, name: str, args: PipelineScheduleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:PipelineSchedule", name, {}, opts)
        workspace = args.workspace
        called = fit(f"{args.pipeline}-schedule", CRON_JOB_NAME_LIMIT)
        labels = {**PART_OF, NAME: SCHEDULED_RUN, "app.kubernetes.io/component": args.pipeline}
        metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=workspace.namespace, labels=labels)
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        )
        rules = _rules(called, args)
        binding = identity(name, called, workspace.namespace, labels=labels, rules=rules, opts=on_cluster)
        planned = [_plan_job(job, args) for job in args.jobs]
        jobs = k8s.core.v1.ConfigMap(
            f"{name}-jobs",
            metadata=metadata,
            data={"jobs.json": pulumi.Output.json_dumps(planned)},
            opts=on_cluster,
        )
        created = [job.run for job in args.jobs]
        limits = _admission(name, called, created, workspace, labels=labels, opts=on_cluster)
        told = _webhook(name, called, args, labels, on_cluster)
        run = plan(_step(called, args), args.root)
        k8s.batch.v1.CronJob(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=called,
                namespace=workspace.namespace,
                labels=labels,
            ),
            spec=k8s.batch.v1.CronJobSpecArgs(
                schedule=args.cron,
                time_zone=args.time_zone,
                # The next run waits for its own time, and finds all items that came in between.
                concurrency_policy="Forbid",
                starting_deadline_seconds=START_DEADLINE,
                successful_jobs_history_limit=HISTORY,
                failed_jobs_history_limit=HISTORY,
                job_template=k8s.batch.v1.JobTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
                    spec=k8s.batch.v1.JobSpecArgs(
                        backoff_limit=0,
                        pod_failure_policy=disruptions_ignored(),
                        pod_replacement_policy="Failed",
                        active_deadline_seconds=run.step.time_limit,
                        template=template(run, called, [from_secret(called, WEBHOOK, WEBHOOK)] if told else ()),
                    ),
                ),
            ),
            opts=wait_for(
                on_cluster,
                binding,
                jobs,
                config_map(bundle_map(run), run.bundle, workspace.namespace, labels, on_cluster),
                *limits,
                *told,
                # What a run reads beside the pipeline's own results, such as packages, is there once these are.
                *(job.job for job in args.jobs),
                # The pods of its runs hold the store's claim, and go with it.
                replace_with=[*workspace.frees_claim],
                # Else Pulumi creates it first: the provider takes over the one of that name, and the delete
                # that follows leaves no schedule (seen with Pulumi 3.260, November 2026).
                delete_before_replace=True,
            ),
        )
        self.register_outputs({"cronJob": called})


def _webhook(
    name: str, called: str, args: PipelineScheduleArgs, labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares the Secret with the address that is notified of how runs end."""
    if args.webhook is None:
        return []
    return [
        k8s.core.v1.Secret(
            f"{name}-webhook",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=called, namespace=args.workspace.namespace, labels=dict(labels)
            ),
            type="Opaque",
            string_data={WEBHOOK: pulumi.Output.secret(args.webhook)},
            opts=opts,
        )
    ]


def _admission(
    name: str,
    called: str,
    runs: Sequence[Run],
    workspace: Workspace,
    *,
    labels: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Declares that the service account may create the Jobs of ``runs`` only; nothing where the stack may not
    declare what is in no namespace."""
    if not workspace.platform.declares_cluster_objects:
        return []
    pods = {_planned_name(run): _pod(run, workspace) for run in runs}
    return admit_only(name, pods, account=called, namespace=workspace.namespace, labels=labels, opts=opts)


def _pod(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The pod template of a Job in a run by the clock: the record is of the run that Pulumi knows."""
    pod = _plain(job_spec(run, workspace).template)
    for container in pod["spec"]["containers"]:
        container["env"] = [variable for variable in container["env"] if variable["name"] != RECORD_VARIABLE]
    return pod


def _rules(called: str, args: PipelineScheduleArgs) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    limits = added("declared", "starter_rules", [job.run for job in args.jobs])
    notifies = args.webhook is not None and not limits
    return [
        k8s.rbac.v1.PolicyRuleArgs(api_groups=["batch"], resources=["jobs"], verbs=["create", "get", "list"]),
        k8s.rbac.v1.PolicyRuleArgs(
            api_groups=[""], resources=["configmaps"], resource_names=[called], verbs=["get"]
        ),
        # What a notice says of a failed Job, its exit code, stands in its pod.
        *([k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["pods"], verbs=["list"])] if notifies else []),
        *limits,
    ]


def _step(called: str, args: PipelineScheduleArgs) -> Step:
    """The step of the CronJob's pod. Its time limit lets all Jobs run one after the other, after those of an
    update."""
    platform = args.workspace.platform
    limits = [job.run.step.time_limit for job in args.jobs]
    limit = sum(limits) + args.workspace.wait * len(limits)
    needs = _held_before(args.jobs)
    # Their Jobs may not have run yet, nor what installs their packages.
    behind = ["--behind", CLUSTER_RUN] if any(job.held for job in args.jobs) else []
    behind += [word for job in needs for word in ("--needs", job.job_name)]
    return api_step(
        SCHEDULED_RUN,
        args.pipeline,
        "slipway.runtime.schedule.run",
        [
            *("--namespace", args.workspace.namespace, "--pipeline", args.pipeline, "--jobs", called),
            *behind,
            *added("declared", "starter_flags", [job.run for job in args.jobs]),
        ],
        image=args.image,
        platform=platform,
        time_limit=2 * limit + sum(job.run.step.time_limit for job in needs),
    )


def _held_before(jobs: Sequence[StepJob]) -> list[StepJob]:
    """What ``jobs`` need beside one another and `up` does not wait for: gates, and what installs packages."""
    collected: dict[str, StepJob] = {}
    waiting = [before for job in jobs for before in job.after]
    while waiting:
        job = waiting.pop()
        if job.job_name not in collected:
            collected[job.job_name] = job
            waiting += job.after
    names = {job.job_name for job in jobs}
    return sorted(
        (job for name, job in collected.items() if job.held and name not in names), key=lambda job: job.job_name
    )


def _plan_job(job: StepJob, args: PipelineScheduleArgs) -> dict[str, Any]:
    """The Job as `slipway.runtime.schedule.run` reads it."""
    run, step = job.run, job.run.step
    names = {job.run.name: _planned_name(job.run) for job in args.jobs}
    needed = {before.job for before in (*step.inputs.values(), *step.after)}
    spec = _plain(job_spec(run, args.workspace)) | {"template": _pod(run, args.workspace)}
    return {
        "name": names[run.name],
        "path": run.path if step.publishes else "",
        "after": sorted(names[earlier] for earlier in needed & names.keys()),
        "manifest": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "labels": args.workspace.job_labels(step.pipeline, step.name, job.priority),
                "annotations": job_annotations(run),
            },
            "spec": spec,
        },
    }


def _planned_name(run: Run) -> str:
    """What the names of the run's Jobs have before its mark, short enough for the host names of their pods."""
    return fit(run.name, KUBERNETES_NAME_LIMIT - MARK_LENGTH - len(run.last_index))


def _plain(value: Any) -> Any:
    """A typed argument as the Kubernetes API spells it: ``backoffLimit`` for ``backoff_limit``. Outputs stay."""
    if type(value).__module__.startswith(k8s.__name__):
        return {
            _camel(key): _plain(member)
            for key, member in cast("dict[str, Any]", vars(value)).items()
            if member is not None
        }
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in cast("Sequence[Any]", value)]
    return value


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name.rstrip("_"))
