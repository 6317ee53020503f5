"""What every pod that a pipeline declares has: where it runs, what it may use, and what it starts."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from pydantic import Field

from infra.platform import Resources
from infra.schema.base import Cpu, Memory, Model, Size
from infra.schema.problems import Path, listed
from infra.schema.quantities import cpu_millicores, mebibytes


class PodSettings(Model):
    """Where a pod runs and what it may use."""

    pool: str = Field(description="Name of a pool of any of the stack's clusters.")
    cpu: Cpu = Field(default="1", description="CPU asked for, as a Kubernetes quantity.")
    memory: Memory = Field(default="4Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="4Gi", description="Scratch space for temporary files.")

    @property
    def asked_gpus(self) -> int:
        """The GPUs (or shares of one) that it asks for."""
        return 0

    @property
    def asked(self) -> Resources:
        """What each pod asks for."""
        return Resources(
            cpu=cpu_millicores(self.cpu),
            memory=mebibytes(self.memory),
            ephemeral_storage=mebibytes(self.ephemeral_storage),
            gpus=self.asked_gpus,
        )

    @cached_property
    def on_pools(self) -> Sequence[tuple[Path, Self]]:
        """The settings for each pool that they name, with the place of its name in them.

        That is these settings themselves, or copies where a step runs on several pools.
        """
        return tuple(self._on_pools())

    def _on_pools(self) -> Iterator[tuple[Path, Self]]:
        yield ("pool",), self


@dataclass(frozen=True)
class ShippedFolder:
    """A folder of images of the repository that travels with a step.

    ``path`` is relative to the repository. ``setting`` is the key of the section that names it:
    ``predict.images``.
    """

    path: str
    setting: str


@dataclass(frozen=True)
class Substitute:
    """What a rehearsal runs of a command that needs what this machine lacks.

    ``run`` takes the command's place where its program is not on this machine; it may hold the same references.
    ``requirements`` is the path of a lock file with the packages that the step's own image has. ``program`` is the
    one that has to be on this machine, where the command begins with another, such as a shell.
    """

    run: Sequence[str] = ()
    requirements: str | None = None
    program: str = ""


@dataclass(frozen=True)
class Command:
    """A program of a step's image that knows nothing of Slipway. ``workloads.runtime.command`` starts it.

    ``code`` is the folder whose files ship with the step, and in which the program starts: a path relative to the
    repository, or absolute. Of its Python files those ship that the program imports, and those that one of
    ``files``, patterns below ``code``, names; of its other files all.
    """

    code: str
    files: Sequence[str] = ()
    substitute: Substitute | None = None


@dataclass(frozen=True)
class Probe:
    """How a service shows that it is ready: by accepting a connection, by answering HTTP at ``path``, or by what
    ``command`` finds, which runs in its container and may hold ``{port}``."""

    path: str | None = None
    command: Sequence[str] = ()


# References in the words of a command: ``{output}``, ``{prepare}``, ``{trees}``; ``{{`` and ``}}`` are braces.


OUTPUT, STORE = OWN = ("output", "store")
"""What every step may refer to: the directory that it writes, and the store."""

ITEM, PREVIOUS = OF_ITEMS = ("item", "previous")
"""What a step with items may refer to: the file of an item, and the result of the item before it."""

_PART = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<single>[{}])")


def names(text: str) -> Iterator[str]:
    """What ``text`` refers to, in its order."""
    for part in _PART.finditer(text):
        if part["name"] is not None:
            yield part["name"]


def single_brace(text: str) -> bool:
    """Whether ``text`` has a brace that is neither doubled nor one of a reference."""
    return any(part["single"] for part in _PART.finditer(text))


def misfits(words: Iterable[str], known: Collection[str], own: Collection[str]) -> Iterator[str]:
    """What is wrong with references in ``words``, which may mean what is ``known`` or, everywhere, ``own``."""
    texts = list(words)
    if any(map(single_brace, texts)):
        yield "has a brace that belongs to no reference: write `{{` and `}}`"
    for name in sorted({name for text in texts for name in names(text)} - {*known, *own}):
        yield f"refers to `{name}`, which is neither an input nor a folder, nor one of {listed(own)}"


def replaced(text: str, value: Callable[[str], str | None]) -> str:
    """``text`` with ``value`` of each name in place of its reference; what has none stays a reference."""

    def own(part: re.Match[str]) -> str:
        found = value(part["name"]) if part["name"] is not None else None
        return part.group() if found is None else found

    return _PART.sub(own, text)
