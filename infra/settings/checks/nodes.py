"""Steps on several nodes against the pools they ask for."""

from collections.abc import Iterator

from infra.pipelines.contract import MultiNodeSettings, PodSettings
from infra.schema.problems import Finding, Path, key_of, listed
from infra.schema.quantities import seconds
from infra.settings.checks.targets import Target, targets
from infra.settings.parsing import Draft


def on_several(placed: PodSettings) -> bool:
    """Whether ``placed`` places a step on several nodes at once."""
    return isinstance(placed, MultiNodeSettings) and placed.nodes > 1


def several(at: Path, placed: PodSettings, target: Target, draft: Draft) -> Iterator[Finding]:
    """Findings about a step on several nodes of ``target``; none about any other."""
    if isinstance(placed, MultiNodeSettings) and placed.nodes > 1:
        yield from _count(at, placed, target, draft)
        if target.pool.has_gpus:
            yield from _gpus(at, placed, target, draft)


def waiting(at: Path, placed: PodSettings) -> Iterator[Finding]:
    """A step whose pods would wait for one another until its time is over."""
    if not isinstance(placed, MultiNodeSettings) or placed.nodes == 1:
        return
    if seconds(placed.wait) >= seconds(placed.time_limit):
        yield Finding(
            (*at, "wait"),
            placed.wait,
            f"its pods would wait for one another until the time limit of the step, {placed.time_limit}, is over",
            "write less, such as `10m`, or a longer `time_limit`",
            read=((*at, "time_limit"), (*at, "nodes")),
        )


def _count(at: Path, step: MultiNodeSettings, target: Target, draft: Draft) -> Iterator[Finding]:
    most = target.most_nodes
    # What has no node at all is said of every step.
    if not most or most >= step.nodes:
        return
    alike = [
        name
        for name, other in targets(draft).items()
        if (other.most_nodes or 0) >= step.nodes and other.pool.has_gpus == target.pool.has_gpus
    ]
    more = f"let it have {step.nodes}"
    more += f" (`{key_of(target.nodes_key)}`)" if target.nodes_key else " in the stack that has it"
    elsewhere = f", take one that has ({listed(alike)})" if alike else ""
    fewer = f"`nodes: {most}` or less" if most > 1 else "`nodes: 1`"
    yield Finding(
        (*at, "nodes"),
        step.nodes,
        f"pool `{target.name}` has at most {most} node{'s' * (most != 1)}, and each pod needs one of its own",
        f"{more}{elsewhere}, or write {fewer}",
        read=((*at, "pool"), *([target.nodes_key] if target.nodes_key else [])),
    )


def _gpus(at: Path, step: MultiNodeSettings, target: Target, draft: Draft) -> Iterator[Finding]:
    read = ((*at, "pool"), (*at, "nodes"), *target.keys_of("gpus"))
    if target.pool.shares_gpus:
        whole = [name for name, each in targets(draft).items() if each.pool.has_gpus and not each.pool.shares_gpus]
        yield Finding(
            (*at, "nodes"),
            step.nodes,
            f"pool `{target.name}` divides its GPUs, and a share takes turns with others: all nodes of a training "
            "would wait for the slowest at every step",
            f"{f'take a pool with whole GPUs ({listed(whole)}), or ' if whole else ''}write `nodes: 1`",
            read=read,
        )
    elif target.node is None and not step.gpus:
        reason = f"pool `{target.name}` has GPUs, which would be paid for and idle"
        yield Finding((*at, "gpus"), step.gpus, reason, "write how many one of its nodes has", read)
    elif target.node is not None and step.gpus != target.node.gpus > 0:
        there = target.node.gpus
        if not step.gpus:
            reason = f"each node of pool `{target.name}` has {there}, which would be paid for and idle"
        elif step.gpus < there:
            idle = (there - step.gpus) * step.nodes
            reason = (
                f"each node of pool `{target.name}` has {there}, and no two pods of the step are on one node: "
                f"{idle} GPU{'s' * (idle != 1)} of {step.nodes} nodes would be paid for and idle"
            )
        else:
            reason = f"one node of pool `{target.name}` has {there}"
        yield Finding(
            (*at, "gpus"), step.gpus, reason, f"write `gpus: {there}`, all of a node's, or take another pool", read
        )
