"""What the program knows of the CLI that started it."""

import subprocess
import sys

import pytest

from tests.support.checkout import ROOT

CODE = "from slipway.infra.pulumi_cli import starts_nothing; print(starts_nothing())"


@pytest.mark.parametrize(
    ("words", "expected"),
    # A stack may be called like a verb.
    [(["destroy", "--run-program"], "True"), (["up", "--stack", "down"], "False")],
)
def test_a_program_that_is_run_to_destroy_its_stack_knows_it(words: list[str], expected: str) -> None:
    # The CLI starts a language host, and that the program.
    shell = ["/usr/bin/pulumi", "-c", '"$1" -c "$2"; true', "host", sys.executable, CODE]
    done = subprocess.run(
        [*shell, *words], executable="/bin/sh", check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.strip() == expected
