"""What a notebook shows of a run: curves as charts, and classes as bars."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slipway.workloads.apps.notebook.runs import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALIDATION = "val_"
"""What Keras puts before the name of a value that it measures on validation data."""


def curves(result: Result, declared: Mapping[str, Any], points: Sequence[Mapping[str, float]]) -> bytes:
    """A PNG file with a chart for each curve, that of the training and that of the validation data in one."""
    from matplotlib.figure import Figure

    names = list(declared["curves"]) or [name for name in points[0] if not name.startswith(VALIDATION)]
    figure = Figure(figsize=(6 * len(names), 3.6), layout="constrained")
    figure.suptitle(f"{declared['title']}: {result}")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    steps = range(1, len(points) + 1)
    for axis, name in zip(axes, names, strict=True):
        for key, label in ((name, "training"), (f"{VALIDATION}{name}", "validation")):
            if all(key in point for point in points):
                axis.plot(steps, [point[key] for point in points], marker="o", markersize=3, label=label)
        axis.set(title=name, xlabel=declared.get("unit", "epoch"))
        axis.grid(alpha=0.3)
        axis.legend()
    return _png(figure)


def bars(values: Sequence[float], labels: Sequence[str] = (), title: str = "") -> bytes:
    """A PNG file with a bar for each class."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 2.2), layout="constrained")
    axis = figure.subplots()
    axis.bar([*labels] or [str(index) for index in range(len(values))], values)
    axis.set(title=title, ylim=(0, 1))
    return _png(figure)


def shares(outputs: Sequence[float]) -> list[float]:
    """The outputs of a classifier as shares of 1: logits through softmax; what adds up to 1 already, as it is."""
    import numpy as np

    values = np.asarray(outputs, dtype=np.float64)
    if values.min() >= 0 and abs(values.sum() - 1) < 1e-3:
        return values.tolist()
    raised = np.exp(values - values.max())
    return (raised / raised.sum()).tolist()


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()
