"""What the verbs of the command `slipway` end with: exit codes, and one line of an error on standard error."""

from enum import IntEnum

from slipway.infra.terminal import new_console


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
