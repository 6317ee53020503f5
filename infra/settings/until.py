"""The last day of a stack: the key `until` of a stack file."""

import re
from datetime import UTC, date, datetime

UNTIL = "until"

KEY = f"slipway:{UNTIL}"

FIX = "write a later day, and `pulumi up` starts everything again; or delete what is left with `pulumi destroy`"
"""What to do about a stack whose last day is over."""

BACK = f"write a later day, and `pulumi up` starts them again; then take `{KEY}` out in an update of its own"
"""What to do where a last day that is over is taken out of a stack file."""


_FIRST_SECOND = re.compile(r"(T00:00:00Z| 00:00:00 \+0000 UTC)$")


def written_day(value: str) -> str:
    """A day as it stands in a stack file.

    The CLI hands over one without quotes as the first second of it: in a section as JSON has it, as the value of a
    key as Go prints it (Pulumi 3.260, seen November 2026).
    """
    return _FIRST_SECOND.sub("", value)


def today() -> date:
    """The day by UTC, by which the last day of a stack ends."""
    return datetime.now(UTC).date()


def removed(until: str) -> str:
    """That ``until`` was over and was taken out; what it ended is to follow."""
    return f"{KEY} was taken out after {until} was over, and nothing starts again what ended at that day"


def days_left(until: str) -> int:
    """How many days come after this one until the last day ``until`` (ISO 8601); negative once that is over."""
    return (date.fromisoformat(until) - today()).days
