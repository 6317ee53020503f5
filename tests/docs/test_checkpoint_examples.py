"""The examples of docs/checkpoints.md that need nothing, or what this project has, go on when told to end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

LONGEST = 300.0
"""Seconds until a program has a checkpoint, or goes on."""


def examples() -> dict[str, tuple[str, str]]:
    """The language and the text of the first program below each heading."""
    text = (ROOT / "docs/checkpoints.md").read_text(encoding="utf-8")
    blocks = re.findall(
        r"^### ([^\n]+)\n(?:(?!^#).)*?^```(python|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    return {heading: (language, program) for heading, language, program in blocks}


def began_after(folder: Path, words: list[str], awaited: str) -> int:
    """Run the program until its log has what is awaited, tell it to end, and return after which step it began."""
    command = [
        sys.executable, "-m", "slipway.runtime.steps.command", "--output", str(folder / "out"), "--code",
        str(folder / "code"), "--checkpoints", json.dumps({"grace": 20}), "--", *words,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    log = folder / "log"
    with log.open("w") as writing:
        process = subprocess.Popen(
            command, env=environment, stdout=writing, stderr=writing, start_new_session=True
        )
    try:
        end = time.monotonic() + LONGEST
        while not re.search(awaited, log.read_text()):
            assert time.monotonic() < end, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return int(re.findall(r"goes on after (\d+)", log.read_text())[-1])


def test_every_framework_of_the_page_has_an_example() -> None:
    headings = [
        "Keras",
        "PyTorch",
        "PyTorch's distributed checkpoints",
        "JAX with Orbax",
        "scikit-learn",
        "A shell script",
    ]
    assert list(examples()) == headings


@pytest.mark.slow
@pytest.mark.parametrize(
    "heading", ["A shell script", "scikit-learn", pytest.param("Keras", marks=pytest.mark.long)]
)
def test_an_example_goes_on_from_its_checkpoint(tmp_path: Path, heading: str) -> None:
    language, program = examples()[heading]
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "program").write_text(program)
    words = [sys.executable if language == "python" else "bash", "program"]

    assert began_after(tmp_path, words, "is in the store") == 0
    assert began_after(tmp_path, words, "goes on after") > 0
