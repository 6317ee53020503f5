"""`slipway pin-images`: writes the digests that the registries have for the default images to the data file.

A digest of an image for several architectures is that of its index.
"""

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from slipway import files
from slipway.infra.commands import command
from slipway.infra.container_registry import DOCKER_HUB, RegistryError, digest_of
from slipway.infra.exits import Exit, report_error
from slipway.infra.pipelines.images import DATA, DIGESTS, pinned, read
from slipway.infra.places import LIBRARY, PROJECT

_TABLE = re.compile(r"(?:^#.*\n)*^\[(?P<name>[a-z-]+)\.digests\]\n(?:.+\n)*", re.MULTILINE)
"""The digests of one name in the data file, with the comment on where they are from."""


def with_registry(image: str) -> str:
    """``image`` with its registry, which is Docker Hub's where ``image`` names none."""
    first, slash, _ = image.partition("/")
    named = slash and (first == "localhost" or "." in first or ":" in first)
    return image if named else f"{DOCKER_HUB}/{image}"


def write(digests: Mapping[str, str], file: Path = DATA) -> None:
    """Puts ``digests``, by ``<repository>:<tag>``, in the place of those in the data file: all or none."""
    images = read(file)
    source = f"# From the registry's own API on {datetime.now(UTC).date()}."

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        rows = [f'"{image.rpartition(":")[2]}" = "{digests[image]}"' for image in images[name]]
        return "\n".join([source, f"[{name}.digests]", *rows, ""])

    files.write(file, _TABLE.sub(table, file.read_text(encoding="utf-8")))


def write_pins(digests: Mapping[str, str], file: Path) -> None:
    """Writes ``digests``, by ``<repository>:<tag>``, into the file of a project."""
    source = (
        f"# Written by `{command('pin-images')}`, from the registries' own APIs on {datetime.now(UTC).date()}."
    )
    files.write(file, "\n".join([source, *(f'"{image}" = "{digest}"' for image, digest in digests.items()), ""]))


def main(file: Path = DATA, pins: Path | None = None if LIBRARY == PROJECT else DIGESTS) -> Exit:
    """Pins the images of the package's data ``file`` in it, or in the project's file ``pins``.

    Changes nothing where a digest cannot be had.
    """
    known = {image: digest for images in read(file).values() for image, digest in images.items()}
    known |= pinned(pins) if pins else {}
    try:
        digests = {image: digest_of(with_registry(image)) for images in read(file).values() for image in images}
    except RegistryError as error:
        report_error(f"{error}; {(pins or file).name} stays as it is")
        return Exit.FAILED
    if pins:
        write_pins(digests, pins)
    else:
        write(digests, file)
    for image, digest in digests.items():
        if known[image] not in ("", digest):
            print(f"warning: the publisher has moved {image}: it was {known[image]}", file=sys.stderr)
        print(f"{image}@{digest}")
    print("What runs in an image that has another digest now runs again with the next `pulumi up`.")
    return Exit.DONE
