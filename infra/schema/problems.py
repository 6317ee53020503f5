"""The one error that a wrong stack file gives: every problem at once, each with its key, value, reason and fix."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.schema.printable import printable
from infra.schema.secret_values import hidden, shown


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
