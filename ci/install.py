"""Installs the Pulumi CLI that pyproject.toml pins into build/ci/pulumi: ``python -m ci.install``.

The archive is checked against the checksums that Pulumi publishes with the release, which lie on another host than
it; ``PULUMI_SHA256`` names the checksum to insist on instead.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
import tarfile
import tomllib
import urllib.request
from pathlib import Path

FOLDER = Path("build/ci/pulumi")

ARCHIVES = "https://get.pulumi.com/releases/sdk"
CHECKSUMS = "https://github.com/pulumi/pulumi/releases/download"

ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class InstallError(Exception):
    """The archive is not what it should be."""


def version(root: Path) -> str:
    """The one that the SDK is pinned to: the CLI and it are released together."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return next(
        match[1]
        for dependency in project["project"]["dependencies"]
        if (match := re.fullmatch(r"pulumi==([\d.]+)", dependency))
    )


def archive_name(version: str) -> str:
    """Of this machine's operating system and processor."""
    return f"pulumi-v{version}-{platform.system().lower()}-{ARCHITECTURES[platform.machine().lower()]}.tar.gz"


def download(url: str) -> bytes:
    """What is there. Raises OSError."""
    with urllib.request.urlopen(url, timeout=300) as answer:
        return answer.read()


def published_digest(version: str, name: str, checksums: str = CHECKSUMS) -> str:
    """The archive's SHA-256. Raises InstallError where the release lists none."""
    if pinned := os.environ.get("PULUMI_SHA256"):
        return pinned.strip().lower()
    for line in download(f"{checksums}/v{version}/pulumi-{version}-checksums.txt").decode().splitlines():
        digest, _, file = line.partition(" ")
        if file.strip(" *") == name:
            return digest.lower()
    raise InstallError(f"the checksums of Pulumi {version} have no {name}")


def install(version: str, folder: Path, archives: str = ARCHIVES, checksums: str = CHECKSUMS) -> None:
    """Unpacks the archive's programs into ``folder``. Raises InstallError, OSError."""
    name = archive_name(version)
    content = download(f"{archives}/{name}")
    digest = hashlib.sha256(content).hexdigest()
    if digest != (wanted := published_digest(version, name, checksums)):
        raise InstallError(f"{name} has the SHA-256 {digest}, but should have {wanted}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.parent / name
    file.write_bytes(content)
    with tarfile.open(file) as archive:
        # All of its programs lie in a folder of its own, pulumi/.
        archive.extractall(folder.parent / "unpacked", filter="data")
    (folder.parent / "unpacked" / "pulumi").rename(folder)
    shutil.rmtree(folder.parent / "unpacked")
    file.unlink()


def main() -> int:
    """Exits 1 where the CLI cannot be installed."""
    wanted = version(Path.cwd())
    if (stamp := FOLDER / ".version").is_file() and stamp.read_text(encoding="utf-8") == wanted:
        print(f"Pulumi {wanted} is installed.")
        return 0
    try:
        install(wanted, FOLDER)
    except (InstallError, OSError) as error:
        print(f"Pulumi {wanted} could not be installed: {error}", file=sys.stderr)
        return 1
    stamp.write_text(wanted, encoding="utf-8")
    print(f"Installed Pulumi {wanted}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
