"""A training on several nodes by TensorFlow: a loop of its own under `MultiWorkerMirroredStrategy`.

The chief writes weights, the optimizer's variables and the step after each step, and at the end the weights as
numbers. Equal runs leave equal files. Arguments as those of `tests.support.node_sums`.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

GLOBAL_BATCH = 32


def main(output: Path, steps: int, seconds: float) -> None:
    """Train, from the checkpoint on."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((16,)),
                tf.keras.layers.Dense(32, activation="tanh"),
                tf.keras.layers.Dense(1),
            ]
        )
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)
    checkpoint = output / "checkpoint.npz"
    kept = [*model.trainable_variables, *optimizer.variables]
    done = _load(checkpoint, kept)
    print(f"step {done} of {steps}", flush=True)

    @tf.function
    def step(features: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        def one(features: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                errors = tf.square(model(features, training=True) - targets)
                loss = tf.reduce_sum(errors) / GLOBAL_BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            # It sums over the workers itself.
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        losses = strategy.run(one, args=(features, targets))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    while done < steps:
        features, targets = _batch(done)
        share = GLOBAL_BATCH // count
        rows = slice(rank * share, (rank + 1) * share)
        loss = float(step(tf.constant(features[rows]), tf.constant(targets[rows])))
        if done % 10 == 0:
            print(f"step {done + 1}, loss {loss:.6f}", flush=True)
        done += 1
        if rank == 0:
            _save(checkpoint, kept, done)
        time.sleep(seconds)
    if rank == 0:
        weights = [variable.numpy().tolist() for variable in model.trainable_variables]
        _write(output / "value.json", json.dumps(weights).encode())


def _batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(step)
    features = dice.normal(size=(GLOBAL_BATCH, 16)).astype(np.float32)
    return features, np.sin(features.sum(axis=1, keepdims=True)).astype(np.float32)


def _save(checkpoint: Path, kept: list[tf.Variable], done: int) -> None:
    content = io.BytesIO()
    np.savez(content, done=done, **{f"v{index}": variable.numpy() for index, variable in enumerate(kept)})
    _write(checkpoint, content.getvalue())


def _write(target: Path, content: bytes) -> None:
    temporary = target.with_name(f"{target.name}.new")
    temporary.write_bytes(content)
    temporary.replace(target)


def _load(checkpoint: Path, kept: list[tf.Variable]) -> int:
    if not checkpoint.exists():
        return 0
    with np.load(checkpoint) as content:
        for index, variable in enumerate(kept):
            variable.assign(content[f"v{index}"])
        return int(content["done"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
