"""What a program is told of the other pods, in the environment variables that frameworks read.

| variables | who reads them |
| --- | --- |
| `TF_CONFIG` | TensorFlow's strategies: the addresses by role, and which of them is this one |
| `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` | `torch.distributed.init_process_group` with `env://`, its default (torch/distributed/rendezvous.py) |
| `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | programs written for torchrun: 0 and 1, since a pod is one process here |
| `PET_NNODES`, `PET_NODE_RANK`, `PET_NPROC_PER_NODE`, `PET_MASTER_ADDR`, `PET_MASTER_PORT` | torchrun: the defaults of its options, by their names (torch/distributed/run.py and argparse_util.py) |
| `JAX_COORDINATOR_ADDRESS` | `jax.distributed.initialize` (jax/_src/distributed.py). Of the number of processes and the index of this one JAX reads nothing: a program passes `WORLD_SIZE` and `RANK` |
| `SLIPWAY_GENERATION` | whoever wants to know how often all programs have started: 1, 2, … |

Sources: PyTorch's repository, stored in 2026, and jax 0.10.2, both read in November 2026. Evaluators are not in
`TF_CONFIG`'s cluster: TensorFlow allows that they are missing there, and takes them for no part of the training
(tensorflow/python/distribute/multi_worker_util.py, TensorFlow 2.21). Standard library only.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Sequence

from workloads.runtime.nodes.group import Address

ROLES = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's roles of a task."""

ENDLESS = ("ps", "evaluator")
"""Roles whose programs do not end by themselves."""


def parse_roles(text: str, count: int) -> list[str]:
    """The role of each rank, from `chief=1,worker=3`; all are workers where there is none. Raises ValueError."""
    if not text:
        return ["worker"] * count
    roles: list[str] = []
    for part in text.split(","):
        role, _, number = part.partition("=")
        if role not in ROLES or not number.isdigit():
            raise ValueError(f"{part!r}; write ROLE=NUMBER with one of {', '.join(ROLES)}")
        roles += [role] * int(number)
    if len(roles) != count:
        raise ValueError(f"{text!r} are {len(roles)} pods, and --node names {count}")
    return roles


def variables(
    rank: int, nodes: Sequence[Address], roles: Sequence[str], gpus: int, generation: int
) -> dict[str, str]:
    """What the program of a rank finds in its environment; `gpus` are those of its pod."""
    cluster: dict[str, list[str]] = {}
    for role, address in zip(roles, nodes):  # noqa: B905
        if role != "evaluator":
            cluster.setdefault(role, []).append(str(address))
    task = {"type": roles[rank], "index": list(roles[:rank]).count(roles[rank])}
    master = nodes[0]
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(nodes)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": master.host,
        "MASTER_PORT": str(master.port),
        "PET_NNODES": str(len(nodes)),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(max(gpus, 1)),
        "PET_MASTER_ADDR": master.host,
        "PET_MASTER_PORT": str(master.port),
        "JAX_COORDINATOR_ADDRESS": str(master),
        "SLIPWAY_GENERATION": str(generation),
    }
