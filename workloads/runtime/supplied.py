"""Start a program that stays, with libraries that its image lacks: as `workloads.runtime.command` does for a step.

The program takes the place of this one, and gets its signals itself. Run as `python3 -m workloads.runtime.supplied
--libraries DIR --into DIR --code DIR -- python serve.py`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from workloads.runtime.archives import copy_libraries
from workloads.runtime.exits import BAD_INPUT, USAGE, StepError, run

VARIABLE = "LD_LIBRARY_PATH"
"""Where the loader looks first. An image may have set it, for its driver's libraries too, so that a pod cannot."""


def main(arguments: list[str] | None = None) -> int:
    """Start the program; returns only where it cannot be started.

    Raises:
        StepError: BAD_INPUT where a library is missing or altered, or does not fit; USAGE where there is no such
            program or folder; StoreError.
    """
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    environment = dict(os.environ)
    # A container that starts anew finds what the one before it left.
    shutil.rmtree(options.into, ignore_errors=True)
    try:
        options.into.mkdir(parents=True)
    except OSError as error:
        raise StepError(BAD_INPUT, f"{options.into}: {error.strerror}") from error
    if copy_libraries(options.libraries, options.into):
        before = environment.get(VARIABLE, "")
        environment[VARIABLE] = f"{options.into}{os.pathsep}{before}" if before else str(options.into)
        print(f"Libraries of {options.libraries} are in front of those of the image", flush=True)
    try:
        os.chdir(options.code)
        os.execvpe(options.words[0], options.words, environment)
    except OSError as error:
        raise StepError(
            USAGE, f"{options.words[0]} cannot be started in {options.code}: {error.strerror}"
        ) from error


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m workloads.runtime.supplied",
        usage="%(prog)s --libraries DIR --into DIR [--code DIR] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
    )
    parser.add_argument("--libraries", type=Path, required=True, help="what workloads.cuda.install published")
    parser.add_argument("--into", type=Path, required=True, help="a folder of the local disk, emptied first")
    parser.add_argument("--code", type=Path, default=Path(), help="where the program starts; default: here")
    split_at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split_at])
    options.words = list(arguments[split_at + 1 :])
    if not options.words:
        parser.error("the program to start is missing: write it after --")
    return options


if __name__ == "__main__":
    run(main)
