"""What the program of a step told MLflow's client: runs in the folder `mlruns` of its result.

A program whose MLFLOW_TRACKING_URI is `{output}/mlruns` writes them there by itself, as MLflow's file store has
them (mlflow/store/tracking/file_store.py, MLflow 3.17): `mlruns/<experiment>/<run>/` with `meta.yaml`, and a file
for each parameter, tag and metric, the latter with a line `<milliseconds> <value> <step>` for each point.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from slipway.workloads.runtime.store import Manifest, read_file, store_errors

FOLDER = "mlruns"
"""Where the runs are in a result: MLflow's own name for it."""

PARENT = "mlflow.parentRunId"
"""The tag of a nested run."""

KEPT_TAGS = {"mlflow.note.content"}
"""Those of MLflow's own tags that people write: its description."""

_FINISHED = 3
_FILE = re.compile(
    rf"{FOLDER}/\d+/(?P<run>[0-9a-f]{{32}})/(?P<kind>meta\.yaml|(?:params|tags|metrics)/(?P<name>.+))"
)
_MADE_UP = re.compile(r"[a-z]+-[a-z]+-\d+")
"""A name that MLflow made up for a run without one: `worried-slug-668` (mlflow/utils/name_utils.py)."""

_OF_AN_ATTEMPT = {"initial_epoch"}
"""Parameters that are others when a training goes on: Keras' autologging notes where it went on."""


@dataclass(frozen=True)
class Point:
    """A point of a curve. `time` is in milliseconds since the epoch."""

    time: int
    value: float
    step: int


@dataclass(frozen=True)
class LoggedRun:
    """A run as a program logged it. `start` and `end` are milliseconds since the epoch, `folder` is where its
    files are below the result, and `parent` the ID of the run that it is nested in.
    """

    id: str
    name: str = ""
    start: int = 0
    end: int = 0
    finished: bool = True
    parent: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    curves: Mapping[str, Sequence[Point]] = field(default_factory=dict[str, Sequence[Point]])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str = ""
    nested: Sequence[LoggedRun] = ()

    @property
    def identity(self) -> object:
        """What two attempts at it have in common: the name that its program gave it, or else its parameters."""
        if self.name and not _MADE_UP.fullmatch(self.name):
            return self.name
        return frozenset(item for item in self.parameters.items() if item[0] not in _OF_AN_ATTEMPT)


NOTHING = LoggedRun("")
"""Of a program that does not call MLflow."""


def logged(directory: Path, manifest: Manifest) -> LoggedRun:
    """What the program of the result in `directory` logged, as one run.

    An attempt that was interrupted left a run of its own, which the next one continues: they are one. Where the
    program made several runs, they are nested in a run that has nothing else. Raises StoreError.
    """
    runs = sorted(_runs(directory, manifest), key=lambda run: (run.start, run.id))
    if not runs:
        return NOTHING
    top = _attempts_as_one([run for run in runs if not run.parent], runs)
    return top[0] if len(top) == 1 else LoggedRun("", nested=top)


def _attempts_as_one(runs: Sequence[LoggedRun], among: Sequence[LoggedRun]) -> list[LoggedRun]:
    """`runs`, in the order of their start, with all attempts at one of them as one, and what is nested in them."""
    finished = {run.identity for run in runs if run.finished}
    if len(finished) <= 1:
        # Whatever they are called: what was interrupted, the others continued.
        groups = [list(runs)] if runs else []
    else:
        groups = [[run for run in runs if run.identity == identity] for identity in _in_order(runs, finished)]
    return [_joined(group, among) for group in groups]


def _in_order(runs: Iterable[LoggedRun], identities: set[object]) -> list[object]:
    return list(dict.fromkeys(run.identity for run in runs if run.identity in identities))


def _joined(attempts: Sequence[LoggedRun], among: Sequence[LoggedRun]) -> LoggedRun:
    """Attempts at one run as one. A later one logs again what an earlier one logged behind the last checkpoint."""
    last, parameters, tags = attempts[-1], dict[str, str](), dict[str, str]()
    curves: dict[str, Sequence[Point]] = {}
    for attempt in attempts:
        parameters |= attempt.parameters
        tags |= attempt.tags
        for name, points in attempt.curves.items():
            first = min(point.step for point in points)
            curves[name] = [*(point for point in curves.get(name, ()) if point.step < first), *points]
    # What an interrupted attempt nested in its run, the last one does again.
    nested = [run for run in among if run.parent == last.id and run.finished]
    return LoggedRun(
        id=attempts[0].id,
        name=last.name,
        start=attempts[0].start,
        end=last.end,
        parameters=parameters,
        curves=curves,
        tags=tags,
        folder=last.folder,
        nested=[_joined([run], among) for run in nested],
    )


def _runs(directory: Path, manifest: Manifest) -> Iterator[LoggedRun]:
    files: dict[str, list[re.Match[str]]] = {}
    for file in sorted(manifest.files):
        if match := _FILE.fullmatch(file):
            files.setdefault(match["run"], []).append(match)
    for run, matches in files.items():
        texts = {(match["kind"].split("/")[0], match["name"]): _text(directory / match[0]) for match in matches}
        about = _about(texts.get(("meta.yaml", None), ""))
        # One that its program deleted, or whose beginning was interrupted.
        if about.get("lifecycle_stage") == "active" and isinstance(about.get("start_time"), int):
            yield _run(run, about, texts, matches[0][0].split(f"/{run}/")[0])


def _run(run: str, about: Mapping[str, Any], texts: Mapping[tuple[str, Any], str], experiment: str) -> LoggedRun:
    tags = {name: text for (kind, name), text in texts.items() if kind == "tags"}
    curves = {name: list(_points(text)) for (kind, name), text in texts.items() if kind == "metrics"}
    return LoggedRun(
        id=run,
        name=str(about.get("run_name") or ""),
        start=about["start_time"],
        end=about.get("end_time") or about["start_time"],
        finished=about.get("status") == _FINISHED,
        parent=tags.get(PARENT, ""),
        parameters={name: text for (kind, name), text in texts.items() if kind == "params"},
        curves={name: points for name, points in curves.items() if points},
        tags={name: text for name, text in tags.items() if not name.startswith("mlflow.") or name in KEPT_TAGS},
        folder=f"{experiment}/{run}/artifacts",
    )


def _about(text: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _points(text: str) -> Iterator[Point]:
    for line in text.splitlines():
        words = line.split(" ")
        try:
            yield Point(int(words[0]), float(words[1]), int(words[2]))
        except (ValueError, IndexError):
            # The last line of an attempt that was interrupted may lack its end.
            continue


def _text(file: Path) -> str:
    with store_errors(file):
        return (read_file(file) or b"").decode("utf-8", "replace")
