"""Whether a SavedModel can be served: it loads, has the signature, and answers real requests as it should."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slipway.runtime.exits import BAD_INPUT, MODEL_REFUSED, StepError

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
    contents = arrays(path)
    wanted = {name: names.get(name, name) for name in signature}
    if stray := sorted({*names} - {*signature}):
        inputs = ", ".join(sorted(signature))
        raise StepError(BAD_INPUT, f"--input {stray[0]}=…: the signature has no such input, but {inputs}")
    if missing := sorted({*wanted.values(), *([truth] if truth else [])} - {*contents}):
        names_of_file = ", ".join(sorted(contents)) or "nothing"
        raise StepError(BAD_INPUT, f"{path} lacks the array {missing[0]}; it has {names_of_file}")
    inputs = {name: _fit_shape(contents[array], array, signature[name]) for name, array in wanted.items()}
    rows = {len(array) for array in (*inputs.values(), *([contents[truth]] if truth else []))}
    if len(rows) != 1 or not max(rows):
        raise StepError(
            BAD_INPUT, f"{path}: its arrays have {sorted(rows)} rows; each needs as many, and at least one"
        )
    return Requests(inputs, contents[truth] if truth else None)


def _fit_shape(array: NDArray[Any], name: str, spec: tf.TensorSpec) -> NDArray[Any]:
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
    sizes = [size if size is not None else -1 for size in shape]
    sizes[0] = len(typed)
    if 1 in sizes[1:] and sizes.count(-1) == 0 and int(np.prod(sizes)) == typed.size:
        return typed.reshape(sizes)
    raise StepError(BAD_INPUT, f"array {name} has the shape {list(array.shape)}, the input takes {shape}")


if TYPE_CHECKING:
    import tensorflow as tf


BATCH = 256
"""Rows that are asked about at once."""
ALONE = 8
"""Rows that are asked about once more one by one."""


@dataclass(frozen=True)
class Examination:
    """What to ask a model, and how well it has to answer.

    ``file`` has the requests, ``inputs`` the names of arrays that are not called like the signature's input, and
    ``truth`` the name of the array with what is right. ``output`` is the output that is compared with it: where
    None, the only one. ``least`` is the share of right answers, 0 to 1.
    """

    file: Path
    signature: str
    inputs: Mapping[str, str]
    truth: str | None
    output: str | None
    least: float | None


def examine(model: Path, examination: Examination) -> dict[str, Any]:
    """What the SavedModel ``model`` answered: the facts of its version.

    Raises:
        StepError: BAD_INPUT where it does not load or lacks the signature, MODEL_REFUSED where it answers wrongly.
        OSError: the requests cannot be read.
    """
    loaded = _load(model)
    function = _signature(loaded, model, examination.signature)
    inputs = dict(function.structured_input_signature[1])
    given = requests(examination.file, examination.inputs, examination.truth, inputs)
    outputs = _answers(function, given)
    facts: dict[str, Any] = {"signature": examination.signature, "requests": given.count}
    if given.truth is not None:
        name = _output_to_score(outputs, examination.output)
        facts["accuracy"] = accuracy(outputs[name], given.truth)
        if examination.least is not None and not facts["accuracy"] >= examination.least:
            raise StepError(
                MODEL_REFUSED,
                f"{model} answers {facts['accuracy']:.4f} of {given.count} requests rightly, {examination.least} "
                "is asked for; nothing is published, and what is served stays",
            )
    return facts


def accuracy(answers: NDArray[Any], truth: NDArray[Any]) -> float:
    """The share of rows that are answered rightly.

    The largest of several scores in a row names the class; of a single score, 0.5 and more is class 1.
    """
    rows = answers.reshape(len(answers), -1)
    classes = rows.argmax(axis=1) if rows.shape[1] > 1 else (rows[:, 0] >= 0.5).astype(np.int64)
    return float((classes == truth.reshape(-1).astype(np.int64)).mean())


def _load(model: Path) -> Any:
    import tensorflow as tf

    if not (model / "saved_model.pb").is_file():
        raise StepError(BAD_INPUT, f"{model} is no SavedModel: it has no saved_model.pb")
    try:
        return tf.saved_model.load(str(model), tags=["serve"])
    except Exception as error:
        # Each kind of damage has an exception of its own, of TensorFlow, protobuf or Python.
        raise StepError(BAD_INPUT, f"{model} does not load: {type(error).__name__}: {_line(error)}") from error


def _signature(loaded: Any, model: Path, name: str) -> Any:
    if name not in loaded.signatures:
        known = ", ".join(sorted(loaded.signatures)) or "none"
        raise StepError(
            BAD_INPUT,
            f"{model} has no signature {name}, without which nothing can be asked; it has: {known}. Export it "
            "with one: `model.export(…)` of Keras, or `tf.saved_model.save(…, signatures=…)`",
        )
    return loaded.signatures[name]


def _answers(function: Callable[..., Mapping[str, tf.Tensor]], given: Requests) -> dict[str, NDArray[Any]]:
    batches = [
        _ask(function, {name: rows[start : start + BATCH] for name, rows in given.inputs.items()})
        for start in range(0, given.count, BATCH)
    ]
    outputs = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    for name, answer in outputs.items():
        if answer.dtype.kind == "f" and not np.isfinite(answer).all():
            row = int(np.argwhere(~np.isfinite(answer))[0][0])
            raise StepError(
                MODEL_REFUSED, f"output {name} has a number that is not finite in the answer to request {row}"
            )
    for row in range(min(ALONE, given.count)):
        alone = _ask(function, {name: rows[row : row + 1] for name, rows in given.inputs.items()})
        for name, answer in alone.items():
            if answer.dtype.kind == "f" and not np.allclose(answer[0], outputs[name][row], rtol=1e-2, atol=1e-3):
                raise StepError(
                    MODEL_REFUSED,
                    f"output {name} is another one where request {row} is asked alone: a server puts requests of "
                    "several people into one batch, and one's answer may not depend on the others",
                )
    return outputs


def _ask(function: Callable[..., Mapping[str, tf.Tensor]], inputs: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    import tensorflow as tf

    count = len(next(iter(inputs.values())))
    constants = {name: tf.constant(rows) for name, rows in inputs.items()}
    try:
        answers = {name: tensor.numpy() for name, tensor in function(**constants).items()}
    except (tf.errors.OpError, TypeError, ValueError) as error:
        raise StepError(MODEL_REFUSED, f"the model fails on {count} requests: {_line(error)}") from error
    for name, answer in answers.items():
        if answer.ndim == 0 or len(answer) != count:
            shape = list(answer.shape)
            raise StepError(
                MODEL_REFUSED, f"output {name} of {count} requests has the shape {shape}: not one row for each"
            )
    return answers


def _output_to_score(outputs: Mapping[str, Any], name: str | None) -> str:
    if name is None and len(outputs) == 1:
        return next(iter(outputs))
    if name is None or name not in outputs:
        known = ", ".join(sorted(outputs))
        raise StepError(
            BAD_INPUT,
            f"--score {name or 'is not given'}: which of the outputs is right or wrong? There are {known}",
        )
    return name


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
