"""Train a classifier, and measure by cross-validation how well it tells tumours apart."""

import argparse
import json
from pathlib import Path

import joblib
import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import cross_val_score

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--trees", type=int, default=100)
parser.add_argument("--depth", type=int, default=3)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

train = np.load(options.data / "train.npz")
model = GradientBoostingClassifier(
    n_estimators=options.trees, max_depth=options.depth, learning_rate=options.learning_rate, random_state=0
)
scores = cross_val_score(model, train["cells"], train["malignant"], scoring="roc_auc")
options.output.mkdir(parents=True, exist_ok=True)
joblib.dump(model.fit(train["cells"], train["malignant"]), options.output / "model.joblib")
(options.output / "metrics.json").write_text(json.dumps({"roc_auc": scores.mean(), "folds": scores.tolist()}))
print(f"Area under the ROC curve, mean of {len(scores)} folds: {scores.mean():.4f}")
