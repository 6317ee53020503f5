"""What the fraud pipeline finds on days of the handbook's simulator, for ten seeds, and what of that is luck.

`python -m benchmarks.fraud --source DIR` takes a folder of days (default: the environment variable
SLIPWAY_FRAUD_DIR) and prints the tables of docs/fraud.md.
"""

import argparse
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CODE = Path(__file__).resolve().parents[1] / "workloads" / "fraud"
BUDGET, SEEDS, RESAMPLES = 133, 10, 1_000


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=os.environ.get("SLIPWAY_FRAUD_DIR"))
    parser.add_argument("--output", type=Path, default=Path("build/fraud"))
    options = parser.parse_args()
    if not options.source:
        parser.error("--source, or SLIPWAY_FRAUD_DIR, has to name a folder of days")
    sys.path.insert(0, str(CODE))
    data = options.output / "data"
    run("prepare.py", "--source", options.source.resolve(), "--output", data)
    print("| settings | figure | mean | standard deviation | least |\n| --- | --- | --- | --- | --- |")
    for name, settings in (("as shipped", ()), ("`hidden: 16`", ("--hidden", 16))):
        reports = [report(options.output, data, seed, settings) for seed in range(SEEDS)]
        for title, figure in FIGURES.items():
            values = np.array([figure(one) for one in reports], dtype=float)
            print(
                f"| {name} | {title} | {values.mean():.3f} | {values.std(ddof=1):.3f} | {values.min():.3f} |",
                flush=True,
            )
    print("\n| figure | as found | 5 % of the resamples are below | 5 % are above |\n| --- | --- | --- | --- |")
    for title, (value, low, high) in luck(options.output, data).items():
        print(f"| {title} | {value:.3f} | {low:.3f} | {high:.3f} |")


FIGURES = {
    "average precision": lambda result: result["test"]["this_model"]["average_precision"],
    "area under the ROC curve": lambda result: result["test"]["this_model"]["roc_auc"],
    f"frauds among the {BUDGET} first": lambda result: result["test_in_budget"]["this_model"]["frauds"],
    "frauds found at the threshold": lambda result: result["test"]["this_model"]["frauds"],
    "transactions flagged at the threshold": lambda result: result["test"]["this_model"]["transactions"],
}


def report(output: Path, data: Path, seed: int, settings: Sequence[object]) -> Any:
    """What the pipeline says with ``seed``, its days learnt one after the other."""
    days, rows, previous = output / f"seed-{seed}", [], None
    for path in sorted((data / "days").glob("*.npz")):
        earlier = ("--previous", previous) if previous else ()
        run("train_day.py", "--day", path, *earlier, "--seed", seed, *settings, "--output", days / path.stem)
        rows.append({"item": path.stem, "state": "done", "path": path.stem})
        previous = days / path.stem
    (days / "items.json").write_text(json.dumps(rows), encoding="utf-8")
    run("evaluate.py", "--data", data, "--days", days, "--budget", BUDGET,
        "--output", days / "report")  # fmt: skip
    return json.loads((days / "report" / "report.json").read_text(encoding="utf-8"))


def luck(output: Path, data: Path) -> dict[str, tuple[float, float, float]]:
    """Each figure of the test day, and what it would be with other customers like those, drawn from them again."""
    from measures import first, ranking
    from model import keras, load_day, scores

    report(output, data, 0, ())
    test = load_day(data / "test.npz")
    last = max(path.stem for path in (data / "days").glob("*.npz"))
    score = scores(keras.models.load_model(output / "seed-0" / last / "model.keras"), test)

    def figures(rows: np.ndarray) -> list[float]:
        fraud, ranked = test["fraud"][rows], score[rows]
        return [*ranking(fraud, ranked).values(), float((fraud & first(ranked, BUDGET)).sum() / fraud.sum())]

    random, customers = np.random.default_rng(0), test["customer"]
    names, at = np.unique(customers, return_inverse=True)
    rows_of = np.split(np.argsort(at, kind="stable"), np.cumsum(np.bincount(at))[:-1])
    drawn = [
        figures(np.concatenate([rows_of[integer] for integer in random.integers(0, len(names), len(names))]))
        for _ in range(RESAMPLES)
    ]
    titles = ("average precision", "area under the ROC curve", f"share of frauds among the {BUDGET} first")
    low, high = np.percentile(drawn, [5, 95], axis=0)
    return dict(zip(titles, zip(figures(np.arange(len(score))), low, high, strict=True), strict=True))


def run(program: str, *arguments: object) -> None:
    """Run a program of the pipeline in this process, which has TensorFlow loaded, with its words kept quiet."""
    before, sys.argv = sys.argv, [program, *map(str, arguments)]
    out, sys.stdout = sys.stdout, open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        runpy.run_path(str(CODE / program))
    finally:
        sys.stdout.close()
        sys.argv, sys.stdout = before, out


if __name__ == "__main__":
    main()
