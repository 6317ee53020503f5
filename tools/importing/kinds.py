"""The kinds of objects that `make import` reads: where each has its pods, and what its controller tells them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "kinds.toml"

JOB = "Job"

CRON_JOB = "CronJob"

JOB_SET = "JobSet"

TRAIN_JOB = "TrainJob"

RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
"""The kinds that have the pods of a TrainJob."""

VOLCANO = "batch.volcano.sh"


@dataclass(frozen=True)
class Kind:
    """A kind that is read. ``roles`` is the key below ``spec`` that has the pods by role, where there is one.

    ``variables`` are those that its controller sets for the program, in words of those of a step with ``nodes``;
    ``unset`` are those that nothing sets there.
    """

    kind: str
    group: str
    roles: str = ""
    container: str = ""
    port: str = ""
    framework: str = ""
    unset: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def described(self) -> str:
        """Kind and group: Volcano's ``Job`` is none of ``batch``."""
        return f"{self.kind} of {self.group}"


@dataclass(frozen=True)
class Refusal:
    """Kinds that are refused: why, and what to do instead."""

    kinds: Sequence[str]
    group: str
    why: str
    fix: str


@cache
def kinds() -> Sequence[Kind]:
    """All kinds that are read."""
    return tuple(Kind(**row) for row in _data()["kind"])


@cache
def policies() -> Mapping[str, Mapping[str, str]]:
    """The variables that a TrainJob's ``mlPolicy`` or a plugin of Volcano sets, by its key."""
    return _data()["policies"]


def kind_of(content: Mapping[str, Any]) -> Kind | None:
    """The kind of the object ``content``; None where it is not read."""
    kind, group = _name(content)
    return next((known for known in kinds() if (known.kind, known.group) == (kind, group)), None)


def is_volcano(content: Mapping[str, Any]) -> bool:
    """Whether it is an object of Volcano's, whose ``Job`` is none of ``batch``."""
    return _name(content)[1] == VOLCANO


def is_runtime(content: Mapping[str, Any]) -> bool:
    """Whether it has the pods of a TrainJob."""
    kind, group = _name(content)
    return kind in RUNTIMES and group == "trainer.kubeflow.org"


def refusal_of(content: Mapping[str, Any]) -> Refusal | None:
    """Why objects of this kind are refused, where there is more to say than that they are unknown."""
    kind, group = _name(content)
    return next((row for row in _refusals() if kind in row.kinds and row.group == group), None)


def _name(content: Mapping[str, Any]) -> tuple[str, str]:
    return str(content.get("kind", "")), str(content.get("apiVersion", "")).partition("/")[0]


@cache
def _refusals() -> Sequence[Refusal]:
    return tuple(Refusal(**row) for row in _data()["refused"])


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))
