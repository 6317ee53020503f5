from __future__ import annotations

import ctypes
from array import array
from typing import Any

import pytest

from slipway.workloads.gates import driver
from slipway.workloads.runtime.devices import VARIABLE
from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, StepError

NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE (docs.nvidia.com/cuda/cuda-driver-api, November 2026)."""


class StandIn:
    """NVIDIA's driver library, with GPUs that add on this machine; ``faulty`` ones add wrongly."""

    def __init__(self, *models: str, faulty: bool = False, error: int = 0) -> None:
        self.models, self.faulty, self.error = models, faulty, error
        self.memory: list[Any] = []
        self.reset = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def cuInit(self, _flags: int) -> int:  # noqa: N802
        return self.error

    def cuGetErrorName(self, _code: int, name: Any) -> int:  # noqa: N802
        name._obj.value = b"CUDA_ERROR_NO_DEVICE"
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.models)
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802
        device._obj.value = number
        return 0

    def cuDeviceGetName(self, name: Any, _size: int, device: Any) -> int:  # noqa: N802
        name.value = self.models[device.value].encode()
        return 0

    def cuMemcpyHtoD_v2(self, _place: Any, content: bytes, _size: Any) -> int:  # noqa: N802
        self.memory.append(array("f", content))
        return 0

    def cuMemcpyDtoH_v2(self, answer: Any, _place: Any, _size: Any) -> int:  # noqa: N802
        left, right = self.memory[-2:]
        sums = [one + other for one, other in zip(left, right, strict=True)]
        answer.raw = array("f", [sums[0] + 1, *sums[1:]] if self.faulty else sums).tobytes()
        return 0

    def cuDevicePrimaryCtxReset_v2(self, _device: Any) -> int:  # noqa: N802
        self.reset += 1
        return 0


def check(monkeypatch: pytest.MonkeyPatch, library: StandIn, count: int = 1) -> int:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    return driver.main(["--model", "nvidia-tesla-t4", "--count", str(count), "--elements", "1000"])


def test_gpus_of_the_model_asked_for_that_compute_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = StandIn("Tesla T4", "Tesla T4")

    assert check(monkeypatch, library, count=2) == 0
    assert "Test PASSED on 2 x Tesla T4" in capsys.readouterr().out
    assert library.reset == 2


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (StandIn("NVIDIA L4"), "found: NVIDIA L4. The pool's nodes have another GPU"),
        (StandIn(), "found: no GPU"),
        (StandIn("Tesla T4", "Tesla T4"), "found: 2 x Tesla T4"),
        (StandIn("Tesla T4", faulty=True), "computed 1 of 1000 sums wrongly"),
        (StandIn(error=NO_DEVICE), "cuInit failed: CUDA_ERROR_NO_DEVICE"),
    ],
)
def test_gpus_that_are_not_as_asked_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, library: StandIn, words: str
) -> None:
    with pytest.raises(StepError) as caught:
        check(monkeypatch, library)

    assert caught.value.code == ACCELERATOR_REFUSED
    assert words in str(caught.value)


def test_a_container_without_the_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libnothere.so.1")
    monkeypatch.delenv(VARIABLE, raising=False)

    with pytest.raises(StepError, match=r"libnothere.so.1 is not in this container"):
        driver.main(["--model", "nvidia-tesla-t4"])


def test_virtual_accelerators_are_not_said_to_be_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "nvidia-tesla-t4:2")

    assert driver.main(["--model", "nvidia-tesla-t4", "--count", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 virtual x nvidia-tesla-t4" in said
    assert "PASSED" not in said
