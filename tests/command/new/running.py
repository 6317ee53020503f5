"""`slipway new` in a copy of the checkout."""

import subprocess
from pathlib import Path

from tests.support.checkout import ROOT


def new(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [ROOT / ".venv/bin/python", "-m", "slipway", "new", "--example=mnist", *options]
    return subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True)
