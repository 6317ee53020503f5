"""What pipelines cost that run by themselves: one run, and those of a month."""

from collections.abc import Iterator, Mapping, Sequence

from infra.review.facts import Charge
from infra.review.properties import at, text
from infra.review.stack import JOB, Stack
from infra.schema.cron import times_a_month
from offline.policies.workloads import CRON_JOB
from offline.preview.model import Outcome, ScheduledCost
from offline.preview.run_cost import run_cost
from offline.preview.schedule import Measured


def scheduled(
    stack: Stack, charges: Sequence[Charge], measured: Mapping[str, Measured]
) -> Iterator[ScheduledCost]:
    """The cost of each CronJob that runs Jobs of the stack again: those that it is declared after.

    ``charges`` and ``measured`` are those of `offline.preview.run_cost.run_cost`.
    """
    for each in stack.of_type(CRON_JOB):
        jobs = {urn: Outcome.RUNS for urn in stack.resources if urn in each.dependencies and _is_job(stack, urn)}
        run = run_cost(stack, charges, jobs, measured) if jobs else None
        if run is None:
            continue
        cron = text(at(each.properties, "spec", "schedule"))
        times = _times(cron)
        yield ScheduledCost(
            name=each.name,
            cron=cron,
            time_zone=text(at(each.properties, "spec", "timeZone")),
            times=times,
            dollars=run.dollars,
            paid_anyway=run.paid_anyway,
            monthly=None if run.dollars is None or times is None else (run.dollars - run.paid_anyway) * times,
        )


def _is_job(stack: Stack, urn: str) -> bool:
    return stack.resources[urn].type == JOB


def _times(cron: str) -> float | None:
    try:
        return times_a_month(cron)
    except ValueError:
        return None
