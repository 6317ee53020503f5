"""The pipelines' targets as make runs them, in a copy of the tree, with stand-ins for what they talk to."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ci.github_api import Repository, serving

Make = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def make(checkout: Path) -> Make:
    """Runs targets with these variables in the environment and none of a pipeline that runs this test."""

    def run(*targets: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        return subprocess.run(
            ["make", "--no-print-directory", *targets],
            cwd=checkout,
            env={**kept, "PYTHON": sys.executable, **environment},
            check=False,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def repository() -> Iterator[Repository]:
    with serving() as served:
        yield served


@pytest.fixture
def github(repository: Repository) -> dict[str, str]:
    return {"GITHUB_API_URL": repository.url, "GITHUB_REPOSITORY": "team/slipway", "GITHUB_TOKEN": "t"}


FAKE = """#!{python}
import json, os, pathlib, sys
if "export" in sys.argv:
    print(os.environ.get("PULUMI_STATE", {state!r}))
    sys.exit(int(os.environ.get("PULUMI_EXPORT_EXITS", "0")))
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
print(os.environ.get("PULUMI_SAYS", ""))
if "--save-plan" in sys.argv and (plan := os.environ.get("PULUMI_PLAN")):
    pathlib.Path(sys.argv[sys.argv.index("--save-plan") + 1]).write_text(plan)
sys.exit(int(os.environ.get("PULUMI_EXITS", "0")))
"""


STATE = '{"deployment": {}}'


class Cli:
    """Stands in for the Pulumi CLI: ``PULUMI_SAYS``, ``PULUMI_PLAN`` and ``PULUMI_EXITS`` are what it does.

    ``PULUMI_STATE`` is what it exports, with ``PULUMI_EXPORT_EXITS``; exports are no ``calls``.
    """

    def __init__(self, folder: Path) -> None:
        self._calls = folder / "calls"
        program = folder / "bin" / "pulumi"
        program.parent.mkdir()
        text = FAKE.format(python=sys.executable, calls=str(self._calls), state=STATE)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        self.path = f"{program.parent}:{os.environ['PATH']}"

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []


@pytest.fixture
def pulumi(tmp_path: Path) -> Cli:
    return Cli(tmp_path)
