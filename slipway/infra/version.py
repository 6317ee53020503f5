"""Which version of Slipway this is: of an installed package its metadata says it, of a checkout its tag.

The build asks here, too (``pyproject.toml``), so that a package and the checkout that it was built from agree. A
source distribution carries its version, and the build of a wheel from it asks nothing.
"""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path

from slipway.infra.places import DISTRIBUTION, GIT_OVERRIDES, LIBRARY

FIRST = "0.1.0"
"""The version that is worked on before anything is released."""

CHANGELOG = "CHANGELOG.md"
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\]", re.MULTILINE)
"""The heading of a release in `CHANGELOG`; the newest stands first."""

DESCRIBED = re.compile(r"v(\d+\.\d+\.\d+)-(\d+)-g[0-9a-f]+")
"""The nearest tag of a release, and how many commits it is behind, as `git describe --long` writes it."""

COMMIT_LENGTH = 10
"""Hexadecimal digits of the commit: git's own abbreviation is longer in a clone that has more."""


def version() -> str:
    """This version, as PEP 440 writes it. Raises `importlib.metadata.PackageNotFoundError` where the files were
    copied without their metadata."""
    if (LIBRARY / "pyproject.toml").is_file():
        return checkout_version(LIBRARY)
    return importlib.metadata.version(DISTRIBUTION)


def checkout_version(root: Path) -> str:
    """The version of the checkout at ``root``.

    A commit with the tag `v0.2.0` and no change is `0.2.0`; three commits later it is `0.2.1.dev3+g<commit>`, with
    `.dirty` behind it where files differ from the commit. Where no tag can be had (a shallow clone, one without
    tags, no git), the newest release in the changelog stands for it: `0.2.1.dev0+g<commit>`, or `+unknown`.
    """
    commit = git(root, "rev-parse", "HEAD") if (root / ".git").exists() else ""
    if not commit:
        return f"{_following(newest_release(root))}.dev0+unknown"
    dirty = ".dirty" if git(root, "status", "--porcelain") else ""
    local = f"g{commit[:COMMIT_LENGTH]}{dirty}"
    words = ("describe", "--tags", "--long", "--match=v[0-9]*", "--exclude=v*[!0-9.]*")
    described = DESCRIBED.fullmatch(git(root, *words))
    if described is None:
        return f"{_following(newest_release(root))}.dev0+{local}"
    release, distance = described[1], int(described[2])
    return release if not distance and not dirty else f"{_following(release)}.dev{distance}+{local}"


def newest_release(root: Path) -> str:
    """The newest release that the changelog has; nothing where there is none."""
    path = root / CHANGELOG
    newest = RELEASE.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return newest[1] if newest else ""


def _following(release: str) -> str:
    """The patch release behind ``release``, so that its development versions sort between the two."""
    if not release:
        return FIRST
    major, minor, patch = release.split(".")
    return f"{major}.{minor}.{int(patch) + 1}"


def git(root: Path, *words: str) -> str:
    """What git prints, or nothing where it fails or is not installed."""
    environment = {key: value for key, value in os.environ.items() if key not in GIT_OVERRIDES}
    command = ["git", "--no-optional-locks", "-C", str(root), *words]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
