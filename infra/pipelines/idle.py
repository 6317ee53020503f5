"""What becomes of a step that holds GPUs and does not use them, and of an app that nobody uses."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from slipway.infra.schema.base import Duration, Int, Model, refuse
from slipway.infra.schema.quantities import seconds

IDLE = "idle"


class IdleGpus(Model):
    """When a step holds GPUs that it does not use, and what follows."""

    below: Int = Field(
        default=5,
        ge=1,
        le=100,
        description="The step's GPUs are idle while they are busy for fewer percent of a sample, on average.",
    )
    after: Duration = Field(default="10m", description="Idle for so long without a break, the step is told.")
    then: Literal["warn", "stop"] = Field(
        default="warn",
        description="`warn`: the log says so, with the money, each time that it was idle for as long. `stop`: the "
        "program is told to end, as when its node is taken away, and the step fails with exit code 22.",
    )


SHORTEST = 600
"""Seconds: how often it is looked whether somebody uses an app."""


def _long_enough(value: str) -> str:
    if seconds(value) < SHORTEST:
        raise refuse("an app is looked at every 10 minutes", "write 10 minutes or more: `30m`, `2h`")
    return value


class IdleApp(Model):
    """When an app is unused, and what follows."""

    after: Annotated[Duration, AfterValidator(_long_enough)] = Field(
        default="2h", description="Without a request for so long, it is unused; 10 minutes at least."
    )
    then: Literal["warn", "stop"] = Field(
        default="warn",
        description="`warn`: `slipway watch` says so, with the money. `stop`: its pods go, and with them nodes "
        "that nothing else needs. It answers nobody until somebody starts it again, by the command in the output "
        "`start`.",
    )
