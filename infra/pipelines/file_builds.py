"""The shape of ``build`` in ``pipeline.yaml``."""

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from infra.pipelines.file_words import Word
from infra.schema.base import Model, refuse


def _build(value: Any) -> Any:
    """The section that a text stands for: ``context: docker`` for ``docker``."""
    if isinstance(value, str):
        return {"context": value}
    if not isinstance(value, dict):
        raise refuse("neither a folder nor a section", "write a folder, `build: .`, or a section with `context`")
    return cast("dict[Any, Any]", value)


class Build(Model):
    """An image that is built in the cluster from a Dockerfile, as in a Compose file. All base images in it are
    named by digest, or the file is refused. The context are the files that git has or would take, without those
    that `.dockerignore` leaves out; together at most 1 MiB. The stack file says where it is built, and which
    registry it is pushed to: `slipway:registry`. It is built again only when the context or a value below `args`
    changed.
    """

    context: str = Field(default=".", description="The folder whose files the Dockerfile may copy.")
    dockerfile: str = Field(default="Dockerfile", description="The Dockerfile's path in that folder.")
    args: dict[str, Word] = Field(
        default_factory=dict[str, str],
        description="Values of its `ARG`. They stand in the image's history: no place for a secret.",
    )


Built = Annotated[Build, BeforeValidator(_build, json_schema_input_type=str | Build)]
"""An image that is built: a section, or the folder alone."""
