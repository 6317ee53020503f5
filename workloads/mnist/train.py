"""Train a network that reads digits, on all GPUs of one node or of several.

Each GPU computes its share of every step, and the gradients are added up over all of them: the model does not
depend on how many there are. Where TF_CONFIG names several nodes, they train together, and the first of them
writes. It writes its state to `checkpoint.npz` after each epoch, in the folder that SLIPWAY_CHECKPOINT names, else
in that of --output. Started again, on as many nodes or on others, the training goes on from there.
"""

import argparse
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from network import batches, build

FEW = 10_000
"""Images below which altered copies of them are trained on, too, where nobody says how many."""
COPIES = 8
"""With 16 a model reads hardly more, and is trained for twice as long."""
TEST_BATCH = 256
"""Images that each replica is tested on at a time."""


def read_rates(text: str) -> dict[int, float]:
    """`0:1e-3,3:1e-4`: from each epoch (counted from 0) on, the learning rate after its colon."""
    try:
        pairs = [(int(epoch), float(rate)) for epoch, rate in (part.split(":") for part in text.split(","))]
    except ValueError:
        pairs = []
    rates = dict(sorted(pairs))
    if 0 not in rates or len(rates) < len(pairs) or min(rates) < 0 or not all(0 < rate <= 1 for _, rate in pairs):
        form = "EPOCH:RATE,… with a rate for epoch 0, each epoch once, and rates above 0, at most 1"
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    return rates


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, of all GPUs together")
    parser.add_argument("--epochs", type=int, default=12)
    rates = "0:1e-3,3:1e-4,7:1e-5"
    parser.add_argument("--learning-rates", type=read_rates, default=rates, metavar="EPOCH:RATE,…")
    about = "altered copies of each image in an epoch; -1: 8 where there are few images, else none"
    parser.add_argument("--augment", type=int, default=0, metavar="COPIES", help=about)
    parser.add_argument("--min-accuracy", type=float, default=0.9, help="share of test images that is to be read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if min(options.batch_size, options.epochs) < 1 or not -1 <= options.augment <= 100 or options.seed < 0:
        parser.error("--batch-size and --epochs are 1 or more, --seed is 0 or more, --augment -1 to 100")
    return options


class Node:
    """This node among those that TF_CONFIG names: how many there are, and whether it writes."""

    def __init__(self) -> None:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        cluster, task = config.get("cluster", {}), config.get("task", {})
        self.count = sum(len(cluster.get(role, ())) for role in ("chief", "worker")) or 1
        self.writes = self.count == 1 or task["type"] == "chief" or ("chief" not in cluster and task["index"] == 0)

    def join(self) -> tf.distribute.Strategy:
        """Call it before any other operation of TensorFlow."""
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        if self.count == 1:
            return tf.distribute.MirroredStrategy() if len(gpus) > 1 else tf.distribute.get_strategy()
        kinds = tf.distribute.experimental.CommunicationImplementation
        kind = kinds.NCCL if gpus else kinds.RING
        adding_up = tf.distribute.experimental.CommunicationOptions(implementation=kind)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=adding_up)
        # Its service for preemptions has taken SIGTERM, and does nothing with it (TensorFlow 2.21, November 2026).
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return strategy


class Training:
    """Epochs and tests of `model`; all nodes call the same methods.

    Keras 3 has no `fit` for MultiWorkerMirroredStrategy (keras-team/keras#20585; 3.15.1 fails, because a value of
    each replica is no tensor). Inside `strategy.run`, `optimizer.apply` adds up the gradients of all replicas by
    itself, so each divides its loss by the images of all. An epoch is one call of TensorFlow.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, model: keras.Model, data: dict[str, Any], batch: int, **order: Any
    ) -> None:
        """`data` has images and labels of `train` and `test`; `order` is for `batches`: seed, epochs, copies."""
        self.strategy, self.model, self.batch = strategy, model, batch
        replicas = strategy.num_replicas_in_sync
        self.steps = len(data["train"][0]) * max(order["copies"], 1) // batch
        self.test_steps = -(-len(data["test"][0]) // (TEST_BATCH * replicas))
        with strategy.scope():
            # Loss, right answers and images of each replica; whoever reads it has the sum over all.
            self.totals = tf.Variable(
                tf.zeros(3, tf.float64),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

        # All batches are full, and counted. Did these not go on for ever, all nodes would ask one another before
        # every step whether one of them has come to its end.
        def training(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return batches(*data["train"], batch=batch, replicas=replicas, mine=local(context), **order).repeat()

        def testing(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return tests(*data["test"], self.test_steps, replicas, local(context)).repeat()

        self.epoch = self.loop(training, self.steps, self.step)
        self.test = self.loop(testing, self.test_steps, self.answer)

    def loop(self, dataset: Any, steps: int, step: Any) -> Callable[[], tuple[float, float]]:
        """A function that takes the steps; it returns the mean loss, and the share of right answers."""
        feed = iter(self.strategy.distribute_datasets_from_function(dataset))

        @tf.function
        def take(feed: Any) -> tf.Tensor:
            self.totals.assign(tf.zeros(3, tf.float64))
            for _ in tf.range(steps):
                self.strategy.run(step, args=next(feed))
            return tf.identity(self.totals)

        def run() -> tuple[float, float]:
            loss, right, count = map(float, take(feed).numpy())
            return loss / count, right / count

        return run

    def step(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.answer(images, labels, tf.ones_like(labels, tf.float32))) / self.batch
        self.model.optimizer.apply(tape.gradient(loss, variables), variables)

    def answer(self, images: tf.Tensor, labels: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """The loss of each image; adds the images that count to the totals."""
        logits = self.model(images)
        losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        right = tf.cast(tf.equal(tf.argmax(logits, 1), tf.cast(labels, tf.int64)), tf.float32)
        sums = [tf.reduce_sum(value * counts) for value in (losses, right, tf.ones_like(losses))]
        self.totals.assign_add(tf.cast(tf.stack(sums), tf.float64))
        return losses


def local(context: tf.distribute.InputContext) -> range:
    """The replicas of this node."""
    count = context.num_replicas_in_sync // context.num_input_pipelines
    return range(context.input_pipeline_id * count, (context.input_pipeline_id + 1) * count)


def tests(images: np.ndarray, labels: np.ndarray, steps: int, replicas: int, mine: range) -> tf.data.Dataset:
    """The test images of the replicas `mine`, each with 1, or with 0 where it only fills up the last batches."""
    index = np.arange(steps * replicas * TEST_BATCH).reshape(steps, replicas, TEST_BATCH)
    index = index[:, mine.start : mine.stop].reshape(-1, TEST_BATCH)
    last = np.minimum(index, len(labels) - 1)
    counts = np.float32(index < len(labels))
    return tf.data.Dataset.from_tensor_slices((images[last][..., None], labels[last], counts))


def state_of(model: keras.Model) -> list[Any]:
    return [*model.weights, *model.optimizer.variables]


class Checkpoint:
    """The whole state in one file, which is there as a whole or not at all. Only a training with equal `settings`
    reads it again (data, batch size, learning rates, seed, copies); a longer one goes on from a shorter one."""

    def __init__(self, file: Path, settings: str) -> None:
        self.file, self.settings = file, settings

    def save(self, model: keras.Model, history: list[dict[str, float]]) -> None:
        """Writes the state after the last epoch of `history`."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        about = json.dumps({"settings": self.settings, "history": history})
        with new.open("wb") as stream:
            np.savez(stream, *[variable.numpy() for variable in state_of(model)], about=about)
        new.replace(self.file)

    def load(self, values: list[np.ndarray]) -> tuple[list[np.ndarray], list[dict[str, float]]]:
        """The state and the history; `values` and no history where there is none of this training."""
        if not self.file.exists():
            return values, []
        with np.load(self.file) as saved:
            about = json.loads(str(saved["about"]))
            if about["settings"] == self.settings:
                return [saved[f"arr_{number}"] for number in range(len(values))], about["history"]
        print(f"{self.file} is that of another training, and is not read", flush=True)
        return values, []


def resume(checkpoint: Checkpoint, node: Node, strategy: tf.distribute.Strategy, model: Any) -> list[Any]:
    """Gives all nodes the state of the first one's checkpoint, and returns the history: nothing else is read from
    a store that shows a file to one node sooner than to another."""
    history: list[Any] = []
    values = [variable.numpy() for variable in state_of(model)]
    if node.writes:
        values, history = checkpoint.load(values)
    if node.count > 1:
        flat = np.concatenate([[len(history)], *(np.ravel(value) for value in values)])
        ends = np.cumsum([1, *(np.size(value) for value in values)])[:-1]
        done, *parts = np.split(of_first(strategy, flat), ends)
        values = [part.reshape(np.shape(value)) for part, value in zip(parts, values, strict=True)]
        history = history or [{}] * int(done[0])
    for variable, value in zip(state_of(model), values, strict=True):
        variable.assign(np.asarray(value).astype(variable.dtype))
    if history:
        print(f"Resuming after epoch {len(history)}", flush=True)
    return history


def of_first(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """The values of the first replica, in all. It returns when all nodes have called it."""

    def exchange(mine: tf.Tensor) -> Any:
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(first, mine, tf.zeros_like(mine)))

    summed = tf.function(lambda mine: strategy.run(exchange, args=(mine,)))(tf.constant(values, tf.float64))
    return np.asarray(strategy.experimental_local_results(summed)[0])


class Events:
    """What TensorBoard reads: the scalars of each epoch, and the graph by which the model predicts.
    `tf.summary.scalar` and Keras' callback need the package tensorboard, which TensorFlow 2.21 does not bring."""

    def __init__(self, folder: Path, model: keras.Model) -> None:
        names = {"": "train", "val_": "validation"}
        self.writers = {key: tf.summary.create_file_writer(str(folder / name)) for key, name in names.items()}
        images = tf.TensorSpec((None, *model.input_shape[1:]), tf.uint8)
        with self.writers[""].as_default(step=0):
            tf.summary.graph(tf.function(model).get_concrete_function(images).graph)

    def write(self, epoch: int, values: dict[str, float]) -> None:
        metadata = tf.compat.v1.SummaryMetadata
        about = metadata(plugin_data=metadata.PluginData(plugin_name="scalars"))
        for prefix, writer in self.writers.items():
            with writer.as_default(step=epoch):
                for tag in ("loss", "accuracy"):
                    tf.summary.write(f"epoch_{tag}", tf.constant(values[prefix + tag], tf.float32), metadata=about)
            writer.flush()


def load(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images and labels of both splits."""
    data = {}
    for split in ("train", "test"):
        with np.load(folder / f"{split}.npz") as file:
            data[split] = file["images"], file["labels"]
    return data


def main() -> None:
    options, node = parse(), Node()
    data = load(options.data)
    train(options, node, node.join(), data)


def run_epochs(
    options: argparse.Namespace, node: Node, training: Training, history: list[Any], checkpoint: Checkpoint
) -> None:
    """Trains what is left of the epochs. The first node writes the checkpoint and TensorBoard's events of each."""
    writes = node.writes and len(history) < options.epochs
    events = Events(options.output / "logs", training.model) if writes else None
    for epoch in range(len(history), options.epochs):
        rate = options.learning_rates[max(start for start in options.learning_rates if start <= epoch)]
        with training.strategy.scope():
            training.model.optimizer.learning_rate = rate
        started = time.monotonic()
        loss, accuracy = training.epoch()
        speed = training.steps * options.batch_size / (time.monotonic() - started)
        test_loss, test_accuracy = training.test()
        values = {"loss": loss, "accuracy": accuracy, "val_loss": test_loss, "val_accuracy": test_accuracy}
        history.append({**values, "learning_rate": rate, "images_per_second": speed})
        if events:
            checkpoint.save(training.model, history)
            events.write(epoch, history[-1])
            said = f"loss {loss:.4f} - accuracy {accuracy:.4f} - validation accuracy {test_accuracy:.4f}"
            rates = f"learning rate {rate:g} - {speed:,.0f} images/s"
            print(f"Epoch {epoch + 1}/{options.epochs} - {said} - {rates}", flush=True)


def write_model(folder: Path, model: keras.Model, report: dict[str, Any]) -> None:
    """The model without the strategy and its copies of each variable, so that it needs nothing of this to be
    loaded; and the report."""
    alone = build()
    alone.set_weights(model.get_weights())
    alone.save(folder / "mnist.keras")
    alone.export(folder / "saved_model", verbose=False)
    speed = max(epoch["images_per_second"] for epoch in report["history"])
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    text = json.dumps({**report, "images_per_second": speed, "versions": versions}, indent=2)
    (folder / "metrics.json").write_text(f"{text}\n", encoding="utf-8")


def train(options: argparse.Namespace, node: Node, strategy: tf.distribute.Strategy, data: dict[str, Any]) -> None:
    began, replicas, count = time.monotonic(), strategy.num_replicas_in_sync, len(data["train"][0])
    copies = options.augment if options.augment >= 0 else COPIES * (count < FEW)
    if options.batch_size % replicas:
        raise SystemExit(f"--batch-size {options.batch_size} cannot be divided among {replicas} GPUs or nodes")
    if count < options.batch_size:
        raise SystemExit(f"{count} training images are fewer than the {options.batch_size} of one step")
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = build()
        model.optimizer = keras.optimizers.Adam()
        model.optimizer.build(model.trainable_variables)
    decisive = {name: str(getattr(options, name)) for name in ("batch_size", "learning_rates", "seed")}
    decisive |= {"copies": copies, "data": hashlib.sha256(data["train"][0].tobytes()).hexdigest()}
    settings = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    folder = Path(os.environ.get("SLIPWAY_CHECKPOINT", options.output))
    checkpoint = Checkpoint(folder / "checkpoint.npz", settings)
    history = resume(checkpoint, node, strategy, model)
    epochs = range(len(history), max(options.epochs, len(history) + 1))
    order = {"seed": options.seed, "copies": copies, "epochs": epochs}
    training = Training(strategy, model, data, options.batch_size, **order)
    altered = f" altered in {copies} ways in each epoch" if copies else ""
    images = f"{count:,} images{altered}, {training.steps} steps of {options.batch_size} an epoch"
    tested = f"testing on {len(data['test'][0]):,} images"
    print(f"Training on {node.count} node(s), {replicas} replica(s): {images}; {tested}", flush=True)

    run_epochs(options, node, training, history, checkpoint)
    loss, accuracy = training.test()
    if not np.isfinite(loss):
        raise SystemExit(f"the loss is {loss}: the training diverged; lower the learning rates")
    if accuracy < options.min_accuracy:
        print(f"{accuracy:.4f} of the test images are read right; {options.min_accuracy} is asked for", flush=True)
        raise SystemExit(3)  # Of programs of steps: another attempt gives the same answer.
    if node.writes:
        test = {"accuracy": accuracy, "loss": loss, "images": len(data["test"][0])}
        about = {"nodes": node.count, "replicas": replicas, "seconds": time.monotonic() - began}
        write_model(options.output, model, {"test": test, **about, "history": history})
    if node.count > 1:
        of_first(strategy, np.zeros(1))
        # A node that ends closes connections from which another one may still read the end of that.
        time.sleep(2)
    print(f"Test accuracy {accuracy:.4f}, test loss {loss:.4f}: {options.output}")
    print("Training finished. Model saved")


if __name__ == "__main__":
    main()
