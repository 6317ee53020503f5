"""How much of a cluster's pools Kueue may hand out, and how namespaces divide it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.platform import GPU_RESOURCE, Pool, Resources
from infra.schema.quantities import canonical, cpu_quantity, size_quantity

CPU, MEMORY, SCRATCH = "cpu", "memory", "ephemeral-storage"


@dataclass(frozen=True)
class Held:
    """What something in no queue takes of a pool for as long as it is there: a service, Kueue's own pods."""

    pool: str
    requests: Resources


def resources(pools: Iterable[Pool]) -> list[str]:
    """The resources that pods on any of the pools may ask for.

    Kueue admits no Job that asks for another one (`QuotaCheckStrategy`, default ``BlockUndeclared``, in
    apis/config/v1beta2/configuration_types.go of Kueue 0.19).
    """
    found = [CPU, MEMORY, SCRATCH]
    for pool in pools:
        more = [GPU_RESOURCE] if pool.allocatable.gpus else []
        if pool.interconnect and pool.interconnect.resource:
            more.append(pool.interconnect.resource)
        found += [each for each in more if each not in found]
    return found


def amounts(asked: Resources) -> dict[str, int]:
    """Resources by Kubernetes' names: CPU in millicores, memory and storage in MiB."""
    return {CPU: asked.cpu, MEMORY: asked.memory, SCRATCH: asked.ephemeral_storage, GPU_RESOURCE: asked.gpus}


def most(pool: Pool, held: Iterable[Held] = ()) -> dict[str, int]:
    """What all nodes of ``pool`` that there can be leave to Jobs, beside what is ``held``."""
    found = {name: amount * pool.max_nodes for name, amount in amounts(pool.allocatable).items()}
    if pool.interconnect and pool.interconnect.resource:
        found[pool.interconnect.resource] = pool.interconnect.count * pool.max_nodes
    for each in held:
        if each.pool == pool.name:
            for name, amount in amounts(each.requests).items():
                found[name] = max(0, found[name] - amount)
    return found


def divided(amount: int, shares: Sequence[int]) -> list[int]:
    """``amount`` in whole parts that stand to each other as ``shares`` do, as nearly as can be; they add up to it.

    Raises ValueError where all shares are 0.
    """
    total = sum(shares)
    if not total:
        raise ValueError("all shares are 0")
    parts = [amount * share // total for share in shares]
    # What is left over goes to those that rounding took most from, the first of them first.
    short = sorted(range(len(shares)), key=lambda index: -(amount * shares[index] % total))
    for index in short[: amount - sum(parts)]:
        parts[index] += 1
    return parts


def nominal(
    pools: Sequence[Pool], shares: Mapping[str, int], held: Sequence[Held] = ()
) -> dict[str, dict[str, dict[str, int]]]:
    """Each namespace's quota by the pool's name and the resource's.

    ``shares`` are by namespace. Raises ValueError where all of them are 0.
    """
    found: dict[str, dict[str, dict[str, int]]] = {each: {} for each in shares}
    named = resources(pools)
    for pool in pools:
        there = most(pool, held)
        for name in named:
            parts = divided(there.get(name, 0), list(shares.values()))
            for namespace, part in zip(shares, parts, strict=True):
                found[namespace].setdefault(pool.name, {})[name] = part
    return found


def quantity(resource: str, amount: int) -> str:
    """An amount of `amounts` as Kubernetes writes it."""
    if resource == CPU:
        return cpu_quantity(amount)
    return size_quantity(amount) if resource in {MEMORY, SCRATCH} else canonical(str(amount))
