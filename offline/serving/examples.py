"""Classify and regress: `tensorflow.Example`s in, classes or numbers out.

As servables/tensorflow/{classifier,regressor}.cc and util/json_tensor.cc of 2.21 do it.
"""

from collections.abc import Mapping
from typing import Any

from offline.serving import predicting
from offline.serving.errors import invalid
from offline.serving.json_values import TYPES, decimal, decoded, is_base64, shown, type_name
from offline.serving.libraries import (
    classification_pb2,
    example_pb2,
    input_pb2,
    np,
    regression_pb2,
    tf,
)
from offline.serving.predicting import DEFAULT
from offline.serving.servables import Model

INT64 = np.iinfo(np.int64)

INPUTS = "inputs"
CLASSES, SCORES = "classes", "scores"
REGRESSED = "outputs"


def from_json(body: Mapping[str, Any]) -> tuple[str, Any]:
    """The signature and the `Input` of the object of a request. Raises ServingError."""
    name = body.get("signature_name", "")
    if not isinstance(name, str):
        what = "'signature_name' key must be a string value."
        invalid(f"JSON Value: {shown(body)} not formatted correctly. {what}")
    examples = body.get("examples")
    if "examples" not in body:
        invalid(f"JSON Value: {shown(body)} When method is classify, key 'examples' is expected and was not found")
    if not isinstance(examples, list):
        invalid(f"JSON Value: {shown(body)} Expecting 'examples' value to be an list/array")
    if not examples:
        invalid(f"JSON Value: {shown(body)} 'examples' value is an empty array")
    given: list[Any] = examples  # pyright: ignore[reportUnknownVariableType]
    found = input_pb2.Input()
    if "context" in body:
        found.example_list_with_context.context.CopyFrom(_example(body["context"]))
        found.example_list_with_context.examples.extend(_example(each) for each in given)
    else:
        found.example_list.examples.extend(_example(each) for each in given)
    return name, found


def _example(value: Any) -> Any:
    if not isinstance(value, dict):
        kind = "Null" if value is None else "False" if value is False else TYPES[type(value)]
        invalid(f"Example must be JSON object but got JSON {kind}")
    example = example_pb2.Example()
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    for name, content in fields.items():
        feature = example.features.feature[name]
        for each in content if isinstance(content, list) else [content]:  # pyright: ignore[reportUnknownVariableType]
            _add(feature, name, each)
    return example


def _add(feature: Any, name: str, value: Any) -> None:
    if isinstance(value, bool | int):
        if not INT64.min <= value <= INT64.max:
            invalid(f"Feature: {name} has an integer that is out of range: {shown(value)}")
        kind, added = "int64_list", int(value)
    elif isinstance(value, float):
        kind, added = "float_list", value
    elif isinstance(value, str):
        kind, added = "bytes_list", value.encode()
    elif is_base64(value):
        kind, added = "bytes_list", decoded(value)
    else:
        said = "Null" if value is None else TYPES[type(value)]
        invalid(f"Feature: {name} has element with unexpected JSON type: {said}")
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        words = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}
        invalid(f"Unexpected element type in feature: {name} expecting type: {words[present]}")
    getattr(feature, kind).value.append(added)


def _serialized(given: Any) -> Any:
    """The examples as one array of bytes; what all share is in each."""
    kind = given.WhichOneof("kind")
    if kind == "example_list_with_context":
        context = given.example_list_with_context.context
        found: list[Any] = []
        for each in given.example_list_with_context.examples:
            example = example_pb2.Example()
            example.CopyFrom(context)
            example.MergeFrom(each)
            found.append(example)
    else:
        found = list(given.example_list.examples)
    if not found:
        invalid("Input is empty.")
    array = np.empty(len(found), object)
    array[:] = [each.SerializeToString() for each in found]
    return array


def _checked(model: Model, name: str) -> Any:
    wanted = name or DEFAULT
    if wanted not in model.signatures:
        invalid(f"No signature was found with the name: {wanted}")
    signature = model.signatures[wanted]
    if len(signature.inputs) != 1:
        invalid("Expected one input Tensor.")
    return signature


def classify(model: Model, name: str, given: Any) -> Any:
    """The `ClassificationResult` of an `Input`. Raises ServingError."""
    signature = _checked(model, name)
    if len(signature.outputs) not in (1, 2):
        invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if INPUTS not in signature.inputs:
        invalid(f"No classification inputs found in SignatureDef: {signature}")
    if not {CLASSES, SCORES} & {*signature.outputs}:
        invalid(
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or "{SCORES}". '
            f"Signature was: {signature}"
        )
    examples = _serialized(given)
    outputs = predicting.run(model, name, {INPUTS: examples})
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    for what, each in ((CLASSES, classes), (SCORES, scores)):
        if each is None:
            continue
        if each.ndim != 2:
            invalid(f"Expected Tensor shape: [batch_size num_classes] but got {list(each.shape)}")
        if len(each) != len(examples):
            invalid(f"Expected {what} output batch size of {len(examples)}. Got: {len(each)}")
    if scores is not None and scores.dtype != np.float32:
        invalid(f"Expected scores Tensor of DT_FLOAT. Got: {type_name(tf.as_dtype(scores.dtype))}")
    width = next(each.shape[1] for each in (classes, scores) if each is not None)
    result = classification_pb2.ClassificationResult()
    for row in range(len(examples)):
        answer = result.classifications.add()
        for column in range(width):
            found = answer.classes.add()
            if classes is not None:
                found.label = classes[row, column].decode(errors="replace")
            if scores is not None:
                found.score = float(scores[row, column])
    return result


def regress(model: Model, name: str, given: Any) -> Any:
    """The `RegressionResult` of an `Input`. Raises ServingError."""
    signature = _checked(model, name)
    if len(signature.outputs) != 1:
        invalid("Expected one output Tensor.")
    if INPUTS not in signature.inputs:
        invalid(f"No regression inputs found in SignatureDef: {signature}")
    if REGRESSED not in signature.outputs:
        invalid(f"No regression outputs found in SignatureDef: {signature}")
    examples = _serialized(given)
    found = predicting.run(model, name, {INPUTS: examples})[REGRESSED]
    if found.ndim not in (1, 2) or (found.ndim == 2 and found.shape[1] != 1):
        invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{list(found.shape)}"
        )
    if len(found) != len(examples):
        invalid(f"Input batch size did not match output batch size: {len(examples)} vs. {len(found)}")
    if found.dtype != np.float32:
        invalid(f"Expected output Tensor of DT_FLOAT.  Got: {type_name(tf.as_dtype(found.dtype))}")
    result = regression_pb2.RegressionResult()
    for value in found.reshape(-1):
        result.regressions.add().value = float(value)
    return result


def classified(result: Any) -> str:
    """The JSON of a classification.

    Its key is `results`, as in the server and the documentation's example; the documentation's form says `result`.
    """
    rows = [
        f"[{', '.join(f'[{shown(kind.label)}, {decimal(np.float32(kind.score))}]' for kind in answer.classes)}]"
        for answer in result.classifications
    ]
    return f'{{\n    "results": [{", ".join(rows)}]\n}}'


def regressed(result: Any) -> str:
    """The JSON of a regression."""
    values = ", ".join(decimal(np.float32(regression.value)) for regression in result.regressions)
    return f'{{\n    "results": [{values}]\n}}'
