"""``make pin-images``: asks the registry for the digests of the default images, and writes them to the data file.

A digest of an image for several architectures is that of its index.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.pipelines import tensorflow_serving, valkey
from infra.pipelines.images import DATA, DIGESTS, REPOSITORY
from offline import files

TOKENS = "https://auth.docker.io/token?service=registry.docker.io&scope=repository:{repository}:pull"
MANIFESTS = "https://registry-1.docker.io/v2/{repository}/manifests/{tag}"
"""Docker Hub's API (docs.docker.com/reference/api/registry/latest, seen November 2026)."""

KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

VALKEY = re.compile(r'^(?:#.*\n)*digest = ".*"$', re.MULTILINE)
"""The digest of Valkey's image in the data file, with where it is from."""

SERVING = re.compile(r"^\[serving\.digests\]\n(?:[^\[\n].*\n)*", re.MULTILINE)
"""The digests of TensorFlow Serving's images in the data file."""

SECONDS = 30
"""For each answer of the registry."""


class RegistryError(Exception):
    """The registry gave no digest. The text says why."""


def digest_of(repository: str, tag: str, tokens: str = TOKENS, manifests: str = MANIFESTS) -> str:
    """The digest that ``tag`` has in the registry now; raises RegistryError."""
    try:
        with urllib.request.urlopen(tokens.format(repository=repository), timeout=SECONDS) as answer:
            token = json.load(answer)["token"]
        request = urllib.request.Request(
            manifests.format(repository=repository, tag=tag),
            headers={"Authorization": f"Bearer {token}", "Accept": ", ".join(KINDS)},
            method="HEAD",
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            digest = str(answer.headers.get("Docker-Content-Digest"))
    except (OSError, ValueError, KeyError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RegistryError(f"no digest of {repository}:{tag}: {reason}") from error
    if not DIGEST.fullmatch(digest):
        raise RegistryError(f"no digest of {repository}:{tag}: the registry answered {digest!r}")
    return digest


def write(
    digests: Sequence[tuple[str, str]], of_valkey: str, of_serving: Sequence[tuple[str, str]], file: Path = DATA
) -> None:
    """Replaces the digests in the data file, all or none: of TensorFlow's tags, Valkey's, and the server's."""
    head = file.read_text(encoding="utf-8").partition("[digests]\n")[0]
    source = f"# From the registry's own API on {datetime.now(UTC).date()}."
    # Only the first, which is Valkey's: the exporter's is from another registry.
    head = VALKEY.sub(f'{source}\ndigest = "{of_valkey}"', head, count=1)
    served = "".join(f'"{tag}" = "{digest}"\n' for tag, digest in of_serving)
    head = SERVING.sub(f"[serving.digests]\n{source}\n{served}", head)
    lines = [source, *(f'"{tag}" = "{digest}"' for tag, digest in digests)]
    files.write(file, "\n".join([f"{head}[digests]", *lines, ""]))


def main() -> int:
    """Exits with 1, and changes nothing, where a digest cannot be had."""
    try:
        digests = [(tag, digest_of(REPOSITORY, tag)) for tag in DIGESTS]
        of_valkey = digest_of(valkey.REPOSITORY, valkey.VERSION)
        server = tensorflow_serving.REPOSITORY
        of_serving = [(tag, digest_of(server, tag)) for tag in tensorflow_serving.DIGESTS]
    except RegistryError as error:
        print(f"error: {error}; {DATA.name} stays as it is", file=sys.stderr)
        return 1
    write(digests, of_valkey, of_serving)
    for tag, digest in digests:
        print(f"{REPOSITORY}:{tag}@{digest}")
    print(f"{valkey.REPOSITORY}:{valkey.VERSION}@{of_valkey}")
    for tag, digest in of_serving:
        print(f"{server}:{tag}@{digest}")
    print("What runs in an image that has another digest now runs again with the next `pulumi up`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
