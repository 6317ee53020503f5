"""What the nodes of runs may cost: the section `budget` of a stack file."""

from typing import Any, Self

from pydantic import Field, model_validator

from slipway.infra.features import Feature
from slipway.infra.schema.base import Float, Model, refuse

KEY = "budget"

LIMITS, LIMITS_FILE = "limits", "limits.json"
"""The ConfigMap of a namespace with prices and limits of a stack, and its file, as
`slipway.runtime.usage.limits.Limits` reads it."""


class Budget(Model):
    """US dollars at list prices for the nodes of pipelines' steps, from the boot of a node until it is gone. Where
    they are spent, the program of each pod is told to end, as when a node is taken away, and its Job fails with
    exit code 21. Checkpoints stay, and an update with a higher budget goes on. What is not a step costs beside it.
    """

    run: Float | None = Field(
        default=None,
        ge=0,
        description="Dollars for one run: what made the results that an `up` declares, earlier tries included, or "
        "those of one run by the clock.",
    )
    month: Float | None = Field(
        default=None,
        ge=0,
        description="Dollars for all runs of the stack in a calendar month, which begins by UTC.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.run is None and self.month is None:
            raise refuse("it limits nothing", "write `run`, `month` or both, in US dollars")
        return self


def section_of(settings: Any) -> Budget | None:
    """The section of `Settings` or of a `Draft`; None: runs are not limited."""
    return getattr(settings, KEY, None)


SECTION = Field(
    default=None,
    description="What the nodes of runs may cost. Set for the first time, all Jobs start again, and find "
    "their results; later changes reach running pods within two minutes.",
)
FEATURE = Feature(sections={KEY: (Budget | None, SECTION)})
