"""What all settings models share: strictness, and the kinds of value a stack file holds."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """A section of a stack file. Unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaintSettings(Model):
    """A node taint. Pods of steps that run on the pool tolerate it."""

    key: str = Field(description="Taint key, for example `nvidia.com/gpu`.", min_length=1, max_length=317)
    value: str = Field(default="", description="Taint value.", max_length=63)
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="What happens to pods that do not tolerate it."
    )


Labels = dict[str, str]

Duration = Annotated[
    str,
    Field(pattern=r"^[1-9][0-9]*[smhd]$", description="A whole number and a unit: `30m`, `12h`, `7d`."),
]
