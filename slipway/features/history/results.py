"""The results that a store has, by pipeline, step and run: what each was made from, when, and what it measured.

Results stay in the store when other settings or the clock make new ones, so their manifests are its history.
What a manifest does not say, the commit for one, decides no result: it stands beside it, below `FACTS`, where
somebody noted it.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from slipway.runtime.json_values import AbsentError, value_at
from slipway.runtime.store import MANIFEST, Manifest, NotWholeError, load_manifest, read_file, store_errors
from slipway.runtime.usage.limits import USAGE, Reached

FACTS = ".history"
"""The store's folder of facts: `.history/<path of the result>.json`, an object with some of `commit`, `changed`
(whether files differed from the commit), `stack`, `pool`, `image`, `began` and `ended` (seconds since the epoch),
`rate` (USD an hour of one of its pods, at list prices: of the node that it holds, or of the pod where pods are
billed), `prices` (the date of that price list), `kept` (`slipway.features.history.paid.SECONDS_KEPT`), `pools`
(these three by pool, of a step with places), `pods` (how many it has), `code` (SHA-256 by file, of rehearsals
alone), `results` (what its pipeline declares of it, `infra/pipelines/results.py`) and `data` (address and digest,
by name, of what it read that no step made)."""

_NAME = re.compile(r"[0-9a-f]{10}(?:-(?P<mark>\d{8}-\d{4}))?")
"""The name of a result's directory: a digest, and in a run by the clock the time for which it was scheduled."""


@dataclass(frozen=True)
class Result:
    """What a step left. `path` is its directory below the store's root, `made` when its manifest was written, in
    seconds since the epoch, `usage` what each of its pods used.
    """

    path: str
    made: float
    manifest: Manifest
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    usage: Sequence[Mapping[str, Any]] = ()

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.path.split("/")[0]

    @property
    def step(self) -> str:
        """The step's name."""
        return self.path.split("/")[1]

    @property
    def digest(self) -> str:
        """The short digest of all that decided it."""
        return self.path.rpartition("/")[2].partition("-")[0]

    @property
    def mark(self) -> str:
        """The time for which its run was scheduled, `20261122-0300`; empty where no clock started it."""
        return mark_of(self.path)

    @property
    def seconds(self) -> float | None:
        """For how long the step ran; None where nobody noted it."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return float(self.facts["ended"]) - float(self.facts["began"])
        measured = [pod["seconds"] for pod in self.usage if isinstance(pod.get("seconds"), int | float)]
        return max(measured, default=None)

    @property
    def all_usage(self) -> list[Mapping[str, Any]]:
        """What each of its pods used, those before them included that were taken away."""
        before = [cast("list[Mapping[str, Any]]", pod.get("before") or []) for pod in self.usage]
        return [pod for pods in (self.usage, *before) for pod in pods if isinstance(pod, dict)]

    @property
    def stops(self) -> list[Reached]:
        """The limits of the stack that ended earlier pods of it."""
        return [reached for pod in self.all_usage if (reached := Reached.read(pod))]

    @property
    def node_seconds(self) -> float | None:
        """For how long its pods ran on a node, in all; None where nobody noted it, and of a rehearsal.

        A node that several pods share counts for each of them.
        """
        if "code" in self.facts:
            return None
        measured = [pod["seconds"] for pod in self.all_usage if isinstance(pod.get("seconds"), int | float)]
        if measured:
            return float(sum(measured))
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return (float(self.facts["ended"]) - float(self.facts["began"])) * int(self.facts["pods"])
        return None

    @property
    def pool(self) -> str:
        """The pool that it was made on, with places that of its last pod; empty where nobody noted it."""
        return str(self.facts.get("pool") or next((pod["pool"] for pod in self.usage if pod.get("pool")), ""))

    def node_facts(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        """The facts of the pool on which the pod was that left this usage; without places, those of the result."""
        pools = self.facts.get("pools")
        if not isinstance(pools, dict):
            return self.facts
        return cast("dict[str, Mapping[str, Any]]", pools).get(str(pod.get("pool")), {})

    @property
    def dollars(self) -> float | None:
        """What its pods cost for as long as they ran, in USD at list prices; None where that is not known."""
        seconds = self.node_seconds
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if seconds is None:
                return None
            if "pools" not in self.facts:
                return round(float(self.facts["rate"]) * seconds / 3600, 4)
            prices = [float(self.node_facts(pod)["rate"]) * float(pod["seconds"]) for pod in self.all_usage]
            return round(sum(prices) / 3600, 4) if prices else None
        return None


@dataclass(frozen=True)
class Unfinished:
    """A run of a step without a result, since a limit of the stack `reached` it. `path` is the directory that its
    result would have, `at` when its last pod ended, in seconds since the epoch."""

    path: str
    at: float
    reached: Reached


def unfinished(store: Path, pipeline: str = "*") -> list[Unfinished]:
    """The runs that a limit ended, the newest first; without those that went on since. Raises StoreError."""
    with store_errors(store):
        folders = sorted((store / USAGE).glob(f"{pipeline}/*/*"))
    runs = [_unfinished(store, folder.relative_to(store / USAGE).as_posix()) for folder in folders]
    return sorted(filter(None, runs), key=lambda run: (run.at, run.path), reverse=True)


def _unfinished(store: Path, path: str) -> Unfinished | None:
    if path.startswith(".") or not _NAME.fullmatch(path.rpartition("/")[2]) or (store / path / MANIFEST).is_file():
        return None
    began, ended = 0.0, None
    for pod in _usage(store, path):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            start = datetime.fromisoformat(pod["began"]).timestamp()
            at, reached = start + float(pod["seconds"]), Reached.read(pod)
            began = max(began, start)
            if reached and (ended is None or at > ended.at):
                ended = Unfinished(path, at, reached)
    return ended if ended and ended.at >= began else None


def mark_of(path: str) -> str:
    """The time for which the run was scheduled whose result `path` is; empty for any other path."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return (match["mark"] or "") if match else ""


def results(store: Path, pipeline: str = "*") -> list[Result]:
    """The whole results in the store, the newest first; of one pipeline, or of all. Raises StoreError."""
    with store_errors(store):
        directories = [place.parent for place in sorted(store.glob(f"{pipeline}/*/*/{MANIFEST}"))]
    made = [result(store, directory.relative_to(store).as_posix()) for directory in directories]
    return sorted(filter(None, made), key=lambda result: (result.made, result.path), reverse=True)


def result(store: Path, path: str) -> Result | None:
    """The result in the directory `path`; None where there is no whole one. Raises StoreError."""
    directory = store / path
    if path.startswith(".") or not _NAME.fullmatch(directory.name):
        return None
    with contextlib.suppress(NotWholeError, FileNotFoundError):
        manifest, made = load_manifest(directory), (directory / MANIFEST).stat().st_mtime
        return Result(path, made, manifest, facts_of(store, path), _usage(store, path))
    return None


def inputs(result: Result, among: Iterable[Result]) -> dict[str, Result]:
    """The results that `result` was made from, by the input's name, as far as the store has them."""
    wanted = {digest: name for name, digest in result.manifest.inputs.items()}
    return {wanted[other.manifest.digest]: other for other in among if other.manifest.digest in wanted}


def numbers(store: Path, result: Result, declared: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers among what is `declared` of the step's results, by name, that its files have."""
    values: dict[str, float] = {}
    for entry in declared:
        if entry.get("kind") == "number":
            with contextlib.suppress(AbsentError, OSError):
                value = value_at(store / result.path, f"{entry['path']}#{entry.get('select', '')}")
                if isinstance(value, int | float) and not isinstance(value, bool):
                    values[str(entry["name"])] = value
    return values


def facts_of(store: Path, path: str) -> dict[str, Any]:
    """What was noted of the result in `path`; empty where nothing was, or it is damaged. Raises StoreError."""
    facts = _json(store / FACTS / f"{path}.json")
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}


def _usage(store: Path, path: str) -> list[Mapping[str, Any]]:
    with store_errors(store):
        pods = [_json(file) for file in sorted((store / USAGE / path).glob("*.json"))]
    return [pod for pod in pods if isinstance(pod, dict)]


def _json(file: Path) -> Any:
    with store_errors(file):
        content = read_file(file)
    with contextlib.suppress(ValueError):
        return None if content is None else json.loads(content)
    return None
