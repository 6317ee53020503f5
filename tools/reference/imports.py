"""Writes docs/import.md: what becomes of each field of a TFJob, a Job and the like.

python -m slipway.tools.reference.imports            # write it
python -m slipway.tools.reference.imports --check    # exit 1 where it is out of date
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from slipway.offline.files import write_or_check
from slipway.tools.importing.document import ANY_DEPTH, DATA, Rule, rules
from slipway.tools.reference.settings import PAGE as SETTINGS

PAGE = SETTINGS.with_name("import.md")

TEXT = DATA.with_name("page.md")
"""The page, with `FIELDS` where its tables belong."""

FIELDS = "<fields>\n"

CARRIED_OVER = """| field | becomes |
| --- | --- |
"""

NOT_CARRIED_OVER = """| not carried over | instead |
| --- | --- |
"""


def page() -> str:
    """The whole page."""
    fields = [rule for rule in rules() if rule.at != ANY_DEPTH]
    tables = (
        CARRIED_OVER + "".join(_rows(rule for rule in fields if rule.becomes)),
        NOT_CARRIED_OVER + "".join(_rows(rule for rule in fields if not rule.becomes)),
    )
    return TEXT.read_text(encoding="utf-8").replace(FIELDS, "\n".join(tables))


def _rows(fields: Iterator[Rule]) -> Iterator[str]:
    """A row for all fields of which the same is said, in the order of the first of them."""
    alike = defaultdict[str, list[str]](list)
    for rule in fields:
        alike["; ".join(filter(None, (rule.becomes, rule.why)))].append(f"`{rule.at}`")
    for said, names in alike.items():
        yield f"| {', '.join(names)} | {said} |\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.tools.reference.imports", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
