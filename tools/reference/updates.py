"""Writes docs/updates.md, what a change of a resource does to what is there, from the data that previews use.

python -m slipway.tools.reference.updates            # write it
python -m slipway.tools.reference.updates --check    # exit 1 where it is out of date
"""

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

HEAD = """# What a change does to what is there

The facts by which a [preview with a base](preview.md) says what an update deletes, ends, refuses or replaces. This
page is written by `python -m slipway.tools.reference.updates` from `in_place.toml` and `replacing.json` in
`infra/clouds/<cloud>/data`; change them there. What holds for a setting of a stack file stands on the
page of its cloud.
"""

EFFECTS = {
    Effect.DELETES_DATA: "`deletes-data`",
    Effect.UNGUARDS: "`safeguard-off`",
    Effect.ENDS_WORK: "`ends-running-pods`",
    Effect.REFUSED: "`update-refused`",
    Effect.CUTS_OFF: "`update-refused`",
    Effect.NOTE: "a note",
}
"""What a preview makes of each effect, the worst first: the id of a policy, or a note beside the change."""

CHANGES = {When.SKIPPED: "raised by more than one", When.ON: "switched on", When.OFF: "switched off, taken away"}
"""Which change it is, where its own word does not say it."""


def page() -> str:
    """The whole page."""
    reviews = {name: (cloud.title, cloud.review()) for name, cloud in CLOUDS.items()}
    return HEAD + "".join(
        _section(name, title, review) for name, (title, review) in sorted(reviews.items()) if review.in_place()
    )


def _section(name: str, title: str, review: Review) -> str:
    facts = sorted(((type_, fact) for type_, known in review.in_place().items() for fact in known), key=_order)
    rows = "".join(_row(type_, fact) for type_, fact in facts)
    data = LIBRARY / "infra" / "clouds" / name / "data" / "replacing.json"
    return (
        f"\n## {title}: updates in place\n\n"
        "| resource | property | change | preview says | what happens | source |\n"
        f"| --- | --- | --- | --- | --- | --- |\n{rows}"
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
    return _cells(_short(type_), _list_paths(fact.paths), change, EFFECTS[fact.effect], fact.note, source)


def _replacements(review: Review) -> Iterator[str]:
    for type_, paths in sorted(review.replacing().items()):
        # One that ends so stands for a block that comes or goes, and is said by the properties in it.
        if named := [path for path in paths if not path.endswith("{}")]:
            yield _cells(_short(type_), _list_paths(named))


def _origin(data: Path) -> str:
    content = json.loads(data.read_text(encoding="utf-8"))
    return f"Source: {content['source']}; as of {content['date']}."


def _short(type_: str) -> str:
    """``aws:eks/nodeGroup:NodeGroup`` as ``eks NodeGroup``."""
    _, module, name = type_.split(":")
    return f"{module.partition('/')[0]} {name}"


def _list_paths(paths: Sequence[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.tools.reference.updates", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
