"""The accelerators of this machine as TensorFlow sees them, and the strategy that trains on all of them.

Where the environment variable SLIPWAY_VIRTUAL_ACCELERATORS is set to MODEL:COUNT, for example
`nvidia-h100-80gb:8`, that many logical CPU devices stand in for accelerators of that model. Everything above
then runs as it does on the real ones, replica by replica, only slower.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.runtime.exits import USAGE, StepError
from slipway.runtime.supplied import preload

if TYPE_CHECKING:
    pass

VARIABLE = "SLIPWAY_VIRTUAL_ACCELERATORS"


@dataclass(frozen=True)
class Accelerator:
    """One accelerator: TensorFlow's name for the logical device, the model, and details such as
    `compute_capability`.
    """

    device: str
    model: str
    virtual: bool = False
    details: dict[str, Any] = field(default_factory=dict)


def before_import(*, keras: bool = True, libraries: Path | None = None) -> None:
    """Set up what TensorFlow reads when it is imported. Call it first; settings of the user's own stay.

    `libraries` is what `slipway.runtime.cuda.install` published, where the image lacks any.

    Python imports of TensorFlow took 6.1 s of CPU here (2.21, November 2026); this takes off 1.4 s, or 2 s
    without Keras.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    preload(libraries)
    if "sklearn" not in sys.modules:
        # Keras imports scikit-learn, wherever it is installed, for wrappers that no step uses.
        sys.modules["sklearn"] = None  # type: ignore[assignment]
    if not keras:
        # TensorFlow then looks for the package tf_keras instead, and goes on without when there is none.
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def virtual_request() -> tuple[str, int] | None:
    """Model and count that SLIPWAY_VIRTUAL_ACCELERATORS asks for; None where it is unset or empty.

    Raises:
        StepError: it is not MODEL:COUNT with a count of 1 to 64.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    match = re.fullmatch(r"([a-z0-9][a-z0-9.-]*):([1-9]\d?)", text)
    if not match or int(match[2]) > 64:
        raise StepError(
            USAGE, f"{VARIABLE} is {text!r}; write MODEL:COUNT with a count of 1 to 64, as nvidia-h100-80gb:8"
        )
    return match[1], int(match[2])


def accelerators() -> list[Accelerator]:
    """Every accelerator of this machine, in TensorFlow's order; an empty list on a machine without.

    The first call decides how TensorFlow uses the devices: GPU memory grows as needed, and virtual accelerators
    are created. So call it before any other TensorFlow operation.
    """
    import tensorflow as tf

    request = virtual_request()
    if request is not None:
        model, count = request
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        devices = tf.config.list_logical_devices("CPU")
        print(
            f"{VARIABLE}={model}:{count}: {count} logical CPU device(s) stand in for {count} x {model}; "
            "nothing here runs on a GPU",
            flush=True,
        )
        return [Accelerator(device.name, model, virtual=True) for device in devices]
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    accelerators_found = []
    for physical, logical in zip(gpus, tf.config.list_logical_devices("GPU"), strict=True):
        details = dict(tf.config.experimental.get_device_details(physical))
        model = str(details.get("device_name", "unknown GPU"))
        accelerators_found.append(Accelerator(logical.name, model, details=details))
    return accelerators_found


def describe(devices: list[Accelerator]) -> str:
    """The accelerators in a few words for a log, as in `2 x Tesla T4`."""
    if not devices:
        return "the CPU"
    models = {accelerator.model: 0 for accelerator in devices}
    for accelerator in devices:
        models[accelerator.model] += 1
    return ", ".join(f"{count} x {model}" for model, count in models.items())
