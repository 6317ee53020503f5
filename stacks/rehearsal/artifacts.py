"""The results that the Jobs left in the store: predictions, training metrics, throughput, and their pictures."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks.documents import document, documents
from stacks.rehearsal.pods import Container, PodSpec, UnsupportedError, pod_spec
from stacks.resources import Resource

PREDICTIONS = "predictions.json"
METRICS = "metrics.json"
CONTACT_SHEET = "contact_sheet.png"
THROUGHPUT = "results.json"
THROUGHPUT_CHART = "throughput.png"


@dataclass(frozen=True)
class Prediction:
    """One image: its file's name, what was read, how surely (0 to 1), and the truth where it is known."""

    image: str
    digit: int
    confidence: float
    label: int | None

    @property
    def right(self) -> bool | None:
        """None where the truth is not known."""
        return None if self.label is None else self.label == self.digit


@dataclass(frozen=True)
class Throughput:
    """One measurement of the benchmark: how many images per second, give or take ``uncertainty``, by ``run``.

    ``reduced`` says that a CPU measured it with small steps.
    """

    run: str
    device: str
    gpus: int
    precision: str
    xla: bool
    data: str
    images_per_second: float
    uncertainty: float
    reduced: bool


@dataclass(frozen=True)
class Artifacts:
    """What was found. Each is None or empty where no Job wrote it."""

    predictions_file: Path | None = None
    contact_sheet: Path | None = None
    predictions: tuple[Prediction, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """Images that could not be read, with the reason."""
    metrics: Mapping[str, Any] | None = None
    throughput: tuple[Throughput, ...] = ()
    throughput_chart: Path | None = None

    @property
    def history(self) -> list[Mapping[str, float]]:
        """One entry per epoch."""
        return documents((self.metrics or {}).get("history"))

    @property
    def accuracy(self) -> float | None:
        """The model's accuracy on the test split."""
        found = document((self.metrics or {}).get("test")).get("accuracy")
        return float(found) if isinstance(found, int | float) else None


def collect(jobs: Iterable[Resource], store: Path) -> Artifacts:
    """The results in the store directories that the arguments of ``jobs`` name; the last Job's count."""
    found: dict[str, Path] = {}
    for job in jobs:
        for directory in store_directories(job, store):
            for name in (PREDICTIONS, METRICS, CONTACT_SHEET, THROUGHPUT, THROUGHPUT_CHART):
                if (directory / name).is_file():
                    found[name] = directory / name
    predictions: tuple[Prediction, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    if PREDICTIONS in found:
        predictions, unreadable = read_predictions(found[PREDICTIONS])
    return Artifacts(
        predictions_file=found.get(PREDICTIONS),
        contact_sheet=found.get(CONTACT_SHEET),
        predictions=predictions,
        unreadable=unreadable,
        metrics=document(_load(found[METRICS])) if METRICS in found else None,
        throughput=read_throughput(found[THROUGHPUT]) if THROUGHPUT in found else (),
        throughput_chart=found.get(THROUGHPUT_CHART),
    )


def store_directories(job: Resource, store: Path) -> list[Path]:
    """Directories of the store that the arguments of ``job`` name, in their order."""
    try:
        pod = pod_spec(document(document(job.inputs.get("spec")).get("template")))
    except (UnsupportedError, ValueError, KeyError, TypeError):
        return []
    return [
        store / argument.removeprefix(mount).strip("/")
        for mount in _store_mounts(pod, pod.container)
        for argument in pod.container.args
        if argument.startswith(f"{mount}/")
    ]


def read_predictions(file: Path) -> tuple[tuple[Prediction, ...], tuple[tuple[str, str], ...]]:
    """The predictions of ``file`` and the images that could not be read, with the reason, sorted by name."""
    content = document(_load(file))
    predictions: list[Prediction] = []
    for each in documents(content.get("images")):
        label = each.get("label")
        predictions.append(
            Prediction(
                image=Path(str(each.get("path"))).name,
                digit=int(each.get("digit", -1)),
                confidence=float(each.get("confidence", 0)),
                label=int(label) if label is not None else None,
            )
        )
    unreadable = [
        (Path(str(each.get("path"))).name, str(each.get("reason"))) for each in documents(content.get("errors"))
    ]
    return tuple(sorted(predictions, key=lambda each: each.image)), tuple(sorted(unreadable))


def read_throughput(file: Path) -> tuple[Throughput, ...]:
    """The measurements of ``file``, in its order."""
    return tuple(
        Throughput(
            run=str(each.get("run")),
            device=str(each.get("device")),
            gpus=int(each.get("gpus", 0)),
            precision=str(each.get("precision")),
            xla=bool(each.get("xla")),
            data=str(each.get("data")),
            images_per_second=float(each.get("images_per_second", 0)),
            uncertainty=float(each.get("uncertainty", 0)),
            reduced=bool(each.get("reduced")),
        )
        for each in documents(document(_load(file)).get("results"))
    )


def _store_mounts(pod: PodSpec, container: Container) -> list[str]:
    shared = {name for name, volume in pod.volumes.items() if volume.keys() & {"csi", "persistentVolumeClaim"}}
    return [mount.path.rstrip("/") for mount in container.mounts if mount.volume in shared]


def _load(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
