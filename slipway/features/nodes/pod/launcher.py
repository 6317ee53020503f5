"""Run a program in several pods at once, which find one another, lose one another, and go on.

Each pod of a step with `nodes` runs this; docs/distributed.md has the contract. The pods meet at rank 0, and when
all are there the program starts in each, at once, with what its framework has to know in its environment. When a
pod is lost, the others end their program and stay: when all are there again, all programs start again (the next
generation) and go on from their newest checkpoint. A program that fails by itself ends the step, with its own
words.

Run as `python -m slipway.features.nodes.pod.launcher --meet HOST:PORT --node HOST:PORT… --wait SECONDS --
PROGRAM`, with the options of `slipway.runtime.steps.command`. `JOB_COMPLETION_INDEX` is the rank of the
pod and `JOB_UID` its Job. Standard library only, Python 3.9.

The lines that it writes, which tools may read (`I` stands for a rank, `N` for the number of pods):

    waiting for 1 of N pods: rank I at HOST:PORT, 40 s of 600 s
    waiting for pods that check their inputs: rank I, 40 s
    Generation 1: all N pods are here, all programs start
    Generation 1 ended: pod I was lost (its connection was closed)
    Generation 1 ended: the program of pod I was killed by SIGKILL
    Generation 1 ended: the program of pod I (HOST) failed with exit code 3: the last line that it wrote
    Generation 2: pod I was lost, all programs start again
    the program of this pod ended well; those of other pods are still at work
    Generation 2: all programs ended well
    error: STEP: waited for 1 of N pods: rank I at HOST:PORT, 600 s of 600 s; … (exit code 14)
    error: STEP: stopped: the program of pod I (HOST) failed with exit code 3: … (exit code 15)
    error: STEP: this pod was killed 6 times in a row, and nothing new was written in between: … (exit code 16)
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from slipway.features.nodes.pod.group import Address
from slipway.features.nodes.pod.pod import Place, Pod
from slipway.features.nodes.pod.work import Work, parse_roles
from slipway.runtime.exits import USAGE, StepError, run
from slipway.runtime.masking import Masker
from slipway.runtime.steps import command

WAIT = 600.0
"""Seconds to wait for pods that are missing, where nothing else is said."""


def main(arguments: list[str] | None = None) -> int:
    """Run one pod of the step; returns the exit code.

    Raises:
        StepError: NODES_MISSING, NEIGHBOUR_FAILED, KILLED_AGAIN; the program's own exit code where it failed;
            USAGE, BAD_INPUT, STORE_TROUBLE, NO_RESULT; INTERRUPTED after SIGTERM.
    """
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    secrets = command.secret_values(options.secrets)
    masker = Masker(secrets)
    place: Place = options.place
    try:
        return Pod(place, Work(options, secrets), masker).run()
    except StepError as error:
        raise StepError(error.code, masker.mask(f"{options.step}: {error}")) from error


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.features.nodes.pod.launcher",
        usage="%(prog)s --meet HOST:PORT --node HOST:PORT [--node …] [options] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The other options are those of slipway.runtime.steps.command.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--meet", required=True, metavar="HOST:PORT", help="where the pods meet: the host of rank 0")
    add(
        "--node",
        dest="nodes",
        action="append",
        required=True,
        metavar="HOST:PORT",
        help="of each pod in the order of ranks: its host, and the port that its program may use",
    )
    add("--wait", type=float, default=WAIT, metavar="SECONDS", help="to wait for a pod that is missing")
    add("--roles", default="", metavar="ROLE=NUMBER,…", help="in the order of ranks; default: all are workers")
    add("--gpus", type=int, default=0, metavar="N", help="of each pod; default: 0")
    split_at = arguments.index("--") if "--" in arguments else len(arguments)
    node_options, others = parser.parse_known_args(list(arguments[:split_at]))
    options = command.parse([*others, *arguments[split_at:]])
    try:
        options.place = _place(node_options)
    except ValueError as error:
        parser.error(str(error))
    return options


def _place(options: argparse.Namespace) -> Place:
    """Raises ValueError, or StepError with USAGE."""
    nodes = [Address.parse(node) for node in options.nodes]
    if options.wait <= 0:
        raise ValueError(f"--wait {options.wait:g}: write a number above 0")
    index = os.environ.get("JOB_COMPLETION_INDEX", "")
    if not index.isdigit() or int(index) >= len(nodes):
        raise StepError(
            USAGE,
            f"JOB_COMPLETION_INDEX is {index!r} in the environment; it has to be the rank of this pod, from 0 to "
            f"{len(nodes) - 1}, since --node names {len(nodes)}",
        )
    return Place(
        rank=int(index),
        nodes=nodes,
        roles=parse_roles(options.roles, len(nodes)),
        meet=Address.parse(options.meet),
        wait=options.wait,
        gpus=options.gpus,
        job=os.environ.get("JOB_UID", ""),
    )


if __name__ == "__main__":
    run(main)
