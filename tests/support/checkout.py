"""A copy of the working tree, as a new clone would have it."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.rehearse.machine.environments import ENVIRONMENTS
from tests.support.tree import write_tree

ROOT = Path(__file__).parents[2]


def copy_checkout(target: Path) -> Path:
    """Copies every file that git tracks or would track, and lends the copy this environment and those of steps."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    (target / ".venv").symlink_to(ROOT / ".venv")
    (target / ENVIRONMENTS).parent.mkdir()
    (target / ENVIRONMENTS).symlink_to(ROOT / ENVIRONMENTS)
    return target


def linked_checkout(target: Path, stacks: Mapping[str, Mapping[str, Any]]) -> Path:
    """The repository at ``target``, by links to its folders, with stacks of these settings in place of its own."""
    target.mkdir(exist_ok=True)
    for name in ("infra", "slipway", "workloads", "Pulumi.yaml", "__main__.py"):
        (target / name).symlink_to(ROOT / name)
    contents = {
        f"stacks/Pulumi.{name}.yaml": json.dumps({"config": {f"slipway:{key}": settings[key] for key in settings}})
        for name, settings in stacks.items()
    }
    return write_tree(target, contents)
