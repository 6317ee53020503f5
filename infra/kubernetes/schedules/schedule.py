"""A pipeline that runs by itself: a CronJob whose pod creates the pipeline's Jobs, one after the other."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.gates import KUBERNETES_API, SERVICE_ACCOUNT, cheapest_pool
from slipway.infra.kubernetes.cluster.workspace import CRON_JOBS, Workspace
from slipway.infra.kubernetes.job import StepJob, disruptions_ignored, job_annotations, job_spec
from slipway.infra.kubernetes.labels import NAME, PART_OF, job_labels
from slipway.infra.kubernetes.pods.limits import limits_flags, limits_rules
from slipway.infra.kubernetes.pods.pod import RECORD_VARIABLE, bundle_map, from_secret, template
from slipway.infra.kubernetes.run import Run, plan
from slipway.infra.kubernetes.schedules.retention import TIME_LIMIT, RetentionArgs, retention_step
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.placed import CLUSTER_RUN, SCHEDULED_RUN, Step
from slipway.infra.platform import Resources
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

# What holds the service account of a pipeline's schedule to the Jobs of that pipeline.
#
# RBAC cannot: who may create Jobs may create any, and a Job may use every service account and mount every Secret
# of
# its namespace. A ValidatingAdmissionPolicy can, which compares each Job that the account creates with what was
# planned (kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy, stable since Kubernetes
# 1.30,
# seen November 2026). The plan stands in the policy itself: an API server whose last policy with a built-in
# ``paramKind`` was deleted finds no parameters again until it restarts
# (github.com/kubernetes/kubernetes/issues/130887, open in November 2026).


FREE = (
    "affinity",
    "nodeSelector",
    "resources",
    "schedulerName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
)
"""Keys of a pod or a container that say where it runs, how much it gets and how long it has to end. They give
access to nothing, and webhooks change them in a Job: GKE Autopilot's do
(cloud.google.com/kubernetes-engine/docs/concepts/autopilot-resource-requests, seen November 2026)."""

JOB_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
"""Labels that the API server gives to the pods of a Job
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""

MARK = "-[0-9]{8}-[0-9]{4}$"
"""How the name of a Job of a run by the clock ends (`slipway.workloads.schedule.run`), as a regular expression.
The run's directories end so, too, and stand in the words and environment variables of its programs."""

REFUSED = "this account may create the Jobs of its pipeline as the last update declared them, and no others"


def admit_only(
    name: str,
    pods: Mapping[str, Any],
    *,
    account: str,
    namespace: str,
    labels: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Declares that the service account ``account`` of ``namespace`` creates Jobs with one of ``pods``, and no
    others.

    These are pod templates as the Kubernetes API spells them, by what their Jobs' names have before the mark.
    """
    # Neither a namespace nor a CronJob has a dot in its name, so no two of a cluster's policies have one name.
    metadata = k8s.meta.v1.ObjectMetaArgs(name=f"{namespace}.{account}", labels=dict(labels))
    policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
        f"{name}-policy",
        metadata=metadata,
        spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs(
            failure_policy="Fail",
            match_constraints=k8s.admissionregistration.v1.MatchResourcesArgs(
                resource_rules=[
                    k8s.admissionregistration.v1.NamedRuleWithOperationsArgs(
                        api_groups=["batch"],
                        api_versions=["v1"],
                        operations=["CREATE", "UPDATE"],
                        resources=["jobs"],
                    )
                ]
            ),
            match_conditions=[
                k8s.admissionregistration.v1.MatchConditionArgs(
                    name="account",
                    expression=f'request.userInfo.username == "system:serviceaccount:{namespace}:{account}"',
                )
            ],
            variables=[
                k8s.admissionregistration.v1.VariableArgs(name=variable, expression=expression)
                for variable, expression in _variables(pods).items()
            ],
            validations=[
                k8s.admissionregistration.v1.ValidationArgs(
                    expression=expression,
                    message=f"{subject}: {REFUSED}",
                    # 403, after which the schedule's pod does not try again.
                    reason="Forbidden",
                )
                for subject, expression in _validations(sub_paths=_has_sub_paths(pods)).items()
            ],
        ),
        opts=opts,
    )
    binding = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
        f"{name}-policy-binding",
        metadata=metadata,
        spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpecArgs(
            policy_name=f"{namespace}.{account}", validation_actions=["Deny"]
        ),
        opts=wait_for(opts, policy),
    )
    return [policy, binding]


def _variables(pods: Mapping[str, Any]) -> dict[str, pulumi.Input[str]]:
    """The variables of the policy. Each pod has its own, for an expression has up to 100,000 characters
    (github.com/google/cel-go, parser/options.go, seen November 2026)."""
    values = {
        f"pod{index}": pulumi.Output.json_dumps(pod).apply(_literal) for index, pod in enumerate(pods.values())
    }
    planned = ", ".join(f"{json.dumps(name)}: variables.{pod}" for name, pod in zip(pods, values, strict=True))
    return {
        "mark": f"object.metadata.name.find({json.dumps(MARK)})",
        "name": "object.metadata.name.substring(0, size(object.metadata.name) - size(variables.mark))",
        "known": f'variables.mark != "" && variables.name in {json.dumps(list(pods))}',
        **values,
        "planned": f"{{{planned}}}[variables.name]",
        # Without `dyn` the API server warns that a pod is no map.
        "given": "dyn(object.spec.template)",
    }


def _literal(pod: str) -> str:
    """A pod template, from JSON, as an expression."""
    return f"dyn({_expression(_with_defaults(json.loads(pod)))})"


def _expression(value: Any) -> str:
    """CEL refuses values of several types in one map or list, unless it is told not to look."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{json.dumps(key)}: dyn({_expression(member)})" for key, member in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(f"dyn({_expression(element)})" for element in cast("list[Any]", value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _with_defaults(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod template with what the API server fills in of the fields that Slipway's pods leave out
    (pkg/apis/core/v1/defaults.go, Kubernetes 1.34)."""
    spec = pod["spec"]
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        for variable in container["env"]:
            if field := variable.get("valueFrom", {}).get("fieldRef"):
                field.setdefault("apiVersion", "v1")
    for volume in spec["volumes"]:
        if mounted := volume.get("configMap") or volume.get("secret"):
            mounted.setdefault("defaultMode", 0o644)
    return pod


def _has_sub_paths(pods: Mapping[str, Any]) -> bool:
    """Whether a container of ``pods`` mounts a folder of a volume, which may be one of the run."""
    return any(
        "subPath" in mount
        for pod in pods.values()
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
    )


def _validations(*, sub_paths: bool) -> dict[str, str]:
    """What the policy demands of a Job, as CEL expressions by their subject.

    With ``sub_paths`` folders of volumes may have the mark in their names.
    """
    compared = {
        "labels of the pod": _same("metadata.?labels.orValue({})", _one_of(JOB_LABELS)),
        "annotations of the pod": _same("metadata.?annotations.orValue({})", _one_of([])),
        "pod": _same("spec", _one_of([*FREE, "containers", "initContainers"])),
        "containers": _same_containers("spec.containers", sub_paths=sub_paths),
        "init containers": _same_containers("spec.?initContainers.orValue([])"),
    }
    return {
        "name": "variables.known",
        # A Job with a selector of its own takes pods over that are not its own.
        "selector": "!object.spec.?manualSelector.orValue(false)",
        **{subject: f"!variables.known || ({expression})" for subject, expression in compared.items()},
    }


def _one_of(keys: Sequence[str]) -> str:
    return f"k in {json.dumps(list(keys))}"


def _same(path: str, free: str) -> str:
    """An expression: the maps at ``path`` of both templates are equal, except for keys ``k`` that are ``free``."""
    return _same_map(f"variables.given.{path}", f"variables.planned.{path}", free, "{given} == {planned}")


def _same_containers(path: str, *, sub_paths: bool = False) -> str:
    """An expression: the containers at ``path`` of both templates are equal and in the same order, except for keys
    in `FREE` and for the mark in words, environment variables and, with ``sub_paths``, folders of volumes."""
    given, planned = f"variables.given.{path}", f"variables.planned.{path}"
    words = '.map(w, w.replace(variables.mark, ""))'
    environment = '.map(e, has(e.value) ? dyn(e.name + "=" + e.value.replace(variables.mark, "")) : e)'
    # What else such a mount can have stands in the text, too: none of it is free. Only folders may have `:`.
    text = (
        'dyn(m.name + ":" + m.mountPath + (m.?readOnly.orValue(false) ? ":ro:" : ":rw:") + '
        'm.?mountPropagation.orValue("") + ":" + m.?recursiveReadOnly.orValue("") + ":" + '
        'm.subPath.replace(variables.mark, ""))'
    )
    folders = f".map(m, has(m.subPath) ? {text} : m)"
    mounts = f' : k == "volumeMounts" ? {{given}}{folders} == {{planned}}{folders}' if sub_paths else ""
    equal = (
        f'(k in ["command", "args"] ? {{given}}{words} == {{planned}}{words}'
        f' : k == "env" ? {{given}}{environment} == {{planned}}{environment}{mounts}'
        " : {given} == {planned})"
    )
    same = _same_map("c", "p", _one_of(FREE), equal)
    return (
        f"{given}.map(c, c.name) == {planned}.map(c, c.name)"
        f" && {given}.all(c, {planned}.exists(p, p.name == c.name && {same}))"
    )


def _same_map(given: str, planned: str, free: str, equal: str) -> str:
    """``equal`` compares two values, which stand for ``{given}`` and ``{planned}`` in it."""
    values = equal.replace("{given}", f"{given}[k]").replace("{planned}", f"{planned}[k]")
    return f"{given}.all(k, {free} || (k in {planned} && {values})) && {planned}.all(k, {free} || k in {given})"


CRON_JOB_NAME_LIMIT = 52
"""The controller adds eleven characters for the Job's name (kubernetes.io/docs/concepts/workloads/controllers/
cron-jobs, seen November 2026)."""

MARK_LENGTH = len("-20261122-0300")
"""Characters that a run by the clock adds to the names of its Jobs (`slipway.workloads.schedule.run`)."""

START_DEADLINE = 3600
"""Seconds after its time in which a run that could not start still does: the control plane may have been away."""

RUNNER = Resources(cpu=50, memory=128, ephemeral_storage=64)
"""Of the pod that starts the Jobs."""

WEBHOOK = "NOTIFY_URL"
"""The environment variable of that pod with the address that is notified of how runs end, and the key of its
Secret."""

HISTORY = 3
"""Runs that are kept with their Jobs, for their logs; of those that failed as many."""


@dataclass(frozen=True)
class PipelineScheduleArgs:
    """``jobs`` are those of the pipeline, ``root`` is the repository, and ``image`` one with Python.

    ``webhook`` is the address that is notified of how runs end; None: no address is. With ``retention`` each run
    ends with a Job that deletes results of old ones.
    """

    pipeline: str
    cron: str
    time_zone: str
    jobs: Sequence[StepJob]
    workspace: Workspace
    image: str
    root: Path
    webhook: str | None = None
    retention: RetentionArgs | None = None


def identity(
    name: str,
    called: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    opts: pulumi.ResourceOptions,
    annotations: Mapping[str, pulumi.Input[str]] | None = None,
) -> pulumi.Resource:
    """Declares a service account with the right to ``rules`` in its ``namespace``; returns what gives it that.

    ``annotations`` are the account's, by which a cloud gives it rights of its own.
    """
    metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=namespace, labels=labels)
    account = k8s.core.v1.ServiceAccount(
        f"{name}-account",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=called, namespace=namespace, labels=labels, annotations=annotations
        ),
        automount_service_account_token=False,
        opts=opts,
    )
    role = k8s.rbac.v1.Role(f"{name}-role", metadata=metadata, rules=list(rules), opts=opts)
    return k8s.rbac.v1.RoleBinding(
        f"{name}-binding",
        metadata=metadata,
        role_ref=k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name=called),
        subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=called, namespace=namespace)],
        opts=wait_for(opts, account, role),
    )


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
        retained = _retention(args)
        planned = [_plan_job(job, args) for job in args.jobs]
        planned += [_plan_retention(retained, planned, workspace)] if retained else []
        jobs = k8s.core.v1.ConfigMap(
            f"{name}-jobs",
            metadata=metadata,
            data={"jobs.json": pulumi.Output.json_dumps(planned)},
            opts=on_cluster,
        )
        created = [*(job.run for job in args.jobs), *([retained] if retained else [])]
        limits = _admission(name, called, created, workspace, labels=labels, opts=on_cluster)
        told = _webhook(name, called, args, labels, on_cluster)
        run = plan(_step(called, args), args.root)
        bundles = [
            config_map(bundle_map(shipped), shipped.bundle, workspace.namespace, labels, on_cluster)
            for shipped in (run, *([retained] if retained else []))
        ]
        k8s.batch.v1.CronJob(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=called,
                namespace=workspace.namespace,
                labels=labels,
                annotations=workspace.last_day.cover(CRON_JOBS, called) or None,
            ),
            spec=k8s.batch.v1.CronJobSpecArgs(
                suspend=False if workspace.last_day.day else None,
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
                *bundles,
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
    limits = limits_rules(job.run for job in args.jobs)
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
    limits = [job.run.step.time_limit for job in args.jobs] + ([TIME_LIMIT] if args.retention else [])
    limit = sum(limits) + args.workspace.wait * len(limits)
    needs = _held_before(args.jobs)
    # Their Jobs may not have run yet, nor what installs their packages.
    behind = ["--behind", CLUSTER_RUN] if any(job.held for job in args.jobs) else []
    behind += [word for job in needs for word in ("--needs", job.job_name)]
    return Step(
        pipeline=SCHEDULED_RUN,
        name=args.pipeline,
        module="slipway.workloads.schedule.run",
        arguments=[
            *("--api", KUBERNETES_API, "--service-account", SERVICE_ACCOUNT),
            *("--namespace", args.workspace.namespace, "--pipeline", args.pipeline, "--jobs", called),
            *behind,
            *limits_flags(job.run for job in args.jobs),
        ],
        image=args.image,
        platform=platform,
        pool=cheapest_pool(platform),
        resources=RUNNER,
        time_limit=2 * limit + sum(job.run.step.time_limit for job in needs),
        uses_store=False,
        reads_nodes=True,
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
    """The Job as `slipway.workloads.schedule.run` reads it."""
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
                "labels": job_labels(
                    step.pipeline,
                    step.name,
                    args.workspace.queue,
                    args.workspace.priorities.get(job.priority),
                ),
                "annotations": job_annotations(run),
            },
            "spec": spec,
        },
    }


def _retention(args: PipelineScheduleArgs) -> Run | None:
    """What deletes results of old runs at the end of each; None where all stay."""
    if args.retention is None:
        return None
    steps = [job.run.step for job in args.jobs]
    return plan(
        retention_step(args.pipeline, args.retention, steps, args.image, args.workspace.platform), args.root
    )


def _plan_retention(run: Run, before: Sequence[Mapping[str, Any]], workspace: Workspace) -> dict[str, Any]:
    """The Job after all others, as `slipway.workloads.schedule.run` reads it."""
    step = run.step
    spec = _plain(job_spec(run, workspace)) | {"template": _pod(run, workspace)}
    return {
        "name": _planned_name(run),
        "path": "",
        "after": sorted(str(job["name"]) for job in before),
        "manifest": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"labels": job_labels(step.pipeline, step.name, workspace.queue), "annotations": {}},
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
