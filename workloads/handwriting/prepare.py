"""Split scikit-learn's handwritten digits into images to train on and images to test with."""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", type=Path, required=True)
output = parser.parse_args().output

images, labels = load_digits(return_X_y=True)
names = ("images", "test_images", "labels", "test_labels")
parts = train_test_split(images.astype("float32") / 16, labels, test_size=0.2, random_state=1, stratify=labels)
output.mkdir(parents=True, exist_ok=True)
np.savez(output / "digits.npz", **dict(zip(names, parts, strict=True)))
print(f"{len(parts[0])} images to train on, {len(parts[1])} to test with")
