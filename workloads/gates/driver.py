"""Check that this machine has the accelerators that were asked for, and that each of them computes, by NVIDIA's
driver alone.

For images that have no TensorFlow, with which `slipway.workloads.gates.accelerator` does the same. Adds two
vectors of float32 numbers on every accelerator and compares with the sums of the CPU. Run as `python3 -m
slipway.workloads.gates.driver --model nvidia-tesla-t4 --count 1`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import ctypes
import operator
from array import array
from typing import Any

from slipway.workloads.gates.accelerator import OTHER_MODEL, driver_version, same_model
from slipway.workloads.runtime.devices import virtual_request
from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, OK, StepError, run, stop_on_sigterm

HINT = (
    "Is the GPU driver installed on the node, does the device plugin offer nvidia.com/gpu, and does the pod ask "
    "for it?"
)

LIBRARY = "libcuda.so.1"
"""The driver's own library, which the node gives every GPU container."""

THREADS = 256

# PTX 6.0 for compute capability 6.0: every driver since 2017 compiles it for its GPU when it is loaded
# (docs.nvidia.com/cuda/parallel-thread-execution, November 2026).
ADDITION = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry add(.param .u64 left, .param .u64 right, .param .u64 total, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %index, %block, %width, %thread, %most;
    .reg .f32 %a, %b;
    .reg .b64 %offset, %x, %y, %z;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %width, %thread;
    ld.param.u32 %most, [count];
    setp.ge.u32 %outside, %index, %most;
    @%outside bra done;
    mul.wide.u32 %offset, %index, 4;
    ld.param.u64 %x, [left];
    ld.param.u64 %y, [right];
    ld.param.u64 %z, [total];
    cvta.to.global.u64 %x, %x;
    cvta.to.global.u64 %y, %y;
    cvta.to.global.u64 %z, %z;
    add.u64 %x, %x, %offset;
    add.u64 %y, %y, %offset;
    add.u64 %z, %z, %offset;
    ld.global.f32 %a, [%x];
    ld.global.f32 %b, [%y];
    add.f32 %a, %a, %b;
    st.global.f32 [%z], %a;
done:
    ret;
}
\0"""


def main(arguments: list[str] | None = None) -> int:
    """Run the check; returns the exit code.

    Raises:
        StepError: with ACCELERATOR_REFUSED where accelerators are missing, too few, of another model, or
        compute wrongly.
    """
    options = _parse(arguments)
    stop_on_sigterm("the check was not finished")
    request = f"asked: {options.count} x {options.model}"
    virtual = virtual_request()
    driver = None if virtual else _Driver()
    models = [virtual[0]] * virtual[1] if virtual else driver.models() if driver else []
    others = [model for model in models if not same_model(options.model, model)]
    if others:
        present = ", ".join(dict.fromkeys(others))
        raise StepError(ACCELERATOR_REFUSED, f"asked: {options.model}, found: {present}. {OTHER_MODEL}")
    if len(models) != options.count:
        present = f"{len(models)} x {models[0]}" if models else "no GPU"
        raise StepError(ACCELERATOR_REFUSED, f"{request}, found: {present}. {HINT}")
    if driver is None:
        # What stands in for a GPU is a name.
        print(f"{len(models)} virtual x {models[0]}: no GPU is here, and none was tested", flush=True)
        return OK
    left = array("f", [index / 7 for index in range(options.elements)])
    right = array("f", [index / 3 for index in range(options.elements)])
    expected = array("f", map(operator.add, left, right))
    for number, model in enumerate(models):
        print(f"GPU {number}: {model}; driver {driver_version() or 'unknown'}", flush=True)
        print(f"[Vector addition of {options.elements} elements on GPU {number}]", flush=True)
        wrong = sum(map(_differ, driver.add(number, left, right), expected))
        if wrong:
            raise StepError(
                ACCELERATOR_REFUSED,
                f"GPU {number} computed {wrong} of {options.elements} sums wrongly; "
                "the GPU is faulty, have the node replaced",
            )
        print("Test PASSED", flush=True)
    print(f"Test PASSED on {len(models)} x {models[0]}", flush=True)
    return OK


def _differ(one: float, other: float) -> bool:
    # Python rounds twice: it adds as doubles.
    return abs(one - other) > 1e-6 * abs(other)


class _Driver:
    """NVIDIA's driver API (docs.nvidia.com/cuda/cuda-driver-api, November 2026)."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise StepError(ACCELERATOR_REFUSED, f"no GPU: {LIBRARY} is not in this container. {HINT}") from error
        self._call("cuInit", 0)

    def models(self) -> list[str]:
        """The name of each GPU, in the driver's order."""
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return [self._model(number) for number in range(count.value)]

    def _model(self, number: int) -> str:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device(number))
        return name.value.decode()

    def add(self, number: int, left: array[float], right: array[float]) -> array[float]:
        """The sums that GPU ``number`` computes."""
        device, context = self._device(number), ctypes.c_void_p()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self._call("cuCtxSetCurrent", context)
            self._call("cuModuleLoadData", ctypes.byref(module), ADDITION)
            self._call("cuModuleGetFunction", ctypes.byref(function), module, b"add")
            size, count = ctypes.c_size_t(len(left) * left.itemsize), ctypes.c_uint(len(left))
            places = [ctypes.c_uint64() for _ in range(3)]
            for place in places:
                self._call("cuMemAlloc_v2", ctypes.byref(place), size)
            self._call("cuMemcpyHtoD_v2", places[0], left.tobytes(), size)
            self._call("cuMemcpyHtoD_v2", places[1], right.tobytes(), size)
            given: list[Any] = [
                ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in (*places, count)
            ]
            blocks = (len(left) + THREADS - 1) // THREADS
            shape = (blocks, 1, 1, THREADS, 1, 1, 0)
            self._call("cuLaunchKernel", function, *shape, None, (ctypes.c_void_p * 4)(*given), None)
            self._call("cuCtxSynchronize")
            answer = ctypes.create_string_buffer(size.value)
            self._call("cuMemcpyDtoH_v2", answer, places[2], size)
        finally:
            # Frees what was allocated on the device.
            self._library.cuDevicePrimaryCtxReset_v2(device)
        return array("f", answer.raw)

    def _device(self, number: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        return device

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(name))
            what = name.value.decode() if name.value else f"error {code}"
            raise StepError(ACCELERATOR_REFUSED, f"the driver's {function} failed: {what}. {HINT}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m slipway.workloads.gates.driver", description=__doc__)
    parser.add_argument(
        "--model", required=True, help="accelerator as the cloud's label names it: nvidia-tesla-t4"
    )
    parser.add_argument("--count", type=int, default=1, help="accelerators this pod was given (default: 1)")
    parser.add_argument("--elements", type=int, default=50_000, help="length of the vectors (default: 50000)")
    options = parser.parse_args(arguments)
    if options.count < 1 or options.elements < 1:
        parser.error("--count and --elements must be at least 1")
    return options


if __name__ == "__main__":
    run(main)
