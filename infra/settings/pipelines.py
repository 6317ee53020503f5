"""What a stack file says of the pipelines: data, training, and the pool and resources of each step."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.schema.base import Cpu, Duration, Float, Int, Memory, Model, Size, refuse
from infra.schema.findings import did_you_mean
from infra.schema.image import Image
from infra.schema.paths import STORED, Folder, StorePath, below_problem

Precision = Literal["fp32", "fp16", "bf16"]
"""What a training computes in."""


def _epoch(value: Any) -> Any:
    """Keys come as text where the CLI hands the section over; ``"03"`` would be 3 a second time."""
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value)):
        raise refuse("not a whole number as it is written", "write the epoch as a whole number: `0`, `3`")
    return value


LearningRates = dict[Annotated[int, BeforeValidator(_epoch)], Float]
"""Learning rate from each epoch on."""


def _data(value: str) -> str:
    if value in {SYNTHETIC, GENERATED}:
        return value
    inside = value.removeprefix(STORED)
    if inside == value:
        raise refuse(
            "none of the kinds of data that there are",
            did_you_mean(
                value,
                (SYNTHETIC, GENERATED),
                f"write `{SYNTHETIC}`, `{GENERATED}`, or `{STORED}<path>` for a folder in the store",
            ),
        )
    if why := below_problem(inside):
        raise refuse(
            f"not a folder below the store's root: {why}",
            f"write a relative path such as `{STORED}uploads/imagenet`",
        )
    return value


SYNTHETIC, GENERATED = "synthetic", "generated"
BenchmarkData = Annotated[str, AfterValidator(_data)]
"""What a run of the benchmark trains on."""


class StepSettings(Model):
    """Where a step runs and what it may use."""

    pool: str = Field(description="Name of a pool of any of the stack's clusters.")
    gpus: Int = Field(default=0, ge=0, description="GPUs (or shares of one) that the step asks for.")
    cpu: Cpu = Field(default="1", description="CPU asked for, as a Kubernetes quantity.")
    memory: Memory = Field(default="4Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="4Gi", description="Scratch space for temporary files.")
    time_limit: Duration = Field(
        default="2h", description="Hard limit over all retries, waiting for a node included."
    )
    image: Image | None = Field(
        default=None,
        description="Image by digest (`…@sha256:…`); default: TensorFlow's official one for the pool.",
    )


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


class Mnist(Model):
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


class BenchmarkRun(StepSettings):
    """One GPU pool, and what is measured on it: ResNet-50 trained in each precision, one step after the other."""

    precisions: list[Precision] = Field(
        default=["fp32", "fp16"],
        min_length=1,
        description="One step for each. `fp32` computes convolutions in TF32 on GPUs that have it; `fp16` scales "
        "the loss; `bf16` takes an A100, an L4 or newer.",
    )
    batch_size: Int = Field(default=64, ge=1, description="Images per step on each GPU.")
    batches: Int = Field(default=100, ge=1, le=1_000_000, description="Timed steps.")
    warm_up: Int = Field(default=10, ge=1, le=100_000, description="Steps before; the first of them compiles.")
    xla: bool = Field(default=False, description="Whether XLA compiles the forward and the backward pass.")
    data: BenchmarkData = Field(
        default=SYNTHETIC,
        description="`synthetic` trains on numbers that lie on the GPU; `generated` reads the JPEGs that the "
        "benchmark's `images` step writes to the store; `store:<path>` reads a folder of TFRecords as they are "
        "made of ImageNet.",
    )


class BenchmarkImages(StepSettings):
    """The step that writes JPEG images to the store, for runs with `data: generated`."""

    count: Int = Field(default=1024, ge=1, le=1_000_000, description="How many, of 110 kB each.")


class Benchmark(Model):
    """Measure how fast GPUs train ResNet-50, and draw all runs side by side.

    GPUs wait for the steps of other pipelines on the same pool, so that a node is asked for once.
    """

    runs: dict[str, BenchmarkRun] = Field(min_length=1, description="What is measured, by a name for it.")
    seed: Int = Field(default=1, ge=0, le=2**31 - 1, description="Seed of every random choice.")
    images: BenchmarkImages | None = Field(
        default=None, description="Writes the images of runs with `data: generated`."
    )
    chart: StepSettings = Field(description="Draws the results of all runs in the store; needs no GPU.")


class Pipelines(Model):
    """The pipelines that the stack runs; each is left out where its key is missing."""

    mnist: Mnist | None = Field(default=None, description="Train a digit classifier, then predict digits with it.")
    benchmark: Benchmark | None = Field(
        default=None, description="Measure how fast GPUs train ResNet-50, and draw all runs side by side."
    )
