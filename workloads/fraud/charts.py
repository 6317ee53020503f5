"""Pictures of the report: as PNG files, and as SVG in the page."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from measures import costs
from sklearn.metrics import precision_recall_curve, roc_curve

MODEL, OTHER, GREY = "#1b4f8f", "#c8553d", "#8a94a0"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": "#e6e9ed",
    "axes.axisbelow": True,
    "legend.frameon": False,
    # Names of clip paths are random without it, and the page would be another one each time.
    "svg.hashsalt": "fraud",
}
Arrays = Mapping[str, np.ndarray]


def draw(
    folder: Path, report: Mapping[str, Any], days: Mapping[str, Arrays], scored: Arrays, threshold: float
) -> dict[str, str]:
    """Write the pictures of ``report`` to ``folder``; returns each as SVG by its name."""
    name = report["test"]["this_model"]["day"]
    test = days[name]
    with mpl.rc_context(STYLE):
        figures = {
            "precision_recall": _precision_recall(report, test, scored[name]),
            "roc": _roc(report, test, scored[name]),
            "cost": _cost(report, days, scored),
            "cards": _cards(days, scored, threshold),
        }
        return {key: _saved(folder / f"{key}.png", figure) for key, figure in figures.items()}


def _saved(path: Path, figure: Figure) -> str:
    figure.savefig(path, dpi=120)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _figure(title: str, across: str, up: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.2, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=across, ylabel=up)
    return figure, axes


def _precision_recall(report: Mapping[str, Any], test: Arrays, score: np.ndarray) -> Figure:
    figure, axes = _figure("Precision and recall on the test day", "Recall: share of frauds found", "Precision")
    model, chance = report["test"]["this_model"], report["test"]["random_ranking"]
    if test["fraud"].any():
        precision, recall, _ = precision_recall_curve(test["fraud"], score)
        axes.step(
            recall, precision, where="post", color=MODEL, label=f"This model, {model['average_precision']:.3f}"
        )
        share = test["fraud"].mean()
        axes.axhline(share, color=OTHER, label=f"Random ranking, {chance['average_precision']:.4f}")
        if model["precision"] is not None:
            axes.plot(model["recall"], model["precision"], "o", color=MODEL, label="At the threshold")
        axes.legend(title="Average precision", alignment="left")
    axes.set(xlim=(0, 1.01), ylim=(0, 1.05))
    return figure


def _roc(report: Mapping[str, Any], test: Arrays, score: np.ndarray) -> Figure:
    figure, axes = _figure(
        "ROC curve on the test day", "Share of others that are flagged", "Share of frauds found"
    )
    model, chance = report["test"]["this_model"], report["test"]["random_ranking"]
    if model["roc_auc"] is not None:
        others, frauds, _ = roc_curve(test["fraud"], score)
        axes.plot(others, frauds, color=MODEL, label=f"This model, {model['roc_auc']:.3f}")
        axes.plot([0, 1], [0, 1], color=OTHER, label=f"Random ranking, {chance['roc_auc']:.3f}")
        axes.legend(title="Area", alignment="left", loc="lower right")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def _cost(report: Mapping[str, Any], days: Mapping[str, Arrays], scored: Arrays) -> Figure:
    figure, axes = _figure("Cost of a day", "Flagged transactions a day", "Cost, in the unit of the amounts")
    *validation, test = scored
    longest = min(len(score) for score in scored.values())
    most = min(max(300, 3 * report["budget"]), longest)
    of = {name: costs(days[name], scored[name], report["review_cost"]) for name in scored}
    mean = np.mean([of[name][: most + 1] for name in validation], axis=0)
    axes.plot(of[test][: most + 1], color=MODEL, label="This model, test day")
    axes.plot(mean, color=MODEL, alpha=0.4, linestyle="--", label="This model, mean of validation days")
    axes.plot([0, most], [of[test][0]] * 2, color=GREY, label="No fraud predicted, test day")
    count = len(scored[test])
    chance = of[test][0] + np.array([0, most]) * (report["review_cost"] - of[test][0] / count)
    axes.plot([0, most], chance, color=OTHER, label="Random ranking, test day")
    model = report["test"]["this_model"]
    if model["transactions"] <= most:
        axes.plot(model["transactions"], model["cost"], "o", color=MODEL, label="At the threshold")
    axes.set(xlim=(0, most), ylim=(0, None))
    axes.legend(fontsize=8)
    return figure


def _cards(days: Mapping[str, Arrays], scored: Arrays, threshold: float) -> Figure:
    figure, axes = _figure("Cards flagged a day", "", "Cards")
    right, wrong, missed = [], [], []
    for name, score in scored.items():
        card, fraud = days[name]["customer"], days[name]["fraud"]
        abused, chosen = set(card[fraud]), set(card[score >= threshold])
        right.append(len(chosen & abused))
        wrong.append(len(chosen - abused))
        missed.append(len(abused - chosen))
    labels = [*list(scored)[:-1], f"{list(scored)[-1]}\ntest"]
    axes.bar(labels, right, color=MODEL, label="Flagged, with a fraud")
    axes.bar(labels, wrong, bottom=right, color="#b9cbe0", label="Flagged, without one")
    axes.bar(labels, [-count for count in missed], color=OTHER, label="Not flagged, with a fraud")
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axes.grid(visible=False, axis="x")
    if len(labels) > 6:
        axes.tick_params(axis="x", rotation=90)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3)
    return figure
