"""Lay out what BuildKit needs: the context with its modes, the registry's login, and whether the image is there.

Started as ``python3 -m slipway.runtime.image_builds.prepare --context /context --work /work --reference
HOST/REPOSITORY:TAG`` before BuildKit, which alone runs with fewer guards: the login with which this
asks is made here.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from slipway.infra.container_registry import LoginError, RegistryError, find_digest, login_of, parts
from slipway.runtime.exits import BAD_INPUT, NO_NETWORK, OK, StepError, run, stop_on_sigterm

PUSHED = "pushed"
"""The file with the digest of an image that is there already."""

HELPER = "slipway"
"""What ``docker-credential-<…>`` is called that gives BuildKit a fresh token whenever it logs in."""

WITHOUT_MODULE = ("file", "none")
"""The logins that no module makes."""

PROPAGATION = 600
"""Seconds in which a new binding of an identity reaches every server of a cloud."""

PAUSE = 15.0


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code.

    Raises:
        StepError: with NO_NETWORK where the registry cannot be asked, with BAD_INPUT where the login is none.
    """
    options = _parse(arguments)
    stop_on_sigterm("the build was not prepared")
    host, _, _ = parts(options.reference)
    lay_out(options.context, options.work / "context", options.executable)
    digest = _digest(options, host)
    if digest is None:
        print(f"{options.reference} is not there yet: it is built now", flush=True)
    else:
        (options.work / PUSHED).write_text(digest, encoding="utf-8")
        print(f"{options.reference} is there as {digest}: nothing is built", flush=True)
    return OK


def lay_out(source: Path, target: Path, executable: Sequence[str] = ()) -> None:
    """Copy the files of a mounted ConfigMap, which are links there, with the modes that git would give them.

    All are of the same time, folders too, so that it is not the time of the copy that makes a layer another one.
    """
    target.mkdir(parents=True, exist_ok=True)
    for folder, below, names in os.walk(source, followlinks=True):
        if Path(folder) == source:
            # The kubelet keeps the real files in folders of such names, beside the links to them.
            below[:] = [name for name in below if not name.startswith("..")]
        for name in names:
            inside = (Path(folder) / name).relative_to(source)
            copy = target / inside
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(folder) / name, copy)
            copy.chmod(0o755 if inside.as_posix() in executable else 0o644)
            os.utime(copy, (0, 0))
    for place, _, _ in os.walk(target, topdown=False):
        Path(place).chmod(0o755)
        os.utime(place, (0, 0))


def _digest(options: argparse.Namespace, host: str) -> str | None:
    """The digest of the image, where it is there. Leaves the login for BuildKit in the folder ``docker``."""
    deadline = time.monotonic() + (options.patience if options.login not in WITHOUT_MODULE else 0)
    while True:
        try:
            login = _login(options, host)
            _write_login(options, host, login)
            return find_digest(options.reference, login)
        except RegistryError as error:
            if options.login == "file" and isinstance(error, LoginError):
                raise StepError(BAD_INPUT, str(error)) from error
            if time.monotonic() + PAUSE > deadline:
                raise StepError(NO_NETWORK, str(error)) from error
            print(f"{error}. The next try is in {PAUSE:.0f} s", flush=True)
        time.sleep(PAUSE)


def _login(options: argparse.Namespace, host: str) -> tuple[str, str] | None:
    if options.login == "none":
        return None
    if options.login == "file":
        try:
            configuration = Path(options.secret).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise LoginError(f"the secret with the registry's login cannot be read: {error}") from error
        return login_of(configuration, host)
    return importlib.import_module(options.login).login(options.region)


def _write_login(options: argparse.Namespace, host: str, login: tuple[str, str] | None) -> None:
    folder = options.work / "docker"
    folder.mkdir(exist_ok=True)
    file = folder / "config.json"
    if options.login == "file":
        shutil.copyfile(options.secret, file)
        return
    content: dict[str, object] = {}
    if program := _helper(options.login):
        content = {"credHelpers": {host: HELPER}}
        helper = folder / f"docker-credential-{HELPER}"
        shutil.copyfile(program, helper)
        helper.chmod(0o755)
    elif login:
        content = {"auths": {host: {"auth": base64.b64encode(":".join(login).encode()).decode()}}}
    file.write_text(json.dumps(content), encoding="utf-8")
    file.chmod(0o640)


def _helper(login: str) -> Path | None:
    """The program that makes a fresh login whenever BuildKit wants one; None where one lasts."""
    if login in WITHOUT_MODULE:
        return None
    module = importlib.import_module(login)
    return Path(str(module.__file__)).with_name(module.HELPER) if module.HELPER else None


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--context", type=Path, required=True, help="the mounted files")
    parser.add_argument("--work", type=Path, required=True, help="the folder that BuildKit reads")
    parser.add_argument("--reference", required=True, help="the image as host/repository:tag")
    parser.add_argument("--login", default="none", help="file, none, or the module that makes one")
    parser.add_argument("--region", default="", help="of the registry")
    parser.add_argument("--secret", default="", help="a Docker configuration, for file")
    parser.add_argument("--executable", action="append", default=[], help="a file that may be executed")
    parser.add_argument("--patience", type=float, default=PROPAGATION, help="seconds for a new identity")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
