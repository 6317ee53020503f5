"""A stack's secrets, which a rehearsal cannot decrypt: from this machine's environment, or placeholders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from infra.review.properties import mapping
from infra.schema.problems import PREFIX, Problem

KEY = f"{PREFIX}secrets"


VARIABLES = "SLIPWAY_SECRET_"


def variable(name: str) -> str:
    """The environment variable with the value that a rehearsal takes for the secret ``name``."""
    return f"{VARIABLES}{name.upper().replace('-', '_')}"


def hinted(problem: Problem) -> Problem:
    """``problem`` with what is enough for a rehearsal, where it is that a secret is not set."""
    name = problem.key.removeprefix(f"{KEY}.")
    if name == problem.key or problem.value is not None:
        return problem
    return replace(problem, fix=f"{problem.fix}; for a rehearsal alone, set {variable(name)} in the environment")


def given(keys: Iterable[str], environment: Mapping[str, str]) -> tuple[dict[str, SecretStr], list[str]]:
    """The stack's secrets that ``environment`` has, by name, and the others of the encrypted ``keys``."""
    found: dict[str, SecretStr] = {}
    placeholders: list[str] = []
    for key in keys:
        name = key.removeprefix(f"{KEY}.")
        if name != key and (value := environment.get(variable(name))):
            found[name] = SecretStr(value)
        else:
            placeholders.append(key)
    return found, placeholders


def remarks(found: Iterable[str], placeholders: Sequence[str]) -> list[str]:
    """What is said of the secrets that this machine's environment has, and of those that it has not."""
    texts = [f"secret {name} has the value of {variable(name)}" for name in found]
    if placeholders:
        settable = [variable(key.removeprefix(f"{KEY}.")) for key in placeholders if key.startswith(f"{KEY}.")]
        hint = f"; {', '.join(settable)} in the environment would give a value" if settable else ""
        names = ", ".join(placeholders)
        texts.append(f"secrets that only their passphrase opens have a placeholder: {names}{hint}")
    return texts


def laid_over(values: Mapping[str, Any], found: Mapping[str, SecretStr]) -> Mapping[str, Any]:
    """The configuration ``values`` with the secrets ``found``. It is for the program: nothing prints it."""
    if not found:
        return values
    return {
        **values,
        KEY: {**mapping(values.get(KEY)), **{name: each.get_secret_value() for name, each in found.items()}},
    }
