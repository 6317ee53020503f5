"""Run a module that publishes by itself, with what it renames into its folder of checkpoints copied beside it.

`slipway.workloads.runtime.steps.command` does the same for a command. Run as `python3 -m
slipway.workloads.runtime.steps.attended --output DIR --step NAME --checkpoints JSON -- python -m MODULE`. Standard
library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from slipway.workloads.runtime.exits import OK, StepError, parse_before_program, run
from slipway.workloads.runtime.steps.attendant import Attendant, Settings, discard, work_of_module
from slipway.workloads.runtime.steps.program import Program

_SIGNALLED = 128
"""Exit codes of programs that a signal ended are above it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the module; returns its exit code.

    Raises:
        StepError: STORE_TROUBLE, BAD_INPUT where it cannot be started; INTERRUPTED after SIGTERM, 128 + n where
            signal n ended it.
    """
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    program = Program(options.words, Path(), dict(os.environ))
    program.require()
    attendant = Attendant(options.checkpoints, options.output, work_of_module(options.step, options.output))
    try:
        attendant.prepare(program).run("the same command goes on with its newest checkpoint", attendant)
    except StepError as error:
        if error.code >= _SIGNALLED:
            raise
        # It has said why itself.
        return error.code
    finally:
        attendant.close()
    discard(options.output)
    return OK


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m slipway.workloads.runtime.steps.attended", description=__doc__, allow_abbrev=False
    )
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="where the module publishes")
    add("--step", required=True, metavar="NAME", help="whose checkpoints they are, as in mnist.train")
    add("--checkpoints", type=Settings.parse, required=True, metavar="JSON", help="as for a command")
    return parse_before_program(parser, arguments)


if __name__ == "__main__":
    run(main)
