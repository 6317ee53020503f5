"""Record the results of a pipeline in MLflow: each once, whatever was restarted meanwhile.

The store has all results with their manifests. What MLflow lacks of them is recorded whenever this looks, so that
steps know nothing of MLflow, need no way to it, and are recorded even if they ran while it was away.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipway.workloads.apps.mlflow.api import Mlflow
from slipway.workloads.apps.mlflow.database import Database
from slipway.workloads.apps.mlflow.logged import PARENT, LoggedRun, logged
from slipway.workloads.apps.mlflow.records import PRICED, Record, made_from, nested_record, record
from slipway.workloads.runtime import history
from slipway.workloads.runtime.paid import SECONDS_KEPT, Paid, paid_for
from slipway.workloads.runtime.store import store_errors

RESULT, RECORDED = "slipway.result", "slipway.recorded"
"""Tags of a run: the result that it stands for, and, written last, the fingerprint of what was recorded of it."""

NOTED = ("commit", "changed", "stack", "pool", *PRICED, SECONDS_KEPT)
"""Tags with what is not in a result itself."""

SETTLED = 3600.0
"""Seconds after which nothing new is expected beside a result, and it is not read again until the next start: each
reading costs requests where the store is a bucket."""


@dataclass(frozen=True)
class Known:
    """A run that stands for a result: its ID, its name, the fingerprint of what was recorded of it last, and those
    of its tags that are `NOTED`.
    """

    run: str
    name: str
    fingerprint: str = ""
    noted: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class Importer:
    """Brings results from `store` to `mlflow`, which has the `database`.

    `steps` maps the steps whose results are recorded to what their pipeline declares of them
    (infra/pipelines/results.py). `read_declared` reads what is known of runs beside that, by the directories of
    their results: a later declaration of a run that is recorded changes nothing of it.
    """

    mlflow: Mlflow
    database: Database
    store: Path
    pipeline: str
    steps: Mapping[str, Sequence[Mapping[str, Any]]]
    read_declared: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    _declared: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    _experiment: str = ""
    _runs: dict[str, Known] | None = None
    _settled: set[str] = field(default_factory=set[str])
    _logged: dict[str, LoggedRun] = field(default_factory=dict[str, LoggedRun])
    _before: dict[str, Mapping[str, history.Result]] = field(
        default_factory=dict[str, Mapping[str, history.Result]]
    )
    _results: dict[str, history.Result] = field(default_factory=dict[str, history.Result])
    _paid: Mapping[str, Paid] = field(default_factory=dict[str, Paid])

    def look(self) -> int:
        """Record what is new; returns how many results that were.

        Raises:
            MlflowError: MLflow does not answer, or refuses.
            StoreError: the store cannot be read.
            Exception: the database cannot be written, or another program records in it.
        """
        self.database.hold()
        # Runs of the stack as it was before may still end.
        self._declared |= self.read_declared()
        if self._runs is None:
            self._experiment = self.mlflow.experiment(self.pipeline)
            self._runs = dict(_recorded(self.mlflow.runs(self._experiment)))
        results = [(history.result(self.store, path), declared) for path, declared in self._unsettled()]
        made = [(self._with_facts(result), declared) for result, declared in results if result is not None]
        self._look_back([result for result, _ in made])
        count = 0
        for result, declared in made:
            count += self._record(result, declared)
            if time.time() - result.made > SETTLED:
                self._settled.add(result.path)
                self._logged.pop(_key(result), None)
        return count

    def _look_back(self, made: Sequence[history.Result]) -> None:
        """Find what results were made from, once of each, since all manifests are read for it, and what was paid
        for their nodes.
        """
        new = [result for result in made if _key(result) not in self._before]
        if new:
            results = history.results(self.store, self.pipeline)
            among = {result.manifest.digest: result for result in results}
            self._before |= {_key(result): made_from(result, among) for result in new}
            self._results = {result.path: self._with_facts(result) for result in results}
        if made:
            self._results |= {result.path: result for result in made}
            paid = paid_for([*self._results.values()])
            # A later pod on its node changes what a result was paid for.
            self._settled -= {path for path, of in paid.items() if of != self._paid.get(path)}
            self._paid = paid

    def forget(self) -> None:
        """Ask MLflow again what it has: an answer of it was lost, and with it whether it did what it was asked."""
        self._runs = None
        self._settled.clear()

    def _unsettled(self) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
        for step, declared in self.steps.items():
            folder = self.store / self.pipeline / step
            with store_errors(folder):
                names = sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []
            for name in names:
                if (path := f"{self.pipeline}/{step}/{name}") not in self._settled:
                    yield path, declared

    def _with_facts(self, result: history.Result) -> history.Result:
        """The result with what is known of it beside the store: what MLflow has, else what is declared."""
        assert self._runs is not None
        known = self._runs.get(_key(result))
        declared = self._declared.get(without_mark(result), {})
        noted = known.noted if known and known.noted else declared
        if all(noted.get(name) == declared.get(name) for name in ("stack", "pool") if name in declared):
            # Recorded while the price was not known.
            names = (*PRICED, SECONDS_KEPT, "pools")
            noted = {**{name: declared[name] for name in names if name in declared}, **noted}
        return replace(result, facts={**noted, **result.facts})

    def _record(self, result: history.Result, declared: Sequence[Mapping[str, Any]]) -> bool:
        """Whether MLflow lacked something of `result`, which it then has."""
        key = _key(result)
        if key not in self._logged:
            self._logged[key] = logged(self.store / result.path, result.manifest)
        program = self._logged[key]
        declared = result.facts.get("results") or declared
        paid = self._paid.get(result.path)
        wanted = record(self.store, result, declared, self._before[key], program, paid=paid)
        new = self._bring(key, wanted)
        return self._nest(key, key, self.store / result.path, program) or new

    def _nest(self, key: str, parent: str, directory: Path, program: LoggedRun) -> bool:
        """Whether MLflow lacked something of what is nested in `program`, the run of the key `parent`."""
        assert self._runs is not None
        new = False
        for run in program.nested:
            name, outer = f"{key}/{run.id}", self._runs[parent].run
            new = self._bring(name, nested_record(directory, run), {PARENT: outer}) or new
            new = self._nest(key, name, directory, run) or new
        return new

    def _bring(self, key: str, wanted: Record, tags: Mapping[str, str] | None = None) -> bool:
        """Whether MLflow lacked something of `wanted`, whose run `key` names and begins with `tags`."""
        assert self._runs is not None
        known = self._runs.get(key)
        if known is None:
            run = self.mlflow.create(
                self._experiment, wanted.full_name, wanted.start, {RESULT: key, **(tags or {})}
            )
            known = self._runs[key] = Known(run, wanted.full_name)
        if known.fingerprint == wanted.fingerprint:
            return False
        # A name that somebody gave it stays.
        name = wanted.full_name if known.name.startswith(wanted.name) else ""
        self._write(known.run, wanted, name)
        self._runs[key] = Known(known.run, name or known.name, wanted.fingerprint, _noted(wanted.tags))
        return True

    def _write(self, run: str, wanted: Record, name: str) -> None:
        self.database.link(run, wanted.directory)
        self.mlflow.log(run, metrics=wanted.metrics, parameters=wanted.parameters, tags=wanted.tags)
        self.mlflow.log_inputs(run, wanted.inputs)
        self.mlflow.finish(run, wanted.end, name)
        self.mlflow.log(run, tags={RECORDED: wanted.fingerprint})


def keep_looking(importer: Importer, pause: float, *, longest: float = 300.0) -> None:
    """Look every `pause` seconds, for ever; after trouble, which is said, at growing distances up to `longest`."""
    while not importer.mlflow.is_ready():
        time.sleep(1)
    wait = pause
    while True:
        try:
            count = importer.look()
            wait = pause
            if count:
                print(f"Recorded {count} result{'s' * (count != 1)} of {importer.pipeline}", flush=True)
        except Exception as error:
            wait = min(2 * wait, longest)
            message = f"warning: results are not recorded, next attempt in {wait:.0f} s: {error}"
            print(message, file=sys.stderr, flush=True)
            importer.forget()
        time.sleep(wait)


def _recorded(runs: Iterator[Mapping[str, Any]]) -> Iterator[tuple[str, Known]]:
    """The runs that stand for a result, each behind its result."""
    for run in runs:
        tags = {tag["key"]: tag["value"] for tag in run.get("data", {}).get("tags", [])}
        if RESULT in tags:
            info = run["info"]
            name, fingerprint = info.get("run_name", ""), tags.get(RECORDED, "")
            yield tags[RESULT], Known(info["run_id"], name, fingerprint, _noted(tags))


def _key(result: history.Result) -> str:
    """Names a result, and with it the run that stands for it."""
    return f"{result.path}@{result.manifest.digest[:16]}"


def _noted(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: tags[name] for name in NOTED if name in tags}


def without_mark(result: history.Result) -> str:
    """The directory of a result without the time of a run by the clock, which a stack does not declare."""
    return result.path.removesuffix(f"-{result.mark}") if result.mark else result.path
