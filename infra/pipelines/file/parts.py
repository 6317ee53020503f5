"""What sections of a ``pipeline.yaml`` have alike: words of commands, plain values, builds."""

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, WithJsonSchema

from infra.pipelines.contract import MOST_WORDS
from infra.pipelines.images import ImageBuild
from infra.schema.base import Cpu, Int, Memory, Model, Size, refuse
from infra.schema.paths import below_problem

# Values of a ``pipeline.yaml`` that stand in several of its sections: words of commands, and plain values.


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What environment variables and arguments of a Dockerfile can be called."""

LONGEST_COMMAND = 500
"""Characters of a text that is shown again as the list of words that it should be."""


def _word(value: Any) -> Any:
    """YAML reads ``--trees, 300`` as a number; a word of a command line is text."""
    if isinstance(value, bool):
        raise refuse("true or false, which programs spell differently", 'write it in quotes: `"true"`')
    return str(value) if isinstance(value, int | float) else value


Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str | int | float)]
"""A word of a command line, or the value of an environment variable."""


def _plain(word: str) -> str:
    """``word`` as an item of a list in YAML."""
    return word if re.fullmatch(r"[\w./-][\w./=+-]*", word) else json.dumps(word)


def _words(value: Any) -> Any:
    if isinstance(value, str):
        words = map(_plain, value.split()[:12]) if len(value) <= LONGEST_COMMAND else ()
        raise refuse(
            "one text, and a command is a list of its words, which no shell reads",
            f"write `[{', '.join(words) or 'python, train.py'}]`",
        )
    if value == []:
        raise refuse("empty", "write the program and its arguments: `[python, train.py]`")
    items = cast("list[object]", value) if isinstance(value, list) else []
    if len(items) > MOST_WORDS:
        raise refuse(
            f"{len(items)} words, and a command has at most {MOST_WORDS}",
            "write them to a file beside the program, and let it read that",
        )
    if items and isinstance(items[0], str) and len(first := items[0].split()) > 1:
        words = [*first, *map(str, items[1:])]
        raise refuse(
            "its first word has a space, and is the program alone",
            f"write each word as an item: `[{', '.join(map(_plain, words[:12]))}]`",
        )
    return cast("Any", value)


Words = Annotated[list[Word], Field(min_length=1), BeforeValidator(_words, json_schema_input_type=list[Word])]
"""A command: its program, and the program's arguments."""


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise refuse("not a single value", "write a number, a text, or `true` or `false`")
    if value is None:
        raise refuse("empty", "write a value, or remove it")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse("not a number", "write a number")
    return value


Scalar = Annotated[Any, WithJsonSchema({"type": ["boolean", "number", "string"]}), BeforeValidator(_scalar)]
"""A value of a parameter, of whatever type."""

Bound = Annotated[Any, WithJsonSchema({"type": "number"}), BeforeValidator(_number)]
"""A number, whole or not."""


# Sections of a ``pipeline.yaml`` that steps, services and apps have alike.


class ServiceResources(Model):
    """What a service asks for where the stack file does not say it. Where neither does, it gets one CPU, 4Gi of
    memory and 4Gi of scratch space; a Valkey server gets 250m of CPU and 256Mi of memory.
    """

    cpu: Cpu | None = Field(default=None, description="CPU asked for, as a Kubernetes quantity.")
    memory: Memory | None = Field(default=None, description="Memory asked for, and its limit.")
    ephemeral_storage: Size | None = Field(default=None, description="Scratch space for temporary files.")


class StepResources(ServiceResources):
    """What a step asks for where the stack file does not say it. Where neither does, it gets one CPU, 4Gi of
    memory, 4Gi of scratch space and no GPU.
    """

    gpus: Int | None = Field(default=None, ge=0, description="GPUs, or shares of one.")


class RehearsalCommand(Model):
    """What a rehearsal runs where this machine lacks the program, or the packages of its image."""

    run: Words | None = Field(default=None, description="The command in place of `run`.")
    requirements: str | None = Field(default=None, description="A lock file with the packages that the image has.")


class ServiceProbe(Model):
    """How a service shows that it is ready."""

    path: str = Field(description="The path at which it answers HTTP with a status below 400: `/healthz`.")


# The shape of ``build`` in ``pipeline.yaml``, and which programs have their image built by it.


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
