"""The package `slipway`: what is in it, and a project elsewhere that uses it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slipway
from slipway.command.app import app
from slipway.command.new.stack import PLACES
from tests.support.checkout import ROOT, copy_checkout
from tests.support.clones import git
from tests.support.project import PROJECT_FILE, STACK
from tests.support.releases import build
from tests.support.tree import write_tree

VERSION = "97.5.3"

PROJECT = {
    "Pulumi.yaml": PROJECT_FILE,
    "__main__.py": "from slipway import run\n\nrun()\n",
    "stacks/Pulumi.here.yaml": STACK,
    "workloads/lines/pipeline.yaml": """
description: Counts lines.
steps:
  count:
    description: Counts its own.
    run: python count.py --output {output}
""",
    "workloads/lines/count.py": (
        "import pathlib, sys\n"
        "lines = len(pathlib.Path(__file__).read_text().splitlines())\n"
        "(pathlib.Path(sys.argv[2]) / 'lines.txt').write_text(str(lines))\n"
    ),
}


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the release `VERSION`."""
    checkout = copy_checkout(tmp_path_factory.mktemp("package") / "checkout")
    git(checkout, "init", "--quiet")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "release")
    git(checkout, "tag", f"v{VERSION}")
    return checkout


@pytest.fixture(scope="module")
def built(tagged: Path) -> dict[str, Path]:
    return build(tagged, tagged.parent / "dist")


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs. What it depends on is in this environment."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(built[".whl"]).extractall(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = write_tree(tmp_path / "project", PROJECT)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "all")
    return root


def python(installed: Path, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_public_names_are_these() -> None:
    assert slipway.__all__ == ["Cluster", "ClusterNetwork", "Declared", "Store", "run"]
    assert all(callable(getattr(slipway, name)) for name in slipway.__all__)
    with pytest.raises(AttributeError):
        _ = slipway.walk


def test_the_package_imports_nothing_until_a_name_is_asked_for() -> None:
    code = "import sys, slipway; print([name for name in sys.modules if name.startswith(('pulumi', 'slipway.'))])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_build_has_the_program_and_what_pods_ship_and_no_tests(built: dict[str, Path]) -> None:
    names = zipfile.ZipFile(built[".whl"]).namelist()
    assert {name.partition("/")[0] for name in names} == {"slipway", f"slipway_ml-{VERSION}.dist-info"}
    assert {
        "slipway/py.typed",
        "slipway/CHANGELOG.md",
        "slipway/docs/your-project.md",
        "slipway/infra/program.py",
        "slipway/infra/data/images.toml",
        "slipway/features/search/pod/requirements.txt",
        "slipway/features/page/pod/static/page.js",
        "slipway/command/new/templates/pipeline/train.py.j2",
    } <= {*names}
    ours = [name for name in names if "/templates/" not in name]
    assert [name for name in ours if "test" in Path(name).name.split("_")] == []
    assert [name for name in names if "/mnist/" in name] == []


@pytest.mark.slow
def test_the_same_commit_gives_the_same_bytes(built: dict[str, Path], tagged: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", f"file://{tagged}", "elsewhere")
    again = build(tmp_path / "elsewhere", tmp_path / "dist")
    digests = [
        {kind: sha256(path.read_bytes()).hexdigest() for kind, path in made.items()} for made in (built, again)
    ]
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_a_new_project_reads_ten_digits_and_none_of_its_files_changes(installed: Path, tmp_path: Path) -> None:
    made = python(installed, tmp_path, "-m", "slipway", "new", "acme")
    assert made.returncode == 0, made.stderr
    project = tmp_path / "acme"
    assert [path.name for path in tmp_path.iterdir()] == ["acme"], "nothing is left beside it"
    files = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert len(files) == 12
    assert f"slipway-ml[rehearse]=={VERSION}".encode() in files[project / "requirements.txt"]

    rehearsed = python(installed, project, "-m", "slipway", "rehearse")
    assert rehearsed.returncode == 0, rehearsed.stdout + rehearsed.stderr
    [predictions] = (project / "build/rehearsal/dev/store").glob("digits/predict/*/predictions.json")
    images = json.loads(predictions.read_text())["images"]
    assert [image["truth"] for image in images] == list(range(10))
    assert sum(image["truth"] == image["digit"] for image in images) >= 9
    assert {path: path.read_bytes() for path in files} == files
    checked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


TRAIN_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: jax}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  template:
    spec:
      containers:
        - name: jax
          image: ghcr.io/nvidia/jax@sha256:d1faa4714a40ab512184fb471fc039972b71f82dd3370f377d31fbcc37fabfe4
          command: [python, -c, "import jax; jax.distributed.initialize()"]
"""


@pytest.mark.slow
def test_a_new_project_names_pages_and_files_that_are_there_on_any_machine(
    installed: Path, tmp_path: Path
) -> None:
    project = tmp_path / "acme"
    (tmp_path / "job.yaml").write_text(TRAIN_JOB)
    stacks = [
        f"new --stack {cloud}{count} --cloud {cloud} --uses churn {gpu}"
        for cloud in PLACES
        for count, gpu in enumerate(("", "--gpu nvidia-tesla-t4"))
    ]
    for words in ("new acme", "new --pipeline churn", "import ../job.yaml", *stacks):
        folder = project if project.is_dir() else tmp_path
        done = python(installed, folder, "-m", "slipway", *words.split())
        assert done.returncode == 0, done.stdout + done.stderr

    [page] = re.findall(r"\S+\.md", python(installed, project, "-m", "slipway", "--help").stdout)
    # `.venv` and `build` are made later, in a project as in a clone.
    folders = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "build")
    rooms = "|".join([r"\.\.", *(name for name in folders if not name.startswith("."))])
    gone = set[tuple[str, str]]()
    pages = set[str]()
    for file in (path for path in project.rglob("*") if path.is_file()):
        text = file.read_text(encoding="utf-8")
        assert str(installed) not in text, file
        files = re.findall(rf"(?<![\w./-])(?:{rooms})/[\w./-]*\w", text)
        gone |= {
            (file.name, name) for name in files if not any((at / name).exists() for at in (project, file.parent))
        }
        pages |= {*re.findall(r"(?<![\w./-])[a-z][\w-]*\.md", text)}
    assert gone == set()
    assert {"settings.md", "your-program.md", "distributed.md", "gcp.md", "aws.md", "onprem.md"} <= pages
    assert [name for name in pages if not Path(page).with_name(name).is_file()] == []


@pytest.mark.slow
def test_a_project_made_by_a_wheel_installs_that_wheel_elsewhere(
    built: dict[str, Path], installed: Path, tmp_path: Path
) -> None:
    wheel = built[".whl"]
    noted = {"url": wheel.as_uri(), "archive_info": {}}
    made_by = write_tree(tmp_path / "installed", {})
    shutil.copytree(installed, made_by, dirs_exist_ok=True)
    [information] = made_by.glob("*.dist-info")
    (information / "direct_url.json").write_text(json.dumps(noted))
    made = python(made_by, tmp_path, "-m", "slipway", "new", "acme")
    assert made.returncode == 0, made.stderr
    project = (tmp_path / "acme").rename(tmp_path / "elsewhere")
    assert [path.read_bytes() for path in (project / "wheels").iterdir()] == [wheel.read_bytes()]
    digest = sha256(wheel.read_bytes()).hexdigest()
    lines = (project / "requirements.txt").read_text().replace("\\\n", "").splitlines()
    assert [digest in line for line in lines if line.startswith("slipway-ml[")] == [True]
    pip = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--target", str(tmp_path / "target")]
    done = subprocess.run(
        [*pip, "--no-deps", "--require-hashes", "-r", "requirements.txt"],
        cwd=project,
        check=False,
        capture_output=True,
        text=True,
    )
    assert f"slipway-ml=={VERSION}" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["Acme", "a_b", "a" * 21, "taken"])
def test_a_project_is_not_written_under_a_name_that_clusters_cannot_carry_or_over_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").mkdir()
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["new", name])
    assert refused.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.slow
def test_a_project_elsewhere_is_rehearsed_and_previewed(installed: Path, project: Path) -> None:
    rehearsed = python(installed, project, "-m", "slipway", "rehearse", "--stack", "here")
    assert rehearsed.returncode == 0, rehearsed.stdout + rehearsed.stderr
    [lines] = (project / "build" / "rehearsal" / "here" / "store").glob("lines/count/*/lines.txt")
    assert lines.read_text() == "3"
    assert git(project, "status", "--porcelain") == "?? build/\n"

    preview = ("-m", "slipway", "preview", "--stack", "here", "--base", "HEAD")
    same = python(installed, project, *preview)
    assert same.returncode == 0, same.stdout + same.stderr
    assert "lines-count" not in same.stdout
    (project / "workloads" / "lines" / "count.py").write_text("print()\n")
    changed = python(installed, project, *preview)
    assert "lines-count  Job  runs" in changed.stdout, changed.stdout + changed.stderr
