"""Predict: JSON in rows or columns in, arrays through a signature, JSON out.

As servables/tensorflow/predict_util.cc and util/json_tensor.cc of 2.21 do it. The words of most errors are not the
server's.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from slipway.offline.rehearsal.fakes.tensorflow_serving.servables import Model, ServingError, invalid, load, tf

np: Any = load("numpy")
error_codes_pb2: Any = load("tensorflow.core.protobuf.error_codes_pb2")

DEFAULT = "serving_default"
ROW, COLUMN = "instances", "inputs"

_SHOWN = 256
"""Characters of a value that an error shows."""

MOST_VALUES = 1_000_000
"""Values of a request. Each is read by itself: eight million took more than a minute and 2 GB."""

MOST_ROWS = 100_000
"""Rows of a request."""

MOST_DIMENSIONS = 32
"""Of an array: NumPy 2 goes through the elements of no more."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> dict[str, Any]:
    """The object of a request. Raises ServingError."""
    if not body:
        invalid("JSON Parse error: The document is empty")
    if body.count(b",") >= MOST_VALUES:
        invalid(f"the fake takes at most {MOST_VALUES} values at a time")
    try:
        value = json.loads(body)
        if _SURROGATE.search(body):
            # Half of a pair is no character, and RapidJSON refuses it, too.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        invalid("JSON Parse error: arrays or objects are nested too deeply")
    except ValueError as error:
        invalid(f"JSON Parse error: {error}")
    if not isinstance(value, dict):
        invalid(f"JSON Value: {_shorten(value)} Is not object")
    return value  # pyright: ignore[reportUnknownVariableType]


def predict(model: Model, body: Mapping[str, Any]) -> str:
    """The JSON of the answer to the object of a request. Raises ServingError."""
    name = body.get("signature_name", "")
    if not isinstance(name, str):
        invalid(f"'signature_name' key must be a string value, and is {_shorten(name)}")
    name = name or DEFAULT
    if name not in model.signatures:
        invalid(f'Serving signature name: "{name}" not found in signature def')
    signature = model.signatures[name]
    types = {alias: tf.as_dtype(tensor.dtype) for alias, tensor in signature.inputs.items()}
    form, arrays = _read_inputs(body, types)
    for alias, array in arrays.items():
        declared = tf.TensorShape(signature.inputs[alias].tensor_shape)
        if not declared.is_compatible_with(array.shape):
            invalid(f"input {alias} has the shape {list(array.shape)}, the signature has {declared}")
    try:
        outputs = model.functions[name](**{alias: tf.constant(array) for alias, array in arrays.items()})
    except tf.errors.OpError as error:
        raise ServingError(error_codes_pb2.Code.Name(error.error_code), str(error).strip()) from error
    except (ValueError, TypeError) as error:
        invalid(str(error).strip())
    answers = {
        # Of a single text, TensorFlow gives bytes that are no array.
        alias: np.asarray(outputs[alias].numpy(), object if outputs[alias].dtype == tf.string else None)
        for alias in sorted(outputs)
    }
    return json.dumps(_write_rows(answers) if form == ROW else _write_columns(answers), ensure_ascii=False)


def _read_inputs(body: Mapping[str, Any], types: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Whether a request is in rows or columns, and its arrays."""
    if ROW in body and COLUMN in body:
        invalid("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
    if COLUMN in body:
        columns = _name_inputs(body[COLUMN], types, more=True)
        return COLUMN, {alias: tensor(alias, columns[alias], dtype) for alias, dtype in types.items()}
    if ROW not in body:
        invalid("Missing 'inputs' or 'instances' key")
    instances: Any = body[ROW]
    if not isinstance(instances, list):
        invalid("Expecting 'instances' to be an list/array")
    count = len(instances)  # pyright: ignore[reportUnknownArgumentType]
    if not 0 < count <= MOST_ROWS:
        invalid(f"{count} instances, and the fake takes 1 to {MOST_ROWS} at a time")
    rows = [_name_inputs(row, types) for row in instances]  # pyright: ignore[reportUnknownVariableType]
    return ROW, {alias: tensor(alias, [row[alias] for row in rows], dtype) for alias, dtype in types.items()}


def _name_inputs(value: Any, types: Mapping[str, Any], *, more: bool = False) -> Mapping[str, Any]:
    """A row, or all columns, by the names of inputs. A signature with one input needs no name.

    With ``more`` other names are passed over.
    """
    if isinstance(value, dict) and not _is_binary(value):
        named: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    elif len(types) == 1:
        named = {next(iter(types)): value}
    else:
        invalid(f"{_shorten(value)} is a plain value/list, but expecting an object with the keys {sorted(types)}")
    if not (types.keys() <= named.keys() if more else types.keys() == named.keys()):
        invalid(f"the keys {_shorten(sorted(named))} must be equal to the inputs {sorted(types)}")
    return named


def tensor(alias: str, value: Any, dtype: Any) -> Any:
    """The nested list ``value`` of the input ``alias`` as an array of the type ``dtype``. Raises ServingError."""
    try:
        nested = np.array(value, object)
    except ValueError as error:
        invalid(f"input {alias}: {error}")
    if nested.ndim > MOST_DIMENSIONS:
        invalid(f"input {alias} has more than {MOST_DIMENSIONS} dimensions")
    # A list in a place for a number is an element, too, and no scalar.
    flat = [_check_scalar(alias, element, dtype) for element in nested.flat]
    array = np.empty(len(flat), object if dtype == tf.string else dtype.as_numpy_dtype)
    try:
        with np.errstate(over="ignore"):
            array[:] = flat
    except OverflowError as error:
        invalid(f"input {alias}: {error}")
    return array.reshape(nested.shape)


def _check_scalar(alias: str, value: Any, dtype: Any) -> Any:
    if dtype == tf.string:
        right = isinstance(value, str) or _is_binary(value)
    elif isinstance(value, bool) or dtype == tf.bool:
        right = isinstance(value, bool) and dtype == tf.bool
    elif dtype.is_floating:
        right = isinstance(value, int | float)
    else:
        right = isinstance(value, int) and dtype.is_integer and _fits(value, dtype)
    if not right:
        invalid(f"input {alias}: JSON Value: {_shorten(value)} is not of expected type: {dtype.name}")
    if dtype != tf.string:
        return value
    return value.encode() if isinstance(value, str) else _decode(alias, value)


def _fits(value: int, dtype: Any) -> bool:
    # Types below 32 bits are read as 32: what is too large for them wraps, as in the server.
    limits = np.iinfo(dtype.as_numpy_dtype)
    if dtype in (tf.int32, tf.int16, tf.int8, tf.uint8):
        limits = np.iinfo(np.int32)
    return bool(limits.min <= value <= limits.max)


def _is_binary(value: Any) -> bool:
    """Whether a value is binary: an object with the one key ``b64``, and a text."""
    return isinstance(value, dict) and [*value] == ["b64"] and isinstance(value["b64"], str)  # pyright: ignore


def _decode(alias: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value["b64"], validate=True)
    except ValueError:
        return invalid(f"input {alias}: Unable to base64 decode")


def _write_columns(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "outputs": _without_single_name({alias: _nested_lists(alias, array) for alias, array in arrays.items()})
    }


def _write_rows(arrays: Mapping[str, Any]) -> dict[str, Any]:
    for alias, array in arrays.items():
        if array.ndim == 0:
            invalid(f"Tensor name: {alias} has no shape information")
    if len({len(array) for array in arrays.values()}) != 1:
        sizes = {alias: len(array) for alias, array in arrays.items()}
        invalid(f"outputs have inconsistent batch size: {sizes}")
    columns = {alias: _nested_lists(alias, array) for alias, array in arrays.items()}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [_without_single_name(dict(zip(columns, row, strict=True))) for row in rows]}


def _without_single_name(values: dict[str, Any]) -> Any:
    """Values by their names; a single one without its name."""
    return next(iter(values.values())) if len(values) == 1 else values


def _nested_lists(alias: str, array: Any) -> Any:
    """An array as nested lists for JSON; bytes as ``b64`` objects where the name ends as the server asks for."""
    if array.dtype == object:
        binary = alias.endswith("_bytes")
        values = [_encode(value) if binary else value.decode(errors="replace") for value in array.flat]
    elif tf.as_dtype(array.dtype).is_floating:
        # As short as tells a number from others of its type: 0.1, and not 0.10000000149011612.
        values = [float(str(value)) for value in array.flat]
    else:
        return array.tolist()
    plain = np.empty(len(values), object)
    plain[:] = values
    return plain.reshape(array.shape).tolist()


def _encode(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _shorten(value: Any) -> str:
    """A value as errors have it."""
    try:
        return json.dumps(value)[:_SHOWN]
    except RecursionError:
        return f"of {len(value)} parts"
