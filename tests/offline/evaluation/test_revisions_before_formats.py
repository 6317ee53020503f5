"""A base from before revisions printed their own evaluation is still compared, with real commits."""

import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from infra.review.stack import JOB
from offline.preview.build import Options, build
from offline.preview.revisions import evaluate_trees
from tests.support.checkout import ROOT

LAST = "945ce654125936b68b44b25b6c207db6fc4333d2"
"""The last revision before the modules moved to the rooms that they are in now."""

JOBS = {"aws-dev": 13, "gcp-dev": 13, "local": 4, "openshift": 15}
"""How many Jobs some of its stacks declared."""

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
def test_a_revision_from_before_formats_is_evaluated_and_compared_with_this_one(
    tree_of: Callable[[str], Path],
) -> None:
    evaluations = evaluate_trees(ROOT, tree_of(LAST), [*JOBS])
    stacks = {name: each.stack for name, each in evaluations.base.items()}
    assert {name: len(stack.of_type(JOB)) for name, stack in stacks.items() if stack} == JOBS
    gcp = stacks["gcp-dev"]
    assert gcp is not None
    (train,) = (each for each in gcp.of_type(JOB) if each.name == "mnist-train")
    assert train.properties["spec"]["activeDeadlineSeconds"] == 14400
    pod = train.properties["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-nodepool": "train"}
    (cluster,) = gcp.of_type("gcp:container/cluster:Cluster")
    assert cluster.properties["location"] == "us-central1"
    assert [pool.name for pool in gcp.pools] == ["cpu", "train", "predict"]

    preview = build(evaluations, Options(date(2026, 11, 22), lambda _: {}, base=LAST))
    assert {each.stack for each in preview.stacks} == set(JOBS)
    assert not [failure for each in preview.stacks for failure in each.failures]
    assert all(each.changes is not None for each in preview.stacks)


@pytest.mark.slow
def test_a_revision_from_before_previews_is_evaluated_as_a_preview_would(tree_of: Callable[[str], Path]) -> None:
    tree = tree_of(BEFORE_PREVIEWS)
    # By a name that this revision has no stack of, so that it evaluates none.
    (tree / "stacks/Pulumi.gcp-dev.yaml").rename(tree / "stacks/Pulumi.gcp-then.yaml")
    stack = evaluate_trees(ROOT, tree, ["gcp-then"]).base["gcp-then"].stack
    assert stack is not None
    (bucket,) = stack.of_type("gcp:storage/bucket:Bucket")
    assert bucket.properties["location"] == "US-CENTRAL1"
    (provider,) = stack.of_type("pulumi:providers:kubernetes")
    assert type(provider.properties["kubeconfig"]).__name__ == "Unknown"
