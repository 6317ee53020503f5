"""Writes docs/updates.md, what a change of a resource does to what is there, from the data that previews use.

python -m slipway.tools.reference.updates            # write it
python -m slipway.tools.reference.updates --check    # exit 1 where it is out of date
"""

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.places import LIBRARY
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Effect, InPlace, When
from slipway.offline.files import write_or_check

PAGE = LIBRARY / "docs" / "updates.md"

HEAD = """# What a change does to what exists

This page lists what an update of a cloud's resource deletes, ends, refuses or replaces, property by property, with
the source of each fact. A [preview with a base](preview.md) says these by itself; look here for the reason, or
before you change a setting. The same by the setting of a stack file is on the page of its cloud: {pages}.
`python -m slipway.tools.reference.updates` writes this page from `in_place.toml` and `replacing.json` in
`infra/clouds/<cloud>/data`; change them there. *Switched off* is also what is taken away.

"""

NEXT = """
## Next

- [Preview a change](preview.md)
- [The policies](policies.md) that these facts lead to
"""

EVERYWHERE = ("region", "project")
"""Properties of which another value replaces whatever has them."""

EFFECTS = {
    Effect.DELETES_DATA: "`deletes-data`",
    Effect.UNGUARDS: "`safeguard-off`",
    Effect.ENDS_WORK: "`ends-running-pods`",
    Effect.REFUSED: "`update-refused`",
    Effect.CUTS_OFF: "`update-refused`",
    Effect.NOTE: "A note beside the change",
}
"""What a preview makes of each effect, the worst first: the id of a policy, or a note beside the change."""

CHANGES = {When.SKIPPED: "raised by more than one", When.ON: "switched on", When.OFF: "switched off"}
"""Which change it is, where its own word does not say it."""


def page() -> str:
    """The whole page."""
    reviews = {
        name: (cloud.title, review)
        for name, cloud in sorted(CLOUDS.items())
        if (review := cloud.review()).in_place()
    }
    pages = ", ".join(f"[{title}]({name}.md)" for name, (title, _) in reviews.items())
    sections = (_section(name, title, review) for name, (title, review) in reviews.items())
    return HEAD.replace("{pages}", pages) + "\n".join(sections) + NEXT


def _section(name: str, title: str, review: Review) -> str:
    facts = sorted(((type_, fact) for type_, known in review.in_place().items() for fact in known), key=_order)
    tables = "".join(
        f"\n{effect}:\n\n| resource | property | change | what happens |\n| --- | --- | --- | --- |\n"
        f"{''.join(_row(type_, fact) for type_, fact in rows)}"
        for effect, rows in itertools.groupby(facts, key=lambda row: EFFECTS[row[1].effect])
    )
    data = LIBRARY / "infra" / "clouds" / name / "data" / "replacing.json"
    return (
        f"## {title}: updates in place\n{tables}"
        f"\n## {title}: properties that replace the resource\n\n{_origin(data)}\n\n"
        f"| resource | property |\n| --- | --- |\n{''.join(_replacements(review))}"
    )


def _order(row: tuple[str, InPlace]) -> tuple[int, str]:
    type_, fact = row
    return [*EFFECTS].index(fact.effect), type_


def _row(type_: str, fact: InPlace) -> str:
    given = "".join(f", where {key} is {value}" for key, value in fact.given.items())
    kept = ", while the stack leaves its desired size alone" if fact.kept else ""
    sent = ", where the stack sets its desired size" if fact.sent else ""
    change = f"{CHANGES.get(fact.when, fact.when.value)}{given}{kept}{sent}"
    dated = "" if fact.source.dated else "read "
    source = f"[{dated}{fact.source.date}]({fact.source.url})"
    return _cells(_short(type_), _list_paths(fact.paths), change, f"{fact.note} ({source})")


def _replacements(review: Review) -> Iterator[str]:
    # One that ends so stands for a block that comes or goes, and is said by the properties in it.
    named = {
        type_: [path for path in paths if not path.endswith("{}") and path not in EVERYWHERE]
        for type_, paths in sorted(review.replacing().items())
    }
    by_paths: dict[str, list[str]] = {}
    for type_, paths in named.items():
        inner = next((other for other in named if other != type_ and _has_inside(paths, named[other])), None)
        rest = [path for path in paths if not _is_of(path, named[inner])] if inner else paths
        if rest:
            those = f", and those of {_short(inner)} in it" if inner else ""
            by_paths.setdefault(_list_paths(rest) + those, []).append(_short(type_))
    for text, types in by_paths.items():
        yield _cells(", ".join(types), text)


def _has_inside(paths: Sequence[str], inner: Sequence[str]) -> bool:
    """Whether a resource with ``paths`` has one with the paths ``inner`` as a block, with its properties."""
    return sum(path.partition(".")[2] in inner for path in paths) > len(inner) / 2 > 1


def _is_of(path: str, inner: Sequence[str]) -> bool:
    """Whether the path is one of ``inner``, itself or as that of a block; one of a single name is its own."""
    return path.partition(".")[2] in inner or ("." in path and path in inner)


def _origin(data: Path) -> str:
    content = json.loads(data.read_text(encoding="utf-8"))
    return (
        f"For pulumi-{content['package']} {content['version']}, as of {content['date']}; "
        f"`{data.relative_to(LIBRARY)}` names the sources. A changed `region` or `project` replaces these, too."
    )


def _short(type_: str) -> str:
    """``aws:eks/nodeGroup:NodeGroup`` as ``eks NodeGroup``."""
    _, module, name = type_.split(":")
    return f"{module.partition('/')[0]} {name}"


def _list_paths(paths: Sequence[str]) -> str:
    """Paths as code, those of one block together: ``block.{one,two}``."""
    blocks: dict[str, list[str]] = {}
    for path in paths:
        first, _, rest = path.partition(".")
        blocks.setdefault(first, []).append(rest)
    return ", ".join(
        f"`{first}.{{{','.join(rest)}}}`" if len(rest) > 1 else f"`{'.'.join(filter(None, (first, *rest)))}`"
        for first, rest in blocks.items()
    )


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.tools.reference.updates", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
