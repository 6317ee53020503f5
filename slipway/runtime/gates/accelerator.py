"""Check that this machine has the accelerators that were asked for, and that each of them computes.

Adds two vectors of random float32 numbers on every accelerator and compares with numpy on the CPU.
Run as `python -m slipway.runtime.gates.accelerator --model nvidia-tesla-t4 --count 1`.
"""

from __future__ import annotations

import argparse
import ctypes
import re
from pathlib import Path

from slipway.runtime.devices import Accelerator, accelerators, before_import, describe
from slipway.runtime.exits import ACCELERATOR_REFUSED, OK, StepError, run, stop_on_sigterm

HINT = (
    "Is the GPU driver installed on the node, does the device plugin offer nvidia.com/gpu and does the pod ask "
    "for it, and is the image one that ends in -gpu?"
)

OTHER_MODEL = "The pool's nodes have another GPU than the stack file says; correct one of the two."

DRIVER_FILE = Path("/proc/driver/nvidia/version")
"""What the node's driver says of itself."""


def main(arguments: list[str] | None = None) -> int:
    """Run the check; returns the exit code.

    Raises:
        StepError: with ACCELERATOR_REFUSED where accelerators are missing, too few, of another model, or
        compute wrongly.
    """
    options = _parse(arguments)
    stop_on_sigterm("the check was not finished")
    before_import(keras=False, libraries=options.libraries)
    devices = accelerators()
    require(options.model, options.count, [accelerator.model for accelerator in devices])
    for accelerator in devices:
        _print_details(accelerator)
        _add(accelerator, options.elements)
    print(f"Test PASSED on {describe(devices)}", flush=True)
    return OK


def require(model: str, count: int, models: list[str]) -> None:
    """Raises StepError with ACCELERATOR_REFUSED where these are not ``count`` GPUs of the accelerator
    ``model``.
    """
    others = [name for name in models if not same_model(model, name)]
    if others:
        present = ", ".join(dict.fromkeys(others))
        raise StepError(ACCELERATOR_REFUSED, f"asked: {model}, found: {present}. {OTHER_MODEL}")
    if len(models) != count:
        present = f"{len(models)} x {models[0]}" if models else "no GPU"
        raise StepError(ACCELERATOR_REFUSED, f"asked: {count} x {model}, found: {present}. {HINT}")


def same_model(label: str, cuda_name: str) -> bool:
    """Whether the GPU that CUDA calls `cuda_name` is the one of a cloud's accelerator `label`.

    Labels look like `nvidia-tesla-t4` or `nvidia-h100-80gb`; CUDA's names like `Tesla T4` or `NVIDIA H100 80GB
    HBM3`. Each word of the label has to be a word of CUDA's name; words that say no more than maker, line or
    sales name are left out, and so is a memory size that CUDA's name does not mention. (GKE's labels:
    cloud.google.com/kubernetes-engine/docs/ concepts/gpus; seen November 2026.)
    """
    words, name = _words(label), _words(cuda_name)
    sizes = {word for word in name if re.fullmatch(r"\d+gb", word)}
    wanted = {word for word in words if not re.fullmatch(r"\d+gb", word)}
    if sizes:
        wanted |= {word for word in words if re.fullmatch(r"\d+gb", word)}
    return bool(wanted) and wanted <= name


def _words(name: str) -> set[str]:
    ignored = {"nvidia", "tesla", "geforce", "quadro", "mega", "vws", "shared", "accelerator"}
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in ignored]
    # GKE writes `h200-141gb`, CUDA `H200`; GKE `rtx-pro-6000`, CUDA `RTX PRO 6000 Blackwell Server Edition`.
    return set(words)


def _add(accelerator: Accelerator, elements: int) -> None:
    import numpy as np
    import tensorflow as tf

    print(f"[Vector addition of {elements} elements on {accelerator.device}]", flush=True)
    generator = np.random.default_rng(0)
    left, right = generator.random(elements, np.float32), generator.random(elements, np.float32)
    try:
        with tf.device(accelerator.device):
            total = tf.add(tf.constant(left), tf.constant(right))
        computed = total.numpy()
    except tf.errors.OpError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise StepError(ACCELERATOR_REFUSED, f"{accelerator.device} cannot compute: {lines[0]}. {HINT}") from error
    if not total.device.endswith(accelerator.device):
        raise StepError(ACCELERATOR_REFUSED, f"asked for {accelerator.device}, but {total.device} computed")
    wrong = int(np.count_nonzero(computed != left + right))
    if wrong:
        raise StepError(
            ACCELERATOR_REFUSED,
            f"{accelerator.device} computed {wrong} of {elements} sums wrongly; "
            "the GPU is faulty, have the node replaced",
        )
    print("Test PASSED", flush=True)


def _print_details(accelerator: Accelerator) -> None:
    import tensorflow as tf

    details = [f"{accelerator.device}: {accelerator.model}"]
    if not accelerator.virtual:
        details.append(f"driver {driver_version() or 'unknown'}")
        capability = accelerator.details.get("compute_capability")
        if capability:
            details.append("compute capability " + ".".join(str(part) for part in capability))
        build = tf.sysconfig.get_build_info()
        if build.get("cuda_version"):
            details.append(
                f"TensorFlow built for CUDA {build['cuda_version']}, cuDNN {build.get('cudnn_version', '?')}"
            )
    print("; ".join(details), flush=True)


def driver_version(file: Path = DRIVER_FILE) -> str | None:
    """The version of NVIDIA's driver, such as `580.95.05`; None where nothing says it.

    From the driver itself, else from its management library, which every GPU container is given.
    """
    try:
        stated = re.search(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", file.read_text(encoding="utf-8"))
    except OSError:
        stated = None
    return stated[1] if stated else _nvml_driver_version()


def _nvml_driver_version() -> str | None:
    """What NVML says (docs.nvidia.com/deploy/nvml-api, nvmlSystemGetDriverVersion; its answer has 80 bytes)."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    answer = ctypes.create_string_buffer(80)
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        failed = nvml.nvmlSystemGetDriverVersion(answer, ctypes.c_uint(len(answer)))
    finally:
        nvml.nvmlShutdown()
    return None if failed else answer.value.decode()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.gates.accelerator", description=__doc__)
    parser.add_argument(
        "--model", required=True, help="accelerator as the cloud's label names it: nvidia-tesla-t4"
    )
    parser.add_argument("--count", type=int, default=1, help="accelerators this pod was given (default: 1)")
    parser.add_argument("--elements", type=int, default=50_000, help="length of the vectors (default: 50000)")
    parser.add_argument(
        "--libraries", type=Path, help="what slipway.runtime.cuda.install published, for use on GPUs"
    )
    options = parser.parse_args(arguments)
    if options.count < 1 or options.elements < 1:
        parser.error("--count and --elements must be at least 1")
    return options


if __name__ == "__main__":
    run(main)
