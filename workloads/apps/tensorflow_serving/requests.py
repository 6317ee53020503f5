"""Real requests to a model: arrays of a file, one for each input of its signature, and the truth where known."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workloads.runtime.exits import BAD_INPUT, StepError

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Requests:
    """Rows of requests: ``inputs`` by the name of the signature's input, and the ``truth`` of each row."""

    inputs: Mapping[str, NDArray[Any]]
    truth: NDArray[Any] | None

    @property
    def count(self) -> int:
        """Rows."""
        return len(next(iter(self.inputs.values())))


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file, or of a JSON object of lists.

    Raises:
        StepError: BAD_INPUT where it is neither.
        OSError: it cannot be read.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it is not an object of lists")
        return {str(name): np.asarray(rows) for name, rows in content.items()}
    except (ValueError, TypeError, zipfile.BadZipFile) as error:
        raise StepError(BAD_INPUT, f"{path} has no requests: {error}") from error


def requests(
    path: Path, names: Mapping[str, str], truth: str | None, signature: Mapping[str, tf.TensorSpec]
) -> Requests:
    """The requests in ``path`` as the signature's inputs want them.

    ``names`` are the arrays of inputs that are not called like them, ``truth`` is the array with what is right.

    Raises:
        StepError: BAD_INPUT where an array is missing, or cannot become what an input takes.
        OSError: the file cannot be read.
    """
    found = arrays(path)
    wanted = {name: names.get(name, name) for name in signature}
    if stray := sorted({*names} - {*signature}):
        inputs = ", ".join(sorted(signature))
        raise StepError(BAD_INPUT, f"--input {stray[0]}=…: the signature has no such input, but {inputs}")
    if missing := sorted({*wanted.values(), *([truth] if truth else [])} - {*found}):
        there = ", ".join(sorted(found)) or "nothing"
        raise StepError(BAD_INPUT, f"{path} lacks the array {missing[0]}; it has {there}")
    inputs = {name: _shaped(found[array], array, signature[name]) for name, array in wanted.items()}
    rows = {len(each) for each in (*inputs.values(), *([found[truth]] if truth else []))}
    if len(rows) != 1 or not max(rows):
        raise StepError(
            BAD_INPUT, f"{path}: its arrays have {sorted(rows)} rows; each needs as many, and at least one"
        )
    return Requests(inputs, found[truth] if truth else None)


def _shaped(array: NDArray[Any], name: str, spec: tf.TensorSpec) -> NDArray[Any]:
    """``array`` with the type of the input, and with those of its dimensions of size 1 that it lacks."""
    wanted = spec.dtype.as_numpy_dtype
    if spec.dtype.is_integer and np.issubdtype(array.dtype, np.integer) and array.size:
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise StepError(BAD_INPUT, f"array {name} has values that are no {spec.dtype.name}")
    try:
        typed = array.astype(wanted)
    except (TypeError, ValueError) as error:
        raise StepError(BAD_INPUT, f"array {name} cannot become {spec.dtype.name}: {error}") from error
    shape = spec.shape.as_list() if spec.shape.rank is not None else None
    if shape is None or spec.shape.is_compatible_with(typed.shape):
        return typed
    asked = [size if size is not None else -1 for size in shape]
    asked[0] = len(typed)
    if 1 in asked[1:] and asked.count(-1) == 0 and int(np.prod(asked)) == typed.size:
        return typed.reshape(asked)
    raise StepError(BAD_INPUT, f"array {name} has the shape {list(array.shape)}, the input takes {shape}")
