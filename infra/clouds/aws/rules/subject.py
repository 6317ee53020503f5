"""A pool on AWS, and what the catalogue knows of it: what the checks of pools look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.clouds.aws.catalogue import InstanceType, instance_type
from infra.clouds.aws.settings import AwsCluster, AwsPool
from infra.schema.findings import Path
from infra.schema.request import Request

CATALOGUE = "infra/clouds/aws/data"


@dataclass(frozen=True)
class Subject:
    """A pool, its cluster, where they stand, and what the catalogue knows of its instance type."""

    at: Path
    cluster_at: Path
    cluster: AwsCluster
    pool: AwsPool
    machine: InstanceType | None

    @property
    def zones(self) -> Sequence[str]:
        """The zones that its nodes can be in."""
        return self.cluster.zones if self.pool.zones is None else self.pool.zones

    @property
    def zone_places(self) -> tuple[Path, ...]:
        """Where these zones stand."""
        return ((*self.at, "zones"), (*self.cluster_at, "zones"), (*self.cluster_at, "region"))

    def on(self, *keys: str) -> tuple[Path, ...]:
        """The places of these keys of the pool."""
        return tuple((*self.at, key) for key in keys)


def subjects(request: Request) -> Iterator[Subject]:
    """Every pool on AWS."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        for key, pool in cluster.pools.items():
            yield Subject(
                at=("clusters", name, "pools", key),
                cluster_at=("clusters", name),
                cluster=cluster,
                pool=pool,
                machine=instance_type(pool.instance_type),
            )
