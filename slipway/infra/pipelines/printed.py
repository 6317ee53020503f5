"""The pattern that finds reports in the lines that a program prints, and what is wrong with one.

`slipway.runtime.search.reports` searches for it.
"""

import re

from slipway.infra.schema.base import refuse

EXAMPLE = r"epoch (?P<step>\d+): .*accuracy (?P<value>[\d.]+)"

STEP, VALUE = "step", "value"

LONGEST = 200
"""Characters of a pattern."""

_WRITE = f"write for example `{EXAMPLE}`"

_LETTER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""A character that a backslash precedes, or a class of characters."""

_GROUP = re.compile(r"\((?P<inner>[^()]*)\)(?P<repeat>[*+]|\{\d*,\})?")
"""A group without others in it, and what repeats it any number of times."""

_REPEAT = re.compile(r"[*+]|\{\d*,\}")


def check_pattern(pattern: str) -> str:
    """The rule of a pattern of printed reports. Raises what `refuse` makes."""
    if len(pattern) > LONGEST:
        raise refuse(
            f"{len(pattern)} characters, and a pattern has at most {LONGEST}", "search for less of the line"
        )
    try:
        groups = {*re.compile(pattern).groupindex}
    except (re.error, RecursionError, OverflowError) as error:
        raise refuse(f"no regular expression of Python's: {error}", _WRITE) from error
    if VALUE not in groups:
        raise refuse(f"it has no group `{VALUE}`", _WRITE)
    if others := sorted(groups - {STEP, VALUE}):
        names = ", ".join(f"`{name}`" for name in others)
        raise refuse(f"it has a group {names}, and only `{STEP}` and `{VALUE}` mean something", _WRITE)
    if _nests(pattern):
        reason = "a repeated group has a repetition in it, which may search one line for years"
        raise refuse(reason, r"repeat only one of them: `[\w ]+` in place of `(\w+ ?)+`")
    return pattern


def _nests(pattern: str) -> bool:
    """Whether something that is repeated any number of times has such a repetition in it.

    Python's engine may try each way to divide a line among both: their number doubles with each character.
    """
    text = _LETTER.sub("x", pattern)
    while match := _GROUP.search(text):
        repeats = bool(_REPEAT.search(match["inner"]))
        if repeats and match["repeat"]:
            return True
        text = f"{text[: match.start()]}{'x*' if repeats or match['repeat'] else 'x'}{text[match.end() :]}"
    return False
