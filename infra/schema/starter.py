"""What `make new` asks a cloud for: the clusters and the store of a new stack file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.platform import Resources

CPU_POOL, GPU_POOL = "cpu", "gpu"
"""Names of the pools of a new stack."""

NOTHING = Resources(cpu=0, memory=0)


@dataclass(frozen=True)
class Wish:
    """What a new stack should be able to run.

    ``region`` and ``accelerator`` are as they were asked for; None leaves them to the cloud. ``cpu_steps`` is the
    most that any step or app without GPUs asks for, and ``gpu_steps`` the most of any with GPUs: None where there
    is none. ``apps`` is what all apps without GPUs ask for together, which stay beside the steps.
    """

    region: str | None
    accelerator: str | None
    cpu_steps: Resources
    gpu_steps: Resources | None
    apps: Resources = NOTHING


@dataclass(frozen=True)
class Starter:
    """The part of a new stack file that its cloud decides.

    ``template`` is a Jinja template of the whole file. It is given ``values``, and beside them the stack's name as
    ``stack``, the name of what it runs as ``runs``, the key `slipway:pipelines` with all below it as
    ``pipelines``, and the most nodes of each pool that a step runs on at once as ``cpu_nodes`` and ``gpu_nodes``.
    ``before`` says in lines what has to be done before the first `pulumi up`; there ``{stack}`` is the stack's
    name. Without ``gpu_pool`` the stack has no pool `GPU_POOL`, and its steps run without GPUs. ``repository``
    stands for one of a registry to be named, where the cloud brings none.
    """

    template: Path
    values: Mapping[str, object]
    before: Sequence[str]
    gpu_pool: bool
    repository: str | None = None


def has_room(node: Resources | None, step: Resources, beside: Resources = NOTHING) -> bool:
    """Whether a step fits on a node that leaves ``node`` to pods; ``beside`` is what the store's mount takes."""
    return node is not None and all(
        wanted + taken <= there
        for there, wanted, taken in (
            (node.cpu, step.cpu, beside.cpu),
            (node.memory, step.memory, beside.memory),
            (node.ephemeral_storage, step.ephemeral_storage, beside.ephemeral_storage),
            (node.gpus, step.gpus, beside.gpus),
        )
    )
