"""Draws a study by Optuna's own charts: its history, the importance of its parameters, and all trials at once.

Needs Optuna and matplotlib.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import Study
from optuna.visualization import matplotlib as charts

mpl.use("Agg")

HISTORY, IMPORTANCE, PARALLEL = "history.png", "importance.png", "parallel.png"


def draw(study: Study, by: str) -> dict[str, bytes]:
    """The pictures as PNG, by the name of their file; `by` is what the value of a trial is called.

    One for which there are too few results says so.
    """
    drawn: Mapping[str, Callable[[], Any]] = {
        HISTORY: lambda: charts.plot_optimization_history(study, target_name=by),
        IMPORTANCE: lambda: charts.plot_param_importances(
            study, evaluator=PedAnovaImportanceEvaluator(), target_name=by
        ),
        PARALLEL: lambda: charts.plot_parallel_coordinate(study, target_name=by),
    }
    return {name: _picture(name, drawing) for name, drawing in drawn.items()}


def _picture(name: str, drawing: Callable[[], Any]) -> bytes:
    with warnings.catch_warnings():
        # They are experimental since 2.2, of 2020.
        warnings.simplefilter("ignore")
        try:
            drawing()
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            plt.close("all")
            _, axes = plt.subplots()
            axes.set_axis_off()
            axes.text(0.5, 0.5, f"too few results for {name}:\n{error}", ha="center", va="center", wrap=True)
        figure = plt.gcf()
        figure.set_size_inches(9, 5)
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        plt.close("all")
    return content.getvalue()
