"""What MLflow is told of a result: its parameters, numbers, curves, inputs and tags, in MLflow's words.

All of it is computed from the result alone, so that a result that is recorded twice is the same twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

from slipway.workloads.apps.mlflow.logged import NOTHING, LoggedRun
from slipway.workloads.runtime.history import Result
from slipway.workloads.runtime.json_values import AbsentError, value_at
from slipway.workloads.runtime.paid import KEPT, SECONDS_KEPT, START, Paid, parts_of

FORMAT = 1
"""Part of each fingerprint. Raise it when something else is recorded of results: all are then recorded anew."""

LONGEST_PARAMETER, LONGEST_TAG, LONGEST_NAME = 6000, 5000, 250
"""Characters (mlflow/utils/validation.py, MLflow 3.17)."""

PROGRAM = "mlflow"
"""What stands before a metric of a program that has the name of a declared one."""

PRICED = ("rate", "prices")
"""Facts of a result that say what it cost; tags, too."""

_NO_NAME = re.compile(r"[^\w./ -]")
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}(?P<name>[A-Za-z][\w./-]*)=(?P<value>.*)", re.DOTALL)
_DIGITS = 10
_DIGESTS = {"code", "fingerprint"}
_DIRECTORY = re.compile(r"\{[\w-]+\}(?:/.*)?", re.DOTALL)


@dataclass(frozen=True)
class Record:
    """A result as a run of MLflow. `commit` may be noted later than the rest. `start` and `end` are milliseconds
    since the epoch, `metrics` and `inputs` as MLflow's API has them, and `directory` is where its files are.
    """

    name: str
    commit: str
    start: int
    end: int
    parameters: Mapping[str, str]
    metrics: Sequence[Mapping[str, Any]]
    inputs: Sequence[Mapping[str, str]]
    tags: Mapping[str, str]
    directory: Path

    @property
    def full_name(self) -> str:
        """Its name with the commit: MLflow's page that compares runs shows names, and no tags."""
        return f"{self.name} {self.commit}".strip()

    @property
    def fingerprint(self) -> str:
        """Names all of it: another one is to be recorded again."""
        # Without times: those of a store that was copied are others, and its results the same.
        metrics = [[metric["key"], metric["value"], metric["step"]] for metric in self.metrics]
        content = [FORMAT, self.parameters, metrics, self.inputs, self.tags]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def record(
    store: Path,
    result: Result,
    declared: Sequence[Mapping[str, Any]],
    before: Mapping[str, Result] | None = None,
    logged: LoggedRun = NOTHING,
    *,
    paid: Paid | None = None,
) -> Record:
    """What MLflow is told of `result`, of whose files those that are `declared` are read; `before` are the results
    that it was made from, as `made_from` has them, `logged` is what its program logged, and `paid` what its nodes
    were paid for. Raises StoreError.
    """
    end = round(1000 * result.made)
    seconds = result.seconds
    numbers = dict(_costs(result))
    directory = store / result.path
    metrics = [_metric(name, value, end) for name, value in numbers.items()]
    if paid is not None:
        # MLflow shows the value with the newest time, of one time the largest (`_compare_metrics` in
        # mlflow/store/tracking/sqlalchemy_store.py), and a later pod on a node lowers what its first ones pay.
        as_of = max(end, round(1000 * paid.until))
        metrics += [_metric(name, value, as_of) for name, value in _paid(paid)]
    for entry in declared:
        metrics += _declared(directory, entry, end)
    metrics += _logged(logged, {metric["key"] for metric in metrics})
    return Record(
        name=" ".join(filter(None, (result.step, result.digest, result.mark))),
        commit=str(result.facts.get("commit") or "")[:_DIGITS],
        start=end - round(1000 * seconds) if seconds else end,
        end=end,
        parameters=_settings(logged) | _parameters(result, before or {}),
        metrics=metrics,
        inputs=[
            {"name": name, "digest": digest[:32], "source_type": "slipway", "source": json.dumps({"input": name})}
            for name, digest in sorted(result.manifest.inputs.items())
        ],
        tags=_labels(logged) | {name: value[:LONGEST_TAG] for name, value in _tags(result).items() if value},
        directory=directory,
    )


def nested_record(directory: Path, logged: LoggedRun) -> Record:
    """What MLflow is told of one of several runs that the program of the result in `directory` logged."""
    return Record(
        name=_name(logged.name or logged.id),
        commit="",
        start=logged.start,
        end=logged.end,
        parameters=_settings(logged),
        metrics=list(_logged(logged, set())),
        inputs=[],
        tags=_labels(logged),
        directory=directory / logged.folder,
    )


def _settings(logged: LoggedRun) -> dict[str, str]:
    return {_name(name): value[:LONGEST_PARAMETER] for name, value in logged.parameters.items()}


def _labels(logged: LoggedRun) -> dict[str, str]:
    return {_name(name): value[:LONGEST_TAG] for name, value in logged.tags.items()}


def _logged(logged: LoggedRun, declared: set[str]) -> Iterator[dict[str, Any]]:
    """The metrics that a program logged. One with the name of a `declared` one stands apart."""
    for name, points in logged.curves.items():
        key = f"{PROGRAM}/{name}" if _name(name) in declared else name
        for point in points:
            yield _metric(key, point.value, point.time, point.step)


def made_from(result: Result, among: Mapping[str, Result]) -> dict[str, Result]:
    """The results that `result` was made from, and those that these were made from, by the names of the inputs.

    `among` are results by the digests of their manifests.
    """
    reached: dict[str, Result] = {}
    paths, waiting = {result.path}, [result]
    while waiting:
        for name, digest in sorted(waiting.pop(0).manifest.inputs.items()):
            source = among.get(digest)
            if source is not None and source.path not in paths:
                paths.add(source.path)
                reached[source.step if name in reached else name] = source
                waiting.append(source)
    return reached


def _parameters(result: Result, before: Mapping[str, Result]) -> dict[str, str]:
    """Its parameters, and behind the names of inputs those of the results `before` it."""
    told = parameters(result)
    for name, source in before.items():
        told |= {f"{name}.{parameter}": value for parameter, value in parameters(source).items()}
    return {_name(name): value[:LONGEST_PARAMETER] for name, value in told.items()}


def parameters(result: Result) -> dict[str, str]:
    """The settings of a result: the options of its program's command line, or the arguments of its module."""
    command = _command(result)
    if command is not None:
        return dict(_options(command))
    # These are digests, which say nothing to people.
    settings = {name: value for name, value in result.manifest.settings.items() if name not in _DIGESTS}
    return dict(_flat(settings))


def _command(result: Result) -> Sequence[str] | None:
    """The command line of a step's program; None of a module."""
    command: object = result.manifest.settings.get("command")
    return [str(word) for word in cast("list[object]", command)] if isinstance(command, list) else None


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``--epochs 3``, ``--epochs=3`` and ``epochs=3``, not those of directories; one without a value is `true`."""
    rest = list(words)
    while rest:
        match = _OPTION.fullmatch(word := rest.pop(0)) or _OVERRIDE.fullmatch(word)
        if match is None:
            continue
        value = match["value"]
        if value is None:
            value = rest.pop(0) if rest and not _OPTION.fullmatch(rest[0]) else "true"
        if not _DIRECTORY.fullmatch(value):
            yield match["name"], value


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{before}{name}.")
        elif value is not None:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)


def _tags(result: Result) -> dict[str, str]:
    facts, command = result.facts, _command(result)
    commit = str(facts.get("commit") or "")
    return {
        # MLflow's own: its page shows the commit as the version.
        "mlflow.source.git.commit": commit,
        "mlflow.source.name": f"{result.pipeline}.{result.step}",
        "mlflow.source.type": "JOB",
        "commit": commit,
        "changed": "uncommitted changes" if facts.get("changed") else "",
        "stack": str(facts.get("stack") or ""),
        "pool": result.pool,
        **({name: str(facts.get(name) or "") for name in PRICED} if result.dollars is not None else {}),
        SECONDS_KEPT: "" if facts.get(SECONDS_KEPT) is None else str(facts[SECONDS_KEPT]),
        "image": str(facts.get("image") or ""),
        "step": result.step,
        "digest": result.digest,
        "scheduled": result.mark,
        "directory": result.path,
        "command": shlex.join(command or []),
    }


def _costs(result: Result) -> Iterator[tuple[str, float]]:
    """What it took. Numbers, and no tags: MLflow sorts and draws metrics alone."""
    if result.seconds is None:
        return
    yield "cost/seconds", round(result.seconds, 1)
    used = [_gpu_seconds(pod) for pod in result.all_usage]
    if any(used):
        yield "cost/gpu_seconds", round(sum(used), 1)
    if result.node_seconds is not None:
        yield "cost/node_seconds", round(result.node_seconds, 1)
    for part, seconds in parts_of(result.all_usage).items():
        yield f"cost/{part}_seconds", round(seconds, 1)
    if result.dollars is not None:
        yield "cost/usd", result.dollars


def _paid(paid: Paid) -> Iterator[tuple[str, float]]:
    """What its nodes were paid for, beside what its pods did."""
    yield "cost/paid_seconds", round(paid.paid, 1)
    for part in (START, KEPT):
        yield f"cost/{part}_seconds", round(paid.seconds.get(part, 0.0), 1)
    if paid.ratio is not None:
        yield "cost/paid_over_useful", round(paid.ratio, 4)
    if paid.dollars is not None:
        yield "cost/paid_usd", round(paid.dollars, 4)


def _gpu_seconds(pod: Mapping[str, Any]) -> float:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        # Where CPUs stood in for GPUs, none was used.
        return 0.0 if pod.get("gpus_emulated") else float(pod["seconds"]) * int(pod["gpus_asked"])
    return 0.0


def _declared(directory: Path, entry: Mapping[str, Any], end: int) -> Iterator[dict[str, Any]]:
    """The metrics of a declared number, or of the points of declared curves, as far as their file has them."""
    kind, name = entry.get("kind"), str(entry.get("name"))
    if kind not in {"number", "curves"}:
        return
    try:
        value = value_at(directory, f"{entry['path']}#{entry.get('select', '')}")
    except AbsentError:
        return
    if kind == "number" and _is_number(value):
        yield _metric(name, value, end)
    if kind == "curves" and isinstance(value, list):
        for index, point in enumerate(cast("list[object]", value)):
            for curve, number in cast("dict[str, object]", point).items() if isinstance(point, dict) else ():
                # What numbers the points is their step.
                if _is_number(number) and curve != entry.get("unit"):
                    yield _metric(f"{name}/{curve}", number, end, index + 1)


def _metric(name: str, value: float, time: int, step: int = 0) -> dict[str, Any]:
    # Not JSON's numbers, but what MLflow reads in their place (Protocol Buffers' mapping to JSON).
    written = value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    return {"key": _name(name), "value": written, "timestamp": time, "step": step}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(text: str) -> str:
    return _NO_NAME.sub("_", text)[:LONGEST_NAME]
