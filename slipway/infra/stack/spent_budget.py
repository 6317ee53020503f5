"""Keeps `pulumi up` from asking for a node only to find the budget spent.

A Job that the budget ended failed in an earlier `up`, which waited for it: the stack's state has the words of its
pod. What a run has cost never shrinks, so while the budget is not raised, a pod of the same run would end as soon
as it has its node. Jobs of `runs: cluster` and of schedules are looked after in the cluster.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pulumi

from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.labels import LIMITS, LIMITS_FILE
from slipway.infra.kubernetes.pods.limits import Spending
from slipway.infra.pulumi_cli import CliError
from slipway.infra.review.stack import CONFIG_MAP, JOB, Properties, at, mapping, text, texts
from slipway.infra.stack.running_work import RefusedUpdateError
from slipway.runtime.usage.limits import RUN, Limits, Reached, month_of


def check(
    spending: Spending, jobs: Mapping[str, StepJob], exported: Callable[[], Sequence[Properties]], *, preview: bool
) -> None:
    """Raises RefusedUpdateError where the budget is spent; a ``preview`` warns of that.

    ``jobs`` are those that the program declares, ``exported`` asks for the resources of the stack's state.
    """
    if not spending.is_limited:
        return
    with suppress(CliError):
        # Where nobody knows the state, the pod itself looks.
        runs = {job.run.path for job in jobs.values() if job.run.is_limited}
        names = {job.job_name for job in jobs.values() if not job.held}
        if said := _spent(spending, runs, names, exported()):
            if not preview:
                raise RefusedUpdateError(said)
            pulumi.log.warn(said)


def _spent(spending: Spending, runs: set[str], names: set[str], resources: Sequence[Properties]) -> str:
    """What was spent, by the words of a Job of those ``names``; empty where the budget leaves room."""
    limits = Limits("", spending.run, spending.month)
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
