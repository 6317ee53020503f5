"""Typed looks into plain values: properties of resources, Kubernetes objects, settings, JSON files.

Keys may be missing, and values may have any type. `Unknown`, `Partial` and `Secret` stand in for values that only
an update can tell, and for secret ones.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

Properties = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Unknown:
    """A property's value that only an update can tell; all of them count as equal.

    ``source`` says which output it is, where that is known: ``store.projectNumber``.
    """

    source: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    def __hash__(self) -> int:
        return hash(Unknown)

    def __repr__(self) -> str:
        return f"[{self.source or 'unknown'}]"


UNKNOWN = Unknown()
"""An unknown value whose source is not known."""


class Partial(str):
    """A text that is known but for what only an update can tell, which stands in it as ``[resource.property]``."""

    __slots__ = ()


def unknown(value: object) -> bool:
    """Whether only an update can tell all of ``value``."""
    return isinstance(value, Unknown | Partial) or (isinstance(value, Secret) and value.partial)


@dataclass(frozen=True)
class Secret:
    """Stands for a secret value. Two are equal where their values are, as far as ``digest`` tells.

    The digest is keyed, with a key that no run of the preview keeps, so nothing can be guessed from it.
    ``partial`` says that only an update can tell a part of the value.
    """

    digest: str
    partial: bool = False

    def __repr__(self) -> str:
        return "[secret]"


def at(properties: object, *path: str) -> Any:
    """The value at ``path``: None where there is none, `UNKNOWN` where it or anything on the way is."""
    value = properties
    for key in path:
        if isinstance(value, Unknown):
            return UNKNOWN
        value = cast("Properties", value).get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: object) -> Properties:
    """``value`` where it is a mapping, else an empty one."""
    return cast("Properties", value) if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """The elements of a list; none for anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def mappings(value: object) -> list[Properties]:
    """The mappings in a list; none for anything else."""
    return [cast("Properties", each) for each in items(value) if isinstance(each, Mapping)]


def text(value: object) -> str:
    """A text; empty for anything else."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    """The texts in a list, or a single one; none for anything else."""
    return [value] if isinstance(value, str) else [each for each in items(value) if isinstance(each, str)]


def strings(value: object) -> dict[str, str]:
    """A mapping of texts, such as labels, without those that are not known."""
    return {str(key): str(each) for key, each in mapping(value).items() if not isinstance(each, Unknown)}


def whole(value: object, otherwise: int = 0) -> int:
    """A whole number, also where it is written as a float or a text; ``otherwise`` for anything else."""
    if isinstance(value, bool):
        return otherwise
    if isinstance(value, int | float):
        return int(value)
    return int(value) if isinstance(value, str) and value.strip().isdigit() else otherwise


def is_true(value: object) -> bool:
    """Whether a flag is set, as a boolean or as the text that some APIs use."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def number(value: object) -> int | None:
    """``value`` if it is a whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def json_document(value: object) -> Any:
    """The mapping or list in a text that is JSON, such as a policy; None for anything else."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None


def leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Every value in ``value`` that is neither a mapping nor a list, with its place: ``users[0].token``."""
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[Any, Any]", value).items():
            yield from leaves(each, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(cast("list[Any]", value)):
            yield from leaves(each, f"{place}[{index}]")
    else:
        yield place, value


def known(value: object) -> bool:
    """Whether ``value`` has no part that only an update can tell."""
    return not any(isinstance(leaf, Unknown) for _, leaf in leaves(value))
