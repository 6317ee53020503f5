"""Jobs that Kueue would never let in, or never see running: what their pods ask for, against their pool."""

from collections.abc import Iterator, Mapping

from infra.pipelines.contract import StepDeclaration, placements
from infra.platform import Resources
from infra.schema.problems import Finding, Path
from infra.settings.checks.standing import standing
from infra.settings.checks.targets import Target, targets
from infra.settings.parsing import Draft, Reading
from infra.settings.pipelines import KEY, apps_if_any, steps_if_any

WORDS: Mapping[str, tuple[str, str]] = {
    "cpu": ("m", " of CPU"),
    "memory": ("Mi", " of memory"),
    "ephemeral_storage": ("Mi", " of ephemeral storage"),
    "gpus": ("", " GPUs"),
}
"""Unit and name of each field of `Resources`."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about steps whose pods never run at once, where Kueue waits until all of them can."""
    draft = reading.draft
    if draft.kueue is None or draft.kueue.local_queue:
        return
    pools, held = targets(draft), _held(draft)
    for name, settings in draft.pipelines.items():
        places = {id(placed): at for at, placed in placements(settings, (KEY, name))}
        for step in steps_if_any(name, settings):
            target = pools.get(step.placed_by.pool)
            if target and target.node and target.most_nodes:
                at = places.get(id(step.placed_by), (KEY, name))
                yield from _never(at, step, target, held.get(target.name, []), draft)


def _held(draft: Draft) -> dict[str, list[tuple[str, Resources]]]:
    """What is on a pool at all times and in no queue: who, and how much."""
    found: dict[str, list[tuple[str, Resources]]] = {}
    for each in standing(draft):
        found.setdefault(each.pool, []).append((each.who, each.requests))
    for name, settings in draft.pipelines.items():
        for app in apps_if_any(name, settings):
            placed = app.placed_by
            pods = placed.autoscale.most if placed.autoscale else placed.replicas
            there = found.setdefault(placed.pool, [])
            there += [(f"the app `{app.name}`", placed.asked)] * pods
    return found


def _never(
    at: Path, step: StepDeclaration, target: Target, held: list[tuple[str, Resources]], draft: Draft
) -> Iterator[Finding]:
    node, most = target.node, target.most_nodes
    assert node is not None
    assert most is not None
    wanted = step.placed_by.asked
    pods = step.nodes.count if step.nodes else step.workers
    if step.nodes and pods > most:
        # Said of every step with nodes, with or without a queue.
        return
    key = (*at, "nodes" if step.nodes else "workers")
    read: tuple[Path, ...] = (("kueue",), (*at, "pool"), *([target.nodes_key] if target.nodes_key else ()))
    plural = "s" * (most != 1)
    for name, (unit, words) in WORDS.items():
        each, there = getattr(wanted, name), getattr(node, name)
        if not each or each > there:
            # What is too large for a node is said of every step.
            continue
        taken = [(who, getattr(what, name)) for who, what in held if getattr(what, name)]
        quota = there * most - sum(amount for _, amount in taken)
        if each * pods > quota:
            less = "".join(f", less {amount}{unit} for {who}" for who, amount in taken)
            each_pod = " in each pod" if pods > 1 else ""
            together = f"{pods} pods ask for {each * pods}{unit}" if pods > 1 else f"it asks for {each}{unit}"
            yield Finding(
                key if pods > 1 else (*at, name),
                pods if pods > 1 else getattr(step.placed_by, name, None),
                f"{together}{words}, and all of pool `{target.name}` is {quota}{unit} "
                f"({most} node{plural} with {there}{unit}{less}): Kueue would never let the Job in",
                f"ask for {quota // pods}{unit} or less{each_pod}, or let the pool have more nodes",
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
