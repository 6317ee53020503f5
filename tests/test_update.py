"""A project whose requirements.txt pins another release of the package than before: what that changes."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from slipway.rehearse.machine.environments import ENVIRONMENTS
from tests.support.checkout import copy_checkout
from tests.support.clones import git
from tests.support.project import PROJECT_FILE, STACK
from tests.support.releases import build, release
from tests.support.tree import write_tree
from tests.support.wheels import pin

FILES = {
    "Pulumi.yaml": PROJECT_FILE,
    "__main__.py": "from slipway import run\n\nrun()\n",
    ".gitignore": "build/\nwheels\n",
    "stacks/Pulumi.here.yaml": STACK,
    "workloads/lines/pipeline.yaml": (
        "description: Counts.\nsteps: {count: {description: Counts., run: 'python count.py --output {output}'}}\n"
    ),
    "workloads/lines/count.py": "print()\n",
}
SHIPPED = "slipway/runtime/store.py"
"""What every pod ships."""

LIMITS = tuple(f'default="{limit}", description="Hard limit over' for limit in ("2h", "3h"))
"""How the program declares the time limit of steps that name none, before and after."""

FIRST, CHANGED, SAME = "91.0.0", "91.1.0", "91.2.0"


@dataclass(frozen=True)
class Releases:
    """Three releases: `CHANGED` ships another file to pods and gives Jobs more time, `SAME` changes nothing more.

    ``wheels`` has their wheels, and ``installed`` the folders with what these install.
    """

    wheels: Path
    installed: Path

    def requirements(self, version: str) -> str:
        wheel = self.wheels / f"slipway_ml-{version}-py3-none-any.whl"
        return f"--no-index\n--find-links ./wheels\n{pin('slipway-ml', version, wheel)}"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    folder = tmp_path_factory.mktemp("releases")
    built = build(copy_checkout(folder / "checkout"), folder / "dist")[".whl"]
    edits = {
        SHIPPED: lambda text: f"{text}# Another one.\n",
        "slipway/infra/pipelines/contract.py": lambda text: text.replace(*LIMITS),
    }
    for version, changes in ((FIRST, {}), (CHANGED, edits), (SAME, edits)):
        wheel = release(built, version, changes, folder / "wheels")
        zipfile.ZipFile(wheel).extractall(folder / "installed" / version)
    return Releases(folder / "wheels", folder / "installed")


@pytest.fixture
def project(releases: Releases, tmp_path: Path) -> Path:
    """A project that pins `FIRST` at its only commit."""
    root = write_tree(tmp_path / "acme", {**FILES, "requirements.txt": releases.requirements(FIRST)})
    (root / "wheels").symlink_to(releases.wheels)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "all")
    return root


def preview(releases: Releases, project: Path, installed: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What the release ``installed`` says of the project against its last commit."""
    return subprocess.run(
        [sys.executable, "-m", "slipway", "preview", "--base", "HEAD", *words],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(releases.installed / installed),
            "UV_CACHE_DIR": str(project / "build" / "cache"),
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )


def document(releases: Releases, project: Path, version: str) -> dict[str, Any]:
    """The preview of the update to ``version``, which is written into the project and installed."""
    (project / "requirements.txt").write_text(releases.requirements(version), encoding="utf-8")
    done = preview(releases, project, version, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_it_shows_what_the_update_changes_forth_and_back_and_none_where_it_changes_nothing(
    releases: Releases, project: Path
) -> None:
    forth = document(releases, project, CHANGED)
    assert forth["versions"] == [{"package": "slipway-ml", "base": FIRST, "here": CHANGED}]
    [stack] = forth["stacks"]
    runs = {run["name"]: run["because"] for run in stack["changes"]["runs"]}
    assert [*runs] == ["store-gate-here", "lines-count"]
    assert SHIPPED in runs["lines-count"]
    paths = {change["path"] for resource in stack["changes"]["resources"] for change in resource["properties"]}
    assert "spec.activeDeadlineSeconds" in paths
    git(project, "commit", "--quiet", "--all", "--message", "update")

    same = document(releases, project, SAME)
    assert same["versions"] == [{"package": "slipway-ml", "base": CHANGED, "here": SAME}]
    assert [stack["changes"]["resources"] for stack in same["stacks"]] == [[]]

    back = document(releases, project, FIRST)
    assert back["versions"] == [{"package": "slipway-ml", "base": CHANGED, "here": FIRST}]
    [again] = back["stacks"]
    assert [run["name"] for run in again["changes"]["runs"]] == [*runs]
    environments = [path for path in (project / ENVIRONMENTS).iterdir() if path.is_dir()]
    assert len(environments) == 2, "the base's was made once for both"


BACKEND = """import pathlib, shutil

def build_wheel(folder, settings=None, metadata=None):
    [wheel] = pathlib.Path().glob("*.whl")
    shutil.copy(wheel, folder)
    return wheel.name
"""
"""Builds a package of the wheel that lies beside it, with nothing from an index."""


@pytest.mark.slow
def test_a_base_that_pins_a_commit_in_a_file_which_its_own_includes(
    releases: Releases, project: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    building = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    write_tree(repository, {"pyproject.toml": building, "backend.py": BACKEND})
    name = f"slipway_ml-{FIRST}-py3-none-any.whl"
    (repository / name).write_bytes((releases.wheels / name).read_bytes())
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "first")
    commit = git(repository, "rev-parse", "HEAD").strip()
    address = f"git+file://{repository}@{commit}"
    included = {"requirements.txt": "-r pins/ours.txt\n", "pins/ours.txt": f"slipway-ml @ {address}\n"}
    write_tree(project, included)
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "by its commit")

    forth = document(releases, project, CHANGED)
    assert forth["versions"] == [{"package": "slipway-ml", "base": FIRST, "here": CHANGED}]
    assert "lines-count" in [run["name"] for run in forth["stacks"][0]["changes"]["runs"]]

    repository.rename(tmp_path / "away")
    rmtree(project / "build")
    unreachable = preview(releases, project, CHANGED)
    assert (unreachable.returncode, unreachable.stdout) == (2, "")
    assert f"Have {address} reachable" in unreachable.stderr


@pytest.mark.slow
def test_it_compares_no_version_that_is_not_the_pinned_one(releases: Releases, project: Path) -> None:
    unchanged = preview(releases, project, FIRST, "--format", "json")
    assert unchanged.returncode == 0, unchanged.stderr
    assert json.loads(unchanged.stdout)["versions"] == []
    assert not (project / ENVIRONMENTS).exists(), "what is installed is what the base pins"

    (project / "requirements.txt").write_text(releases.requirements(CHANGED), encoding="utf-8")
    not_installed = preview(releases, project, FIRST)
    assert not_installed.returncode == 2
    assert f"slipway-ml {CHANGED} (installed: {FIRST})" in not_installed.stderr
    assert "install -r requirements.txt" in not_installed.stderr

    (project / "wheels").unlink()
    unreachable = preview(releases, project, CHANGED)
    assert (unreachable.returncode, unreachable.stdout) == (2, "")
    assert f"slipway-ml {FIRST}" in unreachable.stderr
    assert "--find-links" in unreachable.stderr
