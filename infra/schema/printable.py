"""Escapes text from outside, such as a key of a stack file or the name of an image, before it is shown.

Invisible characters change what a terminal, a log or a page shows: colours, cursor movements, line breaks, the
direction of reading. They are written as Python writes them, for example ``\\x1b`` or ``\\u202e``.
"""

import re


def printable(text: str) -> str:
    """``text`` on one line, with every character but the space escaped that Unicode counts as not printable.

    These are line breaks, control and format characters, lone surrogates, and spaces other than the ordinary one.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines, whose line breaks and tabs stay what they are."""
    return "\n".join(printable(line.expandtabs()) for line in re.split(r"\r?\n", text))
