"""The GPUs of a pod are tested once for each life of their node, and never where there is nothing to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slipway.runtime.devices import VARIABLE
from slipway.runtime.exits import ACCELERATOR_REFUSED, BAD_INPUT, OK, RECORD_VARIABLE, StepError
from slipway.runtime.gates import accelerator, gpus
from slipway.runtime.parts import VIRTUAL_NODE
from slipway.runtime.store import Manifest
from tests.support.steps import ROOT, environment, only_error

Pod = Callable[..., bool]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    """Runs what a pod with ``count`` GPUs runs before its program; says whether these were tested."""
    monkeypatch.setenv("NODE_NAME", "gpu-node-7")
    tested = list[Sequence[str]]()

    def run_test(words: Sequence[str]) -> int:
        tested.append(words)
        try:
            accelerator.require(words[1], int(words[-1]), gpus.cuda_models())
        except StepError as error:
            return error.code
        return OK

    monkeypatch.setattr(gpus, "run_test", run_test)

    def run(count: int = 2, *more: str, devices: str = "nvidia-tesla-t4:2", boot: str = "one") -> bool:
        tested.clear()
        monkeypatch.setenv(VIRTUAL_NODE, boot)
        monkeypatch.setenv(VARIABLE, devices)
        words = ["--tensorflow", "--model", "nvidia-tesla-t4", "--count", str(count)]
        assert gpus.main([*words, "--passed", str(tmp_path / "store" / "passed"), *more]) == 0
        return bool(tested)

    return run


def passed(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "store").rglob("*") if path.is_file())


def test_pods_of_one_node_test_its_gpus_once(pod: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [pod() for _ in range(10)] == [True] + 9 * [False]
    assert "gpu-node-7" in capsys.readouterr().out.splitlines()[-1]
    assert len(passed(tmp_path)) == 2, "a note for each GPU"


def test_another_life_of_the_node_another_image_and_other_gpus_are_tested_anew(pod: Pod) -> None:
    assert pod()
    assert pod(boot="two")
    assert pod(2, "--image", "example/other:1")
    assert pod(3, devices="nvidia-tesla-t4:3"), "one of them was never tested"
    assert not pod(1, devices="nvidia-tesla-t4:1"), "a pod that is given one of those that passed"
    assert not pod()


def test_a_day_later_they_are_tested_again_and_old_notes_go(pod: Pod, tmp_path: Path) -> None:
    pod()
    mine = passed(tmp_path)
    old, young = (mine[0].with_name(f"{name}.json") for name in ("old", "young"))
    for path, days in ((old, 3), (young, 1)):
        path.write_text("{}")
        os.utime(path, (time.time() - days * gpus.FRESH, time.time() - days * gpus.FRESH))
    mine[0].write_text(json.dumps({"node": "gpu-node-7", "passed": time.time() - 2 * gpus.FRESH}))
    assert pod()
    assert passed(tmp_path) == sorted([*mine, young])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"passed": "today"}', b'{"passed": 9e99}', b"\xff"])
def test_a_damaged_note_is_none(pod: Pod, tmp_path: Path, content: bytes) -> None:
    pod()
    passed(tmp_path)[0].write_bytes(content)
    assert pod()
    assert not pod()


def test_a_store_that_takes_no_note_stops_nobody(
    pod: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").write_text("a file where a folder belongs")
    assert [pod(), pod()] == [True, True]
    assert "tests these GPUs again" in capsys.readouterr().err


def test_gpus_that_fail_end_the_pod_with_the_name_of_the_node_and_count_no_more(pod: Pod, tmp_path: Path) -> None:
    pod()
    with pytest.raises(StepError) as caught:
        pod(2, devices="nvidia-l4:2")
    assert caught.value.code == ACCELERATOR_REFUSED
    assert "kubectl cordon gpu-node-7" in str(caught.value)
    # A GPU that passed, and fails now that a pod has one too many, is not relied on either.
    with pytest.raises(StepError):
        pod(1)
    assert passed(tmp_path) == []


def test_what_is_wrong_with_a_library_is_no_fault_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "nvidia-tesla-t4:1")

    def fail(_words: Sequence[str]) -> int:
        return BAD_INPUT

    monkeypatch.setattr(gpus, "run_test", fail)
    words = ["--tensorflow", "--model", "nvidia-tesla-t4", "--passed", str(tmp_path / "store")]
    assert gpus.main([*words, "--", "true"]) == BAD_INPUT
    assert passed(tmp_path) == []


def test_nothing_is_tested_where_the_step_has_its_result(pod: Pod, tmp_path: Path) -> None:
    output = tmp_path / "store" / "mnist" / "train" / "1"
    assert pod(2, "--output", str(output), "--image", "one")
    output.mkdir(parents=True)
    (output / "manifest.json").write_text("half of")
    assert pod(2, "--output", str(output), "--image", "two")
    (output / "manifest.json").write_bytes(Manifest("mnist.train", {}).encode())
    assert not pod(2, "--output", str(output), "--image", "three")


def started(tmp_path: Path, devices: str, *program: str) -> subprocess.CompletedProcess[str]:
    """What comes of ``program`` behind the test, in a process as a pod has it."""
    words = ["--model", "nvidia-tesla-t4", "--passed", str(tmp_path / "passed")]
    return subprocess.run(
        [sys.executable, "-m", "slipway.runtime.gates.gpus", *words, "--code", str(tmp_path), "--", *program],
        cwd=ROOT,
        env=environment(**{VARIABLE: devices, RECORD_VARIABLE: str(tmp_path / "record")}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_program_takes_the_place_of_the_test(tmp_path: Path) -> None:
    ended = started(tmp_path, "nvidia-tesla-t4:1", "sh", "-c", "pwd; exit 9")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (9, str(tmp_path)), ended.stderr
    assert not (tmp_path / "record").exists(), "that of a step that ended well"


def test_the_program_does_not_start_on_gpus_that_failed(tmp_path: Path) -> None:
    ended = started(tmp_path, "nvidia-l4:1", "touch", "ran")
    assert ended.returncode == ACCELERATOR_REFUSED, ended.stderr
    assert "found: nvidia-l4" in only_error(ended.stderr)
    assert not (tmp_path / "ran").exists()


CUDA = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return number > 1; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, "Tesla T4"); return 0; }
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_gpus_are_counted_and_named_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "cuda.c").write_text(CUDA)
    library = tmp_path / "libcuda.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "cuda.c"], check=True)
    monkeypatch.setattr(gpus, "CUDA", str(library))
    assert gpus.cuda_models() == 2 * ["Tesla T4"]
    assert gpus.main(["--model", "nvidia-tesla-t4", "--count", "2"]) == OK
    for words in (["--model", "nvidia-tesla-t4", "--count", "1"], ["--model", "nvidia-l4", "--count", "2"]):
        with pytest.raises(StepError) as caught:
            gpus.main(words)
        assert caught.value.code == ACCELERATOR_REFUSED
    monkeypatch.setattr(gpus, "CUDA", str(tmp_path / "gone.so"))
    with pytest.raises(StepError, match="no GPU"):
        gpus.cuda_models()
