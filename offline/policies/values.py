"""Looks into properties that may be unknown before an update, or hidden because they are secret."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from infra.review.unknown import Secret, Unknown
from offline.engine.stack_config import SECRET_PLACEHOLDER


def known(value: object) -> bool:
    """Whether nothing in ``value`` is left for the update to tell."""
    return not any(isinstance(leaf, Unknown) for _, leaf in leaves(value))


def hidden(value: object) -> bool:
    """Whether ``value`` stands for a secret."""
    return isinstance(value, Secret) or value == SECRET_PLACEHOLDER


def leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Everything in ``value`` that is neither a mapping nor a list, with its place: ``users[0].token``."""
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[Any, Any]", value).items():
            yield from leaves(each, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(cast("list[Any]", value)):
            yield from leaves(each, f"{place}[{index}]")
    else:
        yield place, value


def number(value: object) -> int | None:
    """``value`` where it is a whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
