"""What runs cost at least and at most, against what the stack may spend on them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from slipway.evaluated.cost import run_cost
from slipway.evaluated.model import Outcome
from slipway.evaluated.phrasing import money
from slipway.evaluated.places import is_moved
from slipway.evaluated.schedule import JobDuration
from slipway.evaluated.workloads import CRON_JOB
from slipway.features.budget.feature import KEY, LIMITS, LIMITS_FILE, Budget
from slipway.infra.kubernetes.labels import USAGE_ANNOTATION
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import CONFIG_MAP, JOB, Stack, at, mapping, strings, text
from slipway.infra.schema.cron import times_a_month
from slipway.infra.schema.problems import listed

SECTION = f"slipway:{KEY}"

NO_TIME = JobDuration(0.0, "rehearsed")
"""How long a program takes at least. Its node boots for it all the same, pulls the image, and is kept."""


def _find_too_small(stack: Stack) -> Iterator[Violation]:
    for key, limit, what, least, _ in _compared(stack):
        if least is not None and least > limit:
            yield Violation(
                f"{SECTION}.{key}",
                f"{what} costs {money(least)} before a program has computed for a second: its nodes boot, pull "
                f"images, and are kept afterwards; {money(limit)} would be spent before anything is done",
                f"write more than {money(least)}, take cheaper pools, or run less",
            )


def _find_may_end(stack: Stack) -> Iterator[Violation]:
    for key, limit, what, least, most in _compared(stack):
        if most is not None and most > limit >= (least or 0.0):
            yield Violation(
                f"{SECTION}.{key}",
                f"{what} may cost {money(most)}, to its time limits, and ends at {money(limit)}, with checkpoints "
                "and without a result",
                "shorten time limits, or raise the budget; or live with it",
            )


def _find_not_counted(stack: Stack) -> Iterator[Violation]:
    if _budget(stack) is None:
        return
    for config_map in stack.of_type(CONFIG_MAP):
        if at(config_map.properties, "metadata", "name") != LIMITS:
            continue
        prices = _prices(text(at(config_map.properties, "data", LIMITS_FILE)))
        if unpriced := sorted(step for step, pools in prices.items() if not pools):
            yield Violation(
                SECTION,
                f"no price is known of the pools of {listed(unpriced, 'and')}: their nodes are not counted",
                "take pools with a known price, or limit these steps by `time_limit`",
            )
            return


def _prices(content: str) -> dict[str, Any]:
    with suppress(ValueError):
        return cast("dict[str, Any]", mapping(mapping(json.loads(content)).get("prices")))
    return {}


def _budget(stack: Stack) -> Budget | None:
    """What the stack may spend; None where it does not say, or not rightly, which is a problem of its settings."""
    with suppress(ValidationError):
        section = stack.configuration.get(SECTION)
        return None if section is None else Budget.model_validate(section)
    return None


def _compared(stack: Stack) -> Iterator[tuple[str, float, str, float | None, float | None]]:
    """For each limit its key, itself, and what it limits, with the least and the most that costs."""
    budget = _budget(stack)
    if budget is None:
        return
    counted = {job.urn: Outcome.RUNS for job in stack.of_type(JOB) if _is_counted(job.properties)}
    least, most = _costs(stack, counted)
    if budget.run is not None:
        yield "run", budget.run, "a run of all steps", least, most
    scheduled = list(_scheduled(stack, counted))
    for name, _, least_of_run, most_of_run in scheduled if budget.run is not None else ():
        yield "run", budget.run or 0.0, f"a run of {name}", least_of_run, most_of_run
    if budget.month is not None:
        leasts = [cost * times for _, times, cost, _ in scheduled if cost is not None]
        mosts = [cost * times for _, times, _, cost in scheduled if cost is not None]
        yield (
            "month",
            budget.month,
            "a month of what runs by the clock",
            sum(leasts),
            sum(mosts) if mosts else None,
        )
        yield "month", budget.month, "one run of all steps", least, most


def _scheduled(
    stack: Stack, counted: Mapping[str, Outcome]
) -> Iterator[tuple[str, float, float | None, float | None]]:
    """The name of each pipeline with a schedule, how often it runs in a month, and what a run costs."""
    for cron_job in stack.of_type(CRON_JOB):
        jobs = {urn: outcome for urn, outcome in counted.items() if urn in cron_job.dependencies}
        with suppress(ValueError):
            if jobs:
                times = times_a_month(text(at(cron_job.properties, "spec", "schedule")))
                yield cron_job.name, times, *_costs(stack, jobs)


def _costs(stack: Stack, jobs: Mapping[str, Outcome]) -> tuple[float | None, float | None]:
    charges = [charge for charge in (*stack.charges, *stack.charges_elsewhere) if not charge.metered]
    # Which of its places a step with several has, and for how long, is not known before.
    sure = {urn: outcome for urn, outcome in jobs.items() if not is_moved(stack.resources[urn])}
    least = run_cost(stack, charges, sure, {stack.resources[urn].name: NO_TIME for urn in sure})
    most = run_cost(stack, charges, jobs, {})
    return least and least.dollars, most and most.most


def _is_counted(properties: Mapping[str, Any]) -> bool:
    """Whether the pods of the Job are measured, and so counted."""
    return USAGE_ANNOTATION in strings(at(properties, "metadata", "annotations"))


POLICIES = policies_of(
    Path(__file__).parent / "data" / "policies.toml",
    {
        "budget-too-small": _find_too_small,
        "budget-may-end-run": _find_may_end,
        "budget-not-counted": _find_not_counted,
    },
)
