"""Why uv failed, as it says it."""

import pytest

from slipway.infra.schema.uv import reason

WRAPPED = """error: No solution found when resolving dependencies
  cause: Because scikit-lern was not found in the package registry
         and you require scikit-lern==1.0, we can conclude that your
         requirements are unsatisfiable.

  hint: Have a look at the name.
"""


@pytest.mark.parametrize("text", [WRAPPED, " ".join(WRAPPED.split("\n         "))], ids=["on a terminal", "else"])
def test_a_reason_is_whole_however_wide_the_terminal_is(text: str) -> None:
    assert reason(text.splitlines()) == (
        "No solution found when resolving dependencies: Because scikit-lern was not found in the package registry "
        "and you require scikit-lern==1.0, we can conclude that your requirements are unsatisfiable"
    )


def test_without_a_reason_it_is_the_end_of_what_was_said() -> None:
    assert reason(["1", "", "2", "  3."]) == "2: 3"
