"""`slipway preview` in the folder of a project that is not Slipway's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preview.tree import ROOT
from tests.support.clones import git
from tests.support.tree import write_tree

PROGRAM = """
import pulumi_aws as aws

image = aws.ec2.get_ami(most_recent=True, owners=["amazon"])
aws.s3.Bucket("data", bucket="acme-data")
aws.ec2.Instance("web", ami=image.id, instance_type="t3.micro")
"""


def preview(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slipway", "preview", "--format", "json", *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": "1795000000"},
    )


@pytest.mark.slow
def test_a_project_of_anyone_is_compared_with_its_base(tmp_path: Path) -> None:
    project = write_tree(
        tmp_path,
        {
            "Pulumi.yaml": "name: acme\nruntime: python\nmain: src\n",
            "Pulumi.dev.yaml": "config:\n  aws:region: eu-west-1\n",
            "src/__main__.py": PROGRAM,
        },
    )
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "one")
    changed = PROGRAM.replace("acme-data", "acme-other").replace("t3.micro", "t3.small")
    write_tree(project, {"src/__main__.py": changed})
    done = preview(project / "src", "--base", "HEAD")
    assert done.returncode == 1, done.stderr
    (stack,) = json.loads(done.stdout)["stacks"]
    operations = {resource["name"]: resource["operation"] for resource in stack["changes"]["resources"]}
    assert operations == {"data": "replace", "web": "update"}
    places = {resource["name"]: resource["place"] for resource in stack["changes"]["resources"]}
    assert places == {"data": "src/__main__.py:5", "web": "src/__main__.py:6"}
    assert {finding["place"] for finding in stack["findings"] if finding["new"]} == {"src/__main__.py:5"}
    assert {finding["policy"] for finding in stack["findings"] if finding["new"]} == {"deletion-refused"}
    assert any("aws:ec2/getAmi" in remark for remark in stack["remarks"])


@pytest.mark.slow
def test_a_project_without_a_stack_file_is_told_how_to_get_one(tmp_path: Path) -> None:
    done = preview(write_tree(tmp_path, {"Pulumi.yaml": "name: a\nruntime: python\n", "__main__.py": ""}))
    assert done.returncode == 2
    assert "pulumi stack init" in done.stderr
