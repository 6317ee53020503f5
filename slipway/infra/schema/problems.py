"""Problems of a stack file: what a check finds, how a place is written, and the one error that has them all."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slipway.infra.schema.secret_values import hidden, shown


# Invisible characters change what a terminal, a log or a page shows: colours, cursor movements, line breaks, the
# direction of reading. They are written as Python writes them, for example ``\x1b`` or ``\u202e``.
def printable(text: str) -> str:
    """``text`` on one line, with every character but the space escaped that Unicode counts as not printable.

    These are line breaks, control and format characters, lone surrogates, and spaces other than the ordinary one.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def printable_lines(text: str) -> str:
    """The same of a text of several lines, whose line breaks and tabs stay what they are."""
    return "\n".join(printable(line.expandtabs()) for line in re.split(r"\r?\n", text))


PREFIX = "slipway:"
"""What the keys of the settings begin with in a stack file, which has other keys for providers."""

Path = tuple[str | int, ...]
"""A place in the settings: keys of sections, and indexes of lists."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a stack file.

    ``key`` is the path as written in the file (``slipway:clusters.dev.pools.train.gpus``), ``value`` what stands
    there (None where nothing does), ``reason`` why it cannot be, ``fix`` what to write instead.
    """

    key: str
    value: object = field(repr=False)
    reason: str
    fix: str

    @property
    def shown(self) -> str:
        """The value for people: short, on one line, and without a secret."""
        return shown(self.key, self.value)


class SettingsError(Exception):
    """Everything wrong with a stack's settings. Raised before any resource is declared.

    The texts of its ``problems`` can be shown as they are; of a problem's value, that is `Problem.shown`.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(_fit_to_show(problem) for problem in problems)
        super().__init__(self._text())

    def _text(self) -> str:
        count = len(self.problems)
        lines = [f"{count} problem{'s' if count != 1 else ''} in the stack's settings; nothing was created."]
        for problem in self.problems:
            lines.append(f"\n  {problem.key}: {problem.shown}")
            lines.append(f"    why: {problem.reason}")
            lines.append(f"    fix: {problem.fix}")
        return "\n".join(lines)


def _fit_to_show(problem: Problem) -> Problem:
    """``problem`` without the secret that its reason or fix may quote, and with nothing that a terminal obeys."""

    def fit(text: str) -> str:
        return printable(hidden(text, problem.key, problem.value))

    return replace(problem, key=printable(problem.key), reason=fit(problem.reason), fix=fit(problem.fix))


@dataclass(frozen=True)
class Finding:
    """A problem at a place, with the other places that the check ``read``.

    A finding is dropped where one of those places, or its own, is already reported as unreadable: it would say
    the same mistake twice. So is one that rests on ``all_of`` a section, such as that it has no pool of some
    kind, where any part of that section is unreadable.
    """

    path: Path
    value: object = field(repr=False)
    reason: str
    fix: str
    read: tuple[Path, ...] = ()
    all_of: tuple[Path, ...] = ()

    def problem(self, prefix: str = PREFIX) -> Problem:
        """The problem with its key as a person would look for it in the file."""
        return Problem(key_of(self.path, prefix), self.value, self.reason, self.fix)


def without_prefix(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the values of a whole configuration, by their keys without `PREFIX`."""
    return {key.removeprefix(PREFIX): value for key, value in configuration.items() if key.startswith(PREFIX)}


def key_of(path: Sequence[str | int], prefix: str = PREFIX) -> str:
    """``slipway:clusters.dev.pools.train.zones[0]``; keys with other characters stand in brackets and quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return prefix + text if text else prefix.rstrip(":.")


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that ``word`` most likely abbreviates or misspells, or None where none is near."""
    words = list(known)
    # `nvidia-h100` is nearer to `nvidia-b200` than to `nvidia-h100-80gb`, of which it has every part.
    parts = set(str(word).lower().split("-"))
    longer = [word for word in words if parts <= set(word.split("-"))]
    if longer:
        return min(longer, key=len)
    matches = difflib.get_close_matches(str(word), words, n=5, cutoff=0.6)
    # `nvida-t4` is nearer to `nvidia-l4`, but the last part names the thing.
    last = str(word).lower().rpartition("-")[2]
    return next((match for match in matches if match.rpartition("-")[2] == last), matches[0] if matches else None)


def did_you_mean(word: object, known: Iterable[str], otherwise: str) -> str:
    """A fix that names the nearest known word, or ``otherwise`` where none is near."""
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else otherwise


def listed(words: Iterable[object], conjunction: str = "or") -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{word}`" for word in words]
    return f" {conjunction} ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
