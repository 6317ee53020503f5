"""This machine: the Pulumi CLI, its plugins, and the Python packages, each against the pinned version."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from infra.review.observation import Observation, fine, wrong
from infra.review.properties import mapping

CLI, LANGUAGE, PACKAGES = "Pulumi CLI", "Pulumi's Python host", "Python packages"

SECONDS = 30
"""Most that one command of the Pulumi CLI may take."""

SHOWN = 4

IGNORE_AMBIENT = "PULUMI_IGNORE_AMBIENT_PLUGINS"
"""Keeps the engine from providers on PATH (github.com/pulumi/pulumi v3.260, sdk/go/common/env)."""


class CliError(Exception):
    """A command of the Pulumi CLI failed; the text has its own words."""


def pulumi(*arguments: str, root: Path) -> str:
    """What a command of the CLI prints that changes nothing. Raises CliError."""
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            check=False,
            capture_output=True,
            text=True,
            cwd=root,
            env=environment,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise CliError(f"no answer within {SECONDS} s") from error
    except OSError as error:
        raise CliError(f"it cannot be started: {error.strerror}") from error
    if done.returncode:
        raise CliError(" ".join(done.stderr.split()).removeprefix("error: ") or f"exit code {done.returncode}")
    return done.stdout


def pins(requirements: Path) -> Mapping[str, str]:
    """The pinned version of each package that this Python needs, by its name."""
    found: dict[str, str] = {}
    for line in requirements.read_text(encoding="utf-8").splitlines():
        if not re.match(r"[A-Za-z0-9]", line):
            continue
        try:
            requirement = Requirement(line.rstrip("\\ "))
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate():
            found[requirement.name] = str(requirement.specifier).removeprefix("==")
    return found


def packages(requirements: Path) -> Iterator[Observation]:
    """Whether all that the lock file has is installed where this program runs."""
    wanted = pins(requirements)
    there = {name: _installed(name) for name in wanted}
    lacking = [
        f"{name} {each or 'missing'}{f', not {wanted[name]}' if each else ''}"
        for name, each in there.items()
        if each != wanted[name]
    ]
    if not lacking:
        yield fine(PACKAGES, f"are the {len(wanted)} of requirements.txt")
        return
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    yield wrong(
        PACKAGES,
        f"are not those of requirements.txt: {'; '.join(lacking[:SHOWN])}{more}",
        ".venv/bin/uv pip install --python .venv/bin/python --require-hashes -r requirements.txt",
    )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cli(wanted: str, root: Path) -> Iterator[Observation]:
    """The Pulumi CLI and what runs Python programs for it."""
    install = f"curl -fsSL https://get.pulumi.com | sh -s -- --version {wanted}"
    found = shutil.which("pulumi")
    if found is None:
        yield wrong(CLI, "is not on PATH", install)
        return
    try:
        version = pulumi("version", root=root).strip().removeprefix("v")
    except CliError as error:
        yield wrong(CLI, f"{found} does not say its version: {error}", install)
        return
    if version == wanted:
        yield fine(CLI, f"is {version}")
    else:
        yield wrong(CLI, f"is {version}, and the programs here are pinned to {wanted}", install)
    if shutil.which("pulumi-language-python"):
        yield fine(LANGUAGE, "is on PATH")
    else:
        yield wrong(LANGUAGE, "is not on PATH: the CLI starts no Python program without it", install)


def plugins(used: Iterable[str], wanted: Mapping[str, str]) -> Iterator[Observation]:
    """The provider plugins of the Pulumi packages that a stack ``used``, against the versions of their SDKs.

    They lie in folders of the CLI's home, ``resource-<name>-v<version>``; one that is half downloaded has a file
    ``….partial`` beside it (github.com/pulumi/pulumi v3.260, sdk/go/common/workspace/plugins.go).
    """
    folder = Path(os.environ.get("PULUMI_HOME") or Path("~/.pulumi").expanduser()) / "plugins"
    for name in sorted(used):
        version = wanted.get(f"pulumi-{name}")
        if version is None:
            continue
        subject = f"plugin {name}"
        ambient = shutil.which(f"pulumi-resource-{name}")
        if ambient and os.environ.get(IGNORE_AMBIENT, "").lower() not in {"1", "true"}:
            yield wrong(
                subject,
                f"on PATH is used in place of the pinned {version}, whatever its version: {ambient}",
                f"export {IGNORE_AMBIENT}=true",
            )
        plugin = folder / f"resource-{name}-v{version}"
        if plugin.is_dir() and not plugin.with_name(f"{plugin.name}.partial").exists():
            yield fine(subject, f"is {version}")
            continue
        others = sorted(
            each.name.rpartition("-v")[2] for each in folder.glob(f"resource-{name}-v*") if each.is_dir()
        )
        has = f"; there is {', '.join(others)}" if others else ""
        yield wrong(
            subject,
            f"{version} is not in {_home(folder)}{has}; `pulumi up` downloads it first, where it may",
            f"pulumi plugin install resource {name} {version}",
        )


def _home(path: Path) -> str:
    return str(path).replace(str(Path.home()), "~", 1)


def outputs(stack: str, root: Path) -> Mapping[str, Any]:
    """The outputs of a stack's last update. Raises CliError."""
    return mapping(json.loads(pulumi("stack", "output", "--json", "--stack", stack, root=root) or "{}"))
