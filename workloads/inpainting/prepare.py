"""Take a photograph, and keep a random share of its pixels."""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--height", type=int, default=96, help="of the photograph in pixels")
parser.add_argument("--known-share", type=float, default=0.25, help="of the pixels that are kept")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

photograph = Image.fromarray(load_sample_image("flower.jpg"))
width = round(photograph.width * options.height / photograph.height)
pixels = np.asarray(photograph.resize((width, options.height)), dtype=np.float32) / 255
known = np.random.default_rng(0).random(pixels.shape[:2]) < options.known_share
options.output.mkdir(parents=True, exist_ok=True)
np.savez(options.output / "photograph.npz", pixels=pixels, known=known)
print(f"{known.sum()} of {known.size} pixels are known")
