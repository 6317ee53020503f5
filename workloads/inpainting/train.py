"""Train a network that maps the place of a pixel to its colour, and fill in the pixels that are missing.

After each epoch its state is in `checkpoint.pickle`. Started again with the same --output it goes on from there.
"""

import argparse
import json
import pickle
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--epochs", type=int, default=12, help="of 25 steps each")
parser.add_argument("--width", type=int, default=128, help="of the network's layers")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

photograph = np.load(options.data / "photograph.npz")
pixels, known = photograph["pixels"], photograph["known"]
places = np.stack(np.indices(known.shape), axis=-1) / len(known)
random, adam = np.random.default_rng(0), optax.adam(0.003)
waves = 10 * random.normal(size=(2, options.width))
sizes = [2 * options.width, options.width, options.width, 3]
weights = [jnp.asarray(random.normal(size=each) * (2 / each[0]) ** 0.5) for each in pairwise(sizes)]


def colours(weights, places):
    layer = jnp.concatenate([jnp.sin(places @ waves), jnp.cos(places @ waves)], axis=-1)
    for weight in weights[:-1]:
        layer = jax.nn.relu(layer @ weight)
    return jax.nn.sigmoid(layer @ weights[-1])


def error(weights, where):
    return jnp.mean((colours(weights, places[where]) - pixels[where]) ** 2)


@jax.jit
def step(weights, moments):
    updates, moments = adam.update(jax.grad(error)(weights, known), moments)
    return optax.apply_updates(weights, updates), moments


checkpoint, history, state = options.output / "checkpoint.pickle", [], (weights, adam.init(weights))
if checkpoint.exists():
    history, state = pickle.loads(checkpoint.read_bytes())
options.output.mkdir(parents=True, exist_ok=True)
for epoch in range(len(history) + 1, options.epochs + 1):
    for _ in range(25):
        state = step(*state)
    history.append({"error": float(error(state[0], known)), "val_error": float(error(state[0], ~known))})
    checkpoint.with_suffix(".new").write_bytes(pickle.dumps((history, jax.device_get(state))))
    checkpoint.with_suffix(".new").replace(checkpoint)
    print(f"Epoch {epoch}/{options.epochs}: {history[-1]}", flush=True)

np.save(options.output / "filled.npy", np.where(known[..., None], pixels, colours(state[0], places)))
psnr = -10 * np.log10(history[-1]["val_error"])
device = jax.devices()[0].device_kind
(options.output / "metrics.json").write_text(json.dumps({"psnr": psnr, "device": device, "history": history}))
