"""A small stack on a cloud that nobody knows: one cluster, its pools, their prices, and Jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from slipway.infra.platform import Resources
from slipway.infra.review.contract import Review, reviewed
from slipway.infra.review.facts import Charge, Price, Seconds, Source
from slipway.infra.review.stack import KUBERNETES_PROVIDER, NodePool, Resource, Stack
from tests.support.reviewing import declared

TODAY = date(2026, 11, 21)
SOURCE = Source("https://prices.example", date(2026, 11, 1))

CLUSTER = declared("cloud:k8s:Cluster", "here")
PROVIDER = declared(KUBERNETES_PROVIDER, "here", dependencies=frozenset({CLUSTER.urn}))

JOB = "kubernetes:batch/v1:Job"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"


def price(amount: float, unit: str = "hour") -> Price:
    return Price(amount, unit, SOURCE)


@dataclass(frozen=True)
class Pool:
    """A pool with what one of its nodes costs and takes to boot; None where nobody knows."""

    name: str
    least: int
    most: int
    hourly: float | None
    boot: float | None = 300
    gpus: int = 0
    cpu: int = 4000
    spare: tuple[Charge, ...] = ()
    bought: Sequence[Charge] | None = None
    """All that it is billed for, in place of the machine and ``spare``."""
    cluster: str = "here"

    @property
    def declared(self) -> Resource:
        return declared("cloud:k8s:Pool", self.name, dependencies=frozenset({CLUSTER.urn}))

    @property
    def nodes(self) -> NodePool:
        return NodePool(
            urn=self.declared.urn,
            cluster=self.cluster,
            name=self.name,
            labels={"pool": self.name},
            taints=[],
            allocatable=Resources(cpu=self.cpu, memory=16000, ephemeral_storage=50000, gpus=self.gpus),
            min_nodes=self.least,
            max_nodes=self.most,
            gpus=self.gpus,
            boot=None if self.boot is None else Seconds(self.boot, SOURCE),
        )

    @property
    def charges(self) -> Sequence[Charge]:
        return self.bought or [
            replace(charge, urn=self.declared.urn, pool=self.declared.urn, idle=self.least, most=self.most)
            for charge in (Charge("", "machine", None if self.hourly is None else price(self.hourly)), *self.spare)
        ]


def job(
    name: str,
    pool: str,
    *needs: Resource,
    limit: int | None = 3600,
    gpus: int = 0,
    cpu: str = "3",
    pods: int = 1,
    labels: Mapping[str, str] | None = None,
    together: bool = False,
) -> Resource:
    """A Job that only the pool of that name takes, of so many pods at once.

    ``together`` puts each of them on a node of its own, and has it find the others.
    """
    template = _template(pool, cpu, gpus)
    if together:
        apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        group = {"subdomain": name, "affinity": {"podAntiAffinity": required}}
        template = {**template, "spec": {**template["spec"], **group}}
    spec: dict[str, Any] = {
        "template": template,
        "parallelism": pods,
        "completions": pods,
        **({"activeDeadlineSeconds": limit} if limit else {}),
    }
    return _on_pool(JOB, name, pool, {"metadata": {"labels": labels or {}}, "spec": spec}, needs)


def service(name: str, pool: str, *needs: Resource, cpu: str = "1", pods: int = 1) -> Resource:
    """A StatefulSet that only the pool of that name takes."""
    properties = {"spec": {"replicas": pods, "template": _template(pool, cpu)}}
    return _on_pool(STATEFUL_SET, name, pool, properties, needs)


def _template(pool: str, cpu: str, gpus: int = 0) -> dict[str, Any]:
    requests = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "work:1-gpu" if gpus else "work:1", "resources": {"requests": requests}}
    return {"spec": {"nodeSelector": {"pool": pool}, "containers": [container]}}


def _on_pool(
    type_: str, name: str, pool: str, properties: Mapping[str, Any], needs: Sequence[Resource]
) -> Resource:
    urn = declared("cloud:k8s:Pool", pool).urn
    return declared(
        type_,
        name,
        properties,
        provider=PROVIDER.urn,
        dependencies=frozenset({urn, *(need.urn for need in needs)}),
    )


def stack(
    pools: Sequence[Pool],
    *resources: Resource,
    charges: Sequence[Charge] = (),
) -> Stack:
    """A stack with a cluster, these pools, and what is declared beside them."""
    review = Review(
        pools=lambda _: [pool.nodes for pool in pools],
        charges=lambda _: [*charges, *(charge for pool in pools for charge in pool.charges)],
    )
    everything = [CLUSTER, *(pool.declared for pool in pools), PROVIDER, *resources]
    return reviewed(Stack("test", {resource.urn: resource for resource in everything}), [review])
