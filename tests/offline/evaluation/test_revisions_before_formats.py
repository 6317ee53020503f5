"""A base from before revisions printed their own evaluation is still compared, with real commits."""

import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from offline.preview.build import Options, build
from offline.preview.model import Operation
from offline.preview.revisions import evaluate_trees, stacks_of
from tests.support.checkout import ROOT

LAST = "945ce654125936b68b44b25b6c207db6fc4333d2"
"""The last revision before the modules moved to the rooms that they are in now."""

BEFORE_PREVIEWS = "d25a2dd4c5c14074612b71f07e9ca99a864e4d6a"
"""The last revision before there were previews."""


@pytest.fixture
def tree_of(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a commit's files to a folder; skips the test where a shallow clone does not have the commit."""

    def write(commit: str) -> Path:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=False, capture_output=True)
        if archive.returncode:
            pytest.skip(f"{commit[:7]} is not in this clone: git fetch --unshallow")
        subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True)
        return tmp_path

    return write


@pytest.mark.slow
def test_moving_every_module_changed_no_stack_but_for_the_files_of_its_jobs(
    tree_of: Callable[[str], Path],
) -> None:
    """A change that declares something else on purpose excepts it here."""
    evaluations = evaluate_trees(ROOT, tree_of(LAST))
    preview = build(evaluations, Options(date(2026, 11, 22), lambda _: {}, base=LAST))
    assert {each.stack for each in preview.stacks} == set(stacks_of(ROOT))
    for stack in preview.stacks:
        assert not stack.failures
        assert stack.changes is not None
        jobs = {each.name for each in stack.changes.runs}
        assert jobs
        for each in stack.changes.resources:
            assert each.operation is Operation.REPLACE, f"{stack.stack}: {each.urn}"
            assert each.name.removesuffix("-bundle") in jobs, f"{stack.stack}: {each.urn}"
        assert not [each.policy for each in stack.findings if each.new]


@pytest.mark.slow
def test_a_revision_from_before_previews_is_evaluated_as_a_preview_would(tree_of: Callable[[str], Path]) -> None:
    stack = evaluate_trees(ROOT, tree_of(BEFORE_PREVIEWS), ["gcp-dev"]).base["gcp-dev"].stack
    assert stack is not None
    (bucket,) = stack.of_type("gcp:storage/bucket:Bucket")
    assert bucket.properties["location"] == "US-CENTRAL1"
    (provider,) = stack.of_type("pulumi:providers:kubernetes")
    assert type(provider.properties["kubeconfig"]).__name__ == "Unknown"
