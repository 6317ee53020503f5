"""Install the Python packages that an image lacks, into a directory that goes on PYTHONPATH.

Does nothing where every package is importable at exactly its pinned version already. Run as `python -m
slipway.runtime.steps.packages --requirements workloads/mnist/requirements.txt --target /packages`. Needs
pip.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from slipway.runtime.exits import BAD_INPUT, INSTALL_FAILED, OK, StepError, run, stop_on_sigterm
from slipway.runtime.parts import PACKAGES, timed
from slipway.runtime.store import StoreError, explain

INSTALLED_MARK = ".slipway-installed"


@timed(PACKAGES)
def main(arguments: list[str] | None = None) -> int:
    """Run the installation; returns the exit code.

    Raises:
        StepError: BAD_INPUT for a requirements file that cannot be used, INSTALL_FAILED where pip fails or is not
            there, STORE_TROUBLE where the target cannot be written.
    """
    options = _parse(arguments)
    stop_on_sigterm("the same command starts over")
    pinned = read_requirements(options.requirements)
    lacking = missing(pinned, [])
    if not lacking:
        print(f"Nothing to install: all {len(pinned)} packages are here at their pinned versions")
        return OK
    target: Path = options.target
    if (target / INSTALLED_MARK).exists() and not missing(pinned, [str(target)]):
        print(f"Nothing to install: all {len(pinned)} packages are in {target} at their pinned versions")
        return OK
    print(f"Installing {len(pinned)} packages into {target}; lacking here: {', '.join(lacking)}", flush=True)
    try:
        install(options.requirements, target)
    except OSError as error:
        raise StoreError(f"{error.filename or target}: {explain(error)}") from error
    lacking = missing(pinned, [str(target)])
    if lacking:
        raise StepError(INSTALL_FAILED, f"pip ended well, but {target} lacks {', '.join(lacking)}")
    print(f"Installed {len(pinned)} packages into {target}")
    return OK


def read_requirements(path: Path) -> dict[str, str]:
    """The pinned version of each package of a requirements file whose environment marker holds here.

    Raises:
        StepError: with BAD_INPUT where the file cannot be read, or a line is not `name==version` with a hash;
            INSTALL_FAILED where there is neither `packaging` nor pip, which has a copy of it.
    """
    if importlib.util.find_spec("packaging") is None:
        require_pip()
        for module in ("packaging", "packaging.requirements"):
            sys.modules[module] = importlib.import_module(f"pip._vendor.{module}")
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StepError(BAD_INPUT, f"{path} cannot be read: {error}") from error
    pinned = {}
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        content = re.split(r"(?:^|\s)#", line)[0].strip()
        if not content:
            continue
        name_part, *hashes = re.split(r"\s--hash=", content)
        try:
            requirement = Requirement(name_part.strip())
        except InvalidRequirement as error:
            raise StepError(BAD_INPUT, f"{path}: {name_part.strip()!r} is not a requirement: {error}") from error
        versions = [pin.version for pin in requirement.specifier if pin.operator == "=="]
        if not hashes or len(versions) != 1 or len(requirement.specifier) != 1:
            raise StepError(BAD_INPUT, f"{path}: {requirement} needs one ==version and at least one --hash")
        if requirement.marker is None or requirement.marker.evaluate():
            pinned[requirement.name] = versions[0]
    return pinned


def missing(pinned: dict[str, str], path: list[str]) -> list[str]:
    """The packages of `pinned` (name: version) that are not there at that version, each with what is there
    instead.

    `path` has directories to look into; the module search path of this process where it is empty.
    """
    lacking = []
    for name, version in pinned.items():
        versions = _versions(name, path)
        if version not in versions:
            lacking.append(f"{name}=={version}" + (f" (here: {', '.join(versions)})" if versions else ""))
    return lacking


def _versions(name: str, path: list[str]) -> list[str]:
    """Versions found; on the module search path only the first, since that is the one Python imports."""
    context: dict[str, object] = {"name": name}
    if path:
        context["path"] = path
    installed = importlib.metadata.distributions(**context)  # type: ignore[arg-type]
    versions = [distribution.version for distribution in installed]
    return versions if path else versions[:1]


def require_pip() -> None:
    """Raise StepError with INSTALL_FAILED where this image has no pip."""
    if importlib.util.find_spec("pip") is None:
        raise StepError(
            INSTALL_FAILED,
            f"this image's Python, {sys.executable}, has no pip: take an image that has it; or one that has all "
            "packages, and give no requirements",
        )


def install(requirements: Path, target: Path) -> None:
    """Install what `requirements` pins into `target`, which an earlier try may have left half done.

    Raises:
        StepError: with INSTALL_FAILED where pip fails or is not there.
        OSError: `target` cannot be written.
    """
    require_pip()
    target.mkdir(parents=True, exist_ok=True)
    (target / INSTALLED_MARK).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=".slipway-installing-", dir=target) as scratch:
        command = [
            *(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"),
            *("--root-user-action", "ignore", "--no-warn-conflicts"),
            # The file lists every package. With dependencies, pip would put a second TensorFlow, numpy or
            # protobuf before the image's own.
            *("--require-hashes", "--no-deps", "--target", scratch, "--requirement", str(requirements)),
        ]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            lines = [line for line in result.stderr.strip().splitlines() if line.strip()]
            reason = "\n  ".join(lines[-6:]) or f"exit code {result.returncode}"
            raise StepError(
                INSTALL_FAILED,
                f"pip could not install {requirements}:\n  {reason}\n  Is the package index reachable "
                "from this pod? (PIP_INDEX_URL names another one)",
            )
        for made in sorted(Path(scratch).iterdir()):
            place = target / made.name
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            elif place.exists():
                place.unlink()
            made.replace(place)
    (target / INSTALLED_MARK).touch()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.steps.packages", description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True, help="pinned and hashed: requirements.txt")
    parser.add_argument("--target", type=Path, required=True, help="directory to install into, for PYTHONPATH")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
