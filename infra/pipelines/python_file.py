"""What a ``pipeline.py`` declares, held to its types: whatever fails in it is one error with the file's name."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from infra.pipelines.apps import AppDeclaration
from infra.pipelines.contract import (
    MOST_WORDS,
    AnyPipeline,
    Pipeline,
    PipelineSettings,
    ServiceDeclaration,
    StepDeclaration,
)
from infra.schema.problems import Finding, Problem, SettingsError

MOST = {"arguments": MOST_WORDS, "results": 200}
"""How many parts a field of a step, service or app may have. All are read some hundred times in an evaluation."""

LONGEST = 500
"""Characters of another library's error that are shown: it may hold a whole value."""


def checked(file: str, declared: AnyPipeline) -> AnyPipeline:
    """The pipeline of ``file``, whose functions raise SettingsError where they fail or return something else.

    Raises SettingsError where it is itself of other types than `Pipeline` has.
    """
    _check(file, "PIPELINE", declared, Pipeline[PipelineSettings])
    return replace(
        declared,
        steps=_Checked(file, "steps", declared.steps, StepDeclaration),
        services=_Checked(file, "services", declared.services, ServiceDeclaration),
        apps=_Checked(file, "apps", declared.apps, AppDeclaration),
        checks=[_Checked(file, "checks", each, Finding) for each in declared.checks],
    )


def validated(file: str, value: Any, handler: Callable[[Any], Any]) -> Any:
    """A section of the pipeline of ``file`` by its model; raises SettingsError where the model itself fails."""
    try:
        return handler(value)
    except (SettingsError, ValidationError):
        raise
    except Exception as error:
        raise failed(file, "a field or a validator of its `settings` fails", error) from error


@dataclass(frozen=True)
class _Checked:
    """A function of ``file`` that returns several ``kind``."""

    file: str
    name: str
    function: Callable[[Any], Iterable[Any]]
    kind: type[object]

    def __call__(self, given: Any) -> Sequence[Any]:
        try:
            returned = tuple(self.function(given))
        except SettingsError:
            raise
        except Exception as error:
            raise failed(self.file, f"`{self.name}` fails", error) from error
        for index, each in enumerate(returned):
            for key, most in MOST.items():
                value = getattr(each, key, ())
                if isinstance(value, list | tuple) and (count := len(cast("Sequence[object]", value))) > most:
                    raise broken(self.file, f"`{self.name}[{index}].{key}` has {count} parts, and at most {most}")
        _check(self.file, self.name, returned, tuple[self.kind, ...])
        return returned


def _check(file: str, name: str, value: object, kind: Any) -> None:
    try:
        read = _adapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in wrong["loc"])
        raise broken(file, f"`{name}{place}` has another type: {wrong['msg']}") from error
    for place in _made(value, read, name):
        raise broken(file, f"`{place}` has another type: it is a mapping, and has to be made by its class")


def _made(given: Any, read: Any, place: str) -> Iterator[str]:
    """The places where pydantic read a model from the mapping that ``given`` has there."""
    if isinstance(read, BaseModel) and not isinstance(given, BaseModel):
        yield place
    elif is_dataclass(read):
        for each in fields(read):
            yield from _made(getattr(given, each.name), getattr(read, each.name), f"{place}.{each.name}")
    elif isinstance(read, list | tuple):
        for index, pair in enumerate(zip(given, cast("Sequence[Any]", read), strict=True)):
            yield from _made(*pair, f"{place}[{index}]")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    config = ConfigDict(revalidate_instances="always", arbitrary_types_allowed=True)
    return TypeAdapter(kind, config=config)


def failed(file: str, what: str, error: Exception) -> SettingsError:
    """Code of ``file`` raised ``error``."""
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename.endswith(file)]
    where = f" in line {lines[-1]}" if lines else ""
    said = str(error)
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    return broken(file, f"{what}{where}: {type(error).__name__}: {said}")


def broken(file: str, reason: str) -> SettingsError:
    """The declaration in ``file`` is wrong."""
    return SettingsError([problem(file, reason)])


def problem(file: str, reason: str) -> Problem:
    """What is wrong with the declaration in ``file``."""
    return Problem(
        file, Path(file).stem.upper(), reason, "correct the file; docs/workloads.md says what it declares"
    )
