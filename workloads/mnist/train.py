"""Train the network on every accelerator of this machine; resume where an earlier training was stopped.

Run as `python -m workloads.mnist.train --data DIR --output DIR`, where --data is what `prepare` published. Where
TF_CONFIG names several processes, they train one model together, and the first of them publishes it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.workloads.runtime.devices import before_import
from slipway.workloads.runtime.exits import MODEL_REFUSED, OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.nodes import collectives
from slipway.workloads.runtime.store import check, finished, publish, staging, store_errors, whole
from workloads.mnist import training
from workloads.mnist.batches import load
from workloads.mnist.training import Work, parse_learning_rates

if TYPE_CHECKING:
    import keras

STEP = "mnist.train"
LAST_LINE = "Training finished. Model saved"
TUTORIAL_RATES = "0:1e-3,3:1e-4,7:1e-5"
"""The decay of the tutorial that the network comes from."""
MOST_COPIES = 100
"""What is drawn for the copies of an epoch is in memory: 32 bytes for each."""


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT where the data is not whole, MODEL_REFUSED below --min-accuracy, STORE_TROUBLE; of
            several processes OTHERS_MISSING and OTHER_ENDED (workloads/runtime/nodes/collectives.py).
    """
    options = _parse(arguments)
    among = collectives.group()
    stop_on_sigterm("the same command resumes from the newest checkpoint")
    manifest = check(options.data)
    inputs = {"data": manifest.digest}
    settings = _settings(options, among)
    earlier = finished(options.output, STEP, inputs, settings)
    if earlier is not None:
        accuracy = earlier.summary["test_accuracy"]
        _refuse_below(options.min_accuracy, accuracy, f"it was published in {options.output} for a lower one")
        print(f"Nothing to do: {options.output} holds this model, test accuracy {accuracy:.4f}")
        print(LAST_LINE)
        return OK

    with store_errors(options.data):
        work = Work(options, load(options.data / "train.npz"), load(options.data / "test.npz"), inputs)
    before_import(libraries=options.libraries)
    if among is None:
        result, model = training.train(work)
        _publish(work, settings, result, model)
    else:
        result = _train_together(work, settings, among)
    test = result["test"]
    print(f"Test accuracy {test['accuracy']:.4f}, test loss {test['loss']:.4f}: {options.output}")
    print(LAST_LINE)
    return OK


def _settings(options: argparse.Namespace, among: collectives.Group | None) -> dict[str, Any]:
    """What decides the result, beside the data. How many share a batch does so where that makes it larger."""
    settings = {"epochs": options.epochs, "learning_rates": options.learning_rates, "seed": options.seed}
    if options.augment:
        settings["augment"] = options.augment
    if options.global_batch_size is not None:
        return {**settings, "global_batch_size": options.global_batch_size}
    nodes = {"nodes": among.count} if among else {}
    return {**settings, "batch_size": options.batch_size, **nodes}


def _train_together(work: Work, settings: dict[str, Any], among: collectives.Group) -> dict[str, Any]:
    """Train as one of several processes. The first of them publishes, and none leaves before it has."""
    with collectives.others(among):
        distribution, devices = collectives.join(among)
        # It imports Keras, which is to find TensorFlow as the other processes have it.
        from workloads.mnist import train_nodes

        result, model = train_nodes.train(work, among, distribution, devices)
        if among.writes:
            _publish(work, settings, result, model)
        else:
            _refuse(work, result)
        collectives.part(distribution, among)
    if not among.writes:
        is_whole, why = whole(work.options.output)
        state = "whole" if is_whole else f"not seen here yet: {why}"
        print(f"Process 0 has published the model, {state}", flush=True)
    return result


def _publish(work: Work, settings: dict[str, Any], result: dict[str, Any], model: keras.Model) -> None:
    _refuse(work, result)
    test = result["test"]
    with staging() as staged:
        _save(model, staged, result)
        summary = {
            "test_accuracy": test["accuracy"],
            "test_loss": test["loss"],
            "epochs": work.options.epochs,
            "devices": result["devices"],
        }
        publish(staged, work.options.output, step=STEP, inputs=work.inputs, settings=settings, summary=summary)


def _refuse(work: Work, result: dict[str, Any]) -> None:
    place = "in the store" if "SLIPWAY_CHECKPOINT" in os.environ else f"in {work.checkpoints}"
    consequence = f"nothing is published, its checkpoints are {place}"
    _refuse_below(work.options.min_accuracy, result["test"]["accuracy"], consequence)


def _refuse_below(least: float, accuracy: float, consequence: str) -> None:
    if not accuracy >= least:
        raise StepError(
            MODEL_REFUSED,
            f"the model reads {accuracy:.4f} of the test images, {least} is asked for; {consequence}",
        )


def _save(model: keras.Model, staged: Path, result: dict[str, Any]) -> None:
    model.save(staged / "mnist.keras")
    model.export(staged / "saved_model", verbose=False)
    (staged / "metrics.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.mnist.train", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what prepare published")
    parser.add_argument("--output", type=Path, required=True, help="where to publish the model")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="images per step on each accelerator (default: 64)"
    )
    parser.add_argument(
        "--global-batch-size",
        type=int,
        help="images per step on all accelerators together, instead of --batch-size",
    )
    parser.add_argument("--epochs", type=int, default=12, help="passes over the training images (default: 12)")
    parser.add_argument(
        "--learning-rates",
        default=TUTORIAL_RATES,
        metavar="EPOCH:RATE,...",
        help=f"from each epoch (counted from 0) on, the rate after its colon (default: {TUTORIAL_RATES})",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="decides initial weights and order of images (default: 0)"
    )
    parser.add_argument(
        "--augment",
        type=int,
        default=0,
        metavar="COPIES",
        help="train on so many altered copies of each image in an epoch: moved, turned, slanted, stretched, with "
        "thinner or thicker strokes (default: 0, the images as they are)",
    )
    parser.add_argument(
        "--min-accuracy", type=float, default=0.9, help="share of test images the model must read (default: 0.9)"
    )
    parser.add_argument(
        "--libraries", type=Path, help="what slipway.workloads.cuda.install published, for use on GPUs"
    )
    options = parser.parse_args(arguments)
    if options.batch_size < 1 or options.epochs < 1:
        parser.error("--batch-size and --epochs must be at least 1")
    if options.global_batch_size is not None and options.global_batch_size < 1:
        parser.error("--global-batch-size must be at least 1")
    if not 0 <= options.augment <= MOST_COPIES:
        parser.error(f"--augment must be from 0 to {MOST_COPIES}")
    if not 0 <= options.seed < 2**31:
        parser.error("--seed must be from 0 to 2147483647")
    if not 0 <= options.min_accuracy <= 1:
        parser.error("--min-accuracy must be from 0 to 1")
    try:
        options.rates = parse_learning_rates(options.learning_rates)
    except ValueError as error:
        parser.error(f"--learning-rates: {error}")
    return options


if __name__ == "__main__":
    run(main)
