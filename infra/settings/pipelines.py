"""What a stack file says of the pipelines: data, training, and the pool and resources of each step."""

from typing import Literal

from pydantic import Field

from infra.settings.base import Cpu, Duration, Image, Model, Size, StorePath


class StepSettings(Model):
    """Where a step runs and what it may use."""

    pool: str = Field(description="Name of a pool of any of the stack's clusters.")
    gpus: int = Field(default=0, ge=0, description="GPUs (or shares of one) that the step asks for.")
    cpu: Cpu = Field(default="1", description="CPU asked for, as a Kubernetes quantity.")
    memory: Size = Field(default="4Gi", description="Memory asked for, and its limit.")
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

    images: str | None = Field(
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
    epochs: int = Field(default=12, ge=1, le=10_000, description="Times the training data is gone through.")
    batch_size: int = Field(default=64, ge=1, description="Images per replica and step.")
    learning_rates: dict[int, float] = Field(
        default={0: 1e-3, 3: 1e-4, 7: 1e-5}, description="Learning rate from each epoch on, counted from 0."
    )
    min_accuracy: float = Field(
        default=0.9, ge=0, le=1, description="Test accuracy below which a model is refused."
    )
    seed: int = Field(default=1, ge=0, le=2**31 - 1, description="Seed of every random choice.")
    predict: Predict = Field(default_factory=Predict, description="What is predicted.")
    steps: MnistSteps = Field(description="Where each step runs.")


class Pipelines(Model):
    """The pipelines that the stack runs; each is left out where its key is missing."""

    mnist: Mnist | None = Field(default=None, description="Train a digit classifier, then predict digits with it.")
