"""The starting notebook: a Python file in cells, turned into a notebook.

As a Python file it is checked like all others. The format is that of Jupytext and of editors: `# %%` begins a cell
of code, `# %% [markdown]` one of text whose lines are comments.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # What ships is found by its imports; running it is the kernel's business.
    import slipway.workloads.apps.notebook.start  # noqa: F401

_MARK = re.compile(r"# %%(?: \[(?P<kind>markdown)\])?\s*")


def starting_notebook() -> str:
    """The starting notebook as a file of format 4.5 (nbformat.readthedocs.io/en/latest/format_description.html,
    seen November 2026)."""
    source = Path(__file__).with_name("start.py").read_text(encoding="utf-8")
    return notebook(source)


def notebook(source: str) -> str:
    """A Python file in cells as a notebook. What stands before the first mark is not part of it."""
    content = {
        "cells": list(_cells(source)),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cells(source: str) -> Iterator[dict[str, Any]]:
    kind: str | None = None
    lines: list[str] = []
    for line in [*source.splitlines(), "# %%"]:
        mark = _MARK.fullmatch(line)
        if mark is None:
            lines.append(line)
            continue
        if kind is not None:
            yield _cell(kind, lines)
        kind, lines = mark["kind"] or "code", []


def _cell(kind: str, lines: list[str]) -> dict[str, Any]:
    if kind == "markdown":
        lines = [re.sub(r"^# ?", "", line) for line in lines]
    text = "\n".join(lines).strip("\n")
    # The same text has the same id each time: a notebook that differs in nothing has no difference.
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": hashlib.sha256(text.encode()).hexdigest()[:8],
        "metadata": {},
        "source": text,
    }
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}
