"""What one pod of several does beside running its program: before it, and with what the programs leave.

It has all that `slipway.runtime.steps.command` does: every rank checks the inputs and unpacks the
packages, rank 0 alone publishes. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from slipway.features.nodes.pod.group import Address
from slipway.runtime.steps import command
from slipway.runtime.steps.attendant import Attendant, Settings, discard
from slipway.runtime.steps.program import Program
from slipway.runtime.store import (
    MANIFEST,
    TEMPORARY_SUFFIX,
    Manifest,
    NotWholeError,
    check,
)

NO_PROGRESS = ("*tfevents*", "*.log", f"*{TEMPORARY_SUFFIX}")
"""Patterns of files that programs write as soon as they start: they are no progress."""


class AroundCheckpoints:
    """What is done about the checkpoints of a program: nothing, where there are no `settings` for them.

    `folder` is the directory in the store of the step, which runs in `count` pods, this one of the rank `rank`.
    """

    def __init__(self, settings: Settings | None, folder: Path, rank: int, count: int) -> None:
        self._settings = settings
        self._folder = folder
        self._rank = rank
        self._count = count
        self._attendant: Attendant | None = None
        self._is_told = False

    def attend(self, work: Manifest) -> None:
        """Make ready for those of a program that does this work."""
        if self._settings is not None:
            self._attendant = Attendant(self._settings, self._folder, work, part=self._rank, count=self._count)

    def newest(self) -> str:
        """By the manifests of all its parts."""
        return self._attendant.checkpoints.newest() if self._attendant is not None and not self._rank else ""

    def begin(self, program: Program, checkpoint: str, attempt: str) -> Program:
        """As rank 0 chose it: where it has none, the folder is empty."""
        if self._attendant is None:
            return program
        self._attendant.restore(checkpoint)
        return self._attendant.start(program, attempt)

    def give_notice(self) -> tuple[float, int] | None:
        """Once."""
        if self._attendant is None or self._is_told:
            return None
        self._is_told = True
        return self._attendant.begin_end()

    def finish(self, told: Callable[[], bool]) -> None:
        """Rank 0 copies all of it, or each its part."""
        if self._attendant is not None:
            self._attendant.finish(well=False, told=told)

    def discard(self) -> None:
        """Rank 0 deletes them."""
        if self._attendant is not None:
            self._attendant.checkpoints.stop()
        if self._settings is not None and self._rank == 0:
            discard(self._folder)

    def close(self) -> None:
        """Delete what is on the disk of the node."""
        if self._attendant is not None:
            self._attendant.close()


class Work(AroundCheckpoints):
    """A step, as `slipway.runtime.steps.command` runs it."""

    def __init__(self, options: argparse.Namespace, secrets: Sequence[str]) -> None:
        place = options.place
        super().__init__(options.checkpoints, options.output, place.rank, len(place.nodes))
        self._options = options
        self._secrets = secrets
        self._stack = contextlib.ExitStack()
        self._step: command.Step | None = None

    def is_done(self) -> bool:
        """Whether the manifest is there, is of this work, and all its files are whole."""
        output: Path = self._options.output
        if self._step is None or not (output / MANIFEST).exists():
            return False
        try:
            return check(output).same_work(self._step.work)
        except NotWholeError:
            return False

    def inspect(self) -> bool:
        """Check the inputs; whether the result was there before, which is then said. Raises StepError."""
        self._step = command.Step(self._options, publishes=self._rank == 0)
        return self._step.is_published()

    def prepare(self) -> Program | None:
        """Unpack packages. At rank 0: take what an earlier attempt left, or make the directory ready for this."""
        assert self._step is not None
        if self._rank == 0 and self._step.resume():
            return None
        options, given = self._options, self._step.given
        environment = self._stack.enter_context(command.supply(options, given.environment))
        program = Program(given.words, options.code, environment, self._secrets)
        program.require()
        self.attend(self._step.work)
        return program

    def publish(self) -> None:
        """Look for the declared results, and write the manifest."""
        assert self._step is not None
        self._step.publish()

    def progress(self) -> str:
        """A digest of what is in the output directory."""
        return _digest(self._options.output)

    def close(self) -> None:
        """Remove what was unpacked, and what is on the disk of the node."""
        super().close()
        self._stack.close()


def _digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for path, size, changed in sorted(_files(directory)):
        digest.update(f"{path}\0{size}\0{changed}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(directory: Path) -> Iterator[tuple[str, int, int]]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if not any(fnmatch.fnmatch(name, pattern) for pattern in NO_PROGRESS):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    yield str(path), status.st_size, status.st_mtime_ns


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
    """What the program of a rank is told of the other pods, in the environment variables that frameworks read.

    | variables | who reads them |
    | --- | --- |
    | `TF_CONFIG` | TensorFlow's strategies: the addresses by role, and which of them is this one |
    | `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` | `torch.distributed.init_process_group` with `env://`, its default (torch/distributed/rendezvous.py) |
    | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | programs written for torchrun: 0 and 1, since a pod is one process here |
    | `PET_NNODES`, `PET_NODE_RANK`, `PET_NPROC_PER_NODE`, `PET_MASTER_ADDR`, `PET_MASTER_PORT` | torchrun: the defaults of its options, by their names (torch/distributed/run.py and argparse_util.py) |
    | `JAX_COORDINATOR_ADDRESS` | `jax.distributed.initialize` (jax/_src/distributed.py). Of the number of processes and the index of this one JAX reads nothing: a program passes `WORLD_SIZE` and `RANK` |
    | `SLIPWAY_GENERATION` | whoever wants to know how often all programs have started: 1, 2, … |

    `gpus` are those of its pod. Sources: PyTorch's repository, stored in 2026, and jax 0.10.2, both read in November
    2026. Evaluators are not in `TF_CONFIG`'s cluster: TensorFlow allows that they are missing there, and takes them
    for no part of the training (tensorflow/python/distribute/multi_worker_util.py, TensorFlow 2.21).
    """  # noqa: E501
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
