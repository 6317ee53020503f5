"""``make package``: what is beside the package that was built: an index with it, and the template of a project.

`pulumi new` takes the template as the folder `TEMPLATE`, or as the archive `ARCHIVE` by its address. Its lock file
has the digests of this package, so that it cannot be a file of the repository.
"""

import hashlib
import html
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from slipway import files
from slipway.command.new.project import EXTRAS, lock, template
from slipway.infra.places import DISTRIBUTION
from slipway.infra.schema.requirement_files import REQUIREMENTS

INDEX, TEMPLATE, ARCHIVE = "simple", "template", "slipway-template.zip"

BEGINNING = (1980, 1, 1, 0, 0, 0)
"""The date of all files in the archive, the first that it can have: the same files give the same bytes."""


def main(folder: Annotated[Path, typer.Argument(help="Where the built package is.")]) -> None:
    """Write an index and the template beside the package; exits with 1 where a digest cannot be had."""
    built = f"{DISTRIBUTION.replace('-', '_')}-"
    packages = sorted(path for path in folder.iterdir() if path.name.startswith(built) and path.is_file())
    files.write(folder / INDEX / DISTRIBUTION / "index.html", _index(packages))
    requirements, problem = lock(EXTRAS, (folder / INDEX).resolve().as_uri())
    if problem:
        print(f"error: there is no template beside the package in {folder}: {problem}", file=sys.stderr)
        raise typer.Exit(1)
    contents = {**template(), REQUIREMENTS: requirements}
    for name, text in contents.items():
        files.write(folder / TEMPLATE / name, text)
    folders = {f"{parent.as_posix()}/": "" for name in contents for parent in PurePosixPath(name).parents[:-1]}
    with files.replacing(folder / ARCHIVE) as path, zipfile.ZipFile(path, "w") as archive:
        # Pulumi's CLI creates the folders that the archive lists before their files, and no others
        # (`extractZipFile` in pkg/cmd/pulumi/templates/zip.go of pulumi/pulumi 3.260, read 2026-11-26).
        for name, text in sorted({**contents, **folders}.items()):
            archive.writestr(zipfile.ZipInfo(name, BEGINNING), text, zipfile.ZIP_DEFLATED)
    # An earlier build of another version may lie beside it.
    wheel = max((path for path in packages if path.suffix == ".whl"), key=lambda path: path.stat().st_mtime)
    print(
        f"Built {wheel}",
        f"Install it: pip install '{wheel.resolve()}[rehearse]', then: slipway new acme",
        sep="\n",
    )


def _index(packages: Iterable[Path]) -> str:
    """The page of the package in an index (PEP 503), two folders below its files."""
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in packages}
    links = [
        f'<a href="../../{html.escape(name)}#sha256={digest}">{html.escape(name)}</a><br>'
        for name, digest in digests.items()
    ]
    return "\n".join(["<!DOCTYPE html>", f"<title>{DISTRIBUTION}</title>", *links, ""])


if __name__ == "__main__":
    typer.run(main)
