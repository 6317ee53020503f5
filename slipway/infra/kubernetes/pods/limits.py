"""What the pods of steps are told of the limits of their stack, and how their programs are measured for it.

A pod has prices and limits from a ConfigMap that keeps its name: neither another price nor another limit changes a
pod, and so makes no Job run again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.labels import LIMITS, LIMITS_FILE, PART_OF, TAKEN_OVER
from slipway.infra.kubernetes.review import SCALE_DOWN
from slipway.infra.kubernetes.run import MEASURE, UNASKED, Known, Run, Usage, plan
from slipway.infra.placed import Step, with_those_before
from slipway.infra.schema.quantities import seconds

FOLDER = "/limits"
"""Where a pod has it."""

POOL_FLAG = "--pool"
"""The argument of what measures a step with the pool that the records name."""


@dataclass(frozen=True)
class Spending:
    """What the nodes of runs may cost, in US dollars; None: without limit."""

    run: float | None = None
    month: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.run is not None or self.month is not None


UNLIMITED = Spending()


def measured_by(workspaces: Iterable[Workspace], spending: Spending) -> Usage | None:
    """How steps are measured in ``workspaces``; None: they are not."""
    measured = [workspace.measured for workspace in workspaces if workspace.measured]
    usage = measured[0].usage if measured else UNASKED
    return replace(usage, only_gpus=False, limited=True) if usage and spending.is_limited else usage


def measuring(run: Run, store: str, folder: str) -> list[str]:
    """The command that measures the step's program, which follows it; empty where the step is not measured.

    The record is kept in ``folder`` of the store, which is mounted at ``store``.
    """
    usage, step = run.usage, run.step
    if usage is None:
        return []
    words = ["python3", "-m", MEASURE, "--step", f"{step.pipeline}.{step.name}", POOL_FLAG, step.pool.name]
    words += ["--gpus", str(step.requests.gpus)]
    if step.uses_store:
        words += ["--file", f"{store}/{folder}/{{index}}.json"]
    if usage.port:
        words += ["--port", str(usage.port)]
    if run.is_limited:
        words += ["--limits", f"{FOLDER}/{LIMITS_FILE}"]
    if step.idle:
        words += ["--idle-for", str(seconds(step.idle.after)), "--idle-then", step.idle.then]
    below = step.idle.below if step.idle else usage.idle_below
    return [*words, "--idle-below", str(below), "--idle-share", str(usage.idle_share), "--"]


def limits_flags(runs: Iterable[Run]) -> list[str]:
    """What a pod that lets ``runs`` begin is told, where a budget may end one of them."""
    return ["--limits", LIMITS] if _any_limited(runs) else []


def limits_rules(runs: Iterable[Run]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """What such a pod may read for it: the limits, and how pods ended."""
    if not _any_limited(runs):
        return []
    rule = k8s.rbac.v1.PolicyRuleArgs
    return [
        rule(api_groups=[""], resources=["configmaps"], resource_names=[LIMITS], verbs=["get"]),
        rule(api_groups=[""], resources=["pods"], verbs=["list"]),
    ]


def _any_limited(runs: Iterable[Run]) -> bool:
    return any(run.is_limited and run.usage and run.usage.limited for run in runs)


def mounts(run: Run) -> list[k8s.core.v1.VolumeMountArgs]:
    """The mount of the limits, where the pod is told of them."""
    if not run.is_limited:
        return []
    return [k8s.core.v1.VolumeMountArgs(name=LIMITS, mount_path=FOLDER, read_only=True)]


def volumes(run: Run) -> list[k8s.core.v1.VolumeArgs]:
    """The volume of the limits, where the pod is told of them.

    A directory: the kubelet brings it up to date within some 2 minutes, and never a single file that is mounted by
    `subPath` (kubernetes.io/docs/concepts/configuration/configmap, November 2026).
    """
    if not run.is_limited:
        return []
    items = [k8s.core.v1.KeyToPathArgs(key=LIMITS_FILE, path=LIMITS_FILE)]
    source = k8s.core.v1.ConfigMapVolumeSourceArgs(name=LIMITS, default_mode=0o444, items=items)
    return [k8s.core.v1.VolumeArgs(name=LIMITS, config_map=source)]


def declare_limits(
    steps: Sequence[Step], workspaces: Mapping[str, Workspace], root: Path, known: Known, spending: Spending
) -> dict[str, tuple[k8s.core.v1.ConfigMap, ...]]:
    """Declares the ConfigMap on each cluster, by its name, that has pods which are told of limits.

    ``steps`` and all that they need ship files of the repository at ``root``; ``known`` grows by what they are.
    """
    runs = [plan(step, root, known) for step in with_those_before(steps)]
    limited = [run for run in runs if run.is_limited]
    clusters = {platform.name for run in limited for platform in run.step.platforms}
    content = json.dumps(_content(limited, spending), indent=2)
    return {name: (_declare(workspace, content),) for name, workspace in workspaces.items() if name in clusters}


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


def kept_after(step: Step) -> float | None:
    """For how many seconds a node of the step's pool stays after its last pod; None for one that does not come and
    go, where pods are billed in its place, and where no price of it is known.
    """
    if step.rate is None or step.rate.by_pod or step.pool.min_nodes:
        return None
    return SCALE_DOWN.amount if step.pool.kept is None else step.pool.kept


def _content(runs: Sequence[Run], spending: Spending) -> dict[str, Any]:
    prices: dict[str, dict[str, Any]] = {}
    for run in sorted(runs, key=lambda run: run.path):
        of_step = prices.setdefault(f"{run.step.pipeline}.{run.step.name}", {})
        for step in run.step.places.steps if run.step.places else [run.step]:
            if (rate := step.rate) is not None:
                kept = kept_after(step) or 0.0
                of_step[step.pool.name] = {"dollars": rate.dollars, "kept": kept, "by_pod": rate.by_pod}
    return {
        "stack": pulumi.get_stack(),
        "run": spending.run,
        "month": spending.month,
        "runs": sorted(run.path for run in runs),
        "prices": prices,
    }
