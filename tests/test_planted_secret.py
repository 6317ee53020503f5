"""A secret that stands in clear in a stack file is in nothing that the tools print or write.

That a program may print a secret which it was given is in `tests.rehearse.machine.test_programs`.
"""

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.checkout import ROOT, copy_checkout

PLANTED = "plantedvalue7f3a"
SECURE = {"secure": "v1:bm9uY2U=:Y2lwaGVydGV4dA=="}

PIPELINE = """
description: Prints all that it is given.
steps:
  show:
    run: [python, show.py]
    secrets: {API_KEY: own-key}
"""

STACKS: dict[str, dict[str, Any]] = {
    "right": {"slipway:secrets": {"own-key": SECURE}},
    "clear": {"slipway:secrets": {"own-key": PLANTED}},
    "mixed": {"slipway:secrets": {"own-key": SECURE, "other": PLANTED}},
    "text": {"slipway:secrets": PLANTED},
    "list": {"slipway:secrets": [PLANTED]},
    "deeper": {"slipway:secrets": {"own-key": {"value": PLANTED}}},
    "url": {"slipway:secrets": {"own-key": SECURE}, "slipway:namespace": f"redis://:{PLANTED}@host"},
    "misspelt": {"slipway:secret": {"own-key": PLANTED}},
    "rehearsed": {"slipway:secrets": {"own-key": SECURE}, "slipway:rehearsal": {"secrets": {"own-key": PLANTED}}},
}
"""What the file of each stack says beside what they all say; all but the first are refused."""

pytestmark = pytest.mark.slow  # It evaluates eight stacks twice, and starts a rehearsal.


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copied = copy_checkout(tmp_path_factory.mktemp("planted") / "slipway")
    (copied / "workloads" / "shows").mkdir()
    (copied / "workloads" / "shows" / "pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
    (copied / "workloads" / "shows" / "show.py").write_text("import os\nprint(os.environ)\n", encoding="utf-8")
    common = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text(encoding="utf-8"))["config"]
    common["slipway:pipelines"] = {"shows": {"steps": {"show": {"pool": "cpu"}}}}
    for name, said in STACKS.items():
        content = {"config": {**copy.deepcopy(common), **said}}
        (copied / "stacks" / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return copied


def run(clone: Path, *arguments: str) -> str:
    command = [str(ROOT / ".venv" / "bin" / "python"), *arguments]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=240)
    return done.stdout + done.stderr


def stacks(*names: str) -> list[str]:
    return [word for name in names for word in ("--stack", name)]


def test_previews_are_without_it(clone: Path, tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "preview.json"))
    printed = run(clone, "-m", "slipway", "preview", *stacks(*STACKS))
    printed += run(clone, "-m", "slipway", "preview", "--format", "markdown", *files, *stacks(*STACKS))

    assert PLANTED not in printed
    assert printed.count("pulumi config set --secret --path 'slipway:secrets.own-key'") >= 2
    assert PLANTED not in (tmp_path / "preview.json").read_text(encoding="utf-8")


def test_evaluations_are_without_it(clone: Path) -> None:
    printed = run(clone, "-m", "slipway.engine.evaluation", *stacks(*STACKS))

    assert "shows-secrets" in printed
    assert PLANTED not in printed


def test_a_refused_rehearsal_is_without_it(clone: Path) -> None:
    printed = run(clone, "-m", "slipway", "rehearse", "--stack", "mixed")

    assert "slipway:secrets.other" in printed
    assert PLANTED not in printed
    build = [path for path in (clone / "build").rglob("*") if path.is_file()]
    assert not [path for path in build if PLANTED.encode() in path.read_bytes()]
