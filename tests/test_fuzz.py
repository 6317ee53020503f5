"""A slice of the mutated files; docs/development.md has the command for all of them."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from slipway.command.reference import shipped
from tests import fuzz

PROBLEM = {"key": "slipway:namespace", "value": "'x'", "reason": "wrong", "fix": "correct it"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "outcomes"),
    [("stack", ("SettingsError", "ConfigError", "accepted")), ("pipeline", ("SettingsError", "accepted"))],
)
def test_mutated_files_are_previewed_or_refused_with_their_key(kind: str, outcomes: Sequence[str]) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--kind", kind, "--count", "58", "--seed", "10"]
    done = subprocess.run(command, cwd=fuzz.ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for outcome in outcomes:
        assert outcome in done.stderr, "the mutations no longer reach everything"


def test_cases_are_the_same_again_and_of_all_stacks_and_pipelines() -> None:
    for make in fuzz.CASES.values():
        cases = [make(number, 1) for number in range(30)]
        assert cases == [make(number, 1) for number in range(30)]
        assert {case.stack for case in cases if not case.pipeline} in (set(), set(fuzz.STACKS))
        assert {case.pipeline for case in cases if case.pipeline} in (set(), set(shipped.pipelines()))
        assert len({case.text for case in cases}) == len(cases)


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ({"kind": "SettingsError", "problems": [PROBLEM]}, ""),
        ({"kind": "ConfigError", "message": "stacks/Pulumi.dev.yaml:3: not YAML"}, ""),
        ({"kind": "ConfigError", "message": "Pulumi.dev.yaml: a: wrong\nPulumi.dev.yaml: b: wrong"}, ""),
        ({"kind": "ConfigError", "message": "Pulumi.dev.yaml: a\nb: wrong"}, "the file is not named"),
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
