"""Limits of a stack that could not hold, or that let nothing run: its budget, and idle GPUs of steps."""

from collections.abc import Iterator

from slipway.features.budget.feature import KEY as BUDGET
from slipway.features.budget.feature import Budget, section_of
from slipway.infra.pipelines.contract import IDLE, StepSettings, placements
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.quantities import seconds
from slipway.infra.settings.checks.pipelines import pools_of
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY, steps_if_any

LEAST_IDLE = 60
"""Seconds: GPUs that are idle for less may just wait for data."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the section `budget`, and `idle` of steps."""
    draft = reading.draft
    if budget := section_of(draft):
        yield from _budget(budget, draft)
    yield from _idle(draft)


def _budget(budget: Budget, draft: Draft) -> Iterator[Finding]:
    steps = {name: steps_if_any(name, settings) for name, settings in draft.pipelines.items()}
    running = [name for name in steps if steps[name]]
    for key in ("run", "month"):
        if getattr(budget, key) == 0 and running:
            yield Finding(
                (BUDGET, key),
                0,
                f"nothing may run, and the stack runs {listed(running, 'and')}",
                "write how many US dollars their nodes may cost, or leave the pipelines out",
                read=((KEY,),),
            )
    if draft.metrics is not None and not draft.metrics.usage:
        yield _unmeasured((BUDGET,))
    names = {on.pool for name in running for step in steps[name] for _, on in step.placed_by.on_pools}
    clusters = {str(at[1]) for pool, (at, _) in pools_of(draft).items() if pool in names}
    if clusters and not any(draft.clusters[name].has_list_prices for name in clusters):
        yield Finding(
            (BUDGET,),
            None,
            f"it counts list prices, and no price is known of nodes of {listed(sorted(clusters), 'and')}: nothing "
            "would ever be counted",
            "remove it, and limit steps by `time_limit`",
            read=(("clusters",), (KEY,)),
        )


def _idle(draft: Draft) -> Iterator[Finding]:
    pools = pools_of(draft)
    for place, step in placements(draft.pipelines, (KEY,)):
        if not isinstance(step, StepSettings) or step.idle is None:
            continue
        at: Path = (*place, IDLE)
        if draft.metrics is not None and not draft.metrics.usage:
            yield _unmeasured(at)
        if seconds(step.idle.after) < LEAST_IDLE:
            yield Finding(
                (*at, "after"),
                step.idle.after,
                f"shorter than {LEAST_IDLE} s, for which a program may just wait for data",
                "write for example `10m`",
            )
        plain = [pool for pool in step.pools if pool in pools and not pools[pool][1].has_gpus]
        if plain and not step.asked_gpus:
            yield Finding(
                at,
                None,
                f"its pool {listed(plain, 'and')} has no GPUs that could be idle",
                "remove it, or give the step `gpus` and a pool that has some",
                read=(("clusters",), place),
            )


def _unmeasured(at: Path) -> Finding:
    return Finding(
        at,
        None,
        "it counts what is measured of steps, and `slipway:metrics.usage` is false",
        "write `usage: true` there, or remove it",
        read=(("metrics", "usage"),),
    )
