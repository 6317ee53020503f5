"""Requirements files that include others."""

from pathlib import Path

import pytest

from slipway.infra.schema.requirement_files import RequirementFileError, read_project
from tests.support.tree import write_tree


def test_a_project_has_what_its_file_includes_and_the_files_that_limit_versions(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "-r pins/ours.txt\npandas==1\n",
        "pins/ours.txt": "--requirement=../requirements.txt\n-c limits.txt\nslipway-ml==1.0.0\n",
        "pins/limits.txt": "numpy<3\n",
    }
    project = read_project(write_tree(tmp_path / "acme", files))
    assert {entry.name for entry in project.entries if entry.name} == {"pandas", "slipway-ml"}
    assert project.constraints == [tmp_path / "acme/pins/limits.txt"]
    assert not read_project(tmp_path / "none").entries


@pytest.mark.parametrize("named", ["gone.txt", "https://example.com/ours.txt"])
def test_an_included_file_that_cannot_be_read_is_said(named: str, tmp_path: Path) -> None:
    with pytest.raises(RequirementFileError, match=named):
        read_project(write_tree(tmp_path / "acme", {"requirements.txt": f"-r {named}\n"}))
