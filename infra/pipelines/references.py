"""References in the words of a command: ``{output}``, ``{prepare}``, ``{trees}``; ``{{`` and ``}}`` are braces."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator

from infra.schema.problems import listed

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
