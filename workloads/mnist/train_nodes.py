"""Train on the accelerators of several nodes at once, by a loop of our own.

Keras 3 has no `fit` for MultiWorkerMirroredStrategy (keras-team/keras#20585; with 3.15.1 it fails, because a value
of each replica is no tensor). Inside `strategy.run`, `optimizer.apply_gradients` adds up the gradients of all
replicas by itself, so each divides its loss by the images of all. An epoch is one call of TensorFlow.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from slipway.workloads.runtime.devices import Accelerator
from slipway.workloads.runtime.nodes.collectives import Group, describe_all, of_first
from slipway.workloads.runtime.store import store_errors
from workloads.mnist.batches import batches
from workloads.mnist.model import FusedAdam, build, plain
from workloads.mnist.progress import Progress, restore
from workloads.mnist.training import (
    TEST_BATCH,
    Batches,
    Work,
    announce,
    batches_of,
    learning_rate,
    report,
    run_name,
)


def train(
    work: Work, among: Group, distribution: tf.distribute.Strategy, devices: list[Accelerator]
) -> tuple[dict[str, Any], keras.Model]:
    """Train with all others; returns the contents of metrics.json, equal in all but times, and a plain model.

    The process that writes reads its newest checkpoint, and its state becomes that of all: whatever a shared store
    shows to the others does not matter. It alone writes checkpoints and events.

    Raises:
        StepError: BAD_INPUT, USAGE, MODEL_REFUSED where the loss is not finite, STORE_TROUBLE.
    """
    options = work.options
    # A CPU that stands in for some GPUs takes the images of all of them.
    sizes = batches_of(work, among.count * max(len(devices), 1))
    steps, run = sizes.steps(work.images), run_name(work, sizes)
    announce(work, sizes, describe_all(among, devices))
    keras.utils.set_random_seed(options.seed)
    with distribution.scope():
        model = build(FusedAdam())
        model.optimizer.build(model.trainable_variables)
    progress = Progress(options.epochs, steps * sizes.train, work.logs, work.checkpoints, run)
    progress.set_model(model)
    done = _resume(work, among, distribution, model, progress)
    loop = Loop(distribution, model, work, sizes, range(done, options.epochs))
    with store_errors(options.output):
        for epoch in range(done, options.epochs):
            rate = learning_rate(options.rates, epoch)
            with distribution.scope():
                model.optimizer.learning_rate = rate
            progress.on_epoch_begin(epoch)
            loss, accuracy = loop.epoch()
            progress.on_train_batch_end(steps - 1)
            test_loss, test_accuracy = loop.test()
            if among.writes:
                logs = {"loss": loss, "accuracy": accuracy, "val_loss": test_loss, "val_accuracy": test_accuracy}
                progress.on_epoch_end(
                    epoch, {**logs, "learning_rate": float(model.optimizer.learning_rate.numpy())}
                )
        progress.on_train_end()
    test_loss, test_accuracy = loop.test()
    about = {
        "devices": describe_all(among, devices),
        "virtual_devices": any(device.virtual for device in devices),
        "replicas": sizes.replicas,
        "nodes": among.count,
    }
    return report(work, progress, test_loss, test_accuracy, about), plain(model)


def _resume(
    work: Work, among: Group, distribution: tf.distribute.Strategy, model: keras.Model, progress: Progress
) -> int:
    """Give all processes the state of the first one's newest checkpoint; returns the epochs that are done."""
    source, done = model, 0
    if among.writes:
        # Loading makes variables, and under the strategy the others would have to make them, too.
        local = build(FusedAdam())
        local.optimizer.build(local.trainable_variables)
        checkpoint = restore(local, work.checkpoints, progress.run, work.options.epochs)
        if checkpoint is not None:
            source, done = local, checkpoint.epochs_done
            progress.history = checkpoint.history
            print(f"Resuming after epoch {done} from {checkpoint.path.name}", flush=True)
    values = [np.asarray(variable.numpy(), np.float64) for variable in _state(source)]
    state = of_first(distribution, np.concatenate([[done], *(value.ravel() for value in values)]))
    at = 1
    for variable, value in zip(_state(model), values, strict=True):
        variable.assign(state[at : at + value.size].reshape(value.shape).astype(variable.dtype))
        at += value.size
    if state[0] and not among.writes:
        print(f"Resuming after epoch {state[0]:.0f}, as process 0 says", flush=True)
    return int(state[0])


def _state(model: keras.Model) -> list[keras.Variable]:
    return [*model.weights, *model.optimizer.variables]


class Loop:
    """The steps of the `epochs` in order, and tests. All processes of the training call the same methods."""

    def __init__(
        self, distribution: tf.distribute.Strategy, model: keras.Model, work: Work, sizes: Batches, epochs: range
    ) -> None:
        self._distribution, self._model = distribution, model
        self._images = sizes.train
        self._steps = sizes.steps(work.images)
        replicas = distribution.num_replicas_in_sync
        self._test_steps = -(-len(work.test[0]) // (TEST_BATCH * replicas))
        with distribution.scope():
            # Loss, right answers and images of each replica; whoever reads it has the sum over all.
            self._totals = tf.Variable(
                tf.zeros(3, tf.float64),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

        # All batches are full, and counted. Did these not go on for ever, all processes would ask each other
        # before every step whether one of them has come to its end.
        def training(context: tf.distribute.InputContext) -> tf.data.Dataset:
            seed, copies = work.options.seed, work.options.augment
            feed = batches(
                work.train, seed, epochs, sizes.train, copies=copies, shares=replicas, mine=_replicas(context)
            )
            return feed.repeat()

        def testing(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return _tests(work, self._test_steps, replicas, _replicas(context)).repeat()

        self._training = iter(distribution.distribute_datasets_from_function(training)) if epochs else None
        self._testing = iter(distribution.distribute_datasets_from_function(testing))
        self._run_epoch = tf.function(self._epoch)
        self._run_test = tf.function(self._test)

    def epoch(self) -> tuple[float, float]:
        """Train one epoch; returns the mean loss and the share of right answers, each before its own step."""
        return _means(self._run_epoch(self._training))

    def test(self) -> tuple[float, float]:
        """The mean loss of all test images, and the share of right answers."""
        return _means(self._run_test(self._testing))

    def _epoch(self, feed: Any) -> tf.Tensor:
        self._totals.assign(tf.zeros(3, tf.float64))
        for _ in tf.range(self._steps):
            self._distribution.run(self._step, args=next(feed))
        return tf.identity(self._totals)

    def _test(self, feed: Any) -> tf.Tensor:
        self._totals.assign(tf.zeros(3, tf.float64))
        for _ in tf.range(self._test_steps):
            self._distribution.run(self._try, args=next(feed))
        return tf.identity(self._totals)

    def _step(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            logits = self._model(images, training=True)
            losses = _losses(labels, logits)
            loss = tf.reduce_sum(losses) / self._images
        self._model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self._count(labels, logits, losses, tf.ones_like(losses))

    def _try(self, images: tf.Tensor, labels: tf.Tensor, counts: tf.Tensor) -> None:
        logits = self._model(images, training=False)
        self._count(labels, logits, _losses(labels, logits), counts)

    def _count(self, labels: tf.Tensor, logits: tf.Tensor, losses: tf.Tensor, counts: tf.Tensor) -> None:
        right = tf.cast(tf.equal(tf.argmax(logits, 1), tf.cast(labels, tf.int64)), tf.float32)
        sums = [tf.reduce_sum(value * counts) for value in (losses, right, tf.ones_like(losses))]
        self._totals.assign_add(tf.cast(tf.stack(sums), tf.float64))


def _losses(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), logits)


def _means(totals: tf.Tensor) -> tuple[float, float]:
    loss, right, count = map(float, totals.numpy())
    return loss / count, right / count


def _replicas(context: tf.distribute.InputContext) -> range:
    """The replicas of this process."""
    local = context.num_replicas_in_sync // context.num_input_pipelines
    return range(context.input_pipeline_id * local, (context.input_pipeline_id + 1) * local)


def _tests(work: Work, steps: int, replicas: int, mine: range) -> tf.data.Dataset:
    """The test images of the replicas `mine`, each with 1, or 0 where it only fills up the last batches."""
    count = len(work.test[0])
    index = np.arange(steps * replicas * TEST_BATCH).reshape(steps, replicas, TEST_BATCH)[
        :, mine.start : mine.stop
    ]
    index = index.reshape(-1, TEST_BATCH)
    images, labels = (values[np.minimum(index, count - 1)] for values in work.test)
    return tf.data.Dataset.from_tensor_slices(
        (images[..., np.newaxis], labels, (index < count).astype(np.float32))
    )
