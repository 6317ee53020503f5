"""Read ten digits that the network has not seen."""

import argparse
import json
from pathlib import Path

import keras
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", type=Path, required=True)
parser.add_argument("--images", type=Path, required=True)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

digits = np.load(options.images)
probabilities = keras.saving.load_model(options.model).predict(digits["images"], verbose=0)
rows = [
    {"truth": int(truth), "digit": int(row.argmax()), "confidence": float(row.max())}
    for truth, row in zip(digits["truth"], probabilities, strict=True)
]
for row in rows:
    print(f"a {row['truth']} is read as {row['digit']} ({row['confidence']:.1%})")
(options.output / "predictions.json").write_text(json.dumps({"images": rows}))
