"""Which findings a stack lives with, and why."""

from datetime import date
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.schema.base import Model, refuse


def _said(value: str) -> str:
    if not value.strip():
        raise refuse("empty", "say why the stack may have what the policy finds, and who decided it")
    return value


Reason = Annotated[str, AfterValidator(_said)]
"""A text that is not empty."""


def _day(value: str) -> str:
    # The CLI hands over a date that stands without quotes as the first second of its day.
    day = value.removesuffix("T00:00:00Z")
    try:
        if date.fromisoformat(day).isoformat() == day:
            return day
    except ValueError:
        pass
    raise refuse("not a day", 'write year, month and day in quotes, as `"2027-03-31"`')


Day = Annotated[str, AfterValidator(_day)]
"""A day as ISO 8601 writes it."""


class Suppression(Model):
    """Findings of one policy that the stack lives with; [policies](policies.md) lists the policies."""

    reason: Reason = Field(description="Why the stack may have what the policy finds.")
    until: Day | None = Field(
        default=None,
        description="Last day of the suppression; after it the findings are back. Default: it does not end.",
    )
    resources: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Names of the resources, or configuration keys, that it is for; default: all.",
    )


class Policies(Model):
    """What the policies may find in this stack."""

    suppress: dict[str, Suppression] = Field(
        default_factory=dict[str, Suppression], description="Findings to live with, by the id of their policy."
    )
