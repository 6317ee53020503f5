"""Programs that start in another folder than that of their code, and folders that are there before they do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.runtime.exits import BAD_INPUT, StepError
from slipway.runtime.steps import folders, starting
from tests.support.tree import write_tree

SHOW = "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), os.listdir('.')]))\n"
CODE = {
    "train.py": f"import beside\n{SHOW}",
    "beside.py": "",
    "pkg/__init__.py": "",
    "pkg/main.py": SHOW,
    "conf/a.yaml": "1",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "bundle" / "code", CODE)


def start(code: Path, folder: object, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(code.parent / "tmp"), "PYTHONPATH": ""}
    command = [sys.executable, "-I", "-S", str(Path(starting.__file__)), str(folder), *words]
    return subprocess.run(command, cwd=code, env=environment, capture_output=True, text=True, check=False)


def test_the_program_and_its_files_are_taken_from_the_code(code: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "run"
    python = sys.executable
    arguments, directory, _ = json.loads(start(code, folder, python, "train.py", "conf/a.yaml", "new.pt").stdout)
    assert arguments == [str(code / "train.py"), str(code / "conf/a.yaml"), "new.pt"]
    assert directory == str(folder)
    for words in (["-m", "pkg.main"], ["-u", "./train.py"]):
        assert json.loads(start(code, folder, python, *words).stdout)[1] == str(folder)


def test_scratch_space_is_empty_for_each_program_and_an_output_is_not(code: Path, tmp_path: Path) -> None:
    for folder, left in (("$TMPDIR/scratch", []), (str(tmp_path / "out"), ["left"])):
        for expected in ([], left):
            listed = start(code, folder, sys.executable, "-c", f"{SHOW}open('left', 'w').close()")
            assert json.loads(listed.stdout)[2] == expected


def test_a_result_to_which_a_program_linked_its_scratch_space_stays(code: Path, tmp_path: Path) -> None:
    result = write_tree(tmp_path / "out", {"model": "weights"})
    (tmp_path / "bundle" / "tmp").mkdir()
    (tmp_path / "bundle" / "tmp" / "scratch").symlink_to(result)
    assert json.loads(start(code, "$TMPDIR/scratch", sys.executable, "-c", SHOW).stdout)[2] == []
    assert (result / "model").read_text() == "weights"


def test_code_in_a_config_map_is_named_by_where_it_is_mounted(tmp_path: Path) -> None:
    volume = write_tree(tmp_path / "volume", {f"..2026_11_25/code/{name}": text for name, text in CODE.items()})
    (volume / "code").symlink_to("..2026_11_25/code")
    arguments, _, _ = json.loads(start(volume / "code", tmp_path / "out", sys.executable, "train.py").stdout)
    assert arguments == [str(volume / "code" / "train.py")]


@pytest.mark.parametrize("words", [["nothing-like-this"], ["./train.py"]])
def test_a_program_that_cannot_be_started_is_one_line_and_bad_input(code: Path, words: list[str]) -> None:
    ended = start(code, "$TMPDIR/scratch", *words)
    assert ended.returncode == BAD_INPUT == starting.BAD_INPUT
    assert len(ended.stderr.splitlines()) == 1
    assert Path(words[0]).name in ended.stderr


def test_a_folder_that_cannot_be_made_is_one_line(code: Path) -> None:
    ended = start(code, code / "train.py" / "run", sys.executable, "train.py")
    assert ended.returncode == BAD_INPUT
    assert len(ended.stderr.splitlines()) == 1


def test_folders_are_made_and_all_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "uploads").mkdir()
    assert folders.main(["--make", str(tmp_path / "a" / "b"), "--require", str(tmp_path / "uploads")]) == 0
    assert (tmp_path / "a" / "b").is_dir()
    missing = [f"--require={tmp_path / name}" for name in ("one", "two")]
    with pytest.raises(StepError, match=r"one.*two") as caught:
        folders.main([*missing, "--make", str(tmp_path / "c")])
    assert caught.value.code == BAD_INPUT
    assert not (tmp_path / "c").exists()
