"""Split scikit-learn's data of tumours into some to learn from and some to be examined with."""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--test-share", type=float, default=0.3)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

data = load_breast_cancer()
malignant = data.target == list(data.target_names).index("malignant")
numbers = np.arange(len(malignant))
train, test = train_test_split(numbers, test_size=options.test_share, stratify=malignant, random_state=0)
options.output.mkdir(parents=True, exist_ok=True)
for name, rows in (("train", train), ("test", test)):
    np.savez(options.output / f"{name}.npz", numbers=rows, cells=data.data[rows], malignant=malignant[rows])
print(f"{len(train)} tumours to learn from, {len(test)} to be examined with")
