"""From a fresh clone to results: a pipeline of one's own, a stack for it, a rehearsal, the preview of a change."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.docs.fences import blocks
from tests.support.checkout import ROOT, copy_checkout
from tests.support.clones import bash, git

PAGE, PIPELINE, STACK = "docs/your-program.md", "churn", "churn-dev"
"""The page that a newcomer follows, and what it has them make."""

BESIDE = {"gcp-dev"}
"""The stacks that stay beside it; a preview and a check evaluate each."""

pytestmark = pytest.mark.long  # It installs the packages of the pipeline's lock file.


def make(clone: Path, *words: str) -> str:
    return bash(clone, shlex.join(["make", *words]))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which the commands of the page were run: a new pipeline, a stack for it, and a rehearsal.

    Who followed the page in this working tree has both already, which the clone has not.
    """
    copy = copy_checkout(tmp_path_factory.mktemp("fresh") / "slipway")
    shutil.rmtree(copy / "workloads" / PIPELINE, ignore_errors=True)
    for file in (copy / "stacks").glob("Pulumi.*.yaml"):
        if file.stem.removeprefix("Pulumi.") not in BESIDE:
            file.unlink()
    git(copy, "init", "-q")
    git(copy, "add", ".")
    git(copy, "commit", "-q", "-m", "upstream")
    (typed,) = (block for block in blocks(ROOT) if (block.page, block.info) == (PAGE, "sh"))
    bash(copy, typed.body)
    return copy


def test_the_rehearsal_ends_with_its_results_in_the_report(clone: Path) -> None:
    folder = clone / "build" / "rehearsal" / STACK
    outputs = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))[PIPELINE]
    assert outputs["accuracy"] > 0.8, "a guess would be right for 71 of 100"
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "<small>Accuracy</small>" in report
    assert f"{100 * outputs['accuracy']:.1f}" in report
    assert "data:image/png;base64," in report
    (curve,) = (folder / "results").rglob("curve.png")
    assert curve.read_bytes().startswith(b"\x89PNG")


def test_nothing_is_changed_but_what_is_the_users(clone: Path) -> None:
    status = git(clone, "status", "--porcelain", "--untracked-files=all").splitlines()
    names = {line[3:] for line in status}
    assert all(line.startswith("??") for line in status)
    assert {name for name in names if not name.startswith(f"workloads/{PIPELINE}/")} == {
        f"stacks/Pulumi.{STACK}.yaml"
    }
    assert f"workloads/{PIPELINE}/train.py" in names


def test_the_page_shows_the_section_that_it_has_in_the_stack_file(clone: Path) -> None:
    page = (clone / PAGE).read_text(encoding="utf-8")
    written = (clone / "stacks" / f"Pulumi.{STACK}.yaml").read_text(encoding="utf-8")
    section = written[written.index("  slipway:pipelines:") :]
    assert f"```yaml\n{section}```" in page


def test_on_every_cloud_no_policy_is_broken(clone: Path) -> None:
    stacks = {cloud: f"{STACK}-{cloud}" for cloud in ("aws", "existing")}
    for cloud, stack in stacks.items():
        make(clone, "new", f"STACK={stack}", f"CLOUD={cloud}", f"USES={PIPELINE}", "GPU=nvidia-l4")
    said = make(clone, "check", f"STACK={STACK},{','.join(stacks.values())}")
    assert "error" not in said
    for stack in stacks.values():
        (clone / "stacks" / f"Pulumi.{stack}.yaml").unlink()


def test_a_preview_of_a_changed_script_names_its_job_on_its_pool(clone: Path) -> None:
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "mine")
    script = clone / "workloads" / PIPELINE / "train.py"
    text = script.read_text(encoding="utf-8")
    assert "min_samples_leaf=5" in text
    script.write_text(text.replace("min_samples_leaf=5", "min_samples_leaf=9"), encoding="utf-8")
    git(clone, "commit", "-q", "-a", "-m", "another forest")
    said = make(clone, "preview", "BASE=HEAD~1")
    assert f"{PIPELINE}-train  Job  runs again  on pool cpu: train.py changed" in said
    assert f"{PIPELINE}-prepare  Job" not in said
    assert "gcp-dev" in said.partition("No changes in ")[2]
