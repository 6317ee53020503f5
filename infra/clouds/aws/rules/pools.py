"""EKS node groups: how many nodes they have, and their instance types, GPUs and image against the catalogue."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from infra.accelerators import accelerator, accelerators
from infra.clouds.aws.catalogue import InstanceType, instance_type, instance_types, is_arm
from infra.clouds.aws.settings import AwsCluster, AwsPool, Nodes
from infra.schema.problems import Finding, Path, did_you_mean, listed
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


def check(request: Request) -> Iterator[Finding]:
    """Findings about each pool on AWS, by itself."""
    for subject in subjects(request):
        yield from _counts((*subject.at, "nodes"), subject.pool.nodes)
        yield from _machine(subject)
        yield from _accelerator(subject)
        yield from _sharing(subject)
        yield from _image(subject)


def _machine(subject: Subject) -> Iterator[Finding]:
    name = subject.pool.instance_type
    if is_arm(name):
        yield Finding(
            (*subject.at, "instance_type"),
            name,
            "an Arm machine, and the images that the steps run are built for x86-64",
            "take an x86-64 type, such as `m7i.xlarge`",
        )
    elif subject.machine is None:
        yield Finding(
            (*subject.at, "instance_type"),
            name,
            "not in the catalogue of instance types",
            did_you_mean(
                name,
                instance_types(),
                f"see https://aws.amazon.com/ec2/instance-types/; a new type is added in {CATALOGUE}",
            ),
        )


def _accelerator(subject: Subject) -> Iterator[Finding]:
    pool, machine = subject.pool, subject.machine
    if pool.accelerator is not None and accelerator(pool.accelerator) is None:
        yield Finding(
            (*subject.at, "accelerator"),
            pool.accelerator,
            "not in the catalogue of accelerators",
            did_you_mean(pool.accelerator, accelerators(), f"known: {listed(accelerators(), 'and')}"),
        )
    elif machine is not None and pool.accelerator not in {None, machine.accelerator}:
        carriers = _types(lambda other: other.accelerator == pool.accelerator)
        has = f"`{machine.accelerator}` and no other" if machine.accelerator else "no GPU"
        yield Finding(
            (*subject.at, "accelerator"),
            pool.accelerator,
            f"`{machine.name}` has {has}",
            f"take {listed(carriers)}" if carriers else "remove it: no instance type of the catalogue has it",
            read=subject.on("instance_type"),
        )
    elif machine is not None and pool.gpus not in {None, machine.gpus}:
        yield from _count(subject, machine)


def _count(subject: Subject, machine: InstanceType) -> Iterator[Finding]:
    wanted = subject.pool.gpus
    others = _types(lambda other: other.gpus == wanted and other.accelerator == machine.accelerator)
    has = f"comes with {machine.gpus}" if machine.gpus else "has no GPU"
    none = (
        "" if others or not machine.accelerator else f", and no instance type has {wanted} `{machine.accelerator}`"
    )
    keep = f"write `gpus: {machine.gpus}`" if machine.gpus else "remove `gpus`, or take a type with GPUs"
    yield Finding(
        (*subject.at, "gpus"),
        wanted,
        f"`{machine.name}` {has}{none}",
        keep + (f", or take {listed(others)}" if others and machine.gpus else ""),
        read=subject.on("instance_type", "accelerator"),
    )


def _types(fits: Callable[[InstanceType], bool]) -> list[str]:
    return [name for name, other in instance_types().items() if fits(other)]


def _sharing(subject: Subject) -> Iterator[Finding]:
    sharing, machine = subject.pool.gpu_sharing, subject.machine
    if sharing is not None and machine is not None and not machine.gpus:
        yield Finding(
            (*subject.at, "gpu_sharing"),
            sharing.model_dump(),
            f"`{machine.name}` has no GPU",
            "remove it, or take an instance type with GPUs",
            read=subject.on("instance_type"),
        )


def _image(subject: Subject) -> Iterator[Finding]:
    if subject.pool.ami_type == "AL2023_x86_64_STANDARD" and subject.machine and subject.machine.gpus:
        yield Finding(
            (*subject.at, "ami_type"),
            subject.pool.ami_type,
            f"`{subject.machine.name}` has GPUs, and that image has no driver for them",
            "remove it, or write `AL2023_x86_64_NVIDIA`",
            read=subject.on("instance_type"),
        )


def _counts(place: Path, nodes: Nodes) -> Iterator[Finding]:
    here = {key: (*place, key) for key in Nodes.model_fields}
    limits = [key for key in ("min", "max") if getattr(nodes, key) is not None]
    if nodes.count is not None and limits:
        yield Finding(
            here["count"],
            nodes.count,
            f"a fixed number, and {listed(limits, 'and')} let the autoscaler choose",
            "keep `count`, or the limits",
            read=tuple(here[key] for key in limits),
        )
    if nodes.min is not None and nodes.max is None:
        yield Finding(
            here["min"],
            nodes.min,
            "the autoscaler needs `max` as well",
            f"add `max`, or write `count: {nodes.min}`",
            read=(here["max"],),
        )
    elif nodes.min is not None and nodes.max is not None and nodes.min > nodes.max:
        yield Finding(
            here["min"],
            nodes.min,
            f"more than `max`, which is {nodes.max}",
            f"write `min: {nodes.max}` or less",
            read=(here["max"],),
        )
