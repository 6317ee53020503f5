"""Predict: arrays in, arrays out, by a signature (servables/tensorflow/predict_util.cc of 2.21)."""

from collections.abc import Mapping, Sequence
from typing import Any

from offline.serving.errors import ServingError, invalid
from offline.serving.json_values import is_base64, shown, tensor, type_name, written
from offline.serving.libraries import np, tf
from offline.serving.servables import Model

DEFAULT = "serving_default"
ROW, COLUMN = "instances", "inputs"

MOST_ROWS = 100_000
"""Rows of a request, each of which becomes an array of its own."""


def signature_of(model: Model, name: str, code: str = "FAILED_PRECONDITION") -> Any:
    """The signature ``name``, or the default one. Raises ServingError."""
    wanted = name or DEFAULT
    if wanted not in model.signatures:
        said = f'Serving signature key "{wanted}" not found.'
        if code == "INVALID_ARGUMENT":
            said = f'Serving signature name: "{wanted}" not found in signature def'
        raise ServingError(code, said)
    return model.signatures[wanted]


def run(model: Model, name: str, inputs: Mapping[str, Any], only: Sequence[str] = ()) -> dict[str, Any]:
    """The outputs of a signature, by their names, for ``inputs``. Raises ServingError."""
    signature = signature_of(model, name)
    sent, wanted = sorted(inputs), sorted(signature.inputs)
    if sent != wanted:
        extra = ",".join(each for each in sent if each not in wanted)
        missing = ",".join(each for each in wanted if each not in sent)
        invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} len({{{','.join(sent)}}}) != "
            f"len({{{','.join(wanted)}}}). Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
        )
    for alias in only:
        if alias not in signature.outputs:
            there = ",".join(sorted(signature.outputs))
            invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{{{there}}}."
            )
    for place, (alias, value) in enumerate(sorted(inputs.items())):
        expected = tf.as_dtype(signature.inputs[alias].dtype)
        found = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
        if found != expected:
            invalid(f"Expects arg[{place}] to be {type_name(expected)} but {type_name(found)} is provided")
        _check_shape(alias, value, signature.inputs[alias].tensor_shape)
    try:
        answers = model.functions[name or DEFAULT](
            **{alias: tf.constant(value) for alias, value in inputs.items()}
        )
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise ServingError(_code(error), str(error).strip()) from error
    return {alias: each.numpy() for alias, each in answers.items() if not only or alias in only}


def _check_shape(alias: str, value: Any, declared: Any) -> None:
    shape = tf.TensorShape(declared)
    if not shape.is_compatible_with(value.shape):
        # The server's words come from the kernel that fails first.
        invalid(f"input {alias} has the shape {list(value.shape)}, the signature has {shape}")


def _code(error: Exception) -> str:
    found = str(getattr(error, "error_code", ""))
    names = {
        3: "INVALID_ARGUMENT",
        5: "NOT_FOUND",
        9: "FAILED_PRECONDITION",
        11: "OUT_OF_RANGE",
        12: "UNIMPLEMENTED",
    }
    return names.get(int(found), "INTERNAL") if found.isdigit() else "INVALID_ARGUMENT"


def asked(body: Mapping[str, Any], model: Model) -> tuple[str, str, dict[str, Any]]:
    """Of the object of a request: whether it is in rows or columns, its signature, and its inputs.

    Raises ServingError.
    """
    name = body.get("signature_name", "")
    if not isinstance(name, str):
        what = "'signature_name' key must be a string value."
        invalid(f"JSON Value: {shown(body)} not formatted correctly. {what}")
    types = {
        alias: tf.as_dtype(each.dtype)
        for alias, each in signature_of(model, name, "INVALID_ARGUMENT").inputs.items()
    }
    if ROW in body and COLUMN in body:
        invalid(
            f"JSON Value: {shown(body)} Not formatted correctly expecting only one of 'inputs' or 'instances' "
            "keys to exist "
        )
    if ROW in body:
        return ROW, name, _rows(body, types)
    if COLUMN in body:
        return COLUMN, name, _columns(body[COLUMN], types)
    return invalid("Missing 'inputs' or 'instances' key")


def _rows(body: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    instances: Any = body[ROW]
    if not isinstance(instances, list):
        invalid(f"JSON Value: {shown(body)} Expecting 'instances' to be an list/array")
    rows: list[Any] = instances  # pyright: ignore[reportUnknownVariableType]
    if not rows:
        invalid(f"JSON Value: {shown(body)} No values in 'instances' array")
    if len(rows) > MOST_ROWS:
        invalid(f"{len(rows)} instances, and the stand-in takes at most {MOST_ROWS} at a time")
    if not isinstance(rows[0], dict) and len(types) > 1:
        invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    objects = _is_object(rows[0])
    found: dict[str, list[Any]] = {name: [] for name in types}
    for place, row in enumerate(rows):
        if objects != _is_object(row):
            wanted, got = ("object", "list") if objects else ("value/list", "object")
            invalid(f"Expecting {wanted} but got {got} at item {place} of input list")
        named: dict[str, Any] = row if objects else {next(iter(types)): row}
        for name, value in named.items():
            key = f" key: {name}" if objects else ""
            at = f"Failed to process element: {place}{key} of 'instances' list. Error: "
            if name not in types:
                invalid(f"{at}INVALID_ARGUMENT: JSON object: does not have named input: {name}")
            try:
                each = tensor(value, types[name])
            except ServingError as error:
                invalid(f"{at}{error.code}: {error.message}")
            if found[name] and found[name][0].shape != each.shape:
                first, own = [f"[{','.join(map(str, one.shape))}]" for one in (found[name][0], each)]
                if found[name][0].size != each.size:
                    invalid(
                        f"{at}INVALID_ARGUMENT: Expecting tensor size: {found[name][0].size} but got: {each.size}"
                    )
                invalid(f"{at}INVALID_ARGUMENT: Expecting shape {first} but got: {own}")
            found[name].append(each)
        if {*named} != {*types}:
            invalid(
                f"Failed to process element: {place} of 'instances' list. JSON object: {shown(row)} keys must be "
                f"equal to: {','.join(sorted(types))}"
            )
    return {name: _stacked(values) for name, values in found.items()}


def _stacked(values: Sequence[Any]) -> Any:
    return np.stack(values) if values[0].ndim else np.array([each[()] for each in values], values[0].dtype)


def _columns(value: Any, types: Mapping[str, Any]) -> dict[str, Any]:
    if not _is_object(value):
        if len(types) > 1:
            invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        return {name: tensor(value, dtype) for name, dtype in types.items()}
    for name in types:
        if name not in value:
            invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: tensor(value[name], dtype) for name, dtype in types.items()}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_base64(value)


def answered(form: str, outputs: Mapping[str, Any]) -> str:
    """The JSON of an answer in rows or columns. Raises ServingError."""
    if not outputs:
        invalid("Cannot convert empty tensor map to JSON")
    ordered = dict(sorted(outputs.items()))
    if form == COLUMN:
        texts = {name: written(each, name.endswith("_bytes")) for name, each in ordered.items()}
        return f'{{\n    "outputs": {_object(texts)}\n}}'
    sizes: dict[str, int] = {}
    for name, each in ordered.items():
        if each.ndim == 0:
            invalid(f"Tensor name: {name} has no shape information ")
        if sizes and len(each) != next(iter(sizes.values())):
            first = next(iter(sizes.values()))
            invalid(f"Tensor name: {name} has inconsistent batch size: {len(each)} expecting: {first}")
        sizes[name] = len(each)
    rows = [
        _object(
            {
                name: written(each[row : row + 1].reshape(each.shape[1:]), name.endswith("_bytes"))
                for name, each in ordered.items()
            }
        )
        for row in range(next(iter(sizes.values())))
    ]
    return f'{{\n    "predictions": [{", ".join(rows)}]\n}}'


def _object(texts: Mapping[str, str]) -> str:
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "{" + ", ".join(f"{shown(name)}: {text}" for name, text in texts.items()) + "}"
