"""Train a network that reads digits, on one node or on several together.

Each node has its share of every batch, and JAX adds the gradients up over all of them, so that the result does
not depend on how many there are. Node 0 writes the state to `checkpoint.pickle` after each epoch, in the folder
that SLIPWAY_CHECKPOINT names, else in that of --output. Started again, on as many nodes, all go on from there.
"""

import argparse
import json
import os
import pickle
import time
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=120, help="images per step, over all nodes")
parser.add_argument("--width", type=int, default=128, help="of the network's layers")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

rank, nodes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if nodes > 1:
    # JAX reads the coordinator's address from the environment, and nothing else. It is not to ask the cluster.
    jax.distributed.initialize(num_processes=nodes, process_id=rank, cluster_detection_method="deactivate")
if options.batch % jax.device_count():
    raise SystemExit(f"--batch {options.batch} cannot be shared evenly by {jax.device_count()} devices")

digits = np.load(options.data / "digits.npz")
images, labels = digits["images"], digits["labels"]
random, adam = np.random.default_rng(0), optax.adam(0.002)
sizes = [images.shape[1], options.width, options.width, 10]
weights = [random.normal(size=size).astype("float32") * (2 / size[0]) ** 0.5 for size in pairwise(sizes)]

mesh = Mesh(np.array(jax.devices()), ("batch",))
whole, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))


def scores(weights, images):
    layer = images
    for weight in weights[:-1]:
        layer = jax.nn.relu(layer @ weight)
    return layer @ weights[-1]


def loss(weights, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(scores(weights, images), labels).mean()


@jax.jit
def step(weights, moments, images, labels):
    value, gradients = jax.value_and_grad(loss)(weights, images, labels)
    updates, moments = adam.update(gradients, moments)
    return optax.apply_updates(weights, updates), moments, value


def on_all(value, sharding=whole):
    return jax.tree.map(lambda part: jax.make_array_from_process_local_data(sharding, np.asarray(part)), value)


# Node 0 alone decides where to go on: another one may still see an older file.
checkpoint = Path(os.environ.get("SLIPWAY_CHECKPOINT", options.output)) / "checkpoint.pickle"
epoch, history, state = 0, [], (weights, adam.init(weights))
if rank == 0 and checkpoint.exists():
    epoch, history, state = pickle.loads(checkpoint.read_bytes())
if nodes > 1:
    epoch, state = multihost_utils.broadcast_one_to_all((np.asarray(epoch), state))
state = on_all(state)
options.output.mkdir(parents=True, exist_ok=True)
share = options.batch // nodes
print(f"Node {rank} of {nodes}: {len(images)} images, {share} of {options.batch} in each step", flush=True)

for number in range(int(epoch) + 1, options.epochs + 1):
    began, order = time.monotonic(), np.random.default_rng(number).permutation(len(images))
    steps = len(images) // options.batch
    total = 0.0
    for first in range(0, steps * options.batch, options.batch):
        mine = order[first + rank * share : first + (rank + 1) * share]
        *state, value = step(*state, *on_all((images[mine], labels[mine]), shared))
        total += float(value)
    if rank == 0:
        speed = steps * options.batch / (time.monotonic() - began)
        history.append({"loss": total / steps, "images_per_second": speed})
        checkpoint.with_suffix(".new").write_bytes(pickle.dumps((number, history, jax.device_get(state))))
        checkpoint.with_suffix(".new").replace(checkpoint)
        print(f"Epoch {number}/{options.epochs}: loss {total / steps:.4f}, {speed:.0f} images/s", flush=True)

if rank == 0:
    read = np.argmax(scores(jax.device_get(state[0]), jnp.asarray(digits["test_images"])), axis=1)
    accuracy = float(np.mean(read == digits["test_labels"]))
    np.savez(options.output / "weights.npz", *jax.device_get(state[0]))
    report = {"accuracy": accuracy, "nodes": nodes, "history": history}
    (options.output / "metrics.json").write_text(json.dumps(report, indent=2))
    print(f"{accuracy:.1%} of {len(read)} digits were read right")
