"""What is told of an error of the program: its message and the line of the project where it was raised."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from offline.evaluation.encoding import SECRET

TRACEBACK = "_slipway_traceback"
"""The attribute of an error that keeps its traceback, because asyncio drops it."""


def described(error: BaseException, tree: Path, shown: Callable[[str], str]) -> dict[str, Any]:
    """The error as JSON. ``shown`` is applied to each text, to hide secrets and paths."""
    if type(error).__name__ == "EvaluationError" and error.__cause__ is not None:
        error = error.__cause__
    problems: Sequence[Any] = getattr(error, "problems", ())
    return {
        "kind": type(error).__name__,
        "message": shown(message(error)),
        "where": "" if problems else where(error, tree),
        "problems": [
            # Revisions from before `shown` do not know which values are secrets.
            {"value": shown(getattr(each, "shown", SECRET))}
            | {key: shown(getattr(each, key)) for key in ("key", "reason", "fix")}
            for each in problems
        ],
    }


def message(error: BaseException) -> str:
    """The error's text, after the name of its class unless that is one of the project's own."""
    ours = type(error).__module__.startswith(("infra.", "offline.", "stacks.", "workloads."))
    # Python's text of a syntax error repeats the place, which `where` tells.
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text if ours else f"{type(error).__name__}: {text}"


def where(error: BaseException, tree: Path) -> str:
    """The innermost line of ``tree``'s code outside the engine (``infra/step.py:12``); empty if there is none."""
    chain = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None and below not in chain:
        chain.append(below)
    for each in reversed(chain):
        if isinstance(each, SyntaxError) and each.filename and Path(each.filename).is_relative_to(tree):
            return f"{Path(each.filename).relative_to(tree)}:{each.lineno}"
        for frame in reversed(traceback.extract_tb(getattr(each, TRACEBACK, each.__traceback__))):
            if Path(frame.filename).is_relative_to(tree):
                path = Path(frame.filename).relative_to(tree)
                if not _of_engine(path):
                    return f"{path}:{frame.lineno}"
    return ""


def _of_engine(path: Path) -> bool:
    """Whether the file is installed, or evaluates the program; until November 2026 ``stacks`` held both."""
    return path.parts[0] in {"offline", ".venv"} or (path.parts[0] == "stacks" and path.name != "program.py")
