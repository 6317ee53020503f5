"""Publish the Python packages that an image lacks, for the programs that run in it.

Runs in the image of the steps that need them, on a node without GPUs, so that nothing is installed while a GPU
waits. What the image has at the pinned version is left out; where nothing is lacking, the result is empty. Run as
`python -m slipway.runtime.steps.environment --requirements requirements.txt --output DIR`. Needs pip.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import re
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path

from slipway.runtime.exits import OK, StepError, run, stop_on_sigterm
from slipway.runtime.steps import packages
from slipway.runtime.store import StoreError, explain, finished, publish, staging, store_errors
from slipway.runtime.supplied import ARCHIVE

STEP = "runtime.environment"


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT for a requirements file that cannot be used, INSTALL_FAILED, STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("the same command starts over")
    pinned = packages.read_requirements(options.requirements)
    settings = {"packages": pinned}
    earlier = finished(options.output, STEP, {}, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds what this image lacks")
        return OK
    lacking = {name: line for name in pinned for line in packages.missing({name: pinned[name]}, [])}
    with staging() as staged:
        if lacking:
            print(
                f"This image lacks {len(lacking)} of {len(pinned)} packages; installing "
                f"{', '.join(lacking.values())}",
                flush=True,
            )
            _install(options.requirements, lacking, staged / ARCHIVE)
        else:
            print(f"Nothing is lacking: all {len(pinned)} packages are here at their pinned versions")
        summary = {"lacking": list(lacking.values())}
        manifest = publish(staged, options.output, step=STEP, inputs={}, settings=settings, summary=summary)
    size = sum(entry.size for entry in manifest.files.values())
    # Each pod unpacks it into its scratch space.
    print(f"Published {len(lacking)} packages, {size / 2**20:,.0f} MiB: {options.output}")
    return OK


def _install(requirements: Path, lacking: Collection[str], archive: Path) -> None:
    """Install those packages of `requirements` that are `lacking`, by name, into a new `archive`."""
    # pip would keep a second copy of all that it downloads in HOME, which is the pod's scratch space.
    os.environ.setdefault("PIP_NO_CACHE_DIR", "1")
    with staging() as target, staging() as folder:
        chosen = folder / requirements.name
        chosen.write_text("".join(_lines(requirements, lacking, folder)), encoding="utf-8")
        try:
            packages.install(chosen, target)
        except StepError as error:
            raise StepError(error.code, str(error).replace(str(chosen), str(requirements))) from error
        except OSError as error:
            raise StoreError(f"{error.filename or target}: {explain(error)}") from error
        (target / packages.INSTALLED_MARK).unlink()
        # Compiled once, and valid whatever times of change the files get where they are unpacked.
        compileall.compile_dir(
            str(target),
            maxlevels=64,
            quiet=2,
            force=True,
            stripdir=str(target),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        with store_errors(archive):
            pack(target, archive)


def pack(folder: Path, archive: Path) -> None:
    """Move every file below `folder` into a tar archive: equal bytes for equal files.

    A file is deleted as soon as it is in the archive, so that both never need their space at once.

    Raises:
        OSError: a file cannot be read, or the archive cannot be written.
    """
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = path.stat().st_size
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as stream:
                tar.addfile(member, stream)
            path.unlink()


def _lines(requirements: Path, lacking: Collection[str], folder: Path) -> Iterator[str]:
    """The lines of `requirements` for the packages that are `lacking`, each with its hashes on one line."""
    single = folder / "single.txt"
    for line in re.sub(r"\\\r?\n", " ", requirements.read_text(encoding="utf-8")).splitlines():
        single.write_text(line, encoding="utf-8")
        if any(name in lacking for name in packages.read_requirements(single)):
            yield f"{line}\n"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.steps.environment", description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True, help="pinned and hashed: requirements.txt")
    parser.add_argument("--output", type=Path, required=True, help="where to publish the packages")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
