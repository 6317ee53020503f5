"""Sums over the GPUs of several pods by NCCL itself, for images that have no TensorFlow.

NCCL and the driver are called through their C interfaces (docs.nvidia.com/deeplearning/nccl/user-guide/docs/api
and docs.nvidia.com/cuda/cuda-driver-api, seen November 2026), so that it is the image's own NCCL that is measured,
with whatever plugin it has. Standard library only, Python 3.9.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import time
from pathlib import Path

from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, StepError

DRIVER = "libcuda.so.1"
"""The driver's own library, which the node gives every GPU container."""

LIBRARY = "libnccl.so.2"

FLOAT32, SUM = 7, 0
"""``ncclFloat32`` and ``ncclSum`` of nccl.h."""

ID_BYTES = 128
"""``NCCL_UNIQUE_ID_BYTES`` of nccl.h."""

CONNECTING = 60.0
"""Seconds in which the other pods learn from rank 0 where NCCL listens."""

NO_LIBRARY = (
    f"{LIBRARY} is neither on the library path nor among the Python packages of this image, so nothing can be "
    "summed over several nodes on GPUs; install nvidia-nccl-cu12 or the framework's GPU build in the image"
)


class _Id(ctypes.Structure):
    """``ncclUniqueId``: where the first rank listens. NCCL takes it by value."""

    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]  # As ctypes has it.


class Sums:
    """A tensor of ``elements`` float32 numbers on each of ``count`` GPUs of a pod, summed over those of all pods.

    ``ranks`` is how many GPUs there are in all. The environment variables MASTER_ADDR and MASTER_PORT say where
    rank 0 tells the others how to connect. Raises StepError with ACCELERATOR_REFUSED where anything is missing or
    fails.
    """

    def __init__(self, rank: int, pods: int, count: int, elements: int) -> None:
        self.ranks = pods * count
        self._elements = elements
        self._nccl = _Library(LIBRARY, packages())
        driver = _Library(DRIVER)
        driver.call("cuInit", 0)
        gpus = ctypes.c_int()
        driver.call("cuDeviceGetCount", ctypes.byref(gpus))
        if gpus.value != count:
            raise StepError(
                ACCELERATOR_REFUSED,
                f"asked: {count} GPU(s) in each pod, found: {gpus.value}. Does the device plugin offer "
                "nvidia.com/gpu, and does the pod ask for all of its node?",
            )
        self._gpus = [_Gpu(driver, number, rank * count + number, elements) for number in range(count)]
        self._connect(self._id(rank, pods))

    def add(self) -> None:
        """Sums the tensor, and waits for it. Raises StepError where a sum is wrong."""
        self._reduce(self._elements)
        expected = self.ranks * (self.ranks + 1) / 2
        for gpu in self._gpus:
            gpu.wait()
            for index in (0, self._elements - 1):
                if gpu.value(index) != expected:
                    raise StepError(
                        ACCELERATOR_REFUSED,
                        f"a sum over {self.ranks} GPUs is wrong: {gpu.value(index):g} instead of {expected:g}; a "
                        "GPU or a network card is faulty, have the nodes replaced",
                    )

    def finish(self) -> None:
        """Returns once all pods have all their sums."""
        self._reduce(1)
        for gpu in self._gpus:
            gpu.wait()

    def _reduce(self, elements: int) -> None:
        self._nccl.call("ncclGroupStart")
        for gpu in self._gpus:
            gpu.use()
            self._nccl.call(
                "ncclAllReduce",
                *(gpu.given, gpu.summed, ctypes.c_size_t(elements)),
                *(FLOAT32, SUM, gpu.communicator, gpu.stream),
            )
        self._nccl.call("ncclGroupEnd")

    def _id(self, rank: int, pods: int) -> _Id:
        """NCCL's own meeting point: made by rank 0, and told to the others."""
        host, port = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", "2222"))
        if rank:
            return _Id.from_buffer_copy(ask(host, port))
        meeting = _Id()
        self._nccl.call("ncclGetUniqueId", ctypes.byref(meeting))
        tell(bytes(meeting), port, pods - 1)
        return meeting

    def _connect(self, meeting: _Id) -> None:
        self._nccl.call("ncclGroupStart")
        for gpu in self._gpus:
            gpu.use()
            self._nccl.call("ncclCommInitRank", ctypes.byref(gpu.communicator), self.ranks, meeting, gpu.rank)
        self._nccl.call("ncclGroupEnd")


class _Gpu:
    """One GPU: its context, a stream, the tensor that it gives and the one that becomes the sum."""

    def __init__(self, driver: _Library, number: int, rank: int, elements: int) -> None:
        self._driver, self.rank = driver, rank
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(device), number)
        # NCCL uses CUDA's runtime, which uses this context of the driver.
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.use()
        self.stream, self.communicator = ctypes.c_void_p(), ctypes.c_void_p()
        self.given, self.summed = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(self.stream), 0)
        for place in (self.given, self.summed):
            driver.call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(elements * 4))
        (bits,) = struct.unpack("<I", struct.pack("<f", rank + 1))
        driver.call("cuMemsetD32_v2", self.given, ctypes.c_uint(bits), ctypes.c_size_t(elements))

    def use(self) -> None:
        """Makes it the GPU of the calls that follow."""
        self._driver.call("cuCtxSetCurrent", self._context)

    def wait(self) -> None:
        """Returns once all that was asked of it is done."""
        self.use()
        self._driver.call("cuStreamSynchronize", self.stream)

    def value(self, index: int) -> float:
        """One number of the sum. Call `wait` before."""
        number = ctypes.c_float()
        place = ctypes.c_void_p((self.summed.value or 0) + index * 4)
        self._driver.call("cuMemcpyDtoH_v2", ctypes.byref(number), place, ctypes.c_size_t(4))
        return number.value


class _Library:
    """A shared library whose functions return 0 where all is well."""

    def __init__(self, name: str, others: list[str] | None = None) -> None:
        for place in (name, *(others or [])):
            try:
                self._functions = ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
            self._nccl = name == LIBRARY
            return
        raise StepError(
            ACCELERATOR_REFUSED, NO_LIBRARY if name == LIBRARY else f"no GPU: {name} is not in this container"
        )

    def call(self, function: str, *arguments: object) -> None:
        """Calls ``function``. Raises StepError with what the library says of its error."""
        code = getattr(self._functions, function)(*arguments)
        if code:
            raise StepError(ACCELERATOR_REFUSED, f"{function} failed: {self._words(code)}")

    def _words(self, code: int) -> str:
        if self._nccl:
            words = self._functions.ncclGetErrorString
            words.restype = ctypes.c_char_p
            return f"{words(code).decode()}; NCCL_DEBUG=INFO shows why"
        name = ctypes.c_char_p()
        self._functions.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode() if name.value else f"error {code}"


def packages() -> list[str]:
    """Where Python packages have NCCL: frameworks install it as one of its own."""
    return [
        str(path) for folder in sys.path for path in sorted(Path(folder or ".").glob(f"nvidia/nccl/lib/{LIBRARY}"))
    ]


def tell(secret: bytes, port: int, others: int) -> None:
    """Gives ``secret`` to each of the ``others`` that connects."""
    with socket.create_server(("", port)) as server:
        server.settimeout(CONNECTING)
        for told in range(others):
            try:
                connection, _ = server.accept()
            except OSError as error:
                raise StepError(
                    ACCELERATOR_REFUSED, f"{told} of {others} other pods connected to port {port}: {error}"
                ) from error
            with connection:
                connection.sendall(secret)


def ask(host: str, port: int) -> bytes:
    """What rank 0 gives, as soon as it is there."""
    end = time.monotonic() + CONNECTING
    while True:
        try:
            with socket.create_connection((host, port), timeout=CONNECTING) as connection:
                received = b""
                while len(received) < ID_BYTES and (part := connection.recv(ID_BYTES - len(received))):
                    received += part
                if len(received) == ID_BYTES:
                    return received
                why = "it closed the connection"
        except OSError as error:
            why = str(error)
        if time.monotonic() > end:
            raise StepError(ACCELERATOR_REFUSED, f"rank 0 does not answer at {host}:{port}: {why}")
        time.sleep(0.2)
