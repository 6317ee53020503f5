"""The MNIST pipeline: prepare the data on a CPU pool, train on one accelerator pool, predict on another.

Where a stack file asks for them, its apps stay after it: a model server, a page, TensorBoard, a notebook.
"""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from slipway.infra.pipelines.app_kinds import notebook, page, tensorboard, tensorflow_serving
from slipway.infra.pipelines.app_kinds.contract import REMOVED
from slipway.infra.pipelines.app_kinds.notebook import NotebookSettings
from slipway.infra.pipelines.app_kinds.page import Page, PageSettings, Pictures
from slipway.infra.pipelines.app_kinds.tensorboard import TensorBoardSettings
from slipway.infra.pipelines.app_kinds.tensorflow_serving import Served, ServingSettings
from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.checkpoints import Checkpoints
from slipway.infra.pipelines.contract import (
    MultiNodeSettings,
    Nodes,
    Pipeline,
    PipelineSettings,
    Section,
    ShippedFolder,
    StepDeclaration,
    StepSettings,
    stored,
)
from slipway.infra.pipelines.results import Column, Curves, Number, Picture, Table
from slipway.infra.schema.base import Float, Int, Model, refuse
from slipway.infra.schema.paths import STORED, Folder, below_store, folder
from slipway.infra.schema.problems import Finding
from slipway.infra.schema.quantities import seconds


def _epoch(value: Any) -> Any:
    """Keys come as text where the CLI hands the section over; ``"03"`` would be 3 a second time."""
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value)):
        raise refuse("not a whole number as it is written", "write the epoch as a whole number: `0`, `3`")
    return value


LearningRates = dict[Annotated[int, BeforeValidator(_epoch)], Float]
"""Learning rate from each epoch on."""


def _source(value: str, info: ValidationInfo) -> str:
    """IDX files are read in the store alone, images where `predict.images` is read, too."""
    return folder(value) if info.data.get("name") == "images" else below_store(value)


class Dataset(Model):
    """What the model is trained on."""

    name: Literal["mnist", "digits", "idx", "images"] = Field(
        default="digits",
        description="`mnist` downloads MNIST through TFDS; `digits` is scikit-learn's real handwriting, no "
        "download needed; `idx` reads a folder of IDX files in the store; `images` reads a folder of PNG and JPEG "
        "files with their digits.",
    )
    source: Annotated[str, AfterValidator(_source)] | None = Field(
        default=None,
        description="For `idx`: the folder's path in the store. For `images`: a path in this repository (shipped, "
        "at most 1 MiB), or `store:<path>` for a folder in the store.",
    )


class Predict(Model):
    """What is predicted."""

    images: Folder | None = Field(
        default=None,
        description="Your folder of PNG and JPEG files: a path in this repository (shipped, at most 1 MiB), or "
        "`store:<path>` for a folder in the store. Default: ten held-out digits.",
    )


class MnistSteps(Model):
    """Where each step of the MNIST pipeline runs."""

    prepare: StepSettings = Field(description="Reads the data set, writes shards and the images to predict.")
    train: MultiNodeSettings = Field(description="Trains, and refuses a model below `min_accuracy`.")
    predict: StepSettings = Field(description="Predicts the images with the trained model.")


class MnistApps(Model):
    """What runs after the steps, for people; each only where it is named."""

    removed = REMOVED

    serving: ServingSettings | None = Field(
        default=None,
        description="TensorFlow Serving with the model; a step publishes each one that is accurate enough.",
    )
    page: PageSettings | None = Field(
        default=None, description="A page on which people draw a digit and see what the served model reads."
    )
    tensorboard: TensorBoardSettings | None = Field(default=None, description="TensorBoard over the trainings.")
    notebook: NotebookSettings | None = Field(default=None, description="JupyterLab beside the store.")


class Mnist(PipelineSettings):
    """Train a digit classifier, then predict digits with it."""

    dataset: Dataset = Field(default_factory=Dataset, description="What the model is trained on.")
    epochs: Int = Field(default=12, ge=1, le=10_000, description="Times the training data is gone through.")
    batch_size: Int = Field(
        default=64,
        ge=1,
        description="Images per step on each GPU: twice the nodes or GPUs make a step of all twice as large.",
    )
    global_batch_size: Int | None = Field(
        default=None,
        ge=1,
        description="Images per step on the GPUs of all nodes together, in place of `batch_size`: the model then "
        "does not depend on how many there are.",
    )
    learning_rates: LearningRates = Field(
        default={0: 1e-3, 3: 1e-4, 7: 1e-5}, description="Learning rate from each epoch on, counted from 0."
    )
    augment: Int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Altered copies of each training image in an epoch, others each time: moved, turned, slanted, "
        "stretched, with thinner or thicker strokes. 0: the images as they are. Default: 8 for `digits`, whose "
        "scans are few and alike, else 0.",
    )
    min_accuracy: Float = Field(
        default=0.9, ge=0, le=1, description="Test accuracy below which a model is refused."
    )
    seed: Int = Field(default=1, ge=0, le=2**31 - 1, description="Seed of every random choice.")
    predict: Predict = Field(default_factory=Predict, description="What is predicted.")
    steps: MnistSteps = Field(description="Where each step runs.")
    apps: MnistApps = Field(
        default_factory=MnistApps, description="What runs after the steps, for people; default: nothing."
    )


COPIES_OF_DIGITS = 8
"""Altered copies of each scan in an epoch: with 16 a model reads hardly more, and is trained for twice as long."""

SERVING = "serving"
"""The app that serves the model."""

MODEL = "mnist"
"""The model's name in the addresses of the server."""

PAGE = Page(
    serving=SERVING,
    model=MODEL,
    title="Read a digit",
    samples="{prepare}/images",
    pictures=Pictures(ink="light"),
)


def check_dataset(section: Section[Mnist]) -> Iterator[Finding]:
    """Findings about the folder of the data set."""
    dataset = section.settings.dataset
    place, read = section.key("dataset", "source"), (section.key("dataset", "name"),)
    missing = {
        "idx": ("a folder of IDX files", "write its path in the store, such as `uploads/mnist`"),
        "images": ("a folder of images", "write its path, such as `my-digits` or `store:uploads/digits`"),
    }
    if dataset.name in missing and dataset.source is None:
        what, fix = missing[dataset.name]
        yield Finding(place, None, f"the data set is {what}, and which is not said", fix, read=read)
    elif dataset.name not in missing and dataset.source is not None:
        yield Finding(
            place,
            dataset.source,
            f"`{dataset.name}` is not read from a folder",
            "remove it, or write `name: idx` or `name: images`",
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


def check_batch(section: Section[Mnist]) -> Iterator[Finding]:
    """Findings about a batch that cannot be divided among the GPUs."""
    whole, train = section.settings.global_batch_size, section.settings.steps.train
    replicas = train.nodes * max(train.gpus, 1)
    if whole is not None and whole % replicas:
        nodes = f"{train.nodes} node{'s' if train.nodes > 1 else ''}"
        among = f"{replicas} GPUs on {nodes}" if train.gpus else nodes
        nearest = max(round(whole / replicas), 1) * replicas
        yield Finding(
            section.key("global_batch_size"),
            whole,
            f"cannot be divided among {among}, each of which takes the same number of images",
            f"write a multiple of {replicas}, such as `{nearest}`",
            read=(section.key("steps", "train", "nodes"), section.key("steps", "train", "gpus")),
        )


def steps(settings: Mnist) -> list[StepDeclaration]:
    """Prepare, train and predict."""
    rates = ",".join(f"{epoch}:{rate!r}" for epoch, rate in sorted(settings.learning_rates.items()))
    seed = ["--seed", str(settings.seed)]
    batch = ["--batch-size", str(settings.batch_size)]
    if settings.global_batch_size is not None:
        batch = ["--global-batch-size", str(settings.global_batch_size)]
    copies = settings.augment
    if copies is None:
        copies = COPIES_OF_DIGITS if settings.dataset.name == "digits" else 0
    # Without, the arguments are what they were before there was such a thing: Jobs with other ones run again.
    augment = ["--augment", str(copies)] if copies else []
    placed = settings.steps.train
    train = StepDeclaration(
        name="train",
        module="workloads.mnist.train",
        placed_by=placed,
        nodes=Nodes(placed.nodes, wait=seconds(placed.wait)) if placed.nodes > 1 else None,
        checkpoints=Checkpoints(),
        arguments=[
            *("--data", "{prepare}", "--output", "{output}"),
            *("--epochs", str(settings.epochs), *batch),
            *("--learning-rates", rates, "--min-accuracy", repr(settings.min_accuracy)),
            *augment,
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
    return [_prepare(settings, seed), train, _predict(settings), *_publishing(settings)]


def _served(settings: Mnist) -> Served:
    return Served(
        model=MODEL,
        step="train",
        requests="{prepare}/test.npz",
        inputs={"image": "images"},
        truth="labels",
        min_accuracy=settings.min_accuracy,
    )


def _publishing(settings: Mnist) -> list[StepDeclaration]:
    """The step that publishes the model for the server, where there is one."""
    if settings.apps.serving is None:
        return []
    reads = {"prepare": "prepare"}
    return [tensorflow_serving.publishing(SERVING, settings.apps.serving, _served(settings), reads)]


def apps(settings: Mnist) -> list[AppDeclaration]:
    """Those that the stack file names."""
    wanted, declared = settings.apps, list[AppDeclaration]()
    if wanted.serving is not None:
        declared.append(tensorflow_serving.declaration(SERVING, wanted.serving, _served(settings)))
    if wanted.page is not None:
        declared.append(page.declaration("page", wanted.page, PAGE, {"prepare": "prepare"}))
    if wanted.tensorboard is not None:
        declared.append(tensorboard.declaration("tensorboard", wanted.tensorboard, "train"))
    if wanted.notebook is not None:
        server = SERVING if wanted.serving is not None else None
        declared.append(notebook.declaration("notebook", wanted.notebook, steps(settings), serving=server))
    return declared


def _prepare(settings: Mnist, seed: list[str]) -> StepDeclaration:
    dataset = settings.dataset
    if dataset.name == "images" and dataset.source is not None:
        source, folders = _given(dataset.source, "source", "dataset.source")
        return StepDeclaration(
            name="prepare",
            module="workloads.mnist.prepare_images",
            placed_by=settings.steps.prepare,
            arguments=["--source", source, "--output", "{output}", *seed],
            folders=folders,
        )
    stored_files = ["--source", stored(dataset.source)] if dataset.source is not None else []
    return StepDeclaration(
        name="prepare",
        module="workloads.mnist.prepare",
        placed_by=settings.steps.prepare,
        arguments=["--dataset", dataset.name, *stored_files, "--output", "{output}", *seed],
        # Installed on the step's node: only a CPU step has any.
        requirements="workloads/mnist/requirements.txt",
    )


def _given(folder: str, name: str, setting: str) -> tuple[str, dict[str, ShippedFolder]]:
    """The argument for a folder of the store or the repository, and what ships for it as ``name``."""
    if folder.startswith(STORED):
        return stored(folder), {}
    return f"{{{name}}}", {name: ShippedFolder(folder, setting)}


def _predict(settings: Mnist) -> StepDeclaration:
    images, inputs, folders = "{prepare}/images", {"prepare": "prepare"}, dict[str, ShippedFolder]()
    if settings.predict.images is not None:
        images, folders = _given(settings.predict.images, "images", "predict.images")
        inputs = {}
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
    apps=apps,
    checks=(check_dataset, check_learning_rates, check_batch),
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
