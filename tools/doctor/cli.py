"""The command line of `slipway doctor`."""

import logging
import sys
import warnings
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from slipway.infra.places import PROJECT
from slipway.infra.review.facts import State
from slipway.tools.doctor.examination import document, examine, show

WIDTH = 100
"""Columns of output that does not go to a terminal."""


class Format(StrEnum):
    """Output formats."""

    TEXT = "text"
    JSON = "json"


def main(
    stack: Annotated[list[str] | None, typer.Option("--stack", "-s", help="A stack; all without it.")] = None,
    format: Annotated[Format, typer.Option(help="What to write.")] = Format.TEXT,
) -> None:
    """Say what is missing before the first `pulumi up` of each stack, with the command that mends it.

    Changes nothing, and asks clouds and clusters only for what they have. Exits with 0 where all that could be
    checked is fine, and with 1 where something is missing or wrong.
    """
    # What libraries say beside their errors would stand between the tables, which tell it all.
    logging.disable()
    warnings.simplefilter("ignore")
    examined = examine(PROJECT, stack or ())
    if format is Format.JSON:
        sys.stdout.write(document(examined))
    else:
        show(examined, Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH))
    if any(observation.state is State.WRONG for one in examined for observation in one.observations):
        raise typer.Exit(1)
