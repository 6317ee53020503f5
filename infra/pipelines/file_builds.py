"""The shape of ``build`` in ``pipeline.yaml``, and which programs have their image built by it."""

from collections.abc import Callable
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from infra.pipelines.file_words import Word
from infra.pipelines.image_build import ImageBuild
from infra.schema.base import Model, refuse
from infra.schema.paths import below_problem


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


def build_of(
    name: str, image: str | None, own: Build | None, of_pipeline: Build | None, place: Callable[[str], str]
) -> ImageBuild | None:
    """The image that is built for the program ``name``; None where none is.

    ``image`` and ``own`` are what the file has for it: a step, a service, or an app that is a program.
    ``of_pipeline`` is the ``build`` at the top, for programs that have neither. ``place`` is a path below the
    pipeline's folder as declarations name it.
    """
    said = own or (of_pipeline if image is None else None)
    if said is None:
        return None
    # A folder that leads out is refused; its files, which may be many, are not looked at.
    context = "." if below_problem(said.context.removeprefix("./")) else said.context
    return ImageBuild(place(context), said.dockerfile, dict(said.args), name if own else "")
