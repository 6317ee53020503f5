"""Where all verbs of the command `slipway` print: in colours on a terminal, plain in a pipe, a log and a file."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120
"""Columns of output that does not go to a terminal: a pipe has no width, and 80 columns would cut tables."""


def new_console(width: int = WIDTH, *, stderr: bool = False) -> "Console":
    """The console of standard output, or of standard error; ``width`` is that of output to no terminal.

    Rich follows NO_COLOR, FORCE_COLOR and TERM. FORCE_COLOR colours a log, too, and nothing is redrawn there.
    """
    # The help of a verb does without it.
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=stderr, highlight=False)
    if not console.file.isatty():
        console.width = width
        console.is_interactive = False
    return console
