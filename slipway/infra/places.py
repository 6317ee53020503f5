"""Where files are: those of the package ``slipway``, and those of the project that uses it.

A project is a folder with a ``Pulumi.yaml``, stack files and pipelines. This repository is one, beside having the
package. The standard library is enough here, so that commands can name places before they import the rest.
"""

import os
from pathlib import Path

import slipway

PACKAGE = "slipway"
"""The package, and what paths of its files begin with, on this machine and in pods."""

DISTRIBUTION = "slipway-ml"
"""The package by its name in an index. PyPI has `slipway` of another project (0.14.0, seen 2026-11-26)."""

LIBRARY = Path(slipway.__file__).resolve().parents[1]
"""The folder that has the package: this repository, or where the package is installed."""

PROJECT_FILE = "Pulumi.yaml"


def _project(folder: Path) -> Path:
    """The nearest folder with a project at or above ``folder``; ``folder`` itself where there is none."""
    return next((place for place in (folder, *folder.parents) if (place / PROJECT_FILE).is_file()), folder)


PROJECT = _project(Path.cwd())
"""The project in which this process was started."""


def base_of(path: str, root: Path) -> Path:
    """What ``path`` is relative to: `LIBRARY` where it is one of the package's files, else the project
    ``root``."""
    return LIBRARY if path.partition("/")[0] == PACKAGE else root


def located(path: str, root: Path) -> Path:
    """The file at ``path``, of the package or of the project at ``root``."""
    return base_of(path, root) / path


_FILES = f"{LIBRARY / PACKAGE}{os.sep}"


def in_package(file: str) -> bool:
    """Whether the absolute path ``file`` is one of the package's."""
    return file.startswith(_FILES)


VARIABLE = "SLIPWAY_CHECKOUT"
"""The environment variable with the root of the user's checkout, while another revision runs from a temporary
folder."""

GIT_OVERRIDES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""Environment variables by which git tells its hooks which checkout they run in, where another one is meant."""


def checkout(root: Path) -> Path:
    """The user's checkout, which is ``root`` itself, unless that is another revision."""
    return Path(os.environ.get(VARIABLE) or root)
