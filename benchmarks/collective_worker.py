"""A process of `benchmarks.collective`: it trains on one core when it is told to, and says how long that took.

It reads a JSON object from each line of its standard input and answers with one: `{"network": …, "batch": …,
"steps": …}` makes it ready for so many steps of so many images of each process, `{"run": true}` makes it do them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.workloads.runtime.devices import before_import
from slipway.workloads.runtime.nodes import collectives

if TYPE_CHECKING:
    import tensorflow as tf

ANSWER = "answer: "
"""What a line of its standard output begins with that is an answer; TensorFlow writes there, too."""
NETWORKS = ("mnist", "resnet50")
EPOCHS = 1_000_000
IMAGES = 65_536
"""Of an epoch at most: about as many as MNIST has."""


def main() -> None:
    """Run the process on its core until its standard input ends."""
    core, size = int(sys.argv[1]), int(sys.argv[2])
    # Threads that TensorFlow starts inherit it.
    os.sched_setaffinity(0, {core})
    among = collectives.group()
    before_import()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.get_strategy() if among is None else collectives.join(among, 0)[0]
    processes = 1 if among is None else among.count
    run: Callable[[], Any] = int
    count = 0
    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        if "network" in request:
            make = _mnist if request["network"] == "mnist" else _resnet50
            run, count = make(strategy, request["batch"], request["steps"], processes, size)
            # Twice: the first call builds the graph, and the second still allocates.
            run(), run()
            answer({"steps": count})
        else:
            began = time.perf_counter()
            run()
            answer({"seconds": time.perf_counter() - began})


def answer(content: dict[str, Any]) -> None:
    """Write one line."""
    print(ANSWER + json.dumps(content), flush=True)


def _mnist(
    strategy: tf.distribute.Strategy, batch: int, steps: int, processes: int, _size: int
) -> tuple[Callable[[], Any], int]:
    """Epochs of the loop that several nodes train MNIST with. One worker has the same: all that differs is the
    collective.
    """
    import keras
    import numpy as np

    from workloads.mnist.model import FusedAdam, build
    from workloads.mnist.train_nodes import Loop
    from workloads.mnist.training import Batches, Work

    keras.utils.set_random_seed(1)
    steps_of_epoch = max(min(steps, IMAGES // (2 * batch)), 1)
    epochs = -(-steps // steps_of_epoch)
    count = batch * processes * steps_of_epoch
    rng = np.random.default_rng(1)
    train = rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)
    work = Work(argparse.Namespace(seed=1, augment=0, output=Path()), train, (train[0][:1], train[1][:1]), {})
    with strategy.scope():
        model = build(FusedAdam(1e-4))
        model.optimizer.build(model.trainable_variables)
    loop = Loop(strategy, model, work, Batches(batch * processes, processes, processes), range(EPOCHS))
    return lambda: [loop.epoch() for _ in range(epochs)], epochs * steps_of_epoch


def _resnet50(
    strategy: tf.distribute.Strategy, batch: int, steps: int, _processes: int, size: int
) -> tuple[Callable[[], Any], int]:
    from workloads.benchmark.inputs import Batches
    from workloads.benchmark.training import CLASSES, build

    training = build(strategy, "fp32", size, xla=False)
    feed = Batches(strategy, [], batch, size, 1).synthetic(CLASSES)

    def run() -> None:
        for _ in range(steps):
            training.step(*next(feed))
        training.finish()

    return run, steps


if __name__ == "__main__":
    main()
