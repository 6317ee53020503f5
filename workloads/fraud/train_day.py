"""Learn a day's transactions, going on from what was learnt of the day before.

After each epoch the state is in `checkpoint.keras`, in the folder that SLIPWAY_CHECKPOINT names, else in that of
--output. Started again it goes on from there.
"""

import argparse
import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from measures import ranking
from model import build, inputs, load_day, scores

PASSES = 30
"""Passes over all transactions in an epoch. Each is one step, so that no order of them matters."""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--day", type=Path, required=True, help="what prepare.py made of the day")
parser.add_argument("--previous", type=Path, help="what this program wrote of the day before; default: nothing")
parser.add_argument("--epochs", type=int, default=10, help=f"of {PASSES} passes over all transactions each")
parser.add_argument("--hidden", type=int, default=0, help="units of a hidden layer; 0: none")
parser.add_argument("--l2", type=float, default=0.001, help="penalty of large weights")
parser.add_argument("--learning-rate", type=float, default=0.01)
parser.add_argument("--memory", type=int, default=50_000, help="transactions of earlier days to learn again")
parser.add_argument("--seed", type=int, default=0, help="of a hidden layer's first weights")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

options.output.mkdir(parents=True, exist_ok=True)
day = load_day(options.day)
learnt = {name: day[name] for name in ("features", "customer", "terminal", "fraud")}
summary = {"transactions": len(day["fraud"]), "frauds": int(day["fraud"].sum())}
earlier = options.previous / "model.keras" if options.previous else None
if earlier is not None and earlier.exists():
    model = keras.models.load_model(earlier)
    # The model does not know this day yet: so well does it do on a new one.
    summary |= {f"{name}_before": value for name, value in ranking(day["fraud"], scores(model, day)).items()}
    model.compile(keras.optimizers.Adam(options.learning_rate), model.loss)
    memory = load_day(options.previous / "memory.npz")
    learnt = {name: np.concatenate([memory[name], values]) for name, values in learnt.items()}
else:
    model = build(day["features"].shape[1], options.hidden, options.l2, options.learning_rate, options.seed)

checkpoint = Path(os.environ.get("SLIPWAY_CHECKPOINT", options.output)) / "checkpoint.keras"
if checkpoint.exists():
    model = keras.models.load_model(checkpoint)
done = int(model.optimizer.iterations) // PASSES
if done:
    print(f"Going on after epoch {done}", flush=True)


class Checkpoint(keras.callbacks.Callback):
    """Writes the state after each epoch, whole or not at all."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        new = checkpoint.with_name(".new-checkpoint.keras")
        self.model.save(new)
        new.replace(checkpoint)
        print(f"Epoch {epoch + 1}/{options.epochs}: loss {(logs or {})['loss']:.4f}", flush=True)


# Frauds are few: all of them together weigh as much as all others together.
share = learnt["fraud"].mean() or 0.5
weights = np.where(learnt["fraud"], 0.5 / share, 0.5 / (1 - share)).astype(np.float32)
labels = learnt["fraud"].astype(np.float32)[:, None]
batch = tf.data.Dataset.from_tensors((tuple(inputs(learnt)), labels, weights)).repeat()
model.fit(
    batch,
    steps_per_epoch=PASSES,
    epochs=options.epochs,
    initial_epoch=done,
    callbacks=[Checkpoint()],
    shuffle=False,
    verbose=0,
)

others = np.flatnonzero(~learnt["fraud"])
kept = learnt["fraud"].copy()
kept[others[max(0, len(others) - options.memory) :]] = True
np.savez_compressed(options.output / "memory.npz", **{name: values[kept] for name, values in learnt.items()})
model.save(options.output / "model.keras")
checkpoint.unlink(missing_ok=True)
(options.output / "summary.json").write_text(json.dumps(summary))
print(f"{options.day.stem}: {summary}")
