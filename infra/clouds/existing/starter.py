"""What a new stack file has of a cluster that is there: its nodes as they most often are, for you to correct."""

import math
from collections.abc import Sequence
from pathlib import Path

from infra.accelerators import accelerators
from infra.platform import Resources
from infra.schema.problems import Problem, did_you_mean, listed
from infra.schema.request import NOTHING, Starter, Wish

TEMPLATE = Path(__file__).parent / "data" / "starter.yaml.j2"

REPOSITORY = "registry.example.org/team/slipway"
"""For you to correct."""

LEAST_CPUS, LEAST_GIB, LEAST_STORAGE_GIB = 2, 4, 10
"""What a node of a small cluster, such as kind on a laptop, leaves to pods."""


def starter(wish: Wish) -> Starter | Sequence[Problem]:
    """One pool of all Linux nodes, and one of those with GPUs where an accelerator is named."""
    problems: list[Problem] = []
    if wish.region is not None:
        reason = "a cluster that is there is where it is"
        problems.append(Problem("REGION", wish.region, reason, "leave it out"))
    if wish.accelerator is not None and wish.accelerator not in accelerators():
        fix = did_you_mean(wish.accelerator, accelerators(), f"write {listed(accelerators())}")
        problems.append(Problem("GPU", wish.accelerator, "no GPU of the catalogue", fix))
    if problems:
        return problems
    on_cpu = [wish.cpu_steps]
    if wish.gpu_steps is not None and wish.accelerator is None:
        on_cpu.append(wish.gpu_steps)
    values = {
        "cpu": _node(on_cpu, wish.apps),
        "accelerator": wish.accelerator,
        "gpus": max(1, wish.gpu_steps.gpus) if wish.gpu_steps else 1,
        "gpu": _node([wish.gpu_steps or wish.cpu_steps]),
    }
    before = (
        "the name of the cluster's context, and what its nodes leave to pods (kubectl describe node), in the file",
    )
    return Starter(TEMPLATE, values, before, wish.accelerator is not None, REPOSITORY)


def _node(steps: Sequence[Resources], staying: Resources = NOTHING) -> dict[str, str]:
    """The least that a node has to leave to pods, in the words of a stack file, one step at a time."""
    cpu = max(step.cpu for step in steps) + staying.cpu
    gib = math.ceil((max(step.memory for step in steps) + staying.memory) / 1024)
    storage = math.ceil((max(step.ephemeral_storage for step in steps) + staying.ephemeral_storage) / 1024)
    return {
        "cpu": str(max(LEAST_CPUS, math.ceil(cpu / 1000))),
        "memory": f"{max(LEAST_GIB, gib)}Gi",
        "ephemeral_storage": f"{max(LEAST_STORAGE_GIB, storage)}Gi",
    }
