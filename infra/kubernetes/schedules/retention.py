"""The last Job of a run by the clock: it deletes results of old runs, where a stack file says how many stay."""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.infra.pipelines.contract import Retention
from slipway.infra.placed import RETENTION, Step
from slipway.infra.platform import Platform, Resources

MODULE = "slipway.workloads.schedule.retention"

RESOURCES = Resources(cpu=100, memory=512, ephemeral_storage=64)

TIME_LIMIT = 6 * 3600
"""Seconds. What is not deleted by then is by the next run."""


@dataclass(frozen=True)
class RetentionArgs:
    """``rule`` says which runs stay, with those that are ``kept`` by their names, since apps read them."""

    rule: Retention
    kept: Sequence[str] = ()


def retention_step(
    pipeline: str, args: RetentionArgs, steps: Sequence[Step], image: str, platform: Platform
) -> Step:
    """What deletes results of old runs of ``steps``, a pipeline's; its pod has the store, and no token."""
    published = [step.name for step in steps if step.publishes]
    return Step(
        pipeline=RETENTION,
        name=pipeline,
        module=MODULE,
        arguments=[
            *("--store", "{store}", "--pipeline", pipeline),
            *("--runs", str(args.rule.runs), "--days", str(args.rule.days)),
            *(word for name in published for word in ("--step", name)),
            *(word for run in args.kept for word in ("--keep", run)),
        ],
        image=image,
        platform=platform,
        pool=platform.cheapest_pool,
        resources=RESOURCES,
        time_limit=TIME_LIMIT,
    )
