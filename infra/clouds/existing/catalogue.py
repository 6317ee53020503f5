"""What is known of the storage that clusters come with, and of their nodes' folders.

The facts are data, in ``infra/clouds/existing/data``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class S3Driver:
    """A CSI driver that mounts buckets: what it mounts them with, and what files of such a mount can do."""

    mount: str
    renames: bool
    appends: bool


@cache
def single_node_classes() -> Mapping[str, str]:
    """The StorageClasses whose file systems only one node can mount, each with the reason."""
    return {name: entry["why"] for entry in _load("storage_classes")["single_node"] for name in entry["classes"]}


def system_folder(path: str) -> str | None:
    """The system folder that the absolute ``path`` is or lies in, where no store may be; None for others."""
    folders = _system_folders()
    parts = PurePosixPath(path)
    inside = next((tree for tree in folders["trees"] if parts.is_relative_to(tree)), None)
    return inside or next((folder for folder in folders["parents"] if str(parts) == folder), None)


@cache
def _system_folders() -> Mapping[str, list[str]]:
    return _load("system_folders")


@cache
def s3_drivers() -> Mapping[str, S3Driver]:
    """CSI drivers for buckets, by name."""
    return {name: S3Driver(**entry) for name, entry in _load("s3_drivers").items()}


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
