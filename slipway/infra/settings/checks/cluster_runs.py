"""What keeps a pipeline from running in its cluster while nobody waits for it (`runs: cluster`)."""

from collections.abc import Iterator, Mapping

from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.contract import PipelineSettings
from slipway.infra.pipelines.discovery import pipeline
from slipway.infra.pipelines.residents import left_by, room_for
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.settings.checks.pipelines import pools_of
from slipway.infra.settings.checks.steps import staying, targets
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY, apps_if_any, folder, is_known, place_of, steps_if_any


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about each pipeline with `runs: cluster`, and about those that would wait for one."""
    draft = reading.draft
    for name, settings in draft.pipelines.items():
        if settings.runs == "cluster":
            at: Path = (KEY, name, "runs")
            yield from _clusters(at, name, settings, draft)
            yield from _apps(name, settings, draft)
        elif is_known(name, settings) and pipeline(folder(name, settings)).measures_devices:
            yield from _measures(name, settings, draft)


def _clusters(at: Path, name: str, settings: PipelineSettings, draft: Draft) -> Iterator[Finding]:
    clusters = sorted({place[1] for place in _places(name, settings, draft).values()})
    if clusters[1:]:
        yield Finding(
            at,
            "cluster",
            f"its steps run in the clusters {listed(clusters, 'and')}, and the pod that starts them reaches one",
            "run all of its steps on pools of one cluster, or write `runs: up`",
            read=((KEY, name),),
        )


def _places(name: str, settings: PipelineSettings, draft: Draft) -> dict[str, tuple[str, str]]:
    """The place of each known pool that a step is on, `clusters` and the cluster's name first."""
    pools = pools_of(draft)
    named = _pool_names(name, settings)
    return {pool: (str(pools[pool][0][0]), str(pools[pool][0][1])) for pool in named if pool in pools}


def _pool_names(name: str, settings: PipelineSettings) -> set[str]:
    """The pools that the steps of the pipeline are on, or may be."""
    return {on.pool for step in steps_if_any(name, settings) for _, on in step.placed_by.on_pools}


def _apps(name: str, settings: PipelineSettings, draft: Draft) -> Iterator[Finding]:
    """Apps that cannot wait by themselves for the steps whose results they need."""
    apps = {app.name: app for app in apps_if_any(name, settings)}
    for app in apps.values():
        at = place_of(name, settings, app)
        read: tuple[Path, ...] = ((KEY, name, "runs"),)
        waits = waits_for(app, apps)
        if waits and app.placed_by.asked_gpus:
            yield Finding(
                (*at, "gpus"),
                app.placed_by.asked_gpus,
                f"with `runs: cluster` its pods are there before {listed(waits, 'and')}, and so are their GPUs, "
                "which are billed while they wait",
                "write `runs: up` for the pipeline, or take a pool without GPUs and remove `gpus`",
                read,
            )
        if app.inputs and not app.placed_by.follow:
            yield from _pause(at, app, draft, read)


def _pause(at: Path, app: AppDeclaration, draft: Draft, read: tuple[Path, ...]) -> Iterator[Finding]:
    """An app whose old pod goes before the new one, which then waits until the steps are through."""
    fix = "write `follow: newest` here, with which its pod stays and goes on to the new results by itself"
    steps = listed(app.inputs.values(), "or")
    away = f"each change of {steps} would take its pod away until `cluster-run` is through"
    if app.keeps_data:
        yield Finding(at, None, f"its volume keeps it to one pod: {away}", f"{fix}, or `runs: up`", read)
        return
    target = targets(draft).get(app.placed_by.pool)
    if target is None or target.node is None or target.most_nodes is None:
        return
    pods = [pod for resident in staying(draft) if resident.pool == target.name for pod in resident.all_pods]
    nodes = left_by(pods, [target.node] * max(1, target.most_nodes))
    if not any(room_for(free, app.placed_by.asked) for free in nodes):
        yield Finding(
            (*at, "pool"),
            target.name,
            f"it has no room for one pod of `{app.name}` more: {away}",
            f"{fix}, give the pool more room, or write `runs: up`",
            (*read, *((target.nodes_key,) if target.nodes_key else ())),
        )


def waits_for(app: AppDeclaration, apps: Mapping[str, AppDeclaration]) -> list[str]:
    """The steps that ``app`` or an app to which it connects, of ``apps``, comes after."""
    steps: dict[str, None] = {}
    reached: set[str] = set()
    waiting = [app]
    while waiting:
        current = waiting.pop()
        if current.name not in reached:
            reached.add(current.name)
            steps |= dict.fromkeys([*current.inputs.values(), *current.after])
            waiting += [apps[name] for name in current.connects if name in apps]
    return list(steps)


def _measures(name: str, settings: PipelineSettings, draft: Draft) -> Iterator[Finding]:
    """A step that measures GPUs waits for those of other pipelines on its pool."""
    mine = {step.placed_by.pool for step in steps_if_any(name, settings) if step.placed_by.asked_gpus}
    for other, section in draft.pipelines.items():
        pools = _pool_names(other, section)
        if section.runs == "cluster" and mine & pools:
            yield Finding(
                (KEY, name, "runs"),
                settings.runs,
                f"on the pool {listed(sorted(mine & pools), 'and')} it comes after the steps of {other}, which "
                "`up` does not wait for",
                f"write `runs: up` for {other}, or put one of them on another pool",
                read=((KEY, other),),
            )
