"""Secrets that a stack needs and nobody has set yet: a placeholder stands in where nothing is brought up."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.platform_output import Resolve
from infra.review.properties import mapping
from infra.schema.problems import PREFIX, Problem, SettingsError
from infra.schema.secret_values import MASK
from infra.settings.loading import load
from infra.settings.model import Settings
from infra.settings.references import unread

SECTION = "secrets"

_KEY = f"{PREFIX}{SECTION}."


def unset(problem: Problem) -> str | None:
    """The name of the secret whose absence is the problem; None where it is another one."""
    return problem.key.removeprefix(_KEY) if problem.key.startswith(_KEY) and problem.value is None else None


def load_with_placeholders(
    raw: Mapping[str, Any], resolve: Resolve = unread, may_stand_in: Callable[[str], bool] = lambda _: True
) -> tuple[Settings, Mapping[str, str], Sequence[Problem]]:
    """The settings in ``raw``, as `load` reads them, with a placeholder for each secret that is not set.

    ``may_stand_in`` says of a secret's name whether it gets one. Returns these placeholders by name, too, and the
    problems that they stand for. Raises SettingsError for all others.
    """
    try:
        return load(raw, resolve), {}, ()
    except SettingsError as error:
        absent = {name: each for each in error.problems if (name := unset(each)) and may_stand_in(name)}
        if not absent:
            raise
    placeholders = dict.fromkeys(absent, MASK)
    whole = {**raw, SECTION: {**mapping(raw.get(SECTION)), **placeholders}}
    return load(whole, resolve), placeholders, tuple(absent.values())
