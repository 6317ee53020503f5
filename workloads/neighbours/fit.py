"""Read handwritten digits by those that are nearest to each: what a network is compared with."""

import argparse
import json
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier


def split() -> list[Any]:
    """The digits that are known and those that are asked, and the truth of both: always the same."""
    images, digits = load_digits(return_X_y=True)
    return train_test_split(images, digits, test_size=0.2, random_state=1, stratify=digits)


def main() -> None:
    """Split, fit and measure; the result is ``metrics.json`` in the output directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neighbours", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    known, asked, of_known, truth = split()
    found = KNeighborsClassifier(n_neighbors=options.neighbours).fit(known, of_known).predict(asked)
    right = found == truth
    rows = [
        {"digit": digit, "images": int((truth == digit).sum()), "right": float(right[truth == digit].mean())}
        for digit in range(10)
    ]
    print(f"{len(known)} digits known, {len(asked)} asked, {right.mean():.4f} read right")
    content = json.dumps({"accuracy": float(right.mean()), "digits": rows}, indent=2)
    (options.output / "metrics.json").write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
