"""JSON as TensorFlow Serving writes and reads it (util/json_tensor.cc of 2.21)."""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from offline.serving.errors import invalid
from offline.serving.libraries import np, tf

_SHOWN = 256
"""Characters of a value that an error shows."""

MOST_VALUES = 1_000_000
"""Values of a request. Each is read by itself: eight million took more than a minute and 2 GB."""

MOST_DIMENSIONS = 32
"""Of an array. NumPy has at most 64, and reading one is a call within another for each."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

TYPES = {dict: "Object", list: "Array", str: "String", bool: "True", int: "Number", float: "Number"}


def parse(body: bytes) -> dict[str, Any]:
    """The object of a request. Raises ServingError."""
    if not body:
        invalid("JSON Parse error: The document is empty")
    if body.count(b",") >= MOST_VALUES:
        invalid(f"the stand-in takes at most {MOST_VALUES} values at a time")
    try:
        found = json.loads(body)
        if _SURROGATE.search(body):
            # Half of a pair is no character, and RapidJSON refuses it, too.
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        invalid("JSON Parse error: arrays or objects are nested too deeply")
    except ValueError as error:
        # RapidJSON says it in other words.
        invalid(f"JSON Parse error: {error}")
    if not isinstance(found, dict):
        invalid(f"JSON Value: {shown(found)} Is not object")
    return found  # pyright: ignore[reportUnknownVariableType]


def shown(value: Any) -> str:
    """A value as errors have it."""
    try:
        return json.dumps(value)[:_SHOWN]
    except RecursionError:
        return f"of {len(value)} parts"


def type_name(dtype: Any) -> str:
    """A type as errors have it (`DataTypeString` of TensorFlow 2.21)."""
    name: str = dtype.name
    return {"float32": "float", "float64": "double", "float16": "half"}.get(name, name)


def is_base64(value: Any) -> bool:
    """Whether a value is binary: an object with the one key ``b64``, and a text."""
    return isinstance(value, dict) and [*value] == ["b64"] and isinstance(value["b64"], str)  # pyright: ignore


def decoded(value: Mapping[str, str]) -> bytes:
    """The bytes of a ``b64`` object. Raises ServingError."""
    try:
        return base64.b64decode(value["b64"], validate=True)
    except binascii.Error:
        invalid("Unable to base64 decode")


def tensor(value: Any, dtype: Any) -> Any:
    """The nested list ``value`` as an array of the type ``dtype``. Raises ServingError."""
    shape = _shape(value)
    if len(shape) > MOST_DIMENSIONS:
        invalid(f"JSON Value: {shown(value)} has more than {MOST_DIMENSIONS} dimensions")
    flat: list[Any] = []
    _flatten(value, shape, 0, dtype, flat)
    kind = object if dtype == tf.string else dtype.as_numpy_dtype
    found = np.empty(len(flat), kind)
    with np.errstate(over="ignore"):
        found[:] = flat
    return found.reshape(shape)


def _shape(value: Any) -> list[int]:
    found: list[int] = []
    while isinstance(value, list):
        nested: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        found.append(len(nested))
        if not nested:
            break
        value = nested[0]
    return found


def _flatten(value: Any, shape: Sequence[int], level: int, dtype: Any, flat: list[Any]) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            invalid(
                f"JSON Value: {shown(value)} found at incorrect level: {level + 1} in the JSON DOM. Expected at "
                f"level: {len(shape)}"
            )
        flat.append(_scalar(value, dtype))
        return
    nested: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    if level >= len(shape):
        invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(nested) != shape[level]:
        invalid(
            f"Encountered list at unexpected size: {len(nested)} at level: {level} expected size: {shape[level]}"
        )
    for each in nested:
        _flatten(each, shape, level + 1, dtype, flat)


def _scalar(value: Any, dtype: Any) -> Any:
    if dtype == tf.string:
        if is_base64(value):
            return decoded(value)
        if isinstance(value, dict):
            invalid(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
        right = isinstance(value, str)
    elif dtype == tf.bool:
        right = isinstance(value, bool)
    elif dtype.is_floating:
        right = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        right = isinstance(value, int) and not isinstance(value, bool) and _fits(value, dtype)
    if not right:
        kind = "Null" if value is None else "False" if value is False else TYPES[type(value)]
        invalid(f"JSON Value: {shown(value)} Type: {kind} is not of expected type: {type_name(dtype)}")
    return value.encode() if isinstance(value, str) else value


def _fits(value: int, dtype: Any) -> bool:
    # Types below 32 bits are read as 32: what is too large for them wraps, as in the server.
    limits = np.iinfo(dtype.as_numpy_dtype)
    if dtype in (tf.int32, tf.int16, tf.int8, tf.uint8):
        limits = np.iinfo(np.int32)
    return bool(limits.min <= value <= limits.max)


def written(array: Any, binary: bool) -> str:
    """An array as nested lists in JSON; text as ``b64`` objects where it is ``binary``."""
    if array.ndim:
        # By slices: of an array of text, an element is no array.
        rows = (array[place : place + 1].reshape(array.shape[1:]) for place in range(len(array)))
        return f"[{', '.join(written(row, binary) for row in rows)}]"
    value = array.item() if array.dtype != object else array[()]
    if array.dtype.kind == "f":
        return decimal(array[()])
    if isinstance(value, bytes):
        if binary:
            return json.dumps({"b64": base64.b64encode(value).decode()})
        return json.dumps(value.decode(errors="replace"), ensure_ascii=False)
    return json.dumps(value)


def decimal(value: Any) -> str:
    """A floating-point number with six digits, or with all where six do not tell it from others."""
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "-Infinity" if number < 0 else "Infinity"
    text = f"{number:g}"
    if type(value)(text) != value:
        text = f"{number:.{9 if value.dtype == np.float32 else 17}g}"
    return text if "." in text or "e" in text else f"{text}.0"
