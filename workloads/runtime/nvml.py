"""What NVIDIA's driver says of the GPUs that this container was given. Standard library only, Python 3.9.

The library is part of the driver, which the node mounts into every container with a GPU, whatever its image.
Functions and structures are those of the NVML API reference (docs.nvidia.com/deploy/nvml-api, November 2026).
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SLIPWAY_NVML"
"""Names another library than the driver's."""

LIBRARY = "libnvidia-ml.so.1"

FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
"""Where nodes mount it: GKE in the first (cloud.google.com/kubernetes-engine/docs/how-to/gpus, November 2026),
which an image need not search, and NVIDIA's container toolkit in the system's own."""

_SUCCESS = 0
_NAME_LENGTH = 96


class UnavailableError(Exception):
    """There is no driver here, or it does not answer; the text says which."""


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment: percent of the last sample in which a kernel ran, memory in bytes, watts.

    None: the driver does not say it of this GPU, as of the use of one that is partitioned.
    """

    busy: int | None
    memory_used: int | None
    memory_total: int | None
    watts: float | None


class _Use(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The driver's library, opened. ``names`` are the GPUs' models in its order.

    Raises:
        UnavailableError: it cannot be opened, or has no GPU.
    """

    def __init__(self) -> None:
        self._library = _opened()
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = [self._device(index) for index in range(count.value)]
        if not self._devices:
            raise UnavailableError("the driver has no GPU for this container")
        self.names = [self._name(device) for device in self._devices]

    def read(self) -> list[Reading]:
        """What each GPU does now."""
        return [self._read(device) for device in self._devices]

    def _read(self, device: ctypes.c_void_p) -> Reading:
        use, memory, power = _Use(), _Memory(), ctypes.c_uint()
        has_use = self._asked("nvmlDeviceGetUtilizationRates", device, ctypes.byref(use))
        has_memory = self._asked("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        has_power = self._asked("nvmlDeviceGetPowerUsage", device, ctypes.byref(power))
        return Reading(
            busy=int(use.gpu) if has_use else None,
            memory_used=int(memory.used) if has_memory else None,
            memory_total=int(memory.total) if has_memory else None,
            watts=power.value / 1000 if has_power else None,
        )

    def _device(self, index: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        return device

    def _name(self, device: ctypes.c_void_p) -> str:
        name = ctypes.create_string_buffer(_NAME_LENGTH)
        if not self._asked("nvmlDeviceGetName", device, name, ctypes.c_uint(_NAME_LENGTH)):
            return "GPU"
        return name.value.decode(errors="replace")

    def _asked(self, function: str, *arguments: object) -> bool:
        return getattr(self._library, function)(*arguments) == _SUCCESS

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != _SUCCESS:
            raise UnavailableError(f"the driver's {function} answered {code}")


def _opened() -> ctypes.CDLL:
    own = os.environ.get(VARIABLE)
    places = [own] if own else [LIBRARY, *(str(Path(folder) / LIBRARY) for folder in FOLDERS)]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise UnavailableError(f"{places[0]} is not in this container")
