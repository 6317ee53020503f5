"""Train a small network on scikit-learn's 1,797 scans of handwritten digits, 8 by 8 pixels each."""

import argparse
import json
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

keras.utils.set_random_seed(1)
digits = load_digits()
images, unseen, labels, truth = train_test_split(digits.images[..., None] / 16, digits.target, random_state=1)

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(images, labels, epochs=options.epochs, verbose=2)
accuracy = model.evaluate(unseen, truth, verbose=0)[1]
print(f"{accuracy:.1%} of {len(unseen)} unseen digits were read right")

# One scan of each digit, for the next step.
ten = [int(np.flatnonzero(truth == digit)[0]) for digit in range(10)]
np.savez(options.output / "unseen.npz", images=unseen[ten], truth=truth[ten])
model.save(options.output / "model.keras")
(options.output / "metrics.json").write_text(json.dumps({"test": {"accuracy": accuracy}}))
