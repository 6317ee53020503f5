"""Whether a SavedModel can be served: it loads, has the signature, and answers real requests as it should."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workloads.apps.tensorflow_serving.requests import Requests, requests
from workloads.runtime.exits import BAD_INPUT, MODEL_REFUSED, StepError

if TYPE_CHECKING:
    import tensorflow as tf

BATCH = 256
"""Rows that are asked about at once."""
ALONE = 8
"""Rows that are asked about once more one by one."""


@dataclass(frozen=True)
class Asked:
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


def examine(model: Path, asked: Asked) -> dict[str, Any]:
    """What the SavedModel ``model`` answered: the facts of its version.

    Raises:
        StepError: BAD_INPUT where it does not load or lacks the signature, MODEL_REFUSED where it answers wrongly.
        OSError: the requests cannot be read.
    """
    loaded = _load(model)
    function = _signature(loaded, model, asked.signature)
    inputs = dict(function.structured_input_signature[1])
    given = requests(asked.file, asked.inputs, asked.truth, inputs)
    outputs = _answers(function, given)
    facts: dict[str, Any] = {"signature": asked.signature, "requests": given.count}
    if given.truth is not None:
        name = _scored(outputs, asked.output)
        facts["accuracy"] = accuracy(outputs[name], given.truth)
        if asked.least is not None and not facts["accuracy"] >= asked.least:
            raise StepError(
                MODEL_REFUSED,
                f"{model} answers {facts['accuracy']:.4f} of {given.count} requests rightly, {asked.least} is "
                "asked for; nothing is published, and what is served stays",
            )
    return facts


def accuracy(answers: NDArray[Any], truth: NDArray[Any]) -> float:
    """The share of rows that are answered rightly.

    The largest of several scores in a row names the class; of a single score, 0.5 and more is class 1.
    """
    rows = answers.reshape(len(answers), -1)
    found = rows.argmax(axis=1) if rows.shape[1] > 1 else (rows[:, 0] >= 0.5).astype(np.int64)
    return float((found == truth.reshape(-1).astype(np.int64)).mean())


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
        there = ", ".join(sorted(loaded.signatures)) or "none"
        raise StepError(
            BAD_INPUT,
            f"{model} has no signature {name}, without which nothing can be asked; it has: {there}. Export it "
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
    try:
        answers = {
            name: each.numpy() for name, each in function(**{n: tf.constant(a) for n, a in inputs.items()}).items()
        }
    except (tf.errors.OpError, TypeError, ValueError) as error:
        raise StepError(MODEL_REFUSED, f"the model fails on {count} requests: {_line(error)}") from error
    for name, answer in answers.items():
        if answer.ndim == 0 or len(answer) != count:
            shape = list(answer.shape)
            raise StepError(
                MODEL_REFUSED, f"output {name} of {count} requests has the shape {shape}: not one row for each"
            )
    return answers


def _scored(outputs: Mapping[str, Any], name: str | None) -> str:
    if name is None and len(outputs) == 1:
        return next(iter(outputs))
    if name is None or name not in outputs:
        there = ", ".join(sorted(outputs))
        raise StepError(
            BAD_INPUT,
            f"--score {name or 'is not given'}: which of the outputs is right or wrong? There are {there}",
        )
    return name


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
