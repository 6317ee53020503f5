"""What the pods of steps are told of the limits of their stack, and an update that would only find them reached.

A pod has prices and limits from a ConfigMap that keeps its name: neither another price nor another limit changes a
pod, and so makes no Job run again. A Job that the budget ended failed in an earlier `up`, which waited for it: the
stack's state has the words of its pod. What a run has cost never shrinks, so while the budget is not raised, a pod
of the same run would end as soon as it has its node. Jobs of `runs: cluster` and of schedules are looked after in
the cluster.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.features.budget.feature import LIMITS, LIMITS_FILE, Budget, section_of
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.labels import PART_OF, TAKEN_OVER
from slipway.infra.kubernetes.review import SCALE_DOWN
from slipway.infra.kubernetes.run import Known, Run, Usage, plan
from slipway.infra.placed import Step, with_those_before
from slipway.infra.pulumi_cli import CliError
from slipway.infra.review.stack import CONFIG_MAP, JOB, Properties, at, mapping, text, texts
from slipway.infra.stack.running_work import RefusedUpdateError
from slipway.runtime.usage.limits import RUN, Limits, Reached, month_of

FOLDER = "/limits"
"""Where a pod has it."""


def measured(usage: Usage, settings: object) -> Usage:
    """How steps are measured: all of them where a limit counts what they cost."""
    return replace(usage, only_gpus=False, limited=True) if section_of(settings) else usage


def is_told(run: Run) -> bool:
    """Whether the pods of ``run`` are told of prices and limits of the stack."""
    return bool(run.usage and run.step.uses_store and (run.usage.limited or run.step.idle))


def arguments(run: Run) -> list[str]:
    """What measures the step's program is told of the limits."""
    return ["--limits", f"{FOLDER}/{LIMITS_FILE}"] if is_told(run) else []


def starter_flags(runs: Iterable[Run]) -> list[str]:
    """What a pod that lets ``runs`` begin is told, where a budget may end one of them."""
    return ["--limits", LIMITS] if _any_limited(runs) else []


def starter_rules(runs: Iterable[Run]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """What such a pod may read for it: the limits, and how pods ended."""
    if not _any_limited(runs):
        return []
    rule = k8s.rbac.v1.PolicyRuleArgs
    return [
        rule(api_groups=[""], resources=["configmaps"], resource_names=[LIMITS], verbs=["get"]),
        rule(api_groups=[""], resources=["pods"], verbs=["list"]),
    ]


def _any_limited(runs: Iterable[Run]) -> bool:
    return any(is_told(run) and run.usage and run.usage.limited for run in runs)


def mounts(run: Run) -> list[k8s.core.v1.VolumeMountArgs]:
    """The mount of the limits, where the pod is told of them."""
    if not is_told(run):
        return []
    return [k8s.core.v1.VolumeMountArgs(name=LIMITS, mount_path=FOLDER, read_only=True)]


def volumes(run: Run) -> list[k8s.core.v1.VolumeArgs]:
    """The volume of the limits, where the pod is told of them.

    A directory: the kubelet brings it up to date within some 2 minutes, and never a single file that is mounted by
    `subPath` (kubernetes.io/docs/concepts/configuration/configmap, November 2026).
    """
    if not is_told(run):
        return []
    items = [k8s.core.v1.KeyToPathArgs(key=LIMITS_FILE, path=LIMITS_FILE)]
    source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=LIMITS, default_mode=0o444, items=items)
    return [k8s.core.v1.VolumeArgs(name=LIMITS, config_map=source)]


def told(
    steps: Sequence[Step], workspaces: Mapping[str, Workspace], root: Path, known: Known, settings: object
) -> dict[tuple[str, str], k8s.core.v1.ConfigMap]:
    """The ConfigMap with limits that pods need, by the run's directory and the cluster; ``known`` grows."""
    runs = [run for step in with_those_before(steps) if is_told(run := plan(step, root, known))]
    content = json.dumps(_content(runs, section_of(settings)), indent=2)
    places = {(run.path, platform.name) for run in runs for platform in run.step.platforms}
    maps = {name: _declare(workspaces[name], content) for name in sorted({name for _, name in places})}
    return {(path, name): maps[name] for path, name in places}


def _declare(workspace: Workspace, content: str) -> k8s.core.v1.ConfigMap:
    return k8s.core.v1.ConfigMap(
        f"{workspace.platform.name}-{LIMITS}",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=LIMITS, namespace=workspace.namespace, labels=PART_OF, annotations=TAKEN_OVER
        ),
        data={LIMITS_FILE: content},
        opts=pulumi.ResourceOptions(
            parent=workspace, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        ),
    )


def _kept(step: Step) -> float:
    """For how many seconds a node that comes and goes is paid after its last pod; 0 where pods are billed."""
    if step.rate is None or step.rate.by_pod or step.pool.min_nodes:
        return 0.0
    return SCALE_DOWN.amount if step.pool.kept is None else step.pool.kept


def _content(runs: Sequence[Run], budget: Budget | None) -> dict[str, Any]:
    prices: dict[str, dict[str, Any]] = {}
    for run in sorted(runs, key=lambda run: run.path):
        of_step = prices.setdefault(f"{run.step.pipeline}.{run.step.name}", {})
        for step in run.step.places.steps if run.step.places else [run.step]:
            if (rate := step.rate) is not None:
                of_step[step.pool.name] = {"dollars": rate.dollars, "kept": _kept(step), "by_pod": rate.by_pod}
    return {
        "stack": pulumi.get_stack(),
        "run": budget and budget.run,
        "month": budget and budget.month,
        "runs": sorted(run.path for run in runs),
        "prices": prices,
    }


def check_update(
    settings: object, jobs: Mapping[str, StepJob], exported: Callable[[], Sequence[Properties]], *, preview: bool
) -> None:
    """Raises RefusedUpdateError where the state, which is ``exported``, says it is spent; a ``preview`` warns."""
    budget = section_of(settings)
    if budget is None:
        return
    with suppress(CliError):
        # Where nobody knows the state, the pod itself looks.
        runs = {job.run.path for job in jobs.values() if is_told(job.run)}
        names = {job.job_name for job in jobs.values() if not job.held}
        if said := _spent(budget, runs, names, exported()):
            if not preview:
                raise RefusedUpdateError(said)
            pulumi.log.warn(said)


def _spent(budget: Budget, runs: set[str], names: set[str], resources: Sequence[Properties]) -> str:
    """What was spent, by the words of a Job of those ``names``; empty where the budget leaves room."""
    limits = Limits("", budget.run, budget.month)
    month, _ = month_of(time.time())
    for resource in resources:
        if resource.get("type") != JOB or text(resource.get("id")).rpartition("/")[2] not in names:
            continue
        reached = Reached.parse("\n".join(texts(resource.get("initErrors"))))
        if reached is None or not reached.holds(limits, month):
            continue
        # What earlier results cost, of steps that have changed since, is no part of this run.
        if reached.kind == RUN and runs not in _runs_before(resources):
            continue
        return (
            f"{text(resource.get('id'))} was {reached.says}. Its next pod would end as soon as it has a node, so "
            f"nothing is begun: {reached.fix}; or leave the pipeline out"
        )
    return ""


def _runs_before(resources: Sequence[Properties]) -> list[set[str]]:
    """The directories of the results that the last update made: of each cluster, by the limits declared there."""
    runs: list[set[str]] = []
    for resource in resources:
        inputs = mapping(resource.get("inputs"))
        if resource.get("type") == CONFIG_MAP and at(inputs, "metadata", "name") == LIMITS:
            with suppress(ValueError):
                content = mapping(json.loads(text(at(inputs, "data", LIMITS_FILE))))
                runs.append(set(texts(content.get("runs"))))
    return runs
