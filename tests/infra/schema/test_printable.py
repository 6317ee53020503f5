"""What is shown of text that somebody else wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.schema.problems import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain: ä → 🔴", "plain: ä → 🔴"),
        ("\x1b[31mred\x1b]8;;http://evil\x07", r"\x1b[31mred\x1b]8;;http://evil\x07"),
        ("one\ntwo\r\nthree\tfour", r"one\ntwo\r\nthree\tfour"),
        ("abc\u202egnp.exe\u2066", r"abc\u202egnp.exe\u2066"),
        ("zero\u200bwidth, soft\u00adhyphen, hard\u00a0space", r"zero\u200bwidth, soft\xadhyphen, hard\xa0space"),
        ("lone \ud800 surrogate", r"lone \ud800 surrogate"),
        ("next\x85line\u2028separator\U000e0041tag", r"next\x85line\u2028separator\U000e0041tag"),
    ],
)
def test_what_a_terminal_or_a_page_would_obey_is_escaped(text: str, written: str) -> None:
    assert printable(text) == written


def test_lines_stay_lines() -> None:
    assert printable_lines("one\r\n\ttwo\n\x1b[2Jthree\rfour") == "one\n        two\n\\x1b[2Jthree\\rfour"


@given(st.text())
def test_any_text_can_be_shown_and_written(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))
    printable_lines(text).encode()
