"""Values in the JSON files of results, and the choice of the best result by one of them. Standard library only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.runtime.exits import BAD_INPUT, USAGE, StepError
from slipway.runtime.store import store_errors

_SHOWN = 8


class AbsentError(Exception):
    """A file or a value in it that is not there; the message says what is there instead."""


def split(reference: str) -> tuple[str, str]:
    """The file and the JSON pointer (RFC 6901) of `FILE#/pointer`; the pointer is empty where there is none."""
    file, _, pointer = reference.partition("#")
    return file, pointer


def value_at(directory: Path, reference: str) -> Any:
    """The value in a JSON file below `directory`.

    Raises:
        AbsentError: no such file or value, or the file is no JSON.
        StoreError: the store cannot be read.
    """
    file, pointer = split(reference)
    with store_errors(directory):
        try:
            text = (directory / file).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise AbsentError(f"there is no file {file}") from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AbsentError(f"{file} is not JSON: {error}") from error
    return value_in(value, pointer, file)


def value_in(value: Any, pointer: str, file: str) -> Any:
    """What `pointer` names in `value`, the content of `file`. Raises AbsentError."""
    if pointer and not pointer.startswith("/"):
        raise AbsentError(f"#{pointer} is no JSON pointer: it begins with a slash")
    walked = ""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) and key.isascii() and key.isdigit() else value[key]
        except (KeyError, IndexError, TypeError):
            raise AbsentError(f"{file} has no {walked}/{part}; {walked or 'it'} {_has(value)}") from None
        walked += f"/{part}"
    return value


@dataclass(frozen=True)
class Choice:
    """Which of several results is the best: `--best NAME=of:FILE#/pointer:VARIANT,VARIANT`."""

    name: str
    of: str
    reference: str
    among: Sequence[str]

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice that a `--best` asks for. Raises StepError with USAGE."""
        name, _, rest = text.partition("=")
        of, _, rest = rest.partition(":")
        reference, _, variants = rest.rpartition(":")
        among = variants.split(",")
        if not name or of not in {"max", "min"} or not split(reference)[0] or not all(among):
            raise StepError(
                USAGE, f"--best {text!r}; write NAME=max:FILE#/pointer:VARIANT,VARIANT, with max or min"
            )
        return Choice(name, of, reference, among)

    def best(self, inputs: Mapping[str, Path]) -> tuple[str, float, str]:
        """The best of `inputs`, its number, and a sentence that says why. Of equal ones it is the first.

        Raises:
            StepError: BAD_INPUT naming every input that has no such number; StoreError.
        """
        numbers: dict[str, float] = {}
        wrong = []
        for variant in self.among:
            try:
                numbers[variant] = number_at(inputs[variant], self.reference)
            except AbsentError as error:
                wrong.append(f"{variant}: {error}")
        if wrong:
            raise StepError(
                BAD_INPUT,
                f"{self.name}: the best of {len(self.among)} is the one with the {self._word} {self.reference}, "
                f"which {len(wrong)} of them {'does' if len(wrong) == 1 else 'do'} not have: {'; '.join(wrong)}",
            )
        # max and min take the first of equal ones.
        chosen = (max if self.of == "max" else min)(numbers, key=lambda variant: numbers[variant])
        others = [f"{variant} {number:g}" for variant, number in numbers.items() if variant != chosen]
        reason = (
            f"The best of {self.name} is {chosen}: {self.reference} is {numbers[chosen]:g}, the {self._word} of "
            f"{len(numbers)}" + (f" ({', '.join(others)})" if others else "")
        )
        return chosen, numbers[chosen], reason

    @property
    def _word(self) -> str:
        return "largest" if self.of == "max" else "smallest"


def number_at(directory: Path, reference: str) -> float:
    """The finite number in a JSON file below `directory`. Raises as `value_at` does, also where it is none."""
    value = value_at(directory, reference)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AbsentError(f"{_show(value)} is not a number")
    if not math.isfinite(value):
        raise AbsentError(f"{value} is not a finite number")
    return value


def _has(value: Any) -> str:
    if isinstance(value, dict):
        names = [str(key) for key in value][:_SHOWN]
        return f"has {', '.join(names)}{', …' if len(value) > _SHOWN else ''}" if names else "is empty"
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is {_show(value)}"


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
