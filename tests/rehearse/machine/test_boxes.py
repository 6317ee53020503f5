"""What a container sees of a machine whose checkout, Python and current directory are below ``/tmp``."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.rehearse.machine import boxes, launch
from slipway.rehearse.machine.boxes import Box

pytestmark = pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def run_boxed(box: Box, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a box, with ``folder`` as its current directory."""
    with Path(os.devnull).open("w") as sink:
        values = {"reaper": sink.fileno(), "nice": 0, "cpus": [], "binds": None, "writable": [str(folder)]}
        values["parent"] = os.getpid()
        specification = json.dumps({**values, "box": box.specification()})
        words = [sys.executable, "-I", "-S", str(Path(launch.__file__)), specification, *command]
        return subprocess.run(
            words, check=False, cwd=folder, pass_fds=[sink.fileno()], capture_output=True, text=True
        )


def test_a_program_that_runs_below_tmp_is_seen_and_the_rest_of_tmp_is_not(place: Path) -> None:
    for name in ("root", "tmp", "environment", "pod", "others"):
        (place / name).mkdir()
    program = Path(shutil.copy(shutil.which("sleep") or "/bin/sleep", place / "environment" / "sleep"))
    # A program that runs cannot be opened for writing, not even to make a place at which it is mounted.
    with subprocess.Popen([program, "60"]) as running:
        try:
            box = Box(place / "root", place / "tmp", [program.parent, program])
            script = f"pwd; ls {place}; test -x {program} && echo x >done; echo x >{program.parent}/x"
            ended = run_boxed(box, place / "pod", "/bin/sh", "-c", script)
        finally:
            running.kill()
    assert ended.stdout.split() == [str(place / "pod"), "environment", "pod"]
    assert (place / "pod" / "done").exists()
    assert not (program.parent / "x").exists()


def test_whether_there_are_boxes_does_not_depend_on_the_current_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert boxes.available.__wrapped__()
