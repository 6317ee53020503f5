"""The Python packages of images, as far as the project's own environment has them."""

import csv
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

TENSORFLOW = ("tensorflow", "tensorflow-cpu")
"""The distributions that are TensorFlow; the project installs one of them, as the platform has it."""


_parsing = threading.Lock()


def closure(roots: Iterable[str]) -> Mapping[str, metadata.Distribution]:
    """Those of ``roots`` that are installed, with all that they depend on, by normalized name."""
    return _closure(tuple(roots))


@cache
def _closure(roots: Sequence[str]) -> Mapping[str, metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(canonicalize_name(each), "") for each in roots]
    while left:
        name, extra = left.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = found.setdefault(name, metadata.distribution(name))
        except metadata.PackageNotFoundError:
            continue
        for line in distribution.requires or ():
            needed = _requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
    return dict(sorted(found.items()))


def link(packages: Mapping[str, metadata.Distribution], folder: Path) -> None:
    """Fills ``folder``, which is new, with links to the files of ``packages``, so that Python finds these there.

    A folder that only they have files in is one link. One that others have files in, too, as namespace packages
    have, is made, with links to what is theirs: nothing of the others is found in ``folder``.
    """
    folder.mkdir(parents=True)
    for site in {Path(str(each.locate_file(""))) for each in packages.values()}:
        found = [file for each in packages.values() for file in _files(each)]
        tops = {file.partition("/")[0] for file in found}
        others = {PurePosixPath()}
        for each in metadata.distributions(path=[str(site)]):
            if canonicalize_name(each.name) not in packages:
                shared = (file for file in _files(each) if file.partition("/")[0] in tops)
                others.update(parent for file in shared for parent in PurePosixPath(file).parents)
        linked: set[PurePosixPath] = set()
        for file in map(PurePosixPath, found):
            # The outermost folder above the file that is theirs alone; the file itself where there is none.
            whole = next((each for each in [*reversed(file.parents), file] if each not in others), file)
            if whole in linked or not (site / whole).exists():
                continue
            linked.add(whole)
            target = folder / whole
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(site / whole)


def has_all_of(lock: Path) -> bool:
    """Whether the project's own environment has every package that ``lock`` pins, at its version."""
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError:
        return False
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        content = re.split(r"(?:^|\s)(?:#|--hash=)", line)[0].strip()
        if not content:
            continue
        try:
            wanted = _requirement(content)
            if wanted.marker is not None and not wanted.marker.evaluate():
                continue
            if not wanted.specifier.contains(metadata.version(wanted.name), prereleases=True):
                return False
        except (InvalidRequirement, metadata.PackageNotFoundError):
            return False
    return True


def _requirement(text: str) -> Requirement:
    """Raises InvalidRequirement."""
    # Markers are parsed by `ast`, in which threads disturb one another: "AST constructor recursion depth mismatch"
    # (github.com/python/cpython/issues/106905; seen with CPython 3.11.7 in November 2026).
    with _parsing:
        return Requirement(text)


def _files(distribution: metadata.Distribution) -> Iterator[str]:
    """The files that a distribution has below site-packages."""
    # `Distribution.files` makes an object with hash and size of each of TensorFlow's 20,000.
    for path, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if not path.startswith(("../", "/")):
            yield path
