"""Apps of an evaluated stack that are looked at whether anybody uses them, and what they hold meanwhile."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from slipway.infra.kubernetes.labels import APP, IDLE_ANNOTATION
from slipway.infra.review.stack import Stack, at, mapping, number, strings, text
from slipway.infra.review.tables import HOURS_A_MONTH
from slipway.offline.evaluated.model import IdleAppCost
from slipway.offline.evaluated.rates import workload_rate
from slipway.offline.evaluated.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET, Workload, gpus_of, workloads


@dataclass(frozen=True)
class WatchedApp:
    """An app that a CronJob looks at, as `IDLE_ANNOTATION` describes it, and where that is."""

    cluster: str
    namespace: str
    app: str
    object: str
    after: float
    then: str
    notes: str
    holds: str
    start: str


def watched_apps(stack: Stack) -> Iterator[WatchedApp]:
    """The apps of ``stack`` that are looked at."""
    for cron_job in stack.of_type(CRON_JOB):
        metadata = mapping(cron_job.properties.get("metadata"))
        try:
            content = mapping(json.loads(strings(metadata.get("annotations")).get(IDLE_ANNOTATION, "{}")))
        except ValueError:
            continue
        if content:
            words = {key: text(content.get(key)) for key in ("app", "object", "then", "notes", "holds", "start")}
            cluster, namespace = stack.cluster_of(cron_job), text(metadata.get("namespace"))
            yield WatchedApp(cluster, namespace, after=number(content.get("after")) or 0.0, **words)


def unwatched_gpus(stack: Stack) -> Iterator[tuple[Workload, float | None]]:
    """The apps with GPUs that nothing looks at, each with what its pods cost for a month."""
    watched = {(app.cluster, app.namespace, app.object) for app in watched_apps(stack)}
    for workload in workloads(stack, DEPLOYMENT, STATEFUL_SET):
        name = text(at(workload.resource.properties, "metadata", "name"))
        at_place = (workload.cluster, text(workload.namespace), name)
        if APP in workload.labels and gpus_of(workload) and at_place not in watched:
            hourly = workload_rate(stack, workload)
            yield workload, None if hourly is None else hourly * HOURS_A_MONTH


def idle_app_costs(stack: Stack) -> Iterator[IdleAppCost]:
    """What the nodes of apps cost that are looked at, where they go with them and their prices are known."""
    watched = {(app.cluster, app.namespace, app.object): app for app in watched_apps(stack)}
    for workload in workloads(stack, DEPLOYMENT, STATEFUL_SET):
        name = text(at(workload.resource.properties, "metadata", "name"))
        app, pool = watched.get((workload.cluster, text(workload.namespace), name)), workload.pool(stack)
        if app is None or pool is None or (pool.min_nodes and not pool.bills_pods):
            continue
        hourly = workload_rate(stack, workload)
        if hourly is not None:
            yield IdleAppCost(
                app=app.app,
                pool=pool.name,
                after=app.after,
                stops=app.then == "stop",
                hourly=hourly,
                monthly=hourly * HOURS_A_MONTH,
            )
