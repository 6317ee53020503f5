"""Data that is there, as inputs of a pipeline: `pipeline.yaml` declares it, and a stack file says where it is."""

import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, create_model

from slipway.infra.commands import page
from slipway.infra.platform import Data
from slipway.infra.schema.base import Model, refuse
from slipway.infra.schema.inputs import Url, data_at
from slipway.infra.schema.names import DNS_LABEL

INPUTS = "inputs"
"""The section of a ``pipeline.yaml`` that declares them, and of a stack file that says where they are."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Input(Model):
    """Data that is there, which no step of the pipeline makes: a folder of a bucket or of the store. Commands,
    items and mounts of steps refer to it as `{<input>}`, a folder that they can only read.
    """

    description: str | None = Field(default=None, description="What it is, for the reference of the settings.")


def _section(value: Any) -> Any:
    """The section that a text stands for: ``url: gs://team-data/images`` for ``gs://team-data/images``."""
    if isinstance(value, str):
        return {"url": value}
    if not isinstance(value, dict):
        raise refuse("neither an address nor a section", "write `gs://team-data/images`, or a section with `url`")
    return cast("dict[Any, Any]", value)


def _digest(value: str) -> str:
    if not _DIGEST.fullmatch(value):
        raise refuse(
            "no SHA-256 in 64 hexadecimal digits", f"make one as {page('own-data.md')} shows, or remove it"
        )
    return value


class InputSettings(Model):
    """Where an input is, and what it was when it was last looked at."""

    url: Url = Field(
        description='`gs://bucket/folder`, `s3://bucket/folder`, or a folder of the store, `"{store}/images"`.',
    )
    digest: Annotated[str, AfterValidator(_digest)] | None = Field(
        default=None,
        description="SHA-256 that stands for its files, such as that of a listing of them. With another one the "
        "steps run again that read the input. Default: changed data runs nothing.",
    )
    grants: bool = Field(
        default=True,
        description="Whether the stack lets its Jobs read the bucket. `false` for a public bucket, and for one "
        "whose owner lets them in.",
    )


StackInput = Annotated[InputSettings, BeforeValidator(_section, json_schema_input_type=str | InputSettings)]
"""An input in a stack file: a section, or the address alone."""


class InputsSection(Model):
    """Where each input is."""


class _PartialInputs(InputsSection):
    model_config = ConfigDict(extra="ignore", frozen=True)


def inputs_field(name: str, inputs: Mapping[str, Input], *, unsure: bool) -> Any:
    """The key `INPUTS` of a pipeline's section, of a model called ``name``: type and field.

    With ``unsure`` it may have keys of which nobody can tell what they are. An input whose name is no Kubernetes
    name, which the checks refuse, has none.
    """
    fields: dict[str, Any] = {
        key: (StackInput, Field(description=data.description or f"Where `{key}` is."))
        for key, data in inputs.items()
        if DNS_LABEL.fullmatch(key)
    }
    base, about = _PartialInputs if unsure else InputsSection, InputsSection.__doc__
    with warnings.catch_warnings():
        # An input may be called `copy`, like a method that pydantic's models have; it is read as a field alone.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
        model = create_model(name, __base__=base, __doc__=about, **fields)
    return model, Field(default_factory=model, description=about) if unsure else Field(description=about)


def data_of(section: object) -> dict[str, Data]:
    """The inputs of a pipeline's section of a stack file, by name; none where its pipeline declares none."""
    inputs = getattr(section, INPUTS, None)
    if not isinstance(inputs, InputsSection):
        return {}
    named = {name: cast("InputSettings", getattr(inputs, name)) for name in type(inputs).model_fields}
    return {
        name: data_at(name, settings.url, settings.digest or "", grants=settings.grants)
        for name, settings in named.items()
    }
