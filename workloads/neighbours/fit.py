"""Read handwritten digits by those that are nearest to each: what a network is compared with."""

import argparse
import json
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier


def split() -> list[Any]:
    """The digits that are known and those that are not, and the truth of both: always the same."""
    images, digits = load_digits(return_X_y=True)
    return train_test_split(images, digits, test_size=0.2, random_state=1, stratify=digits)


def main() -> None:
    """Split, validate, fit and measure; the result is ``metrics.json`` in the output directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neighbours", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    known, unknown, of_known, truth = split()
    model = KNeighborsClassifier(n_neighbors=options.neighbours)
    # The unknown digits choose nothing: they are what the chosen model is tested with.
    validation = float(cross_val_score(model, known, of_known).mean())
    right = model.fit(known, of_known).predict(unknown) == truth
    rows = [
        {"digit": digit, "images": int((truth == digit).sum()), "right": float(right[truth == digit].mean())}
        for digit in range(10)
    ]
    print(f"{len(known)} digits known, {len(unknown)} unknown, {right.mean():.4f} read right")
    metrics = {
        "neighbours": options.neighbours,
        "validation": validation,
        "accuracy": float(right.mean()),
        "digits": rows,
    }
    (options.output / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
