"""Which versions of a model answer, and which may go. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from workloads.apps.tensorflow_serving.model_config import CANARY, STABLE
from workloads.runtime.exits import BAD_INPUT, StepError


@dataclass(frozen=True)
class Choice:
    """What is asked for: ``serve`` and ``canary`` are `latest`, `previous` or a number, ``keep`` how many stay."""

    serve: str = "latest"
    canary: str | None = None
    keep: int = 5


def chosen(choice: Choice, numbers: Sequence[int]) -> dict[str, int]:
    """The version of each label, of the published ``numbers``.

    Raises:
        StepError: BAD_INPUT where one is not published, which names those that are.
    """
    asked = {STABLE: choice.serve, **({CANARY: choice.canary} if choice.canary else {})}
    return {label: _number(label, word, sorted(numbers)) for label, word in asked.items()}


def doomed(numbers: Sequence[int], needed: Collection[int], keep: int) -> list[int]:
    """The published ``numbers`` that go: all but the newest ``keep`` and those that are ``needed``."""
    newest = sorted(numbers)[-keep:]
    return [number for number in sorted(numbers) if number not in newest and number not in needed]


def _number(label: str, word: str, numbers: Sequence[int]) -> int:
    there = ", ".join(map(str, numbers)) or "none"
    if word == "latest" and numbers:
        return numbers[-1]
    if word == "previous":
        if len(numbers) > 1:
            return numbers[-2]
        raise StepError(BAD_INPUT, f"{label} is to be the previous version, and there is none; published: {there}")
    if word.isdigit() and int(word) in numbers:
        return int(word)
    raise StepError(BAD_INPUT, f"{label} is to be version {word}, which is not there; published: {there}")
