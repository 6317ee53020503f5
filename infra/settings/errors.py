"""The one error that a wrong stack file gives: every problem at once, each with its key, value, reason and fix."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a stack file.

    ``key`` is the path as written in the file (``slipway:clusters.dev.pools.train.gpus``), ``value`` what stands
    there (None where nothing does), ``reason`` why it cannot be, ``fix`` what to write instead.
    """

    key: str
    value: object
    reason: str
    fix: str


class SettingsError(Exception):
    """Everything wrong with a stack's settings. Raised before any resource is declared."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self._text())

    def _text(self) -> str:
        count = len(self.problems)
        lines = [f"{count} problem{'s' if count != 1 else ''} in the stack's settings; nothing was created."]
        for problem in self.problems:
            value = "not set" if problem.value is None else _SHORT.repr(problem.value)
            lines.append(f"\n  {problem.key}: {value}")
            lines.append(f"    why: {problem.reason}")
            lines.append(f"    fix: {problem.fix}")
        return "\n".join(lines)
