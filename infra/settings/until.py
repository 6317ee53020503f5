"""The last day of a stack: the key `until` of a stack file."""

from datetime import UTC, date, datetime

UNTIL = "until"

KEY = f"slipway:{UNTIL}"

FIX = (
    "write a later day, and `pulumi up` starts everything again; or delete what is left with `pulumi destroy`, "
    "without `--run-program`"
)
"""What to do about a stack whose last day is over."""


def today() -> date:
    """The day by UTC, by which the last day of a stack ends."""
    return datetime.now(UTC).date()


def days_left(until: str) -> int:
    """How many days come after this one until the last day ``until`` (ISO 8601); negative once that is over."""
    return (date.fromisoformat(until) - today()).days
