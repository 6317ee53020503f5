"""``python -m slipway``: the command `slipway`."""

import os
import sys
import traceback

from slipway.interrupts import end_quietly

TRACEBACK = "SLIPWAY_TRACEBACK"
"""The environment variable that has the traceback printed where the command itself fails. It may quote values."""


def main() -> None:
    """The command; a Ctrl-C ends it without a traceback, also while it still imports.

    A verb imports a part of what it evaluates. A change that breaks that part, or an error of the command itself,
    is reported in one line, as any other program that cannot be evaluated.
    """
    end_quietly()
    try:
        from slipway.command.app import app  # noqa: PLC0415

        app(prog_name="slipway")
    except Exception as error:
        from slipway.engine.evaluation.worker import message, where  # noqa: PLC0415
        from slipway.infra.exits import Exit  # noqa: PLC0415
        from slipway.infra.places import LIBRARY, PROJECT  # noqa: PLC0415

        place = where(error, PROJECT) or where(error, LIBRARY)
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        told = f"{message(error)}" + f" ({place})" * bool(place)
        print(f"error: slipway itself failed: {told}; {TRACEBACK}=1 prints the traceback", file=sys.stderr)
        sys.exit(Exit.REFUSED)


if __name__ == "__main__":
    main()
