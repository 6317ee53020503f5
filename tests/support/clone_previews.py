"""What a preview says of the working tree of a clone, without a process of its own for what it says.

`tests.preview.test_cli` has that the command says the same to the byte.
"""

import io
from datetime import date
from pathlib import Path

from rich.console import Console

from slipway.command.verbs.previews import Format
from slipway.engine.stack_config import load_stack
from slipway.evaluated.model import Preview, document
from slipway.preview.build import Options, build
from slipway.preview.cli import WIDTH
from slipway.preview.markdown import comment
from slipway.preview.revisions import Evaluations, check_out, evaluate_trees
from slipway.preview.terminal import show

TODAY = date(2026, 11, 18)


def build_preview(evaluations: Evaluations, clone: Path) -> Preview:
    """The preview of these stacks of a clone."""
    return build(evaluations, Options(TODAY, lambda name: load_stack(name, clone).values, "main (0123456789)"))


def preview_clone(clone: Path, *stacks: str, base: str = "main") -> Preview:
    """The preview of these stacks of a clone, all without; both trees are evaluated by their own code."""
    with check_out(clone, base) as checkout:
        return build_preview(evaluate_trees(clone, checkout.path, stacks), clone)


def said(preview: Preview, format: Format = Format.TEXT) -> str:
    """What a preview prints where its output is no terminal."""
    if format is Format.TEXT:
        console = Console(file=io.StringIO(), highlight=False, width=WIDTH)
        show(preview, console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()
    return comment(preview) if format is Format.MARKDOWN else document(preview)
