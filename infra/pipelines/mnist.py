"""The MNIST pipeline: prepare the data on a CPU pool, train on one accelerator pool, predict on another."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi

from infra.kubernetes import commands
from infra.kubernetes.files import ShippingError, image_folder
from infra.kubernetes.gates import STORE_GATE, Gates
from infra.kubernetes.job import StepJob
from infra.kubernetes.workspace import Workspace
from infra.pipelines.cuda import with_libraries
from infra.pipelines.placement import place, stored
from infra.pipelines.shipping import bundle_problems
from infra.platform import Platform
from infra.settings.errors import Problem
from infra.settings.pipelines import STORED, Mnist, StepSettings
from infra.step import Requirements, Step

NAME = "mnist"
KEY = "slipway:pipelines.mnist"

MODULES = {name: f"workloads.mnist.{name}" for name in ("prepare", "train", "predict")}
"""What each step runs."""

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
    if images.startswith(STORED):
        path = images.removeprefix(STORED)
        if path and not path.startswith("/") and ".." not in path.split("/"):
            return []
        fix = "write `store:<path>` with a path below the store's root"
        return [Problem(key, images, "it names no folder inside the store", fix)]
    try:
        image_folder(local_folder(images, root))
    except ShippingError as error:
        return [Problem(key, images, f"{error.value}: {error.reason}", error.fix)]
    return []


def local_folder(images: str, root: Path) -> Path:
    """The folder that ``predict.images`` names: any on this machine, a relative one below the repository."""
    return root / Path(images).expanduser()


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
    train_in, predict_in = (workspaces[each.run.step.platform.name] for each in (train, predict))
    store = pipeline.predict.platform.store
    shown: dict[str, pulumi.Input[Any]] = {
        "store": store.url,
        "runs": {name: pulumi.Output.concat(store.url, "/", each.run.path) for name, each in by_step.items()},
    }
    curves = f"{train.run.path}/logs"
    if store.claim is None:
        shown["tensorboard"] = commands.tensorboard(curves, store.url)
    else:
        gate = jobs[f"{STORE_GATE}-{train_in.platform.name}"]
        shown["tensorboard"] = pulumi.Output.concat(
            commands.copy(train_in, gate.run, curves), "; ", commands.tensorboard(curves)
        )
    if store.browse is not None:
        browse = store.browse
        shown["browse"] = {name: browse(each.run.path) for name, each in by_step.items()}
    if store.read is None:
        shown["predictions"] = commands.log(predict_in, predict.run)
        shown["accuracy"] = commands.log(train_in, train.run)
    else:
        predictions = store.read(f"{predict.run.path}/predictions.json", predict.job)
        metrics = store.read(f"{train.run.path}/metrics.json", train.job)
        shown["predictions"] = predictions.apply(_summary)
        shown["accuracy"] = metrics.apply(lambda text: json.loads(text)["test"]["accuracy"])
    return shown


def _summary(text: str) -> list[dict[str, Any]]:
    """Each image with its digit and confidence; the ten probabilities stay in the file."""
    return [
        {key: value for key, value in each.items() if key != "probabilities"}
        for each in json.loads(text)["images"]
    ]


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
    return replace(step, folders=folders or {})


def _images(images: str | None, prepare: Step, root: Path) -> tuple[str, dict[str, Step], dict[str, Path]]:
    """Where predict finds its images, and the step or the shipped folder that they come from."""
    if images is None:
        return "{prepare}/images", {"prepare": prepare}, {}
    if images.startswith(STORED):
        return stored(images), {}, {}
    return "{images}", {}, {"images": local_folder(images, root)}
