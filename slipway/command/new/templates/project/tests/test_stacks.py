"""Every stack evaluates, and keeps to the policies. Needs no cloud and no cluster: `python -m pytest`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_stack_keeps_to_the_policies() -> None:
    words = [sys.executable, "-m", "slipway", "check"]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
