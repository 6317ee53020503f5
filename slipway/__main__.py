"""``python -m slipway``: the command `slipway`."""

import os
import sys
import traceback

from slipway.offline import end_quietly

FAILED = 2

TRACEBACK = "SLIPWAY_TRACEBACK"
"""The environment variable that has the whole traceback printed where the command itself fails."""


def main() -> None:
    """The command; a Ctrl-C ends it without a traceback, also while it still imports.

    A verb imports a part of what it evaluates. A change that breaks that part, or an error of the command itself,
    is reported in one line, as any other program that cannot be evaluated.
    """
    end_quietly()
    try:
        from slipway.tools.command import app  # noqa: PLC0415

        app(prog_name="slipway")
    except Exception as error:
        from slipway.infra.places import LIBRARY, PROJECT  # noqa: PLC0415
        from slipway.offline.evaluation.worker import message, where  # noqa: PLC0415

        place = where(error, PROJECT) or where(error, LIBRARY)
        print(f"error: slipway itself failed: {message(error)}" + f" ({place})" * bool(place), file=sys.stderr)
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        else:
            print(
                f"{TRACEBACK}=1 prints the whole traceback, which may quote values of a stack file",
                file=sys.stderr,
            )
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
