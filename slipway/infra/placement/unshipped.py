"""Files of a pipeline's folders of code that none of its steps and apps ships."""

import os
from collections.abc import Iterator
from pathlib import Path

from slipway.infra.kubernetes.shipping.code_folder import DECLARATIONS, ENVIRONMENT_MARK, code_files
from slipway.infra.kubernetes.shipping.sizes import ShippingError
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.placement.shipping import command_of, substitute_of

_TOOLS = {
    *(
        ".dockerignore",
        ".git",
        ".gitignore",
        ".gitattributes",
        ".gitkeep",
        ".gitmodules",
        ".DS_Store",
        ".idea",
        ".vscode",
    ),
    *("__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox"),
}
"""What version control, editors and Python leave in a folder, which no program of a step reads."""

_SHOWN = 5


def unshipped(pipeline: DeclaredPipeline, root: Path) -> Iterator[tuple[str, list[str]]]:
    """The folders of code with such files, each with the paths of these.

    Files of tools are left out, and so are folders that an image is built of.
    """
    beside = [*pipeline.steps, *pipeline.services, *pipeline.apps]
    shipped: dict[str, set[str]] = {}
    for declared in (*pipeline.steps, *pipeline.apps):
        if declared.command is not None:
            try:
                files = code_files(command_of(declared, beside, root), declared.arguments)
            except (ShippingError, OSError):
                return
            shipped.setdefault(declared.command.code, set()).update(files.contents)
    # A rehearsal starts it from the folder itself.
    substitutes = [substitute_of(declared) for declared in beside]
    instead = {word for substitute in substitutes if substitute for word in substitute.run}
    # What an image is built of has its files, whoever starts them there.
    contexts = [root / declared.build.context for declared in beside if declared.build]
    for code, paths in shipped.items():
        if any((root / code).is_relative_to(context) for context in contexts):
            continue
        if left := sorted(set(_files(root / code)) - paths - instead):
            yield code, left


def remark(key: str, code: str, paths: list[str]) -> str:
    """A sentence about files of the folder ``code`` that no step of the pipeline at ``key`` ships."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return (
        f"{key}: no step ships {', '.join(paths[:_SHOWN])}{more} of {code}: hidden files, and Python files that "
        "none imports, ship where `files` of a step names them"
    )


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files below ``folder``, but for those of tools, environments and declarations."""
    for place, folders, names in os.walk(folder):
        if ENVIRONMENT_MARK in names:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in _TOOLS]
        at_top = Path(place) == folder
        for name in names:
            path = (Path(place) / name).relative_to(folder)
            if name in _TOOLS or (at_top and any(path.match(pattern) for pattern in DECLARATIONS)):
                continue
            if name.endswith(".py") or any(part.startswith(".") for part in path.parts):
                yield path.as_posix()
