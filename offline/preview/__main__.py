"""``python -m slipway.offline.preview``: see `slipway.offline.preview.cli`."""

import sys
from pathlib import Path

from slipway.offline.evaluation.worker import message, where

NOT_EVALUATED = 2


def main() -> int:
    """Runs the command line, which exits by itself unless it fails.

    The preview imports a part of what it evaluates. A change that breaks that part is reported in one line, as any
    other program that cannot be evaluated.
    """
    try:
        from slipway.offline.preview.cli import app  # noqa: PLC0415

        app(prog_name="python -m slipway.offline.preview")
    except Exception as error:
        place = where(error, Path(__file__).resolve().parents[2])
        print(f"error: the preview failed: {message(error)}" + f" ({place})" * bool(place), file=sys.stderr)
        return NOT_EVALUATED
    return 0


if __name__ == "__main__":
    sys.exit(main())
