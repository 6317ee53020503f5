"""Makes and requires folders of the store before a container starts that has them mounted at other paths.

Run as `python -m slipway.runtime.steps.folders --make /store/churn/train/1f2e --require /store/uploads`.
Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from slipway.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from slipway.runtime.store import store_errors


def main(arguments: list[str] | None = None) -> int:
    """Make the folders; returns the exit code.

    Raises:
        StepError: BAD_INPUT where required folders are not there, all of which it names; STORE_TROUBLE.
    """
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.steps.folders", description=__doc__)
    several = functools.partial(parser.add_argument, action="append", default=[], type=Path, metavar="DIR")
    several("--make", help="a folder that is made where it is not there")
    several("--require", help="a folder that has to be there")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    stop_on_sigterm("the same command starts over")
    missing: list[str] = []
    for folder in options.require:
        with store_errors(folder):
            if not folder.is_dir():
                missing.append(str(folder))
    if missing:
        raise StepError(
            BAD_INPUT,
            f"`mounts` or an input of the step names what is no folder of the store: {', '.join(missing)}; copy "
            "it there, or correct the folder",
        )
    for folder in options.make:
        with store_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    return OK


if __name__ == "__main__":
    run(main)
