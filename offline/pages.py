"""Pages of the documentation that the project writes itself."""

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(page: Path, text: str, module: str, arguments: Sequence[str]) -> int:
    """Writes ``text`` to ``page``, or with ``--check`` says whether it is there; the exit status of ``module``."""
    if "--check" not in arguments:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page} is out of date; run: python -m {module}", file=sys.stderr)
    return 1
