"""What a ranking of transactions is worth to a bank, and what it costs."""

from typing import TypedDict

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score


class Ranking(TypedDict):
    """How well frauds are ranked above others; None for a day that has none, or nothing else."""

    average_precision: float | None
    roc_auc: float | None


class Flagged(TypedDict):
    """What came of flagging some transactions: shares from 0 to 1, and money in the unit of the amounts."""

    transactions: float
    cards: float
    frauds: float
    precision: float | None
    recall: float | None
    accuracy: float
    cost: float


def ranking(fraud: np.ndarray, score: np.ndarray) -> Ranking:
    """Average precision and area under the ROC curve of ranking by ``score``."""
    if fraud.all() or not fraud.any():
        return {"average_precision": None, "roc_auc": None}
    return {
        "average_precision": float(average_precision_score(fraud, score)),
        "roc_auc": float(roc_auc_score(fraud, score)),
    }


def flagged(day: dict[str, np.ndarray], chosen: np.ndarray, review_cost: float) -> Flagged:
    """What flagging the ``chosen`` transactions of ``day`` finds.

    Each costs ``review_cost``, and each fraud that is not among them costs its amount.
    """
    fraud, count = day["fraud"], int(chosen.sum())
    hits, frauds = int((fraud & chosen).sum()), int(fraud.sum())
    return {
        "transactions": count,
        "cards": len(np.unique(day["customer"][chosen])),
        "frauds": hits,
        "precision": hits / count if count else None,
        "recall": hits / frauds if frauds else None,
        "accuracy": float((fraud == chosen).mean()),
        "cost": float(count * review_cost + day["amount"][fraud & ~chosen].sum()),
    }


def first(score: np.ndarray, count: int) -> np.ndarray:
    """Which transactions are the ``count`` with the highest ``score``; of equal ones, the earlier."""
    chosen = np.zeros(len(score), dtype=bool)
    chosen[np.argsort(-score, kind="stable")[:count]] = True
    return chosen


def costs(day: dict[str, np.ndarray], score: np.ndarray, review_cost: float) -> np.ndarray:
    """What it costs to flag the 0, 1, 2, … transactions with the highest ``score``."""
    order = np.argsort(-score, kind="stable")
    lost = np.where(day["fraud"], day["amount"], 0.0)[order]
    return np.arange(len(score) + 1) * review_cost + lost.sum() - np.concatenate([[0.0], np.cumsum(lost)])
