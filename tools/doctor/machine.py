"""This machine: the Pulumi CLI, its plugins, and the Python packages, each against the pinned version."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import InvalidRequirement, Requirement

from infra.review.facts import STACK, Observation, fine, unknown, wrong
from infra.review.stack import mapping, mappings, text

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


def outputs(stack: str, root: Path) -> Mapping[str, Any]:
    """The outputs of a stack's last update. Raises CliError."""
    return mapping(json.loads(pulumi("stack", "output", "--json", "--stack", stack, root=root) or "{}"))


# Where the stacks' state is kept: chosen, signed in to, the stack made there, and its secrets within reach.


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


def chosen(root: Path) -> Backend:
    """The backend as the CLI chooses it: the environment, the project, then the last login.

    Source: github.com/pulumi/pulumi v3.260, pkg/workspace (``GetCurrentCloudURL``).
    """
    if url := os.environ.get("PULUMI_BACKEND_URL"):
        return Backend(url, "PULUMI_BACKEND_URL")
    project = mapping(yaml.safe_load((root / "Pulumi.yaml").read_text(encoding="utf-8")))
    if url := text(mapping(project.get("backend")).get("url")):
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
    """What is found of the backend, by stack."""
    backend = chosen(root)
    if not backend.url:
        said = wrong(BACKEND, "is not chosen: nobody has signed in on this machine", LOGIN)
        rest = unknown(STACKS, "may be there or not: no state backend is chosen")
        return {name: [said, rest, *_secrets(name, backend, root)] for name in stacks}
    login = list(_login(backend, root))
    there: set[str] | None = None
    why = ""
    if not any(each.state == "wrong" for each in login):
        try:
            there = _there(backend, root)
        except CliError as error:
            why = str(error)
    return {name: [*login, _stack(name, there, why), *_secrets(name, backend, root)] for name in stacks}


def _login(backend: Backend, root: Path) -> Iterator[Observation]:
    named = f"is {backend.url}, which {backend.said_by} names"
    if backend.folder is not None:
        if backend.folder.parent.is_dir():
            yield fine(BACKEND, named)
        else:
            yield wrong(BACKEND, f"{named}, and that folder is not there", f"mkdir -p {backend.folder.parent}")
        return
    if backend.hosted and not (os.environ.get(TOKEN) or _token(backend)):
        yield wrong(BACKEND, f"{named}, and nobody has signed in to it", f"pulumi login {backend.url}")
        return
    if not shutil.which("pulumi"):
        yield unknown(BACKEND, f"{named}; without the CLI nobody can say whether the sign-in still holds")
        return
    try:
        who = pulumi("whoami", root=root).strip()
    except CliError as error:
        yield wrong(BACKEND, f"{named}, and the sign-in fails: {error}", f"pulumi login {backend.url}")
    else:
        yield fine(BACKEND, f"{named}, signed in as {who}")


def _token(backend: Backend) -> str:
    return text(mapping(_credentials().get("accessTokens")).get(backend.url))


def _there(backend: Backend, root: Path) -> set[str] | None:
    """The names of the project's stacks in the backend; None where nobody can tell. Raises CliError."""
    if shutil.which("pulumi"):
        listed: Any = json.loads(pulumi("stack", "ls", "--json", root=root) or "[]")
        return {text(each.get("name")).rpartition("/")[2] for each in mappings(listed)}
    if backend.folder is not None:
        project = text(mapping(yaml.safe_load((root / "Pulumi.yaml").read_text(encoding="utf-8"))).get("name"))
        # Since version 1 of the layout by project (pkg/backend/diy/meta.go, Pulumi 3.260).
        return {path.name.partition(".json")[0] for path in (backend.folder / "stacks" / project).glob("*.json*")}
    return None


def _stack(name: str, there: set[str] | None, why: str) -> Observation:
    if there is None:
        return unknown(STACKS, f"may be there or not: {why or 'the state backend could not be asked'}")
    if name in there:
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
    if any(each in os.environ for each in PASSPHRASE):
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
