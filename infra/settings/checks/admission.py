"""Jobs that Kueue would never let in, or never see running: what their pods ask for, against their pool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.pipelines.contract import Resident, StepDeclaration, residents
from infra.platform import Resources
from infra.schema.base import PoolSettings
from infra.schema.problems import Finding, Path
from infra.settings.checks.pipelines import pools_of
from infra.settings.model import installed_residents
from infra.settings.parsing import Draft, Reading
from infra.settings.pipelines import KEY, apps_if_any, place_of, services_if_any, steps_if_any

# What is on a pool at all times and in no queue, in words.


def staying(draft: Draft) -> list[Resident]:
    """What stays on pools: services, what the stack installs, and apps, in this order."""
    collects = bool(draft.metrics and draft.metrics.collect)
    programs = [
        resident
        for name, settings in draft.pipelines.items()
        for resident in residents(
            name, services_if_any(name, settings), apps_if_any(name, settings), exporters=collects
        )
    ]
    for cluster in draft.clusters.values():
        host = next((name for name, pool in cluster.pools.items() if not pool.has_gpus), None)
        if host is not None and not cluster.other_stack:
            programs += installed_residents(host, draft.kueue, draft.metrics, collects=cluster.collects_metrics)
    return sorted(programs, key=lambda resident: resident.kind == "app")


def in_words(resident: Resident) -> str:
    """What ``resident`` is, in words."""
    match resident.kind:
        case "service":
            return f"the service `{resident.name}`"
        case "exporter":
            return f"the exporter of `{resident.name}`"
        case "app":
            pods = len(resident.all_pods)
            return f"{pods} pods of the app `{resident.name}`" if pods > 1 else f"the app `{resident.name}`"
        case "kueue":
            return "Kueue itself"
        case _:
            return "Prometheus and Grafana"


# The pools that steps and services ask for.


@dataclass(frozen=True)
class Target:
    """The pool a step or service asks for: where it stands, what it is, and what one node leaves to pods.

    ``node`` is None where that is not known, and ``most_nodes`` where no number says how many there can be.
    ``nodes_key`` is the place that decides on that, empty where another stack's file has it.
    """

    at: Path
    name: str
    pool: PoolSettings
    node: Resources | None
    most_nodes: int | None
    nodes_key: Path

    def keys_of(self, resource: str) -> tuple[Path, ...]:
        """Where the pool's keys stand that decide how much of ``resource`` one of its nodes leaves to pods."""
        return tuple((*self.at, key) for key in self.pool.node_keys[resource])


def targets(draft: Draft) -> dict[str, Target]:
    """The pools of the stack that can be read, by name."""
    by_name: dict[str, Target] = {}
    for name, (at, pool) in pools_of(draft).items():
        cluster = draft.clusters[str(at[1])]
        key = () if cluster.other_stack else (*at, cluster.nodes_key_of(pool))
        by_name[name] = Target(at, name, pool, cluster.node_of(pool), cluster.most_nodes_of(pool), key)
    return by_name


WORDS: Mapping[str, tuple[str, str]] = {
    "cpu": ("m", " of CPU"),
    "memory": ("Mi", " of memory"),
    "ephemeral_storage": ("Mi", " of ephemeral storage"),
    "gpus": ("", " GPUs"),
}
"""Unit and name of each field of `Resources`."""


def check_admission(reading: Reading) -> Iterator[Finding]:
    """Findings about steps whose pods never run at once, where Kueue waits until all of them can."""
    draft = reading.draft
    if draft.kueue is None or draft.kueue.local_queue:
        return
    pools, programs = targets(draft), staying(draft)
    for name, settings in draft.pipelines.items():
        for step in steps_if_any(name, settings):
            target = pools.get(step.placed_by.pool)
            on_pool = [resident for resident in programs if resident.pool == step.placed_by.pool]
            # Where not even what stays has room, a finding about the apps says so.
            if target and target.node and target.most_nodes and not _is_crowded(target, on_pool):
                at = place_of(name, settings, step)
                yield from _never(at, step, target, on_pool, draft)


def _is_crowded(target: Target, held: Sequence[Resident]) -> bool:
    """Whether the pool has less than what is on it at all times asks for."""
    most = target.most_nodes or 0
    return any(
        sum(getattr(resident.least, name) for resident in held) > getattr(target.node, name) * most
        for name in WORDS
    )


def _never(
    at: Path, step: StepDeclaration, target: Target, held: Sequence[Resident], draft: Draft
) -> Iterator[Finding]:
    node, most = target.node, target.most_nodes
    assert node is not None
    assert most is not None
    wanted = step.placed_by.asked
    pods = step.nodes.count if step.nodes else step.workers
    if step.nodes and pods > most:
        # A finding about every step with nodes, with or without a queue.
        return
    key = (*at, "nodes" if step.nodes else "workers")
    read: tuple[Path, ...] = (("kueue",), (*at, "pool"), *([target.nodes_key] if target.nodes_key else ()))
    plural = "s" * (most != 1)
    for name, (unit, words) in WORDS.items():
        amount, node_amount = getattr(wanted, name), getattr(node, name)
        if not amount or amount > node_amount:
            # What is too large for a node is a finding about every step.
            continue
        taken = [(in_words(resident), getattr(resident.most, name)) for resident in held]
        taken = [(what, part) for what, part in taken if part]
        quota = node_amount * most - sum(part for _, part in taken)
        if amount * pods > quota:
            less = "".join(f", less {part}{unit} for {what}" for what, part in taken)
            each_pod = " in each pod" if pods > 1 else ""
            # A step that an app brings along has no section of its own.
            has_section = at != (KEY, at[1])
            one_pod = f"{'it' if has_section else f'its step `{step.name}`'} asks for {amount}{unit}"
            together = f"{pods} pods ask for {amount * pods}{unit}" if pods > 1 else one_pod
            less_of_it = f"ask for {quota // pods}{unit} or less{each_pod}, or " if quota >= pods else ""
            yield Finding(
                (key if pods > 1 else (*at, name)) if has_section else at,
                (pods if pods > 1 else getattr(step.placed_by, name, None)) if has_section else None,
                f"{together}{words}, and all of pool `{target.name}` is {max(quota, 0)}{unit} "
                f"({most} node{plural} with {node_amount}{unit}{less}): Kueue would never let the Job in",
                f"{less_of_it}let the pool have more nodes{'' if less_of_it else ', or take another pool'}",
                read=(*read, *target.keys_of(name)),
            )
            return
    room = most * min(
        (getattr(node, name) // getattr(wanted, name) for name in WORDS if getattr(wanted, name)), default=pods
    )
    if step.nodes is None and pods > room > 0:
        ready = draft.kueue.ready_within if draft.kueue else ""
        yield Finding(
            key,
            pods,
            f"pool `{target.name}` has room for {room} of its pods at once ({most} node{plural}), and Kueue "
            f"stops a Job whose pods do not all run within {ready}",
            f"write {room}, or let the pool have more nodes",
            read=read,
        )
