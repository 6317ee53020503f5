"""The placed model: what a program knows of each step that it declares, for whoever evaluates the program.

It is printed beside the resources, so that nobody has to find it again in the words of a pod. An engine that wants
it listens (`listen`); for Pulumi's own nobody does.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PlacedStep:
    """One step on its pool.

    The step's result follows from ``files``, ``inputs`` and ``decides`` alone. What is in ``tells`` changes how
    its Job runs, and no result.
    """

    job: str
    """The logical name of its Job."""
    pipeline: str
    name: str
    pool: str
    directory: str
    """That of its result, below the store's root; empty where it publishes none."""
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The directories of the results that it reads, by the input's name."""
    of_items: Sequence[str] = ()
    """The inputs and data in which its items are."""
    surroundings: str = ""
    """A digest of what decides the result of every single item."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the files of its program, by their paths."""
    ships: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the package's files that its pods run, by their paths: they change no result."""
    decides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else its result follows from: ``image``, ``arguments``, ``environment``, ``data`` and others."""
    tells: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How its Job runs: ``workers``, ``lease``, ``wait`` and others."""
    variant: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of one of several that are made from a step with a matrix: ``of`` is that step's name, ``values`` are its
    own by the names of parameters, or ``pool``. Where others read the best, ``best`` has ``by``, the name of a
    result, and ``of``, ``max`` or ``min``."""

    @property
    def declared(self) -> str:
        """The name that its settings have in the stack file."""
        return str(self.variant.get("of", self.name))


_LISTENING: ContextVar[list[PlacedStep] | None] = ContextVar("listening", default=None)


def listen() -> list[PlacedStep]:
    """The steps that the program is going to tell of, in this context: it grows as the program runs."""
    steps: list[PlacedStep] = []
    _LISTENING.set(steps)
    return steps


def listener() -> list[PlacedStep] | None:
    """Where the program tells of its steps; None where nobody listens."""
    return _LISTENING.get()
