"""A slice of the mutated stack files; docs/development.md has the command for all of them."""

import subprocess
import sys
from typing import Any

import pytest

from tests import fuzz

PROBLEM = {"key": "slipway:namespace", "value": "'x'", "reason": "wrong", "fix": "correct it"}


@pytest.mark.slow
def test_mutated_stack_files_are_previewed_or_refused_with_their_key() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--count", "48", "--seed", "10"]
    done = subprocess.run(command, cwd=fuzz.ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kind in ("SettingsError", "ConfigError", "accepted"):
        assert kind in done.stderr, "the mutations no longer reach everything"


def test_cases_are_the_same_again_and_of_all_stacks() -> None:
    count = len(fuzz.STACKS)
    cases = [fuzz.text_of(number, 1) for number in range(count)]
    assert cases == [fuzz.text_of(number, 1) for number in range(count)]
    assert {stack for stack, _ in cases} == set(fuzz.STACKS)
    assert len({text for _, text in cases}) == count


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ({"kind": "SettingsError", "problems": [PROBLEM]}, ""),
        ({"kind": "ConfigError", "message": "stacks/Pulumi.dev.yaml:3: not YAML"}, ""),
        ({"kind": "KeyError", "message": "KeyError: 'x'"}, "KeyError: KeyError: 'x'"),
        ({"kind": "ConfigError", "message": "not YAML"}, "the file is not named"),
        ({"kind": "SettingsError"}, "a problem without its key"),
        (
            {"kind": "SettingsError", "problems": [{**PROBLEM, "fix": ""}]},
            "a problem without its key, reason or fix",
        ),
        ({"kind": "SettingsError", "problems": [{**PROBLEM, "value": "\x1b[1m"}]}, "not fit to be shown"),
        ({"kind": "SettingsError", "problems": [{**PROBLEM, "reason": "x" * 5000}]}, "not fit to be shown"),
    ],
)
def test_a_refusal_is_clear_or_a_finding(failure: dict[str, Any], says: str) -> None:
    complaint = fuzz.unclear({"message": "", "where": "", "problems": [], **failure}, "dev")
    assert complaint.startswith(says)
    assert bool(complaint) == bool(says)
