"""Wheels made on the spot, so that pip really installs something without a network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_wheel(
    folder: Path, name: str, version: str, content: Mapping[str, bytes], metadata: Sequence[str] = ()
) -> Path:
    """Write the wheel of a package with the files of ``content``, by path, and further lines of metadata."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
    files = {
        **content,
        f"{info}/METADATA": "".join(f"{line}\n" for line in head).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(path, data)
    return wheel


def pin(name: str, version: str, wheel: Path) -> str:
    """The line of a requirements file that asks for exactly this wheel."""
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def offline(folder: Path) -> dict[str, str]:
    """Environment in which pip knows the wheels of ``folder`` and nothing else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
