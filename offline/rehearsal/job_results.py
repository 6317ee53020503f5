"""The results that the Jobs left in the store: predictions, training metrics, throughput, and their pictures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from infra.review.properties import mapping
from offline.engine.resources import Resource
from offline.rehearsal.pods import Container, PodSpec, UnsupportedError, pod_spec
from offline.rehearsal.state import CONTACT_SHEET, PREDICTIONS, first_problem

METRICS = "metrics.json"
THROUGHPUT = "results.json"

M = TypeVar("M", bound=BaseModel)


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


class Throughput(BaseModel):
    """One measurement of the benchmark: how many images per second, give or take ``uncertainty``, by ``run``.

    ``reduced`` says that a CPU measured it with small steps, in place of ``device``.
    """

    run: str
    device: str
    gpus: int
    precision: str
    xla: bool = False
    data: str = ""
    images_per_second: FiniteFloat
    uncertainty: FiniteFloat = 0.0
    reduced: bool = False


class Test(BaseModel):
    """What the model reached on the test images."""

    accuracy: FiniteFloat | None = None


class Metrics(BaseModel):
    """What a training tells of itself: figures by name for each epoch, and the test at its end."""

    history: list[dict[str, FiniteFloat]] = []
    test: Test = Test()


class _Image(BaseModel):
    path: str
    digit: int
    confidence: Annotated[FiniteFloat, Field(ge=0, le=1)]
    label: int | None = None


class _Unread(BaseModel):
    path: str
    reason: str


class _Predictions(BaseModel):
    images: list[_Image] = []
    errors: list[_Unread] = []


class _Throughputs(BaseModel):
    results: list[Throughput]


@dataclass(frozen=True)
class Artifacts:
    """What was found. Each is None or empty where no Job wrote it.

    ``unreadable`` are images that could not be read, with the reason; ``problems`` are results that cannot be
    understood.
    """

    predictions_file: Path | None = None
    contact_sheet: Path | None = None
    predictions: tuple[Prediction, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    metrics: Metrics | None = None
    throughput: tuple[Throughput, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def history(self) -> Sequence[dict[str, float]]:
        """One entry per epoch."""
        return self.metrics.history if self.metrics else []

    @property
    def accuracy(self) -> float | None:
        """The model's accuracy on the test split."""
        return self.metrics.test.accuracy if self.metrics else None


def collect(jobs: Iterable[Resource], store: Path) -> Artifacts:
    """The results in the store directories that the arguments of ``jobs`` name; the last Job's count."""
    found: dict[str, Path] = {}
    for job in jobs:
        for directory in store_directories(job, store):
            for name in (PREDICTIONS, METRICS, CONTACT_SHEET, THROUGHPUT):
                if (directory / name).is_file():
                    found[name] = directory / name
    problems: list[str] = []
    predictions = _read(_Predictions, found.get(PREDICTIONS), problems)
    metrics = _read(Metrics, found.get(METRICS), problems)
    throughput = _read(_Throughputs, found.get(THROUGHPUT), problems)
    images, errors = (predictions.images, predictions.errors) if predictions else ([], [])
    return Artifacts(
        predictions_file=found.get(PREDICTIONS) if predictions else None,
        contact_sheet=found.get(CONTACT_SHEET),
        predictions=tuple(
            Prediction(Path(each.path).name, each.digit, each.confidence, each.label)
            for each in sorted(images, key=lambda each: Path(each.path).name)
        ),
        unreadable=tuple(sorted((Path(each.path).name, each.reason) for each in errors)),
        metrics=metrics,
        throughput=tuple(throughput.results) if throughput else (),
        problems=tuple(problems),
    )


def store_directories(job: Resource, store: Path) -> list[Path]:
    """Directories of the store that the arguments of ``job`` name, in their order."""
    try:
        pod = pod_spec(mapping(mapping(job.inputs.get("spec")).get("template")))
    except (UnsupportedError, ValueError, KeyError, TypeError):
        return []
    return [
        store / argument.removeprefix(mount).strip("/")
        for mount in _store_mounts(pod, pod.container)
        for argument in map(_value, pod.container.args)
        if argument.startswith(f"{mount}/")
    ]


def _value(argument: str) -> str:
    """What stands behind the ``=`` of an option; any other argument as it is."""
    return argument.partition("=")[2] if argument.startswith("--") else argument


def _store_mounts(pod: PodSpec, container: Container) -> list[str]:
    shared = {name for name, volume in pod.volumes.items() if volume.keys() & {"csi", "persistentVolumeClaim"}}
    return [mount.path.rstrip("/") for mount in container.mounts if mount.volume in shared]


def _read(model: type[M], file: Path | None, problems: list[str]) -> M | None:
    """What ``file`` says; None where there is none, or, with a line in ``problems``, where it is no such file."""
    if file is None:
        return None
    try:
        return model.model_validate_json(file.read_bytes())
    except OSError as error:
        problems.append(f"{file} cannot be read: {error.strerror}")
    except ValidationError as error:
        problems.append(f"{file} cannot be understood: {first_problem(error)}")
    return None
