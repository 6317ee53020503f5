"""The MNIST pipeline: prepare the data on a CPU pool, train on one accelerator pool, predict on another."""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from infra.pipelines.contract import (
    Pipeline,
    PipelineSettings,
    Section,
    ShippedFolder,
    StepDeclaration,
    StepSettings,
    stored,
)
from infra.pipelines.results import Column, Curves, Number, Picture, Table
from infra.schema.base import Float, Int, Model, refuse
from infra.schema.paths import STORED, Folder, StorePath
from infra.schema.problems import Finding


def _epoch(value: Any) -> Any:
    """Keys come as text where the CLI hands the section over; ``"03"`` would be 3 a second time."""
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value)):
        raise refuse("not a whole number as it is written", "write the epoch as a whole number: `0`, `3`")
    return value


LearningRates = dict[Annotated[int, BeforeValidator(_epoch)], Float]
"""Learning rate from each epoch on."""


class Dataset(Model):
    """What the model is trained on."""

    name: Literal["mnist", "digits", "idx"] = Field(
        default="digits",
        description="`mnist` downloads MNIST through TFDS; `digits` is scikit-learn's real handwriting, no "
        "download needed; `idx` reads a folder of IDX files in the store.",
    )
    source: StorePath | None = Field(default=None, description="For `idx`: the folder's path in the store.")


class Predict(Model):
    """What is predicted."""

    images: Folder | None = Field(
        default=None,
        description="Your own folder of PNG files: a path in this repository (shipped, at most 1 MiB), or "
        "`store:<path>` for a folder in the store. Default: ten held-out digits.",
    )


class MnistSteps(Model):
    """Where each step of the MNIST pipeline runs."""

    prepare: StepSettings = Field(description="Reads the data set, writes shards and the images to predict.")
    train: StepSettings = Field(description="Trains, and refuses a model below `min_accuracy`.")
    predict: StepSettings = Field(description="Predicts the images with the trained model.")


class Mnist(PipelineSettings):
    """Train a digit classifier, then predict digits with it."""

    dataset: Dataset = Field(default_factory=Dataset, description="What the model is trained on.")
    epochs: Int = Field(default=12, ge=1, le=10_000, description="Times the training data is gone through.")
    batch_size: Int = Field(default=64, ge=1, description="Images per replica and step.")
    learning_rates: LearningRates = Field(
        default={0: 1e-3, 3: 1e-4, 7: 1e-5}, description="Learning rate from each epoch on, counted from 0."
    )
    min_accuracy: Float = Field(
        default=0.9, ge=0, le=1, description="Test accuracy below which a model is refused."
    )
    seed: Int = Field(default=1, ge=0, le=2**31 - 1, description="Seed of every random choice.")
    predict: Predict = Field(default_factory=Predict, description="What is predicted.")
    steps: MnistSteps = Field(description="Where each step runs.")


def check_dataset(section: Section[Mnist]) -> Iterator[Finding]:
    """Findings about the folder of the data set."""
    dataset = section.settings.dataset
    place, read = section.key("dataset", "source"), (section.key("dataset", "name"),)
    if dataset.name == "idx" and dataset.source is None:
        yield Finding(
            place,
            None,
            "the data set is a folder of IDX files, and which is not said",
            "write its path in the store, such as `uploads/mnist`",
            read=read,
        )
    elif dataset.name != "idx" and dataset.source is not None:
        yield Finding(
            place,
            dataset.source,
            f"`{dataset.name}` is not read from a folder",
            "remove it, or write `name: idx`",
            read=read,
        )


def check_learning_rates(section: Section[Mnist]) -> Iterator[Finding]:
    """Findings about epochs and rates."""
    place, rates = section.key("learning_rates"), section.settings.learning_rates
    if 0 not in rates:
        yield Finding(
            place,
            {str(epoch): rate for epoch, rate in rates.items()},
            "no rate for the first epoch, which is 0",
            "add one, such as `0: 0.001`",
            all_of=(place,),
        )
    for epoch, rate in rates.items():
        if epoch < 0:
            yield Finding((*place, str(epoch)), epoch, "epochs are counted from 0", "write 0 or more")
        elif not (math.isfinite(rate) and rate > 0):
            yield Finding((*place, str(epoch)), rate, "not above zero", "write a rate such as `0.001`")


def steps(settings: Mnist) -> list[StepDeclaration]:
    """Prepare, train and predict."""
    source = ["--source", stored(settings.dataset.source)] if settings.dataset.source is not None else []
    rates = ",".join(f"{epoch}:{rate!r}" for epoch, rate in sorted(settings.learning_rates.items()))
    seed = ["--seed", str(settings.seed)]
    prepare = StepDeclaration(
        name="prepare",
        module="workloads.mnist.prepare",
        placed_by=settings.steps.prepare,
        arguments=["--dataset", settings.dataset.name, *source, "--output", "{output}", *seed],
        # Installed on the step's node: only a CPU step has any.
        requirements="workloads/mnist/requirements.txt",
    )
    train = StepDeclaration(
        name="train",
        module="workloads.mnist.train",
        placed_by=settings.steps.train,
        arguments=[
            *("--data", "{prepare}", "--output", "{output}"),
            *("--epochs", str(settings.epochs), "--batch-size", str(settings.batch_size)),
            *("--learning-rates", rates, "--min-accuracy", repr(settings.min_accuracy)),
            *seed,
        ],
        inputs={"prepare": "prepare"},
        results=(
            Number(
                name="accuracy",
                title="Test accuracy",
                path="metrics.json",
                select="/test/accuracy",
                format="percent",
            ),
            Curves(
                name="training",
                title="Training",
                path="metrics.json",
                select="/history",
                curves=("accuracy", "loss"),
                marks="learning_rate",
                logs="logs",
            ),
        ),
    )
    return [prepare, train, _predict(settings)]


def _predict(settings: Mnist) -> StepDeclaration:
    images, inputs, folders = "{prepare}/images", {"prepare": "prepare"}, dict[str, ShippedFolder]()
    if (given := settings.predict.images) is not None:
        images, inputs = stored(given), {}
        if not given.startswith(STORED):
            images, folders = "{images}", {"images": ShippedFolder(given, "predict.images")}
    return StepDeclaration(
        name="predict",
        module="workloads.mnist.predict",
        placed_by=settings.steps.predict,
        arguments=["--model", "{train}", "--images", images, "--output", "{output}"],
        inputs={"train": "train", **inputs},
        folders=folders,
        results=(
            Table(
                name="predictions",
                title="Predictions",
                path="predictions.json",
                select="/images",
                columns=(
                    Column(key="path", title="Image", format="file"),
                    Column(key="digit", title="Digit", format="integer"),
                    Column(key="confidence", title="Confidence", format="percent"),
                    Column(key="label", title="Label", format="integer"),
                ),
                compare=("digit", "label"),
            ),
            Table(
                name="unreadable",
                title="Images that could not be read",
                path="predictions.json",
                select="/errors",
                columns=(
                    Column(key="path", title="Image", format="file"),
                    Column(key="reason", title="Reason"),
                ),
            ),
            Picture(
                name="contact_sheet", title="Each image with its digit and confidence", path="contact_sheet.png"
            ),
        ),
    )


PIPELINE = Pipeline(
    settings=Mnist,
    steps=steps,
    checks=(check_dataset, check_learning_rates),
    starter={
        "dataset": {"name": "digits"},
        "epochs": 12,
        "min_accuracy": 0.9,
        "steps": {
            "prepare": {"pool": "cpu", "cpu": "2", "memory": "6Gi"},
            "train": {"pool": "gpu", "gpus": 1, "cpu": "2", "memory": "8Gi", "time_limit": "4h"},
            "predict": {"pool": "gpu", "gpus": 1, "cpu": "2", "memory": "8Gi", "time_limit": "4h"},
        },
    },
)
