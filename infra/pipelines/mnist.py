"""The MNIST pipeline: prepare the data on a CPU pool, train on one accelerator pool, predict on another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi

from infra.kubernetes.gates import Gates
from infra.kubernetes.job import StepJob
from infra.kubernetes.results import SHOW, Result, Shown, tensorboard
from infra.kubernetes.shipped_files import ShippingError, image_folder, left_out
from infra.kubernetes.workspace import Workspace
from infra.pipelines import results
from infra.pipelines.cuda import with_libraries
from infra.pipelines.shipping import bundle_problems
from infra.pipelines.steps import place, stored
from infra.platform import Platform
from infra.schema.paths import STORED, below_problem
from infra.schema.printable import printable
from infra.schema.problems import Problem
from infra.settings.pipelines import Mnist, StepSettings
from infra.step import Requirements, Step

NAME = "mnist"
KEY = "slipway:pipelines.mnist"

MODULES = {name: f"workloads.mnist.{name}" for name in ("prepare", "train", "predict")}
"""What each step runs."""

PREDICTIONS, METRICS, CURVES = "predictions.json", "metrics.json", "logs"
"""What is shown of the steps' results: files of predict and of train, and train's folder for TensorBoard."""

RESULTS: Mapping[str, tuple[results.Result, ...]] = {
    "train": (
        results.Number(
            name="accuracy", title="Test accuracy", path=METRICS, select="/test/accuracy", format="percent"
        ),
        results.Curves(
            name="training",
            title="Training",
            path=METRICS,
            select="/history",
            curves=("accuracy", "loss"),
            marks="learning_rate",
            logs=CURVES,
        ),
    ),
    "predict": (
        results.Table(
            name="predictions",
            title="Predictions",
            path=PREDICTIONS,
            select="/images",
            columns=(
                results.Column(key="path", title="Image", format="file"),
                results.Column(key="digit", title="Digit", format="integer"),
                results.Column(key="confidence", title="Confidence", format="percent"),
                results.Column(key="label", title="Label", format="integer"),
            ),
            compare=("digit", "label"),
        ),
        results.Table(
            name="unreadable",
            title="Images that could not be read",
            path=PREDICTIONS,
            select="/errors",
            columns=(
                results.Column(key="path", title="Image", format="file"),
                results.Column(key="reason", title="Reason"),
            ),
        ),
        results.Picture(
            name="contact_sheet", title="Each image with its digit and confidence", path="contact_sheet.png"
        ),
    ),
}
"""The results worth showing, by step."""

REQUIREMENTS = {"prepare": Requirements("workloads/mnist/requirements.txt")}
"""What a step needs that TensorFlow's image lacks. It is installed on the step's node: only CPU steps have any."""


@dataclass(frozen=True)
class MnistSteps:
    """The steps of one run."""

    prepare: Step
    train: Step
    predict: Step


def problems(images: object, root: Path) -> list[Problem]:
    """What keeps the pipeline's files from being shipped, whatever the rest of the settings say.

    ``images`` is the value of ``predict.images``; anything but text is left to the settings' own checks.
    ``root`` is the repository.
    """
    found = bundle_problems(
        {f"{KEY}.steps.{name}": (module, REQUIREMENTS.get(name)) for name, module in MODULES.items()}, root
    )
    if isinstance(images, str):
        found.extend(_image_problems(images, root))
    return found


def _image_problems(images: str, root: Path) -> list[Problem]:
    key = f"{KEY}.predict.images"
    if images.startswith(STORED) or below_problem(images):
        # Nothing is shipped, or the settings' own checks refuse it.
        return []
    try:
        image_folder(local_folder(images, root), root)
    except ShippingError as error:
        return [Problem(key, images, f"{error.value}: {error.reason}", error.fix)]
    return []


def local_folder(images: str, root: Path) -> Path:
    """The folder of the repository that ``predict.images`` names."""
    return root / images


def steps(settings: Mnist, platforms: Mapping[str, Platform], gates: Gates, root: Path) -> MnistSteps:
    """The steps that ``settings`` describe, each on the platform that has its pool and behind its gates."""
    dataset = ["--dataset", settings.dataset.name]
    if settings.dataset.source is not None:
        dataset += ["--source", stored(settings.dataset.source)]
    seed = ["--seed", str(settings.seed)]
    prepare = gates.guard(
        _step("prepare", settings.steps.prepare, platforms, [*dataset, "--output", "{output}", *seed])
    )
    rates = ",".join(f"{epoch}:{rate!r}" for epoch, rate in sorted(settings.learning_rates.items()))

    def on_accelerators(step: Step) -> Step:
        return gates.guard(with_libraries(step, prepare, gates))

    train = on_accelerators(
        _step(
            "train",
            settings.steps.train,
            platforms,
            [
                *("--data", "{prepare}", "--output", "{output}"),
                *("--epochs", str(settings.epochs), "--batch-size", str(settings.batch_size)),
                *("--learning-rates", rates, "--min-accuracy", repr(settings.min_accuracy)),
                *seed,
            ],
            inputs={"prepare": prepare},
        )
    )
    images, inputs, folders = _images(settings.predict.images, prepare, root)
    predict = on_accelerators(
        _step(
            "predict",
            settings.steps.predict,
            platforms,
            ["--model", "{train}", "--images", images, "--output", "{output}"],
            inputs={"train": train, **inputs},
            folders=folders,
        )
    )
    return MnistSteps(prepare, train, predict)


def outputs(
    pipeline: MnistSteps, jobs: Mapping[str, StepJob], workspaces: Mapping[str, Workspace]
) -> dict[str, pulumi.Input[Any]]:
    """What ``pulumi stack output`` shows of the run.

    Predictions and accuracy themselves where the store can be read from here, else the commands that show them.
    """
    by_step = {name: jobs[f"{NAME}-{name}"] for name in MODULES}
    train, predict = by_step["train"], by_step["predict"]
    store = pipeline.predict.platform.store
    found = Shown(jobs, workspaces)
    shown: dict[str, pulumi.Input[Any]] = {
        "store": store.url,
        "runs": {name: pulumi.Output.concat(store.url, "/", each.run.path) for name, each in by_step.items()},
        "predictions": found.value("predictions", predict, Result(PREDICTIONS, "/images"), _summary),
        "accuracy": found.value("accuracy", train, Result(METRICS, "/test/accuracy")),
    }
    if store.claim is None:
        shown["tensorboard"] = tensorboard(f"{train.run.path}/{CURVES}", store.url)
    else:
        curves = Result(CURVES, then="tensorboard --logdir {copy}")
        shown["tensorboard"] = found.command("tensorboard", train, curves)
    if store.browse is not None:
        browse = store.browse
        shown["browse"] = {name: browse(each.run.path) for name, each in by_step.items()}
    return {**shown, SHOW: found.described}


def _summary(images: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each image with its digit and confidence; the ten probabilities stay in the file."""
    return [{key: value for key, value in each.items() if key != "probabilities"} for each in images]


def _step(
    name: str,
    settings: StepSettings,
    platforms: Mapping[str, Platform],
    arguments: Sequence[str],
    *,
    inputs: Mapping[str, Step] | None = None,
    folders: Mapping[str, Path] | None = None,
) -> Step:
    step = place(
        NAME,
        name,
        MODULES[name],
        arguments=arguments,
        settings=settings,
        platforms=platforms,
        inputs=inputs,
        requirements=REQUIREMENTS.get(name),
    )
    return replace(step, folders=folders or {}, results=RESULTS.get(name, ()))


def _images(images: str | None, prepare: Step, root: Path) -> tuple[str, dict[str, Step], dict[str, Path]]:
    """Where predict finds its images, and the step or the shipped folder that they come from."""
    if images is None:
        return "{prepare}/images", {"prepare": prepare}, {}
    if images.startswith(STORED):
        return stored(images), {}, {}
    folder = local_folder(images, root)
    if others := left_out(folder):
        pulumi.log.warn(f"{KEY}.predict.images: left out of {images}: {', '.join(map(printable, others))}")
    return "{images}", {}, {"images": folder}
