from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.devices import VARIABLE, Accelerator, before_import, virtual_request
from slipway.runtime.exits import ACCELERATOR_REFUSED, STORE_TROUBLE, USAGE, StepError
from slipway.runtime.gates.accelerator import _add, driver_version, same_model
from slipway.runtime.gates.store import probe
from tests.support.steps import ROOT, environment, only_error, run, start

ACCELERATOR, STORE = "slipway.runtime.gates.accelerator", "slipway.runtime.gates.store"


@pytest.mark.parametrize(
    ("label", "cuda_name"),
    [
        ("nvidia-tesla-t4", "Tesla T4"),
        ("nvidia-tesla-t4", "NVIDIA Tesla T4"),
        ("nvidia-h100-80gb", "NVIDIA H100 80GB HBM3"),
        ("nvidia-h100-80gb", "NVIDIA H100 PCIe"),
        ("nvidia-h100-80gb", "NVIDIA H100 NVL"),
        ("nvidia-h100-mega-80gb", "NVIDIA H100 80GB HBM3"),
        ("nvidia-h200-141gb", "NVIDIA H200"),
        ("nvidia-tesla-v100", "Tesla V100-SXM2-16GB"),
        ("nvidia-tesla-p100", "Tesla P100-PCIE-16GB"),
        ("nvidia-tesla-a100", "NVIDIA A100-SXM4-40GB"),
        ("nvidia-a100-80gb", "NVIDIA A100-SXM4-80GB"),
        ("nvidia-a100-80gb", "NVIDIA A100 80GB PCIe"),
        ("nvidia-l4", "NVIDIA L4"),
        ("nvidia-b200", "NVIDIA B200"),
        ("nvidia-rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("nvidia-h100-80gb", "nvidia-h100-80gb"),
    ],
)
def test_cuda_names_of_the_accelerator_asked_for(label: str, cuda_name: str) -> None:
    assert same_model(label, cuda_name)


@pytest.mark.parametrize(
    ("label", "cuda_name"),
    [
        ("nvidia-h100-80gb", "Tesla T4"),
        ("nvidia-tesla-t4", "NVIDIA H100 80GB HBM3"),
        ("nvidia-tesla-t4", "Tesla V100-SXM2-16GB"),
        ("nvidia-l4", "NVIDIA L40S"),
        ("nvidia-a100-80gb", "NVIDIA A100-SXM4-40GB"),
        ("nvidia-h100-80gb", "NVIDIA H200"),
        ("nvidia-tesla-t4", "unknown GPU"),
        ("nvidia", "Tesla T4"),
    ],
)
def test_cuda_names_of_other_accelerators(label: str, cuda_name: str) -> None:
    assert not same_model(label, cuda_name)


@pytest.mark.slow
def test_the_gate_adds_vectors_on_every_accelerator() -> None:
    output = run(ACCELERATOR, "--model", "nvidia-h100-80gb", "--count", 3, **{VARIABLE: "nvidia-h100-80gb:3"})

    assert output.count("[Vector addition of 50000 elements on ") == 3
    assert output.count("Test PASSED\n") == 3
    assert "3 logical CPU device(s) stand in for 3 x nvidia-h100-80gb; nothing here runs on a GPU" in output


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
            "GCC version:  gcc version 11.4.0\n",
            "535.183.01",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)\n",
            "580.95.05",
        ),
    ],
    ids=["proprietary", "open"],
)
def test_the_driver_says_its_version(text: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text, encoding="utf-8")

    assert driver_version(tmp_path / "version") == version


def test_a_driver_that_says_nothing_is_unknown(tmp_path: Path) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a GPU")

    assert driver_version(tmp_path / "version") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("nvidia-tesla-t4:1", ["asked: nvidia-h100-80gb, found: nvidia-tesla-t4.", "stack file"]),
        ("nvidia-h100-80gb:2", ["asked: 1 x nvidia-h100-80gb, found: 2 x nvidia-h100-80gb.", "device plugin"]),
        ("", ["asked: 1 x nvidia-h100-80gb, found: no GPU.", "device plugin"]),
    ],
    ids=["another-model", "too-many", "none"],
)
def test_the_gate_refuses_other_accelerators(devices: str, words: list[str]) -> None:
    if not devices and Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a GPU")

    output = run(
        ACCELERATOR,
        "--model",
        "nvidia-h100-80gb",
        "--count",
        1,
        code=ACCELERATOR_REFUSED,
        loaded=True,
        **{VARIABLE: devices},
    )

    error = only_error(output)
    assert all(word in error for word in words), error
    assert "Test PASSED" not in output


@pytest.mark.slow
def test_a_gpu_that_adds_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before_import()
    import tensorflow as tf

    add = tf.add
    monkeypatch.setattr(tf, "add", lambda left, right: add(left, tf.concat([right[:-1], [9.0]], 0)))
    with pytest.raises(StepError, match="computed 1 of 100 sums wrongly") as caught:
        _add(Accelerator("/device:CPU:0", "a GPU"), 100)
    assert caught.value.code == ACCELERATOR_REFUSED


@pytest.mark.parametrize("text", ["t4", "t4:", "t4:0", "t4:65", ":3", "t4:-1", "t4:1:2", "T4 x:1"])
def test_a_malformed_request_for_virtual_accelerators_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(StepError, match="MODEL:COUNT") as caught:
        virtual_request()
    assert caught.value.code == USAGE


def test_the_store_gate_leaves_nothing_behind(tmp_path: Path) -> None:
    output = run(STORE, "--store", tmp_path, "--prefix", "mnist/run")

    assert "can be written, read, listed, renamed in, appended to and deleted from" in output
    assert not list((tmp_path / "mnist" / "run").iterdir())


def test_the_store_gate_imports_no_tensorflow() -> None:
    code = "import sys, slipway.runtime.gates.store; print({'tensorflow', 'numpy', 'keras'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


@pytest.mark.slow
def test_the_store_gate_gives_up_after_its_time_and_says_why(tmp_path: Path) -> None:
    output = run(STORE, "--store", tmp_path / "missing", "--timeout", 2, code=STORE_TROUBLE)

    assert "is the store mounted here?" in only_error(output)
    assert "Try 1 failed" in output


@pytest.mark.parametrize(
    ("method", "lacking", "words"),
    [
        ("replace", errno.ENOSYS, "cannot rename a file "),
        ("replace", errno.EPERM, "cannot rename a file "),
        ("open", errno.EPERM, "cannot append to a file "),
        ("unlink", errno.EOPNOTSUPP, "cannot delete a file "),
    ],
)
def test_the_store_gate_says_at_once_what_a_store_cannot_do(
    method: str, lacking: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Mountpoint for S3 answers, which no pause makes better."""
    real = getattr(Path, method)

    def answer(path: Path, *rest: Any, **options: Any) -> Any:
        if method != "open" or rest == ("ab",):
            raise OSError(lacking, os.strerror(lacking), str(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(Path, method, answer)
    with pytest.raises(StepError, match=words) as caught:
        probe(tmp_path, "gates")
    assert caught.value.code == STORE_TROUBLE
    assert os.strerror(lacking) in str(caught.value)


def test_the_store_gate_names_what_was_not_permitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may become so, and is tried until the time limit."""

    def refuse(path: Path, _target: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError) as caught:
        probe(tmp_path, "gates")
    assert caught.value.__notes__ == ["when it was to rename a file"]


def test_the_store_gate_refuses_a_store_that_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mount that starts the file anew."""
    real = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r", *rest: real(path, "wb" if mode == "ab" else mode, *rest)
    )
    with pytest.raises(OSError, match="what was appended is not at the file's end"):
        probe(tmp_path, "gates")
    assert list((tmp_path / "gates").iterdir()) == []


@pytest.mark.slow
def test_the_store_gate_waits_until_the_store_works(tmp_path: Path) -> None:
    """As when an identity binding has not reached every server yet."""
    store = tmp_path / "late"
    process = start(STORE, "--store", store, "--timeout", "60")
    assert process.stdout is not None
    assert "Try 1 failed" in process.stdout.readline()

    store.mkdir()

    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output


def test_the_store_gate_says_read_only(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o ro tmpfs {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small file system in a namespace of its own")
    gate = f"{sys.executable} -m slipway.runtime.gates.store --store {tmp_path} --prefix mnist --timeout 0.1"

    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && exec {gate}"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == STORE_TROUBLE
    assert "mounted read-only" in only_error(result.stderr)
