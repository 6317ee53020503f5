"""Draw a photograph with the pixels that are known, filled in, and as it was."""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--filled", type=Path, required=True)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

photograph = np.load(options.data / "photograph.npz")
pixels, known = photograph["pixels"], photograph["known"]
drawing = np.hstack([np.where(known[..., None], pixels, 1), np.load(options.filled / "filled.npy"), pixels])
larger = drawing.repeat(3, axis=0).repeat(3, axis=1)
options.output.mkdir(parents=True, exist_ok=True)
Image.fromarray(np.uint8(larger * 255)).save(options.output / "photographs.png")
