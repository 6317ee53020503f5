"""Pipelines that run without `pulumi up`: their Jobs are created suspended, and a pod in the cluster starts them.

The Jobs are those that `up` would wait for: the same names, pods and digests. The pod needs no right to create a
Job: it may change those of its list, by their names, and the API server takes no other program or image for a Job
that is there (kubernetes/pkg/apis/batch/validation, `ValidateJobSpecUpdate`, Kubernetes 1.34).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.features import added
from slipway.infra.kubernetes.cluster.api_access import api_step, identity
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import StepJob, disruptions_ignored
from slipway.infra.kubernetes.labels import step_labels
from slipway.infra.kubernetes.pods.pod import bundle_map, template
from slipway.infra.kubernetes.run import plan
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.placed import CLUSTER_RUN, Step
from slipway.infra.platform import DECLARED_ALONE

RETRIES = 100
"""Pods of the runner that may fail, killed ones included, before its Job does. Kubernetes waits longer from one to
the next, up to ten minutes (kubernetes.io/docs/concepts/workloads/controllers/job, seen November 2026)."""

FINAL = (2, 11, 21)
"""Exit codes of `slipway.runtime.schedule.release` after which another pod would end alike: a wrong command
line, a failed step, and a budget that is spent."""

LIST_ANNOTATION = "slipway/jobs"
"""The annotation of the runner's pod with a digest of its list, so that another list replaces the runner."""

ABOUT = "the number of the attempt that is due of each Job that failed"
"""What the ConfigMap says of itself."""

Attempts: TypeAlias = pulumi.Output[Mapping[str, str]]
"""The number of the attempt that is due of each Job that failed, by its name."""


def declare_attempts(name: str, workspace: Workspace) -> Attempts:
    """Declares the ConfigMap in which the runner notes what failed, and reads what it has noted."""
    metadata = k8s.meta.v1.ObjectMetaArgs(
        name=f"{CLUSTER_RUN}-attempts",
        namespace=workspace.namespace,
        labels=step_labels(CLUSTER_RUN, workspace.platform.name),
    )
    return declare_notes(name, metadata, ABOUT, workspace, parent=workspace)


def declare_notes(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    about: str,
    workspace: Workspace,
    *,
    parent: pulumi.Resource,
) -> Attempts:
    """Declares a ConfigMap in which a pod notes what failed, and reads what it has noted; ``about`` says what."""
    provider = workspace.platform.provider
    opts = pulumi.ResourceOptions(parent=parent, provider=provider, depends_on=[*workspace.ready])
    # One key is Pulumi's, the others are the pod's. Without any, what is read would count as not known yet in a
    # preview, and with it the pods of all Jobs.
    notes = k8s.core.v1.ConfigMap(name, metadata=metadata, data={"about": about}, opts=opts)
    current = k8s.core.v1.ConfigMap.get(
        f"{name}-read", notes.id, opts=pulumi.ResourceOptions(parent=parent, provider=provider)
    )
    return current.data.apply(lambda data: data or {})


@dataclass(frozen=True)
class ClusterRunArgs:
    """``jobs`` are those that it lets run, ``attempts`` what `declare_attempts` returned for them.

    ``root`` is the repository, and ``image`` one with Python.
    """

    jobs: Sequence[StepJob]
    attempts: Attempts
    workspace: Workspace
    image: str
    root: Path


class ClusterRun(pulumi.ComponentResource):
    """The Job whose pod lets the suspended Jobs of one cluster run, each once those before it are complete.

    All that it knows stands in the cluster: a pod that takes its place goes on with the Jobs as they are. Another
    list, which a replaced Job makes, replaces it. It may look at the Jobs of its list and change them, and nothing
    else. It talks to the Kubernetes API, which no policy can name, and so may connect to everything.
    """

    def __init__(self, name: str, args: ClusterRunArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:ClusterRun", name, {}, opts)
        workspace = args.workspace
        labels = step_labels(CLUSTER_RUN, workspace.platform.name)
        metadata = k8s.meta.v1.ObjectMetaArgs(name=CLUSTER_RUN, namespace=workspace.namespace, labels=labels)
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        )
        binding = identity(
            name, CLUSTER_RUN, workspace.namespace, labels=labels, rules=_rules(args.jobs), opts=on_cluster
        )
        listed = _listed(args.jobs, args.attempts)
        jobs = k8s.core.v1.ConfigMap(
            f"{name}-jobs", metadata=metadata, data={"jobs.json": listed}, opts=on_cluster
        )
        run = plan(_step(args), args.root)
        pod = template(run, CLUSTER_RUN)
        assert isinstance(pod.metadata, k8s.meta.v1.ObjectMetaArgs)
        pod.metadata.annotations = {LIST_ANNOTATION: listed.apply(_digest)}
        k8s.batch.v1.Job(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=CLUSTER_RUN,
                namespace=workspace.namespace,
                labels=labels,
                annotations=DECLARED_ALONE,
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                backoff_limit=RETRIES,
                pod_failure_policy=_failure_policy(run.step.name),
                pod_replacement_policy="Failed",
                active_deadline_seconds=run.step.time_limit,
                template=pod,
            ),
            opts=wait_for(
                on_cluster,
                binding,
                jobs,
                config_map(bundle_map(run), run.bundle, workspace.namespace, labels, on_cluster),
                *workspace.api_egress(f"{name}-egress", f"{CLUSTER_RUN}-egress", labels, on_cluster),
                *(job.job for job in args.jobs),
                delete_before_replace=True,
            ),
        )
        self.register_outputs({"job": CLUSTER_RUN})


def _listed(jobs: Sequence[StepJob], attempts: Attempts) -> pulumi.Output[str]:
    """The list that `slipway.runtime.schedule.release` reads, as JSON: those come first that others wait for.

    A Job that is made anew, under its old name even, has another UID, and so makes another list.
    """
    known = {job.job_name for job in jobs}

    def write(values: Sequence[Any]) -> str:
        due: Mapping[str, str] = values[0]
        entries = [
            {
                "step": job.run.name,
                "name": job.job_name,
                "uid": identity_,
                "attempt": int(due.get(job.job_name, 1)),
                "after": sorted({before.job_name for before in job.after} & known),
            }
            for job, identity_ in zip(jobs, values[1:], strict=True)
        ]
        return json.dumps(entries)

    return pulumi.Output.all(attempts, *(job.job.metadata.uid for job in jobs)).apply(write)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rules(jobs: Sequence[StepJob]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    return [
        k8s.rbac.v1.PolicyRuleArgs(
            api_groups=["batch"],
            resources=["jobs"],
            resource_names=sorted(job.job_name for job in jobs),
            verbs=["get", "patch"],
        ),
        k8s.rbac.v1.PolicyRuleArgs(
            api_groups=[""], resources=["configmaps"], resource_names=[CLUSTER_RUN], verbs=["get"]
        ),
        k8s.rbac.v1.PolicyRuleArgs(
            api_groups=[""],
            resources=["configmaps"],
            resource_names=[f"{CLUSTER_RUN}-attempts"],
            verbs=["get", "patch"],
        ),
        *added("declared", "starter_rules", [job.run for job in jobs]),
    ]


def _failure_policy(container: str) -> k8s.batch.v1.PodFailurePolicyArgs:
    disruptions = disruptions_ignored().rules
    assert isinstance(disruptions, list)
    codes = k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgs(
        container_name=container, operator="In", values=[*FINAL]
    )
    final = k8s.batch.v1.PodFailurePolicyRuleArgs(action="FailJob", on_exit_codes=codes)
    return k8s.batch.v1.PodFailurePolicyArgs(rules=[disruptions[0], final])


def _step(args: ClusterRunArgs) -> Step:
    """What the runner's pod runs. Its time limit lets all Jobs run one after the other, twice."""
    platform = args.workspace.platform
    return api_step(
        CLUSTER_RUN,
        platform.name,
        "slipway.runtime.schedule.release",
        [
            *("--namespace", args.workspace.namespace),
            *("--jobs", CLUSTER_RUN, "--attempts", f"{CLUSTER_RUN}-attempts"),
            *added("declared", "starter_flags", [job.run for job in args.jobs]),
        ],
        image=args.image,
        platform=platform,
        time_limit=2 * sum(job.time_limit for job in args.jobs),
    )
