"""Examine a classifier with tumours that it has not seen."""

import argparse
import json
from pathlib import Path

import joblib
import numpy as np
from sklearn.metrics import RocCurveDisplay, accuracy_score, recall_score

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--model", type=Path, required=True)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

test = np.load(options.data / "test.npz")
risk = joblib.load(options.model / "model.joblib").predict_proba(test["cells"])[:, 1]
found = risk >= 0.5
wrong = [
    {"tumour": int(number), "truth": "malignant" if truth else "benign", "risk": float(share)}
    for number, truth, share in zip(test["numbers"], test["malignant"], risk, strict=True)
    if truth != (share >= 0.5)
]
metrics = {
    "accuracy": accuracy_score(test["malignant"], found),
    "recall": recall_score(test["malignant"], found),
    "wrong": wrong,
}
options.output.mkdir(parents=True, exist_ok=True)
(options.output / "metrics.json").write_text(json.dumps(metrics))
RocCurveDisplay.from_predictions(test["malignant"], risk).figure_.savefig(options.output / "roc.png")
print(f"{len(risk) - len(wrong)} of {len(risk)} tumours were told apart rightly")
