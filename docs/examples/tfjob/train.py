"""Fits a line by TensorFlow's MultiWorkerMirroredStrategy, as TF_CONFIG says, and writes it as JSON."""

import argparse
import json
from pathlib import Path

import tensorflow as tf


def main() -> None:
    """Train; every process has half of the batch, and rank 0 writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, count = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    with strategy.scope():
        slope, intercept = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        def of_a_worker() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((slope * x + intercept - y) ** 2) / count
            gradients = tape.gradient(loss, [slope, intercept])
            context = tf.distribute.get_replica_context()
            for variable, gradient in zip(
                (slope, intercept), context.all_reduce(tf.distribute.ReduceOp.SUM, gradients), strict=True
            ):
                variable.assign_sub(0.1 * gradient)
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(of_a_worker), axis=None)

    random = tf.random.Generator.from_seed(rank)
    loss = tf.constant(0.0)
    for _ in range(options.steps):
        x = random.uniform([64], -1.0, 1.0)
        loss = step(x, 3.0 * x + 1.0)
    print(f"slope {slope.numpy():.3f}, intercept {intercept.numpy():.3f}, loss {loss.numpy():.6f}")
    if rank == 0:
        options.output.mkdir(parents=True, exist_ok=True)
        found = {"slope": float(slope.numpy()), "intercept": float(intercept.numpy()), "loss": float(loss.numpy())}
        (options.output / "line.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
