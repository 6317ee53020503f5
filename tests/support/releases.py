"""Releases of the package: a wheel again under another version, with some of its files changed."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.checkout import ROOT

Edit = Callable[[str], str]


def build(checkout: Path, into: Path) -> dict[str, Path]:
    """The wheel and the source distribution of a checkout, by their suffixes."""
    words = ["build", "--quiet", "--python", sys.executable, "--no-build-isolation", "--out-dir", into]
    command = [ROOT / ".venv/bin/uv", *words]
    subprocess.run(command, cwd=checkout, check=True)
    return {path.suffix: path for path in into.iterdir() if path.suffix in {".whl", ".gz"}}


def release(wheel: Path, version: str, edits: Mapping[str, Edit], into: Path) -> Path:
    """The wheel as the release ``version``: some of its files edited, and with no dependencies.

    What it depends on is in this environment, and no index is needed.
    """
    name = wheel.name.split("-")[0]
    info = f"{name}-{version}.dist-info"
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            folder, _, rest = path.partition("/")
            files[f"{info}/{rest}" if folder.endswith(".dist-info") else path] = archive.read(path)
    for path, edit in edits.items():
        text = files[path].decode()
        files[path] = edit(text).encode()
        assert files[path].decode() != text, path
    kept = [
        f"Version: {version}" if line.startswith("Version:") else line
        for line in files[f"{info}/METADATA"].decode().splitlines()
        if not line.startswith("Requires-Dist:")
    ]
    files[f"{info}/METADATA"] = "\n".join(kept).encode() + b"\n"
    del files[f"{info}/RECORD"]
    record = "".join(f"{path},{_digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    into.mkdir(exist_ok=True)
    made = into / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
