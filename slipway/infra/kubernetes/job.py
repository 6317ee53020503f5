"""From a step to a ``batch/v1`` Job, in the one shape that Pulumi's engine handles as a pipeline needs it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pulumi
import pulumi_kubernetes as k8s
from pydantic import SecretStr

from slipway.infra.features import parts
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.labels import (
    DATA_ANNOTATION,
    INPUTS_ANNOTATION,
    NAME,
    PART_OF,
    QUEUE_ANNOTATION,
    QUEUE_LABEL,
    RESULTS_ANNOTATION,
    RUN_ANNOTATION,
    RUNS_ANNOTATION,
    USAGE_ANNOTATION,
    outside_queue,
    step_labels,
)
from slipway.infra.kubernetes.pods.node_group import group_policy, headless_service
from slipway.infra.kubernetes.pods.pod import bundle_map, requests, secret_name, template, usage_folder
from slipway.infra.kubernetes.run import UNASKED, Known, Run, Usage, placed, plan
from slipway.infra.kubernetes.service import PipelineService, PipelineServiceArgs, services_of
from slipway.infra.kubernetes.shipping.bundle import Files, config_map, config_map_name
from slipway.infra.placed import CLUSTER_RUN, CODE, PRIORITIES, Step
from slipway.infra.placed_model import listener
from slipway.infra.platform import ASKED_ANNOTATION, DECLARED_ALONE, Priority


def declare_secrets(
    steps: Iterable[Step], workspaces: Mapping[str, Workspace], values: Mapping[str, SecretStr]
) -> dict[tuple[str, str], k8s.core.v1.Secret]:
    """Declares a Secret for each platform and pipeline with a step that is given any; ``values`` are by name.

    It has only what the pipeline's steps there are given.
    """
    used: dict[tuple[str, str], set[str]] = {}
    for step in steps:
        for platform in step.platforms if step.secrets else ():
            used.setdefault((platform.name, step.pipeline), set()).update(step.secrets.values())
    made: dict[tuple[str, str], k8s.core.v1.Secret] = {}
    for (platform, pipeline), names in used.items():
        workspace = workspaces[platform]
        made[platform, pipeline] = k8s.core.v1.Secret(
            f"{platform}-{secret_name(pipeline)}",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=secret_name(pipeline),
                namespace=workspace.namespace,
                labels={**PART_OF, NAME: pipeline},
            ),
            type="Opaque",
            string_data={name: pulumi.Output.secret(values[name].get_secret_value()) for name in sorted(names)},
            opts=pulumi.ResourceOptions(
                parent=workspace, provider=workspace.platform.provider, depends_on=[*workspace.ready]
            ),
        )
    return made


PATIENCE = 600
"""Seconds that Pulumi waits for a Job past the Job's own time limit, so that the Job's verdict comes first."""


HELD_BACK = 20
"""Exit code of a pod at a place of another cluster whose program may run no more
(`slipway.runtime.schedule.places.hold`): another pod takes its place, and waits."""


ATTEMPT_ANNOTATION = "slipway/attempt"
"""The annotation of the pods of a Job that runs again since it failed: the number of the attempt, from 2 on."""


@dataclass(frozen=True)
class StepJobArgs:
    """``workspace`` is where the Job runs, ``after`` are the Jobs that have to succeed before it starts.

    ``secret`` is the Kubernetes Secret with what the step is given, ``services`` are those that it connects to.
    ``priority`` is its own, or that of what waits for it. ``code`` are the ConfigMaps that it shares with others.
    With ``attempts``, the numbers of those that are due by the names of Jobs, the Job is created suspended, and
    nobody waits for it (`slipway.infra.kubernetes.schedules.cluster_run`).
    """

    run: Run
    workspace: Workspace
    after: tuple["StepJob", ...] = ()
    secret: k8s.core.v1.Secret | None = None
    services: tuple[PipelineService, ...] = ()
    priority: Priority = "normal"
    code: tuple[k8s.core.v1.ConfigMap, ...] = ()
    attempts: pulumi.Output[Mapping[str, str]] | None = None


class HeldJob(pulumi.ComponentResource):
    """The parent of a Job that is created suspended.

    Pulumi ignores what becomes of `spec.suspend`, and by that keeps the value that its state has: of a Job that
    `up` waited for, none. So the two are resources of different URNs, and Jobs of different names.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:HeldJob", name, {}, opts)
        self.register_outputs({})


class StepJob(pulumi.ComponentResource):
    """One step as a Job, with the ConfigMaps that it mounts. ``job_name`` is the Job's name in its namespace, and
    ``time_limit`` the seconds after which it ends.
    """

    def __init__(self, name: str, args: StepJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:StepJob", name, {}, opts)
        run, workspace = args.run, args.workspace
        self.run = run
        self.priority: Priority = args.priority
        self.after = args.after
        self.held = args.attempts is not None
        self.time_limit = run.step.time_limit
        self.job_name = run.held_job_name if self.held else run.job_name
        objects = declare_objects(run, workspace, self)
        self.job = (
            declare_job(
                name,
                args,
                job_name=self.job_name,
                objects=objects,
                # Without it the next `up` would repeat the old failure instead of running the Job again.
                annotations={"pulumi.com/replaceUnready": "true", **job_annotations(run)},
                parent=self,
            )
            if args.attempts is None
            else declare_held(
                name,
                args,
                job_name=self.job_name,
                objects=objects,
                by=CLUSTER_RUN,
                more=job_annotations(run),
                parent=self,
            )
        )
        self.register_outputs({"job": self.job_name, "path": run.path})


def declare_objects(
    run: Run, workspace: Workspace, parent: pulumi.Resource, *, elsewhere: bool = False
) -> list[pulumi.Resource]:
    """Declares what the pods of ``run`` need on the cluster of ``workspace`` beside its Job.

    ``elsewhere`` says that it is not the cluster of the run's step, but that of another place of it.
    """
    suffix = f"-{workspace.platform.name}" if elsewhere else ""
    labels = step_labels(run.step.pipeline, run.step.name)
    opts = pulumi.ResourceOptions(
        parent=parent, provider=workspace.platform.provider, depends_on=[*workspace.ready]
    )

    def mounted(name: str, files: Files) -> k8s.core.v1.ConfigMap:
        called = config_map_name(name, files)
        return config_map(f"{name}{suffix}", files, workspace.namespace, labels, opts, called=called)

    return [
        mounted(bundle_map(run), run.bundle),
        *_declare_group(f"{run.name}{suffix}", run, workspace, opts),
    ]


def declare_held(
    name: str,
    args: StepJobArgs,
    *,
    job_name: str,
    objects: Sequence[pulumi.Resource],
    by: str,
    parent: pulumi.Resource,
    more: Mapping[str, str] = MappingProxyType({}),
) -> k8s.batch.v1.Job:
    """Declares the Job of ``args``, which have `attempts`, suspended: ``by`` lets it run, and nobody waits for it.

    It has ``more`` annotations.
    """
    assert args.attempts is not None
    return declare_job(
        name,
        args,
        job_name=job_name,
        objects=objects,
        annotations={**DECLARED_ALONE, RUNS_ANNOTATION: by, **more},
        parent=HeldJob(name, pulumi.ResourceOptions(parent=parent)),
        spec=_held_spec(job_name, args.run, args.workspace, args.attempts),
        in_queue=False,
        # Who lets it run changes it.
        ignore_changes=["spec.suspend"],
    )


def declare_job(
    name: str,
    args: StepJobArgs,
    *,
    job_name: str,
    objects: Sequence[pulumi.Resource],
    annotations: Mapping[str, str],
    parent: pulumi.Resource,
    spec: k8s.batch.v1.JobSpecArgs | None = None,
    in_queue: bool = True,
    ignore_changes: list[str] | None = None,
) -> k8s.batch.v1.Job:
    """Declares the Job of ``args``, which needs ``objects`` on its cluster, with its own ``spec`` or that one.

    One that is not ``in_queue`` waits until somebody puts it there.
    """
    run, workspace = args.run, args.workspace
    step = run.step
    labels = workspace.job_labels(step.pipeline, step.name, args.priority)
    labels, queue = (labels, {}) if in_queue else outside_queue(labels)
    limit = f"{step.time_limit + PATIENCE + workspace.wait}s"
    return k8s.batch.v1.Job(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            # A fixed name: after a killed `pulumi up` the next one adopts the running Job, not a second one.
            name=job_name,
            namespace=workspace.namespace,
            labels=labels,
            annotations={**annotations, **queue},
        ),
        spec=spec or job_spec(run, workspace),
        opts=pulumi.ResourceOptions(
            parent=parent,
            provider=workspace.platform.provider,
            depends_on=[
                *workspace.ready,
                *step.pool.resources,
                *devices_of(step, workspace),
                *objects,
                *args.code,
                *([args.secret] if args.secret else []),
                *(resource for service in args.services for resource in service.ready),
                *([workspace.images[step.image].built] if step.image in workspace.images else []),
                *(step_job.job for step_job in args.after),
            ],
            # The successor would wait for the GPU that its predecessor holds.
            delete_before_replace=True,
            ignore_changes=ignore_changes,
            # Its result is gone with the store, and its pods, even when they are done, hold the claim.
            replace_with=[*step.platform.store.replaced_with] if step.uses_store else None,
            # Kueue refuses to put a Job into a queue, or to take it out, that it does not hold back
            # (pkg/controller/jobframework/validation.go): one that is done, for one.
            replace_on_changes=[
                f'metadata.labels["{QUEUE_LABEL}"]' if in_queue else f'metadata.annotations["{QUEUE_ANNOTATION}"]'
            ],
            custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit),
        ),
    )


def job_spec(run: Run, workspace: Workspace) -> k8s.batch.v1.JobSpecArgs:
    """The Job that runs ``run``: once, whatever nodes are taken from it, within its step's time limit."""
    step = run.step
    return k8s.batch.v1.JobSpecArgs(
        completion_mode="Indexed" if step.is_indexed else None,
        completions=step.pods,
        parallelism=step.pods,
        # Real failures are final at once; disruptions are ignored below and so tried again without end, within the
        # deadline. Pulumi sees a Job's failure by two reasons alone, `BackoffLimitExceeded` and `DeadlineExceeded`
        # (provider/pkg/await/checker/job of pulumi-kubernetes 4.32.0). A `FailJob` rule and `backoffLimitPerIndex`
        # fail a Job for others (`PodFailurePolicy`, `FailedIndexes`, `MaxFailedIndexesExceeded`), and would leave
        # it waiting for ever: events begin its time-out anew, and there is one a minute. With both, the first
        # decides: it is looked at before the indexes (syncJob in pkg/controller/job/job_controller.go, 1.37.2).
        backoff_limit=0,
        # Each pod that is lost doubles the wait for the next ones, ignored ones too: eight that are lost together
        # would wait for ten minutes. With this each index waits by its own losses, 10, 20, 40 s, however many are
        # lost (the controller of Kubernetes 1.37.2, seen November 2026).
        backoff_limit_per_index=0 if step.is_indexed else None,
        pod_failure_policy=_failure_policy(run),
        # A pod that is still being evicted holds the GPU that its successor needs.
        pod_replacement_policy="Failed",
        active_deadline_seconds=step.time_limit,
        template=template(
            run,
            workspace.service_account,
            image=workspace.images.get(step.image),
        ),
    )


def _held_spec(
    job_name: str, run: Run, workspace: Workspace, attempts: pulumi.Output[Mapping[str, str]]
) -> k8s.batch.v1.JobSpecArgs:
    """The Job that runs ``run`` once somebody lets it. Another attempt is another pod, and so replaces the Job."""
    spec = job_spec(run, workspace)
    spec.suspend = True
    assert isinstance(spec.template, k8s.core.v1.PodTemplateSpecArgs)
    number_attempt(spec.template, job_name, attempts)
    return spec


def number_attempt(
    pod: k8s.core.v1.PodTemplateSpecArgs, job_name: str, attempts: pulumi.Output[Mapping[str, str]]
) -> None:
    """Writes on the pods of a Job which attempt they are, from the second on."""
    assert isinstance(pod.metadata, k8s.meta.v1.ObjectMetaArgs)
    annotations = pulumi.Output.from_input(pod.metadata.annotations)

    def with_attempt(values: Sequence[Mapping[str, str] | None]) -> dict[str, str]:
        declared, due = (dict(value or {}) for value in values)
        attempt = {ATTEMPT_ANNOTATION: due[job_name]} if job_name in due else {}
        return {**declared, **attempt}

    pod.metadata.annotations = pulumi.Output.all(annotations, attempts).apply(with_attempt)


def _failure_policy(run: Run) -> k8s.batch.v1.PodFailurePolicyArgs:
    codes = {code for part in run.step.parts for code in part.tolerated}
    return disruptions_ignored(*codes, *([HELD_BACK] if run.hold else []), container=run.step.name)


def disruptions_ignored(*codes: int, container: str = "") -> k8s.batch.v1.PodFailurePolicyArgs:
    """The ends of a pod that do not count as failures, so that another pod takes its place.

    Beside disruptions and pods that a node refused to start, these are the exit ``codes`` of ``container``, which
    is named where there are any: a rule without a name looks at sidecars, too, which the kubelet kills once the
    program has failed. The first rule is that of disruptions.
    """
    ignored = [_in_condition("DisruptionTarget")]
    if codes:
        assert container
        # The API server refuses values that are not in ascending order.
        ignored.append(_exit_codes("Ignore", "In", sorted(codes), container))
    # The kubelet fails a pod without a condition where the GPU is taken, a device plugin is not ready or the node
    # shuts down. No rule can name that: it is what is left once a container that failed counts.
    rules = [*ignored, _exit_codes("Count", "NotIn", [0]), _in_condition("PodScheduled")]
    return k8s.batch.v1.PodFailurePolicyArgs(rules=rules)


def _in_condition(condition: str) -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    pattern = k8s.batch.v1.PodFailurePolicyOnPodConditionsPatternArgs(type=condition, status="True")
    return k8s.batch.v1.PodFailurePolicyRuleArgs(action="Ignore", on_pod_conditions=[pattern])


def _exit_codes(
    action: str, operator: str, codes: list[int], container: str | None = None
) -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    requirement = k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgs(
        container_name=container, operator=operator, values=codes
    )
    return k8s.batch.v1.PodFailurePolicyRuleArgs(action=action, on_exit_codes=requirement)


def job_annotations(run: Run) -> dict[str, str]:
    """What people and tools learn of the run from its Job. They decide nothing: where they change, no Job runs."""
    annotations: dict[str, str] = {}
    if run.step.publishes:
        annotations[RUN_ANNOTATION] = run.path
    if run.usage and run.step.uses_store:
        annotations[USAGE_ANNOTATION] = usage_folder(run)
    if run.inputs:
        annotations[INPUTS_ANNOTATION] = json.dumps({name: before.path for name, before in run.inputs.items()})
    if run.step.data:
        data = {name: [data.url, data.digest] for name, data in run.step.data.items()}
        annotations[DATA_ANNOTATION] = json.dumps(data)
    if run.step.results:
        results = [
            {"kind": result.kind, **result.model_dump(mode="json", exclude_defaults=True)}
            for result in run.step.results
        ]
        annotations[RESULTS_ANNOTATION] = json.dumps(results)
    if run.step.is_own and run.step.requests != run.step.resources:
        annotations[ASKED_ANNOTATION] = json.dumps(requests(run.step.resources))
    return annotations


def devices_of(step: Step, workspace: Workspace) -> list[pulumi.Resource]:
    """What makes GPUs allocatable where ``step`` uses them."""
    if step.resources.gpus and step.pool.name in workspace.devices:
        return [workspace.devices[step.pool.name]]
    return []


def _declare_group(
    name: str, run: Run, workspace: Workspace, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares what lets the pods of a step on several nodes reach one another; nothing for other steps."""
    step = run.step
    if not step.is_group:
        return []
    return [
        headless_service(name, step, workspace.namespace, opts),
        group_policy(name, step, workspace.namespace, limited=workspace.limits_egress, opts=opts),
    ]


def _declare_code(
    run: Run, workspace: Workspace, declared: dict[tuple[str, str], tuple[k8s.core.v1.ConfigMap, ...]]
) -> tuple[k8s.core.v1.ConfigMap, ...]:
    """Declares the ConfigMaps of the code of ``run`` that its own has no room for, unless another step of the
    cluster has the same; ``declared`` grows by them, by cluster and digest."""
    if run.archive is None:
        return ()
    platform = workspace.platform
    key = (platform.name, run.archive.files.digest)
    if key not in declared:
        opts = pulumi.ResourceOptions(parent=workspace, provider=platform.provider, depends_on=[*workspace.ready])
        labels = {**PART_OF, NAME: CODE}
        declared[key] = tuple(run.archive.declare(platform.name, workspace.namespace, labels, opts))
    return declared[key]


def _declare_services(
    steps: Sequence[Step], workspaces: Mapping[str, Workspace]
) -> dict[tuple[str, str], PipelineService]:
    """Declares the services that ``steps`` connect to, by platform and name."""
    return {
        (service.platform.name, service.object_name): PipelineService(
            f"{service.pipeline}-{service.name}", PipelineServiceArgs(service, workspaces[service.platform.name])
        )
        for service in services_of(steps)
    }


def _priorities(steps: Sequence[Step]) -> Mapping[str, Priority]:
    """Each step's priority by its Job's lasting name, with all the steps that these need.

    Gates, and what installs packages, have none of their own: they have that of the most urgent step behind them,
    since a gate that came before others would only make its step wait on their nodes.
    """
    priorities: dict[str, Priority] = {}

    def need(step: Step, priority: Priority) -> None:
        priority_ = step.priority if step.is_own else priority
        if step.job in priorities and PRIORITIES.index(priority_) <= PRIORITIES.index(priorities[step.job]):
            return
        priorities[step.job] = priority_
        for before in (*step.inputs.values(), *step.after):
            need(before, priority_)

    for step in steps:
        need(step, step.priority)
    return priorities


def _measured(workspaces: Iterable[Workspace], settings: object) -> Usage | None:
    """How steps are measured in ``workspaces``; None: they are not."""
    usage = next((workspace.measured.usage for workspace in workspaces if workspace.measured), UNASKED)
    for change in parts("declared", "measured") if usage else ():
        usage = change(usage, settings)
    return usage


def declare(
    steps: Sequence[Step],
    workspaces: Mapping[str, Workspace],
    root: Path,
    secrets: Mapping[str, SecretStr] = MappingProxyType({}),
    attempts: Mapping[str, pulumi.Output[Mapping[str, str]]] = MappingProxyType({}),
    *,
    moved: Callable[[str, Sequence[StepJobArgs]], StepJob] | None = None,
    settings: object = None,
) -> dict[str, StepJob]:
    """Declares the Jobs of ``steps`` and of all the steps that these need, each once, by their run's name, and the
    services that ``steps`` connect to.

    ``workspaces`` are by platform, ``root`` is the repository whose files the steps ship, and ``secrets`` are the
    stack's by name. ``attempts`` are those of `StepJobArgs`, by the lasting names of the steps that `up` does not
    wait for. ``moved`` declares a step with places (`slipway.infra.kubernetes.places.mover.declare`), of the
    arguments for each of its clusters. ``settings`` are the stack's. Raises ShippingError.
    """
    declared: dict[str, StepJob] = {}
    known = Known(_measured(workspaces.values(), settings))
    told = [tell(steps, workspaces, root, known, settings) for tell in parts("declared", "told")]
    archives: dict[tuple[str, str], tuple[k8s.core.v1.ConfigMap, ...]] = {}
    priorities = _priorities(steps)
    given = declare_secrets(steps, workspaces, secrets)
    services = _declare_services(steps, workspaces)
    listening = listener()

    def declare_one(step: Step) -> StepJob:
        run = plan(step, root, known)
        if run.name not in declared:
            before = [declare_one(other) for other in (*step.inputs.values(), *step.after)]
            unique = tuple({made.run.name: made for made in before}.values())
            connected = tuple(
                services[connect.platform.name, connect.object_name] for connect in step.connects.values()
            )
            on_clusters = [
                StepJobArgs(
                    run,
                    workspace,
                    unique,
                    given[name, step.pipeline] if step.secrets else None,
                    connected,
                    priorities[step.job],
                    (
                        *_declare_code(run, workspace, archives),
                        *(made[run.path, name] for made in told if (run.path, name) in made),
                    ),
                    attempts.get(step.job),
                )
                for name in (platform.name for platform in step.platforms)
                for workspace in [workspaces[name]]
            ]
            if listening is not None:
                listening.append(placed(run))
            declared[run.name] = (
                moved(run.name, on_clusters) if moved and step.places else StepJob(run.name, on_clusters[0])
            )
        return declared[run.name]

    for step in steps:
        declare_one(step)
    return declared
