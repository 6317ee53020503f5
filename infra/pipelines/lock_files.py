"""Lock files: the requirements of a step, each at one version and with the digests of its files."""

import re
from pathlib import Path

HASH = re.compile(r"\s--hash=[a-z0-9]+:[0-9a-f]+")
PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*==\s*[A-Za-z0-9][A-Za-z0-9.!+_-]*\s*(;.*)?")

NAME = "requirements.txt"


def compiling(lock: Path, root: Path) -> str:
    """The command that compiles ``lock`` of the list of packages beside it, to be run in the folder ``root``."""
    path = lock.relative_to(root) if lock.is_relative_to(root) else lock
    if path.parts[:1] == ("workloads",) and len(path.parts) == 3 and path.name == NAME:
        return f"make lock PIPELINE={path.parts[1]}"
    packages = path.with_suffix(".in")
    files = f"{packages} --output-file {path}"
    return f".venv/bin/uv pip compile --universal --generate-hashes {files} --python-version 3.11"


def unpinned(lock: Path) -> str | None:
    """Why ``lock`` does not say which packages are installed, by its line; None where it does.

    `workloads.runtime.packages` takes the same files, in the pod. Raises OSError where it cannot be read.
    """
    try:
        text = lock.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    joined = re.sub(r"\\\r?\n", lambda end: " " * len(end.group()), text)
    start = 0
    for line in joined.splitlines(keepends=True):
        content = re.split(r"(?:^|\s)#", line)[0].strip()
        number = text.count("\n", 0, start) + 1
        start += len(line)
        if not content:
            continue
        if not PINNED.fullmatch(HASH.sub("", f" {content}").strip()):
            return (
                f"line {number}, `{content.split()[0][:80]}`, is not one package at one version: `name==version`"
            )
        if not HASH.search(f" {content}"):
            return f"line {number}, `{content.split()[0][:80]}`, has no hash of the package's files"
    return None
