"""The GPUs of a pod are tested once for each life of their node, and never where there is nothing to do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.workloads.gates import driver, gpus
from slipway.workloads.runtime.devices import VARIABLE
from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, BAD_INPUT, StepError
from slipway.workloads.runtime.parts import VIRTUAL_NODE
from slipway.workloads.runtime.store import Manifest

Pod = Callable[..., bool]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    """Runs what a pod with ``count`` GPUs runs before its program; says whether these were tested."""
    monkeypatch.setenv("NODE_NAME", "gpu-node-7")
    for module in (gpus, driver):
        monkeypatch.setattr(module, "stop_on_sigterm", print)
    test, tested = driver.main, list[list[str]]()

    def main(words: list[str]) -> int:
        tested.append(words)
        return test(words)

    monkeypatch.setattr(driver, "main", main)

    def run(count: int = 2, *more: str, devices: str = "nvidia-tesla-t4:2", boot: str = "one") -> bool:
        tested.clear()
        monkeypatch.setenv(VIRTUAL_NODE, boot)
        monkeypatch.setenv(VARIABLE, devices)
        words = ["--by", "driver", "--model", "nvidia-tesla-t4", "--count", str(count)]
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
    assert "nvidia-l4" in str(caught.value)
    # A GPU that passed, and fails now that a pod has one too many, is not relied on either.
    with pytest.raises(StepError):
        pod(1)
    assert passed(tmp_path) == []


def test_what_is_wrong_with_a_library_is_no_fault_of_the_node(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise StepError(BAD_INPUT, "libcudnn.so.9 is missing")

    monkeypatch.setattr(driver, "main", fail)
    with pytest.raises(StepError) as caught:
        pod()
    assert (caught.value.code, "cordon" in str(caught.value)) == (BAD_INPUT, False)


def test_nothing_is_tested_where_the_step_has_its_result(pod: Pod, tmp_path: Path) -> None:
    output = tmp_path / "store" / "mnist" / "train" / "1"
    assert pod(2, "--output", str(output), "--image", "one")
    output.mkdir(parents=True)
    (output / "manifest.json").write_text("half of")
    assert pod(2, "--output", str(output), "--image", "two")
    (output / "manifest.json").write_bytes(Manifest("mnist.train", {}).encode())
    assert not pod(2, "--output", str(output), "--image", "three")
