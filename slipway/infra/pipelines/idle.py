"""What becomes of a step that holds GPUs and does not use them."""

from typing import Literal

from pydantic import Field

from slipway.infra.schema.base import Duration, Int, Model

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
