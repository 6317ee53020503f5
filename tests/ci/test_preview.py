"""The preview of a change, as a pipeline makes it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.conftest import Make
from tests.support.checkout import ROOT
from tests.support.clones import git
from tests.support.tree import write_tree


@pytest.fixture(scope="module")
def change(checkout: Path) -> Path:
    """A checkout with two stacks, whose last commit gives a node pool of one of them one more node."""
    for other in (checkout / "stacks").glob("Pulumi.*.yaml"):
        if other.name not in {"Pulumi.gcp-dev.yaml", "Pulumi.aws-dev.yaml"}:
            other.unlink()
    (checkout / ".git" / "info").mkdir(parents=True)
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    (checkout / ".git" / "info" / "exclude").write_text(".venv\n", encoding="utf-8")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "Base")
    file = checkout / "stacks" / "Pulumi.gcp-dev.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("total_max: 2", "total_max: 3", 1), encoding="utf-8")
    git(checkout, "commit", "--quiet", "--all", "--message", "Allow one more node")
    return checkout


@pytest.mark.slow
def test_a_change_is_previewed_for_people_and_machines(change: Path, make: Make, tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    done = make("ci-preview", BASE="HEAD^1", NUMBER="12", GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stderr
    folder = change / "build" / "ci" / "preview"
    markdown = (folder / "preview.md").read_text(encoding="utf-8")
    assert "gcp-dev" in markdown
    assert summary.read_text(encoding="utf-8").strip() == markdown.strip()
    assert (folder / "number").read_text(encoding="utf-8") == "12"
    preview = json.loads((folder / "preview.json").read_text(encoding="utf-8"))
    changed = {stack["stack"]: stack["changes"]["resources"] for stack in preview["stacks"] if stack["changes"]}
    assert ("update", "dev-cpu") in [(item["operation"], item["name"]) for item in changed["gcp-dev"]]
    assert changed["aws-dev"] == []
    assert make("ci-verdict").returncode == 0


@pytest.mark.slow
def test_a_base_that_is_not_there_is_named(change: Path, make: Make) -> None:
    done = make("ci-preview", BASE="--upload-pack=x")
    assert done.returncode != 0
    assert "There is no commit '--upload-pack=x'" in done.stderr
    assert make("ci-verdict").returncode != 0


@pytest.mark.parametrize(("status", "code"), [("0\n", 0), ("1\n", 1), ("2\n", 2), (None, 2)])
def test_the_verdict_is_what_the_preview_found_or_that_there_is_none(
    tmp_path: Path, status: str | None, code: int
) -> None:
    if status:
        write_tree(tmp_path, {"build/ci/preview/status": status})
    command = [sys.executable, "-m", "ci.preview", "verdict"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=False, capture_output=True)
    assert done.returncode == code
