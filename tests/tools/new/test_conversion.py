"""From a clone with stacks and pipelines of the user's to a project that uses the package, without any change."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import ROOT, copy_checkout
from tests.support.clones import git
from tests.support.project import STACK
from tests.support.tree import write_tree

YOURS = {
    "stacks/Pulumi.yours.yaml": f"encryptionsalt: v1:salt\n{STACK.lstrip()}",
    "workloads/lines/pipeline.yaml": (
        "description: Counts.\nsteps: {count: {description: Counts., run: python count.py}}\n"
    ),
    "workloads/lines/count.py": "print()\n",
    "docs/own/page.md": "# Ours\n",
    "infra/ours.py": "LOST = True\n",
}
LOCAL = "stacks/Pulumi.local.yaml"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose stack `local` was changed, and which has another one, with its pipeline and other files."""
    root = copy_checkout(tmp_path_factory.mktemp("conversion") / "clone")
    (root / ".venv").unlink()
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "upstream's")
    git(root, "update-ref", "refs/remotes/upstream/main", "HEAD")
    write_tree(root, YOURS)
    for path, text in {LOCAL: "  other:key: value\n", "README.md": "ours\n"}.items():
        with (root / path).open("a") as file:
            file.write(text)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "ours")
    write_tree(root, {"docs/own/not-added.md": "# Ours\n"})
    return root


def convert(clone: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".venv/bin/python", "-m", "slipway.tools.new.conversion", *words],
        cwd=clone,
        # Without an index, which takes its time.
        env={**os.environ, "UV_OFFLINE": "1", **variables},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_project_takes_what_is_yours_and_nothing_changes_in_its_stacks(clone: Path) -> None:
    before = git(clone, "status", "--porcelain")
    done = convert(clone, "--to=../acme")
    assert done.returncode == 0, done.stdout + done.stderr
    left, _, rest = done.stdout.partition("Wrote")
    assert {"README.md", "infra/ours.py"} == {line.strip() for line in left.splitlines()[1:]}
    assert "Nothing changes" in rest
    project = clone.parent / "acme"
    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    taken = {*YOURS, LOCAL, "Pulumi.yaml", "docs/own/not-added.md", "workloads/mnist/train.py"} - {"infra/ours.py"}
    assert taken < files
    assert all((project / path).read_bytes() == (clone / path).read_bytes() for path in taken)
    assert {"requirements.txt", "tests/test_stacks.py", ".github/workflows/preview.yml", ".gitignore"} < files
    stacks = {path for path in files if path.startswith("stacks/")}
    assert stacks == {LOCAL, "stacks/Pulumi.yours.yaml"}, "those that ship and are not used stay"
    assert "workloads/fraud/pipeline.yaml" not in files
    assert (project / "README.md").read_text().startswith("# acme\n")
    assert git(clone, "status", "--porcelain") == before


@pytest.mark.slow
def test_digests_of_images_are_taken_and_a_change_of_a_stack_is_said(clone: Path) -> None:
    path = clone / "infra" / "data" / "images.toml"
    shipped = path.read_text()
    digest = f"sha256:{'1' * 64}"
    path.write_text(shipped.replace("[tensorflow.digests]\n", f'[tensorflow.digests]\n"2.21.0" = "{digest}"\n', 1))
    try:
        done = convert(clone, "--to=../pinned", "--stack=yours")
    finally:
        path.write_text(shipped)
    pins = (clone.parent / "pinned" / "image-digests.toml").read_text()
    assert digest in pins, "what runs in these images does not run again"
    assert done.returncode == 0, done.stdout + done.stderr
    count = clone / "workloads" / "lines" / "count.py"
    count.write_text("print(1)\n")
    code = (
        "from pathlib import Path; from slipway.tools.new.conversion import compare;"
        "print(*compare(Path('.').resolve(), Path('../pinned').resolve(), ['yours']))"
    )
    try:
        words = [ROOT / ".venv/bin/python", "-c", code]
        compared = subprocess.run(words, cwd=clone, check=True, capture_output=True, text=True)
    finally:
        count.write_text("print()\n")
    assert "lines-count" in compared.stdout


@pytest.mark.slow
def test_everything_in_its_way_is_said_at_once_and_nothing_is_written(clone: Path) -> None:
    outside = yaml.safe_load(STACK)
    outside["config"]["slipway:pipelines"] = {"far": {"uses": "../far"}}
    write_tree(clone, {"stacks/Pulumi.far.yaml": yaml.safe_dump(outside)})
    try:
        words = ("--to=folder/below", "--stack=far", "--stack=misspelt")
        done = convert(clone, *words, PULUMI_BACKEND_URL="file://state")
        lost = convert(clone, "--to=../lost", "--base=nowhere")
    finally:
        (clone / "stacks/Pulumi.far.yaml").unlink()
    assert done.returncode == lost.returncode == 2
    for key in ("TO", "STACK", "PULUMI_BACKEND_URL", "far: slipway:pipelines.far.uses"):
        assert f"  {key}: " in done.stderr, key
    assert "  BASE: " in lost.stderr
    assert not (clone / "folder").exists()
    assert not (clone.parent / "lost").exists()
