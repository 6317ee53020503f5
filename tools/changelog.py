"""What the changelog says of the releases between two versions: what harms first, and last what to do.

`CHANGELOG.md` has the form of Keep a Changelog (keepachangelog.com/en/1.1.0, read November 2026): a heading
`## [0.2.0] - <date>` for each release, the newest first, and headings `###` for what is added, changed and so on.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

UNRELEASED, FIRST, LAST = "Unreleased", "Harm first", "What to do"

_RELEASE = re.compile(r"^## \[(?P<name>Unreleased|\d+\.\d+\.\d+)\].*$", re.MULTILINE)
_PART = re.compile(r"^### (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """What stands below a heading of a release; ``title`` is empty for what stands before the first one."""

    release: str
    title: str
    text: str


def between(changelog: str, before: str, after: str) -> Sequence[Part]:
    """The parts of the releases beyond the older one of two versions, up to the newer one, in order of reading.

    Harm comes first, what to do last, and earlier releases before later ones. A development version has what is
    unreleased, too.
    """
    older, newer = sorted(map(Version, (before, after)))
    headings = [*_RELEASE.finditer(changelog)]
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    parts: list[Part] = []
    for heading, end in reversed([*zip(headings, ends, strict=True)]):
        name = heading["name"]
        if newer.is_devrelease if name == UNRELEASED else older < Version(name) <= newer:
            parts += _parts(name, changelog[heading.end() : end])
    titles = [FIRST, *dict.fromkeys(part.title for part in parts if part.title not in {FIRST, LAST}), LAST]
    return sorted(parts, key=lambda part: titles.index(part.title))


def _parts(release: str, text: str) -> Iterator[Part]:
    words = _PART.split(text)
    for title, content in zip(["", *words[1::2]], words[::2], strict=True):
        if content.strip():
            yield Part(release, title, content.strip())
