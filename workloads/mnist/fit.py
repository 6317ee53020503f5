"""Train on the accelerators of this machine alone, by Keras' own loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workloads.mnist.batches import batches
from workloads.mnist.checkpoints import restore
from workloads.mnist.model import build, learning_rate
from workloads.mnist.training import Work, announce, batches_of, plain, report, run_name
from workloads.runtime.devices import accelerators, describe, strategy
from workloads.runtime.store import store_errors

if TYPE_CHECKING:
    import keras


def train(work: Work) -> tuple[dict[str, Any], keras.Model]:
    """Train from the newest checkpoint to the last epoch; returns the contents of metrics.json and a plain model.

    Raises:
        StepError: BAD_INPUT, USAGE, MODEL_REFUSED where the loss is not finite, STORE_TROUBLE.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from workloads.mnist.optimizer import FusedAdam
    from workloads.mnist.progress import Progress

    options = work.options
    found = accelerators()
    distribution = strategy(found)
    sizes = batches_of(work, distribution.num_replicas_in_sync)
    steps, run = sizes.steps(work.images), run_name(work, sizes)
    announce(work, sizes, describe(found))

    keras.utils.set_random_seed(options.seed)
    with distribution.scope():
        # One execution per epoch: between the steps nothing comes back to Python.
        model = build(FusedAdam(), steps_per_execution=steps)
        model.optimizer.build(model.trainable_variables)
        checkpoint = restore(model, work.checkpoints, run, options.epochs)
    done = 0
    progress = Progress(options.epochs, steps * sizes.train, work.logs, work.checkpoints, run)
    if checkpoint is not None:
        done = checkpoint.epochs_done
        progress.history = checkpoint.history
        print(f"Resuming after epoch {done} from {checkpoint.path.name}", flush=True)

    # Keras adds up the first batch of all replicas to learn its shape, so that one must split evenly.
    test = work.test[0][..., np.newaxis], work.test[1]
    testing = tf.data.Dataset.from_tensor_slices(test).batch(sizes.test).prefetch(2)
    if done < options.epochs:
        with store_errors(options.output):
            model.fit(
                batches(
                    work.train,
                    options.seed,
                    range(done, options.epochs),
                    sizes.train,
                    copies=options.augment,
                ),
                initial_epoch=done,
                epochs=options.epochs,
                steps_per_epoch=steps,
                validation_data=testing,
                callbacks=[
                    keras.callbacks.LearningRateScheduler(lambda epoch, _: learning_rate(options.rates, epoch)),
                    progress,
                ],
                shuffle=False,
                verbose=0,
            )
    loss, accuracy = model.evaluate(testing, verbose=0)
    about = {
        "devices": describe(found),
        "virtual_devices": any(one.virtual for one in found),
        "replicas": sizes.replicas,
    }
    return report(work, progress, loss, accuracy, about), plain(model)
