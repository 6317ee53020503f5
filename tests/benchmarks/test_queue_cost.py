"""The measurements of what a queue costs run, and print their tables."""

from __future__ import annotations

import pytest

from benchmarks import queue_cost
from tests.support.servers.valkey import valkey_program


@pytest.mark.slow
def test_it_prints_what_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    valkey_program()
    assert queue_cost.main(["--rounds", "1", "--items", "4", "--seconds", "0.2", "--many", "200"]) == 0
    printed = capsys.readouterr().out
    for row in (
        "| plain loop |",
        "| worker, queue |",
        "| worker, static |",
        "| whole command |",
        "| last tenth |",
    ):
        assert row in printed
