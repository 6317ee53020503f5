"""Clones of the working tree, which tests change and compare with their first commit."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from slipway.command import pin_images
from slipway.infra.pipelines.images import DATA, IMAGES
from tests.support.checkout import ROOT, copy_checkout

GCP_DEV = "stacks/Pulumi.gcp-dev.yaml"
LOCAL = "stacks/Pulumi.local.yaml"


def bash(clone: Path, script: str, **variables: str) -> str:
    """What the script prints that is typed in the clone; fails where a command does."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "MAKE"))}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=clone,
        env={**kept, **variables},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def git(clone: Path, *arguments: str, code: int = 0) -> str:
    """What git says; fails where it ends with another code."""
    identity = ("user.name=A", "user.email=a@example.com", "init.defaultBranch=main")
    options = [word for setting in identity for word in ("-c", setting)]
    done = subprocess.run(["git", *options, *arguments], cwd=clone, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def python(clone: Path, *words: str, code: int = 0) -> str:
    """What Python says in the clone; fails where it ends with another code."""
    command = [str(ROOT / ".venv" / "bin" / "python"), *words]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def committed(target: Path) -> Path:
    """A clone of the working tree with one commit on main, once `make pin-images` was run."""
    clone = copy_checkout(target)
    pin_images.write(
        {image: digest or f"sha256:{'0' * 64}" for images in IMAGES.values() for image, digest in images.items()},
        clone / DATA.relative_to(ROOT),
    )
    git(clone, "init", "--quiet", "--initial-branch", "main")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "all")
    return clone


def edit(clone: Path, file: str, change: Callable[[str], str]) -> None:
    """Changes the text of a file."""
    before = (clone / file).read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    (clone / file).write_text(after, encoding="utf-8")


def configure(clone: Path, change: Callable[[dict[str, Any]], None], file: str = GCP_DEV) -> None:
    """Changes the settings in a stack file."""
    content = yaml.safe_load((clone / file).read_text(encoding="utf-8"))
    change(content["config"])
    (clone / file).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
