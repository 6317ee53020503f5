"""What keeps a pipeline from running in its cluster while nobody waits for it (`runs: cluster`)."""

from collections.abc import Iterator

from infra.pipelines.contract import PipelineSettings
from infra.schema.problems import Finding, Path, listed
from infra.settings.checks.pipelines import pools_of
from infra.settings.parsing import Draft, Reading
from infra.settings.pipelines import KEY, apps_if_any, steps_if_any


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about each pipeline with `runs: cluster`, and about those that would wait for one."""
    draft = reading.draft
    for name, settings in draft.pipelines.items():
        if settings.runs == "cluster":
            at: Path = (KEY, name, "runs")
            yield from _clusters(at, name, settings, draft)
            yield from _queue(at, draft)
            yield from _apps(at, name, settings)
        else:
            yield from _runs_last(name, settings, draft)


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
    named = {step.placed_by.pool for step in steps_if_any(name, settings)}
    return {pool: (str(pools[pool][0][0]), str(pools[pool][0][1])) for pool in named if pool in pools}


def _queue(at: Path, draft: Draft) -> Iterator[Finding]:
    access = (getattr(cluster, "access", None) for cluster in draft.clusters.values())
    if draft.kueue is not None or any(getattr(entry, "queue", None) for entry in access):
        yield Finding(
            at,
            "cluster",
            "Kueue lets a Job of its queue run as soon as there is quota, whatever comes before it",
            "write `runs: up`, or do without `slipway:kueue`",
            read=(("kueue",), ("clusters",)),
        )


def _apps(at: Path, name: str, settings: PipelineSettings) -> Iterator[Finding]:
    waiting = [app.name for app in apps_if_any(name, settings) if app.inputs or app.after]
    if waiting:
        yield Finding(
            at,
            "cluster",
            f"{listed(waiting, 'and')} would start before the steps whose results they need",
            "write `runs: up`, or do without these apps",
            read=((*at[:-1], "apps"),),
        )


def _runs_last(name: str, settings: PipelineSettings, draft: Draft) -> Iterator[Finding]:
    """A step that runs last waits for those of other pipelines on its pool."""
    mine = {step.placed_by.pool for step in steps_if_any(name, settings) if step.runs_last}
    for other, section in draft.pipelines.items():
        pools = {step.placed_by.pool for step in steps_if_any(other, section)}
        if section.runs == "cluster" and mine & pools:
            yield Finding(
                (KEY, name, "runs"),
                settings.runs,
                f"on the pool {listed(sorted(mine & pools), 'and')} it comes after the steps of {other}, which "
                "`up` does not wait for",
                f"write `runs: up` for {other}, or put one of them on another pool",
                read=((KEY, other),),
            )
