"""What ends what runs once the last day of a stack is over: a CronJob of each cluster, and what it may do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.api_access import api_step, identity
from slipway.infra.kubernetes.cluster.workspace import CRON_JOBS, DEPLOYMENTS, STATEFUL_SETS, Workspace
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.labels import instance, step_labels
from slipway.infra.kubernetes.pods.pod import bundle_map, template
from slipway.infra.kubernetes.run import plan
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.placed import UNTIL, Step

MODULE = "slipway.workloads.schedule.until"

DAYS = 3
"""Days after the last one on which it looks: the control plane may have been away, or somebody may have started
something again."""

LIMIT = 3600
"""Seconds for one pod, the start of its node included."""

OPTIONS = {DEPLOYMENTS: "--deployment", STATEFUL_SETS: "--stateful-set", CRON_JOBS: "--cron-job"}
"""Options of `MODULE`, by the kinds of objects that they name."""

ABOUT = "what was ended, once the last day of the stack was over"
"""What the ConfigMap says of itself."""


@dataclass(frozen=True)
class UntilArgs:
    """``day`` is the last one (ISO 8601). All that is ended in ``workspace`` is declared. ``root`` is the
    repository, and ``image`` one with Python.
    """

    day: str
    workspace: Workspace
    image: str
    root: Path


class Until(pulumi.ComponentResource):
    """Ends what the stack runs on a cluster, once its last day is over.

    Its pod may scale the stack's Deployments and StatefulSets, suspend its CronJobs, and change Jobs of the
    namespace: those of runs by the clock have no names that are known before. It deletes nothing. It talks to the
    Kubernetes API, which no policy can name, and so may connect to everything.
    """

    def __init__(self, name: str, args: UntilArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:Until", name, {}, opts)
        workspace = args.workspace
        labels = step_labels(UNTIL, workspace.platform.name)
        metadata = k8s.meta.v1.ObjectMetaArgs(name=UNTIL, namespace=workspace.namespace, labels=labels)
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        )
        binding = identity(
            name, UNTIL, workspace.namespace, labels=labels, rules=_rules(workspace), opts=on_cluster
        )
        # One key is Pulumi's, the other one is the pod's.
        notes = k8s.core.v1.ConfigMap(f"{name}-notes", metadata=metadata, data={"about": ABOUT}, opts=on_cluster)
        run = plan(_step(args), args.root)
        k8s.batch.v1.CronJob(
            name,
            metadata=metadata,
            spec=k8s.batch.v1.CronJobSpecArgs(
                schedule=schedule(date.fromisoformat(args.day)),
                time_zone="Etc/UTC",
                concurrency_policy="Forbid",
                successful_jobs_history_limit=1,
                failed_jobs_history_limit=1,
                job_template=k8s.batch.v1.JobTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
                    spec=k8s.batch.v1.JobSpecArgs(
                        backoff_limit=3, active_deadline_seconds=LIMIT, template=template(run, UNTIL)
                    ),
                ),
            ),
            opts=wait_for(
                on_cluster,
                binding,
                notes,
                config_map(bundle_map(run), run.bundle, workspace.namespace, labels, on_cluster),
                *workspace.api_egress(f"{name}-egress", f"{UNTIL}-egress", labels, on_cluster),
            ),
        )
        self.register_outputs({"cronJob": UNTIL})


def declare(
    day: str, workspaces: Mapping[str, Workspace], jobs: Iterable[StepJob], root: Path, image: str
) -> None:
    """Declares on each cluster with ``jobs`` or anything else to end what ends it after ``day``.

    All that is ended is declared before.
    """
    used = {platform.name for job in jobs for platform in job.run.step.platforms}
    for name, workspace in workspaces.items():
        if name in used or workspace.last_day.names:
            Until(f"{name}-{UNTIL}", UntilArgs(day, workspace, image, root))


def schedule(day: date) -> str:
    """When a CronJob looks whether ``day`` is over: every six hours of the `DAYS` after it.

    Cron knows no year, and of days at the turn of a month it takes those of both. Before its time, the pod does
    nothing.
    """
    days = [day + timedelta(days=number) for number in range(1, DAYS + 1)]
    numbers = sorted({after.day for after in days})
    months = sorted({after.month for after in days})
    return f"0 */6 {','.join(map(str, numbers))} {','.join(map(str, months))} *"


def _rules(workspace: Workspace) -> Sequence[k8s.rbac.v1.PolicyRuleArgs]:
    rule, names = k8s.rbac.v1.PolicyRuleArgs, workspace.last_day.names
    kinds = (("apps", DEPLOYMENTS, f"{DEPLOYMENTS}/scale"), ("apps", STATEFUL_SETS, f"{STATEFUL_SETS}/scale"))
    ended = [
        rule(api_groups=[group], resources=[resource], resource_names=sorted(names[kind]), verbs=["get", "patch"])
        for group, kind, resource in (*kinds, ("batch", CRON_JOBS, CRON_JOBS))
        if kind in names
    ]
    status = [rule(api_groups=["batch"], resources=["jobs/status"], verbs=["patch"])]
    # Which names Kueue gives to Workloads is not known before.
    queued = [rule(api_groups=["kueue.x-k8s.io"], resources=["workloads"], verbs=["list", "patch"])]
    return [
        *ended,
        rule(api_groups=["batch"], resources=["jobs"], verbs=["list", "patch"]),
        # The role `admin` of a namespace has no such right, and so cannot give it.
        *(status if workspace.platform.declares_cluster_objects else []),
        *(queued if workspace.queue else []),
        rule(api_groups=[""], resources=["configmaps"], resource_names=[UNTIL], verbs=["get", "patch"]),
    ]


def _step(args: UntilArgs) -> Step:
    """What the CronJob's pod runs."""
    workspace = args.workspace
    platform, names = workspace.platform, workspace.last_day.names
    stack = instance(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack())
    return api_step(
        UNTIL,
        platform.name,
        MODULE,
        [
            *("--until", args.day, "--namespace", workspace.namespace, "--instance", stack, "--notes", UNTIL),
            *(word for kind in OPTIONS for name in sorted(names.get(kind, ())) for word in (OPTIONS[kind], name)),
        ],
        image=args.image,
        platform=platform,
        time_limit=LIMIT,
    )
