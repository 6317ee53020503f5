"""What the verbs of the command `slipway` end with: exit codes, and one line of an error on standard error."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from slipway.infra.terminal import new_console

if TYPE_CHECKING:
    from slipway.infra.schema.problems import Problem


class Exit(IntEnum):
    """The exit codes of all verbs, with what they mean: docs/commands.md has them as a table."""

    DONE = 0, "done, and nothing to be said against it"
    FAILED = 1, "a Job failed, something was found, or a cluster, a store or a tool refused"
    REFUSED = 2, "wrong words or settings, no project, or nothing could be said"
    INTERRUPTED = 130, "ended by Ctrl-C"

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "Exit":
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


def report_error(error: object) -> None:
    """Prints what went wrong on standard error, without what a terminal would obey."""
    # The help of a verb imports this module, and does without them.
    from rich.markup import escape  # noqa: PLC0415

    from slipway.infra.schema.problems import printable_lines  # noqa: PLC0415

    text = escape(printable_lines(str(error)))
    new_console(stderr=True).print(f"[red]error:[/] {text}", soft_wrap=True)


def report_problems(problems: "Sequence[Problem]", where: str) -> None:
    """Prints every problem with its key, value, reason and fix on standard error.

    ``where`` follows their number: `` in the stack's settings; nothing was run``.
    """
    # As above.
    from rich.markup import escape  # noqa: PLC0415

    console = new_console(stderr=True)
    count = len(problems)
    console.print(f"[red]error:[/] {count} problem{'s' if count != 1 else ''}{where}")
    for problem in problems:
        value = "" if problem.value is None else f": {escape(problem.shown)}"
        console.print(f"\n  [bold]{escape(problem.key)}[/]{value}", soft_wrap=True)
        console.print(f"    why: {escape(problem.reason)}", soft_wrap=True)
        console.print(f"    fix: {escape(problem.fix)}", soft_wrap=True)
