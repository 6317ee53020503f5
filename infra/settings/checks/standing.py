"""What is on a pool at all times and in no queue, beside apps: services, what reads metrics of them, and what the
stack installs in its clusters."""

from collections.abc import Iterator
from dataclasses import dataclass

from infra.platform import Resources
from infra.settings.kueue import REPLICAS, REQUESTS
from infra.settings.metrics import PROMETHEUS_PODS
from infra.settings.parsing import Draft
from infra.settings.pipelines import services_if_any


@dataclass(frozen=True)
class Standing:
    """``who`` is on the pool, in words, with a pod for each of ``pods``."""

    pool: str
    who: str
    pods: tuple[Resources, ...]

    @property
    def requests(self) -> Resources:
        """What all of its pods ask for."""
        return Resources(
            cpu=sum(each.cpu for each in self.pods),
            memory=sum(each.memory for each in self.pods),
            ephemeral_storage=sum(each.ephemeral_storage for each in self.pods),
            gpus=sum(each.gpus for each in self.pods),
        )


def standing(draft: Draft) -> Iterator[Standing]:
    """All of it, pool by pool as it is declared."""
    read = bool(draft.metrics and draft.metrics.collect)
    for name, settings in draft.pipelines.items():
        for service in services_if_any(name, settings):
            pool = service.placed_by.pool
            yield Standing(pool, f"the service `{service.name}`", (service.placed_by.asked,))
            if read and service.exporter:
                yield Standing(pool, f"the exporter of `{service.name}`", (service.exporter.resources,))
    for cluster in draft.clusters.values():
        host = next((name for name, pool in cluster.pools.items() if not pool.has_gpus), None)
        if host is None or cluster.other_stack:
            continue
        if draft.kueue and draft.kueue.install and not draft.kueue.local_queue:
            yield Standing(host, "Kueue itself", (REQUESTS,) * REPLICAS)
        if draft.metrics and draft.metrics.installs_prometheus and not cluster.collects_metrics:
            yield Standing(host, "Prometheus and Grafana", PROMETHEUS_PODS)
