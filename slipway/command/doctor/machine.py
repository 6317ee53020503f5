"""This machine: the Pulumi CLI, its plugins, and the Python packages, each against the pinned version."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name

from slipway.infra import pulumi_cli
from slipway.infra.pulumi_cli import CliError
from slipway.infra.review.facts import STACK, Observation, State, fine, unknown, wrong
from slipway.infra.review.stack import mapping, mappings, text
from slipway.infra.schema.requirement_files import read

CLI, LANGUAGE, PACKAGES = "Pulumi CLI", "Pulumi's Python host", "Python packages"

MOST_PACKAGES = 4
"""Packages that are named of those that are missing or of another version."""

FREEZE = "pip freeze > requirements.txt"

IGNORE_AMBIENT = "PULUMI_IGNORE_AMBIENT_PLUGINS"
"""Keeps the engine from providers on PATH (github.com/pulumi/pulumi v3.260, sdk/go/common/env)."""


def pins(requirements: Path) -> Mapping[str, str]:
    """The pinned version of each package that this Python needs, by its name; none where there is no such file."""
    if not requirements.is_file():
        return {}
    entries = read(requirements.read_text(encoding="utf-8")).entries
    return {entry.name: entry.version for entry in entries if entry.applies}


def pulumi_versions(requirements: Path) -> Mapping[str, str]:
    """The version of each package of Pulumi, by its name: as it is pinned, else as it is installed here."""
    installed = {canonicalize_name(package.name): package.version for package in metadata.distributions()}
    versions = {**installed, **pins(requirements)}
    return {name: version for name, version in versions.items() if name.partition("-")[0] == "pulumi"}


def packages(requirements: Path) -> Iterator[Observation]:
    """Whether all that the lock file has is installed where this program runs."""
    wanted = pins(requirements)
    if not wanted:
        yield unknown(PACKAGES, "are pinned nowhere: the project has no requirements.txt", FREEZE)
        return
    bad: list[str] = []
    for name, version in wanted.items():
        try:
            if (installed := metadata.version(name)) != version:
                bad.append(f"{name} {installed}, not {version}")
        except metadata.PackageNotFoundError:
            bad.append(f"{name} missing")
    if not bad:
        yield fine(PACKAGES, f"are the {len(wanted)} of requirements.txt")
        return
    more = f" and {len(bad) - MOST_PACKAGES} more" if len(bad) > MOST_PACKAGES else ""
    yield wrong(
        PACKAGES,
        f"are not those of requirements.txt: {'; '.join(bad[:MOST_PACKAGES])}{more}",
        f"{_install()} --require-hashes -r {shlex.quote(os.path.relpath(requirements))}",
    )


def _install() -> str:
    """What installs packages where this program runs, as it is typed in the current directory."""
    python = Path(sys.executable)
    uv, shown = python.with_name("uv"), shlex.quote(os.path.relpath(python))
    if not uv.exists():
        return f"{shown} -m pip install"
    return f"{shlex.quote(os.path.relpath(uv))} pip install --python {shown}"


def cli(wanted: str) -> Iterator[Observation]:
    """The Pulumi CLI and what runs Python programs for it."""
    install = f"curl -fsSL https://get.pulumi.com | sh -s -- --version {wanted}"
    program = shutil.which("pulumi")
    if program is None:
        yield wrong(CLI, "is not on PATH", install)
        return
    try:
        version = pulumi_cli.run("version").strip().removeprefix("v")
    except CliError as error:
        yield wrong(CLI, f"{program} does not say its version: {error}", install)
        return
    if version == wanted:
        yield fine(CLI, f"is {version}")
    else:
        yield wrong(CLI, f"is {version}, and the programs here use {wanted}", install)
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
            path.name.rpartition("-v")[2] for path in folder.glob(f"resource-{name}-v*") if path.is_dir()
        )
        has = f"; there is {', '.join(others)}" if others else ""
        yield wrong(
            subject,
            f"{version} is not in {_home(folder)}{has}; `pulumi up` downloads it first, where it may",
            f"pulumi plugin install resource {name} {version}",
        )


def _home(path: Path) -> str:
    return str(path).replace(str(Path.home()), "~", 1)


BACKEND, STACKS, SECRETS = "state backend", "stack", "secrets of the stack"

LOGIN = "pulumi login"
PASSPHRASE = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
TOKEN = "PULUMI_ACCESS_TOKEN"


@dataclass(frozen=True)
class Backend:
    """``url`` is where the state is kept; empty where nobody chose. ``said_by`` says who did."""

    url: str
    said_by: str

    @property
    def hosted(self) -> bool:
        """Whether it is Pulumi Cloud, or a service like it, which has a key for each stack."""
        return self.url.startswith(("https://", "http://"))

    @property
    def folder(self) -> Path | None:
        """The folder of a backend on this machine."""
        if not self.url.startswith("file://"):
            return None
        return Path(self.url.removeprefix("file://")).expanduser() / ".pulumi"


def choose_backend(root: Path) -> Backend:
    """The backend as the CLI chooses it: the environment, the project, then the last login.

    Source: github.com/pulumi/pulumi v3.260, pkg/workspace (``GetCurrentCloudURL``).
    """
    if url := os.environ.get("PULUMI_BACKEND_URL"):
        return Backend(url, "PULUMI_BACKEND_URL")
    if url := text(mapping(_project(root).get("backend")).get("url")):
        return Backend(url, "Pulumi.yaml")
    if url := text(_credentials().get("current")):
        return Backend(url, "the last login")
    return Backend("https://api.pulumi.com", TOKEN) if os.environ.get(TOKEN) else Backend("", "")


def _credentials() -> Mapping[str, Any]:
    folder = os.environ.get("PULUMI_CREDENTIALS_PATH") or os.environ.get("PULUMI_HOME") or "~/.pulumi"
    try:
        return mapping(json.loads((Path(folder).expanduser() / "credentials.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def check(root: Path, stacks: Sequence[str]) -> Mapping[str, Sequence[Observation]]:
    """What there is to say of the backend, by stack."""
    backend = choose_backend(root)
    if not backend.url:
        missing = wrong(BACKEND, "is not chosen: nobody has signed in on this machine", LOGIN)
        rest = unknown(STACKS, "may be there or not: no state backend is chosen")
        return {name: [missing, rest, *_secrets(name, backend, root)] for name in stacks}
    login = _login(backend)
    names: set[str] | None = None
    why = "the state backend could not be asked"
    if login.state is not State.WRONG:
        try:
            names = _stacks_in(backend, root)
        except CliError as error:
            why = str(error)
    return {name: [login, _stack(name, names, why), *_secrets(name, backend, root)] for name in stacks}


def _login(backend: Backend) -> Observation:
    source = f"is {backend.url}, which {backend.said_by} names"
    if backend.folder is not None:
        if backend.folder.parent.is_dir():
            return fine(BACKEND, source)
        return wrong(BACKEND, f"{source}, and that folder is not there", f"mkdir -p {backend.folder.parent}")
    token = os.environ.get(TOKEN) or mapping(_credentials().get("accessTokens")).get(backend.url)
    if backend.hosted and not token:
        return wrong(BACKEND, f"{source}, and nobody has signed in to it", f"{LOGIN} {backend.url}")
    if not shutil.which("pulumi"):
        return unknown(BACKEND, f"{source}; without the CLI nobody can say whether the sign-in still holds")
    try:
        return fine(BACKEND, f"{source}, signed in as {pulumi_cli.run('whoami').strip()}")
    except CliError as error:
        return wrong(BACKEND, f"{source}, and the sign-in fails: {error}", f"{LOGIN} {backend.url}")


def _stacks_in(backend: Backend, root: Path) -> set[str] | None:
    """The names of the project's stacks in the backend; None where nobody can tell. Raises CliError."""
    if shutil.which("pulumi"):
        stacks: Any = json.loads(pulumi_cli.run("stack", "ls", "--json") or "[]")
        return {text(stack.get("name")).rpartition("/")[2] for stack in mappings(stacks)}
    if backend.folder is not None:
        # Since version 1 of the layout by project (pkg/backend/diy/meta.go, Pulumi 3.260).
        folder = backend.folder / "stacks" / text(_project(root).get("name"))
        return {path.name.partition(".json")[0] for path in folder.glob("*.json*")}
    return None


def _project(root: Path) -> Mapping[str, Any]:
    return mapping(yaml.safe_load((root / "Pulumi.yaml").read_text(encoding="utf-8")))


def _stack(name: str, names: set[str] | None, why: str) -> Observation:
    if names is None:
        return unknown(STACKS, f"may be there or not: {why}")
    if name in names:
        return fine(STACKS, "is in the state backend")
    return wrong(STACKS, "is not in the state backend yet", f"pulumi stack init {STACK}")


def _secrets(name: str, backend: Backend, root: Path) -> Iterator[Observation]:
    """What opens the stack's encrypted configuration and state.

    Source: https://www.pulumi.com/docs/iac/concepts/secrets/, "Configuring secrets encryption", November 2026.
    """
    file = root / "stacks" / f"Pulumi.{name}.yaml"
    try:
        content = mapping(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError):
        return
    provider = text(content.get("secretsprovider"))
    if provider and provider not in {"passphrase", "default"}:
        yield unknown(SECRETS, f"are opened by {provider}, which only `pulumi up` asks")
        return
    by_passphrase = "encryptionsalt" in content or provider == "passphrase"
    if not by_passphrase and (backend.hosted or not backend.url):
        return
    if any(variable in os.environ for variable in PASSPHRASE):
        path = os.environ.get(PASSPHRASE[1])
        if path and PASSPHRASE[0] not in os.environ and not Path(path).is_file():
            yield wrong(SECRETS, f"need a passphrase, and {PASSPHRASE[1]} names no file: {path}", f"ls -l {path}")
        else:
            yield fine(SECRETS, "are opened by a passphrase of the environment, which was not tried")
    else:
        yield wrong(
            SECRETS,
            "need a passphrase, and the environment has none: the CLI asks for it each time, and fails without a "
            "terminal",
            f"export {PASSPHRASE[1]}=<a file with the passphrase>",
        )
