"""The doctor's visit: examines stacks, prints what it found, and says with which code the command ends."""

import logging
import sys
import warnings
from collections.abc import Sequence

from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.review.facts import State
from slipway.infra.terminal import new_console
from slipway.tools.doctor.examination import document, examine, show

WIDTH = 100
"""Columns of output that does not go to a terminal."""


def main(stacks: Sequence[str], *, as_json: bool) -> Exit:
    """Examines ``stacks``, all without."""
    # What libraries say beside their errors would stand between the tables, which tell it all.
    logging.disable()
    warnings.simplefilter("ignore")
    examined = examine(PROJECT, stacks)
    if as_json:
        sys.stdout.write(document(examined))
    else:
        show(examined, new_console(WIDTH))
    wrong = any(observation.state is State.WRONG for one in examined for observation in one.observations)
    return Exit.FAILED if wrong else Exit.DONE
