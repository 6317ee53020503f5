"""A step that runs at one of several places: a suspended Job for each, and a Job that lets one of them run.

Autoscalers bring nodes and Kubernetes schedules pods, as for any Job. What none of them can express is when to
stop waiting for one kind of node and to take another: an order with times, a deadline, a price, and a move at a
checkpoint only. `slipway.runtime.schedule.places.move` decides that and nothing else, by `spec.suspend` of Jobs
that are there.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.features import added
from slipway.infra.kubernetes.cluster.api_access import KUBERNETES_API, RUNNER, SERVICE_ACCOUNT, identity
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import (
    HeldJob,
    StepJob,
    StepJobArgs,
    disruptions_ignored,
    job_annotations,
    number_attempt,
)
from slipway.infra.kubernetes.labels import (
    MOVES_ANNOTATION,
    PLAN_ANNOTATION,
    RUNS_ANNOTATION,
    TAKEN_OVER,
    step_labels,
)
from slipway.infra.kubernetes.places.jobs import MovedStepArgs, PlaceJobs, declare_places
from slipway.infra.kubernetes.pods.pod import bundle_map, template
from slipway.infra.kubernetes.run import HELD, Run, plan
from slipway.infra.kubernetes.schedules.cluster_run import Attempts, declare_notes
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.pipelines.places import agent_account, mover_account
from slipway.infra.pipelines.step_keys import INTERRUPTED, KILLED
from slipway.infra.placed import CLUSTER_RUN, MOVER, Places, Step
from slipway.infra.platform import DECLARED_ALONE, Platform, Pool
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest

MODULE = "slipway.runtime.schedule.places.move"
AGENT_MODULE = "slipway.runtime.schedule.places.agent"

NO_API = 12
"""Exit code of a mover that the Kubernetes API does not answer, or whose Jobs another pod moves: the next pod goes
on. After any other one, the step has failed, was too late, or too dear."""

PATIENCE = 900
"""Seconds that the mover's Job has past the time limit of the step, to stop what runs and to say why."""

ABOUT = "which Job of the step may run, and the number of the attempt that is due of each that failed"


class MovedStep(StepJob):
    """A step with places. ``job``, for which `up` and other steps wait, is that of the mover: it is complete when
    the step is.
    """

    def __init__(self, name: str, args: MovedStepArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        # The Jobs of a step with one place are others.
        pulumi.ComponentResource.__init__(self, "slipway:kubernetes:MovedStep", name, {}, opts)
        run, home = args.run, args.jobs[0]
        self.run, self.priority, self.after = run, home.priority, home.after
        self.held = home.attempts is not None
        self.job_name = held_mover_name(run) if self.held else run.job_name
        self.time_limit = run.step.time_limit + PATIENCE
        places = declare_places(name, args, _declare_notes(name, self, args.workspace), self)
        plan_ = _plan(args, places)
        agents = [_declare_agent(name, args, job.workspace, (places, plan_), self) for job in args.jobs[1:]]
        self.job = self._declare_mover(name, args, (places, plan_), agents)
        self.register_outputs({"job": self.job_name, "path": run.path})

    def _declare_mover(
        self,
        name: str,
        args: MovedStepArgs,
        planned: "tuple[PlaceJobs, pulumi.Output[str]]",
        agents: Sequence[k8s.batch.v1.Job],
    ) -> k8s.batch.v1.Job:
        workspace, run, notes = args.workspace, args.run, notes_name(args.account)
        places, plan_ = planned
        mover = _Program(
            f"{name}-mover",
            args.account,
            plan(_mover(args), args.root),
            workspace,
            [
                # Also at pools that are no places: they were ones when an `up` was interrupted.
                *_rules(args.account, {*places.held[workspace.platform.name], *args.every}, workspace),
                k8s.rbac.v1.PolicyRuleArgs(
                    api_groups=[""], resources=["configmaps"], resource_names=[notes], verbs=["get", "patch"]
                ),
                *added("declared", "starter_rules", [run]),
                # What it waits for, which `pulumi up` then shows.
                k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["events"], verbs=["create"]),
            ],
        )
        pod, ready = _declare_pod(mover, f"{name}-plan", args.account, plan_, self)
        if args.jobs[0].attempts is not None:
            number_attempt(pod, self.job_name, args.jobs[0].attempts)
        limit = f"{mover.run.step.time_limit + PATIENCE + workspace.wait}s"
        step, entries = run.step, places.entries
        # As of a step with one place (`slipway.infra.kubernetes.job.StepJob`).
        waits = {"pulumi.com/replaceUnready": "true", **TAKEN_OVER}
        parent = HeldJob(name, pulumi.ResourceOptions(parent=self)) if self.held else self
        return k8s.batch.v1.Job(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=self.job_name,
                namespace=workspace.namespace,
                labels=step_labels(step.pipeline, step.name),
                annotations={
                    **({**DECLARED_ALONE, RUNS_ANNOTATION: CLUSTER_RUN} if self.held else waits),
                    **job_annotations(run),
                    MOVES_ANNOTATION: json.dumps(
                        {
                            **_rules_of(run, args.places),
                            "plan": args.account,
                            "notes": notes,
                            "places": [entry["pool"] for entry in entries],
                            "sure": [entry["sure"] for entry in entries],
                        }
                    ),
                },
            ),
            spec=_spec(mover.run, pod, suspended=self.held),
            opts=wait_for(
                _on_cluster(workspace, self),
                *ready,
                *places.jobs.values(),
                *agents,
                parent=parent,
                delete_before_replace=True,
                ignore_changes=["spec.suspend"] if self.held else None,
                replace_with=[*step.platform.store.replaced_with],
                custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit),
            ),
        )


def declare(root: Path, image: str) -> Callable[[str, Sequence[StepJobArgs]], StepJob]:
    """What declares a step with places under a name; ``image`` is one with Python, ``root`` the repository."""

    def moved(name: str, jobs: Sequence[StepJobArgs]) -> StepJob:
        places = jobs[0].run.step.places
        assert places is not None
        return MovedStep(name, MovedStepArgs(jobs, places, image, root))

    return moved


def held_mover_name(run: Run) -> str:
    """The name of the mover's Job where it is created suspended, which no place has, even of a pool `run`."""
    name = f"{run.name}-{MOVER}-{short_digest(run.digest)}"
    return f"{fit(name, KUBERNETES_NAME_LIMIT - len(HELD))}{HELD}"


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


@dataclass(frozen=True)
class _Program:
    """A pod that changes Jobs of one cluster: it runs ``run`` as the service account ``account``, with ``rules``.

    The names of its resources begin with ``name``.
    """

    name: str
    account: str
    run: Run
    workspace: Workspace
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs]


def _plan(args: MovedStepArgs, places: PlaceJobs) -> pulumi.Output[str]:
    """The plan that a mover and its agents read. A Job that is made anew, under its old name even, changes it."""
    jobs, rules = places.jobs, _rules_of(args.run, args.places)
    rules = {**rules, "places": places.entries, "every": args.every}
    return pulumi.Output.all(*(job.metadata.uid for job in jobs.values())).apply(
        lambda uids: json.dumps({**rules, "jobs": dict(zip(jobs, uids, strict=True))})
    )


def _declare_agent(
    name: str,
    args: MovedStepArgs,
    workspace: Workspace,
    planned: tuple[PlaceJobs, pulumi.Output[str]],
    parent: pulumi.Resource,
) -> k8s.batch.v1.Job:
    """Declares what carries out the mover's orders in the cluster of ``workspace``.

    Nobody waits for it. It ends as its mover does: one whose step failed is made anew by the next update.
    """
    (places, plan_), step = planned, args.run.step
    cluster = workspace.platform.name
    jobs = places.held[cluster]
    agent = _Program(
        f"{name}-agent-{cluster}",
        agent_account(step.pipeline, step.name, cluster),
        plan(_agent(args, workspace), args.root),
        workspace,
        _rules(args.account, jobs, workspace),
    )
    pod, ready = _declare_pod(agent, f"{name}-plan-{cluster}", args.account, plan_, parent)
    return k8s.batch.v1.Job(
        agent.name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=agent.account,
            namespace=workspace.namespace,
            labels=step_labels(MOVER, agent.run.step.name),
            annotations={"pulumi.com/replaceUnready": "true", **DECLARED_ALONE, RUNS_ANNOTATION: MOVER},
        ),
        spec=_spec(agent.run, pod),
        opts=wait_for(
            _on_cluster(workspace, parent),
            *ready,
            *jobs.values(),
            delete_before_replace=True,
            replace_with=[*workspace.platform.store.replaced_with],
        ),
    )


def _declare_pod(
    program: _Program, plan_name: str, plan_map: str, plan_: pulumi.Output[str], parent: pulumi.Resource
) -> tuple[k8s.core.v1.PodTemplateSpecArgs, list[pulumi.Resource]]:
    """Declares what the pod of ``program`` needs in its cluster; returns its template and that.

    Its plan is the ConfigMap ``plan_map``, declared as ``plan_name``.
    """
    workspace, run, account = program.workspace, program.run, program.account
    labels, opts = step_labels(MOVER, run.step.name), _on_cluster(workspace, parent)
    binding = identity(
        program.name,
        account,
        workspace.namespace,
        labels=labels,
        rules=program.rules,
        annotations=workspace.platform.app_annotations.get(account),
        opts=opts,
    )
    read = k8s.core.v1.ConfigMap(
        plan_name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=plan_map, namespace=workspace.namespace, labels=labels, annotations=TAKEN_OVER
        ),
        data={"plan.json": plan_},
        opts=opts,
    )
    pod = template(run, account)
    assert isinstance(pod.metadata, k8s.meta.v1.ObjectMetaArgs)
    declared = pulumi.Output.from_input(pod.metadata.annotations)
    pod.metadata.annotations = pulumi.Output.all(declared, plan_).apply(
        lambda values: {**(values[0] or {}), PLAN_ANNOTATION: _digest(values[1])}
    )
    bundle = config_map(bundle_map(run), run.bundle, workspace.namespace, labels, opts)
    return pod, [binding, read, bundle, *workspace.api_egress(f"{program.name}-egress", account, labels, opts)]


def _on_cluster(workspace: Workspace, parent: pulumi.Resource) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(
        parent=parent, provider=workspace.platform.provider, depends_on=[*workspace.ready]
    )


def _spec(run: Run, pod: k8s.core.v1.PodTemplateSpecArgs, *, suspended: bool = False) -> k8s.batch.v1.JobSpecArgs:
    """The Job of a mover or an agent: a lost pod is replaced, and how one ended by itself is final."""
    return k8s.batch.v1.JobSpecArgs(
        suspend=suspended or None,
        backoff_limit=0,
        pod_failure_policy=disruptions_ignored(NO_API, KILLED, INTERRUPTED, container=run.step.name),
        pod_replacement_policy="Failed",
        active_deadline_seconds=run.step.time_limit,
        template=pod,
    )


def _rules(plan_map: str, jobs: Iterable[str], workspace: Workspace) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """What a mover or an agent may do: change its Jobs, look at pods and events, and read the plan.

    Where Jobs have a queue, it changes the Workloads of the namespace, too: which names Kueue gives them is not
    known before.
    """
    rule = k8s.rbac.v1.PolicyRuleArgs
    workloads = rule(api_groups=["kueue.x-k8s.io"], resources=["workloads"], verbs=["list", "patch"])
    return [
        *([workloads] if workspace.queue else []),
        rule(api_groups=["batch"], resources=["jobs"], resource_names=sorted(jobs), verbs=["get", "patch"]),
        rule(api_groups=[""], resources=["pods", "events"], verbs=["list"]),
        rule(api_groups=[""], resources=["configmaps"], resource_names=[plan_map], verbs=["get"]),
    ]


def _mover(args: MovedStepArgs) -> Step:
    """What the mover's pod runs. It reads the store, to see checkpoints."""
    notes, name = notes_name(args.account), args.run.name
    return _program(
        MODULE,
        name,
        args,
        args.workspace,
        [
            *("--plan", args.account, "--notes", notes, "--store", "{store}"),
            *added("declared", "starter_flags", [args.run]),
            *(["--orders", f"{{store}}/{args.orders}"] if args.orders else []),
        ],
    )


def _agent(args: MovedStepArgs, workspace: Workspace) -> Step:
    """What the pod of an agent in the cluster of ``workspace`` runs."""
    cluster = workspace.platform.name
    name = fit(f"{args.run.name}-agent-{cluster}", KUBERNETES_NAME_LIMIT)
    orders = ["--orders", f"{{store}}/{args.orders}", "--cluster", cluster]
    return _program(AGENT_MODULE, name, args, workspace, ["--plan", args.account, *orders])


def _program(module: str, name: str, args: MovedStepArgs, workspace: Workspace, arguments: Sequence[str]) -> Step:
    return Step(
        pipeline=MOVER,
        name=name,
        module=module,
        arguments=[
            *("--api", KUBERNETES_API, "--service-account", SERVICE_ACCOUNT),
            *("--namespace", workspace.namespace),
            *arguments,
        ],
        image=args.image,
        platform=workspace.platform,
        pool=mover_pool(workspace.platform, args.places),
        resources=RUNNER,
        time_limit=args.run.step.time_limit + PATIENCE,
        has_token=True,
    )


def mover_pool(platform: Platform, places: Places) -> Pool:
    """The pool of a mover or agent: if possible without GPUs, with nodes that stay and are there, and no place.

    On nodes of a place it would be lost with these, and wait for new ones where the step need not.
    """
    names = {step.pool.name for step in places.steps}
    pools = platform.pools.values()
    return min(
        pools,
        key=lambda pool: (
            pool.allocatable.gpus,
            pool.sale != "on-demand",
            pool.min_nodes == 0,
            pool.name in names,
        ),
    )


def _digest(written: str) -> str:
    """Changes with the Jobs of the plan that is ``written``. The mover reads its rules anew all the time."""
    return hashlib.sha256(json.dumps(json.loads(written)["jobs"]).encode()).hexdigest()[:16]
