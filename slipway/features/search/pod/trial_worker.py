"""One worker of a search: it runs the program with the parameters of the trials that it gets, and where all trials
have ended makes the result of the step: the files of the best trial, and the study.

Below the step's directory `search/` has all that is not the best trial's: a folder for each trial, which is an
item, the table of trials, Optuna's study and the pictures. Standard library only, but for what it imports late.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.features.items.pod import items
from slipway.features.items.pod.assignment import Assignment, Task
from slipway.features.items.pod.attempts import Earlier, EarlierRuns
from slipway.features.items.pod.item_worker import (
    ITEMS_FAILED,
    AlteredError,
    Ending,
    Given,
    ItemWorker,
    Report,
    write_list,
)
from slipway.features.items.pod.items import Item, Record, Work
from slipway.features.search.pod.reports import PRINTED, Printed, Reports
from slipway.runtime.exits import StepError
from slipway.runtime.json_values import AbsentError, number_at
from slipway.runtime.steps.outputs import require
from slipway.runtime.steps.program import Program
from slipway.runtime.store import (
    MANIFEST,
    Manifest,
    copy_atomically,
    digest_of,
    read_file,
    store_errors,
    write_atomically,
)

if TYPE_CHECKING:
    from slipway.features.search.pod.study import Judge, Plan, Trial

FOLDER = "search"
"""The folder of a search in the step's directory."""

TRIAL = "trial.json"
"""The file beside those of the program that says what a trial was: parameters, value, when it ran, how long."""

PARAMETERS = "parameters.json"
"""The file in the folder of a trial with what was chosen for it."""

TABLE, STUDY = "trials.json", "study.log"


@dataclass(frozen=True)
class TrialItem(Item):
    """A trial as an item: there is no file to be damaged."""

    number: int = 0

    def damage(self) -> str:
        return ""


def listed(trials: int) -> list[TrialItem]:
    """The trials in their order. Their names do not depend on how many there are."""
    return [TrialItem(f"trial-{number:04}", Path(), "", number) for number in range(trials)]


class Parameters:
    """The parameters of each trial: once they are chosen, a file in the trial's folder has them.

    Whoever chooses them chooses the same. `ended` is set once there is somebody to ask which trials have ended.
    """

    def __init__(self, plan: Plan, output: Path) -> None:
        self._plan = plan
        self._output = output
        # The number of trials decides nothing of any of them.
        chosen_by = {**vars(plan), "trials": None}
        self._mark = json.loads(json.dumps(chosen_by))
        self._items = listed(plan.trials)
        self._chosen: dict[str, Mapping[str, Any]] = {}
        self._results: dict[str, Trial] = {}
        self.ended: Callable[[Sequence[str]], Mapping[str, Record | None]] | None = None

    def of(self, item: TrialItem) -> Mapping[str, Any]:
        """The parameters of a trial, whose turn it is, or was; empty where it never was.

        Raises:
            AlteredError: the result of a trial, on which they depend, is not there any more; StoreError.
        """
        if item.name not in self._chosen:
            kept = self._kept(item)
            if kept is None and self.ended is None:
                return {}
            self._chosen[item.name] = self._choose(item) if kept is None else kept
        return self._chosen[item.name]

    def trial(self, item: TrialItem, record: Record | None) -> Trial:
        """A trial that ended; `record` is that of its result, if it has any. Raises as `of` does."""
        from slipway.features.search.pod.study import Trial

        if record is None:
            return Trial(self.of(item), "failed")
        known = self._results.get(record.manifest)
        if known is None:
            content = read_json(record.directory(self._output) / TRIAL)
            if content is None:
                raise AlteredError(item.name, f"{record.directory(self._output) / TRIAL} is missing")
            known = Trial(
                content["parameters"],
                content["state"],
                content["value"],
                content["begun"],
                content["seconds"],
                {int(step): value for step, value in content["reports"]},
                content["notes"],
            )
            self._results[record.manifest] = known
        return known

    def judge(self, item: TrialItem) -> Judge:
        """Who says whether a trial, whose turn it is, is stopped early. Raises as `of` does."""
        from slipway.features.search.pod.study import Judge

        return Judge(self._plan, self._before(item), self.of(item))

    def _before(self, item: TrialItem) -> list[Trial]:
        """The trials before this one: what decides of it. Those that may still run have parameters alone."""
        from slipway.features.search.pod import study

        assert self.ended is not None
        first_running = max(0, item.number - self._plan.at_once + 1)
        finished, running = self._items[:first_running], self._items[first_running : item.number]
        records = self.ended([other.name for other in finished])
        before = [self.trial(other, records.get(other.name)) for other in finished]
        return [*before, *(study.Trial(self.of(other)) for other in running)]

    def _choose(self, item: TrialItem) -> Mapping[str, Any]:
        from slipway.features.search.pod import study

        chosen = study.suggest(self._plan, self._before(item))
        content = {"by": self._mark, "parameters": chosen}
        with store_errors(self._output):
            write_atomically(self._output / item.name / PARAMETERS, f"{json.dumps(content)}\n".encode())
        return chosen

    def _kept(self, item: TrialItem) -> Mapping[str, Any] | None:
        content = read_json(self._output / item.name / PARAMETERS)
        return content["parameters"] if content is not None and content.get("by") == self._mark else None


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is none. Raises StoreError."""
    with store_errors(path):
        content = read_file(path)
    try:
        value = json.loads(content or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True)
class TrialWork(Work):
    """What decides the results of trials: of each its parameters, neither its number nor how many there are.

    Where trials are stopped early, so do those before it: then `search` says by what.
    """

    search: Mapping[str, Any] = field(default_factory=dict)
    parameters: Callable[[TrialItem], Mapping[str, Any]] = field(default=lambda _: {}, compare=False)

    def of(self, item: Item, previous: Record | None = None) -> Manifest:  # noqa: ARG002
        assert isinstance(item, TrialItem)
        chosen = {name: argument(value) for name, value in self.parameters(item).items()}
        search = {"number": item.number, **self.search} if self.search else {}
        return Manifest(self.step, {}, self.inputs, {**self.settings, "parameters": chosen, **search})


@dataclass
class GivenSearch(Given):
    """What a search is given. `plan` is in plain values."""

    plan: Mapping[str, Any] = field(default_factory=dict)

    def whole(self, options: object) -> Manifest:  # noqa: ARG002
        settings = {**self.work.settings, "search": dict(self.plan)}
        return Manifest(self.work.step, {}, self.inputs, settings, {"best": dict(self.chosen)})


def argument(value: object) -> str:
    """A value as the command line has it, as `slipway.infra.pipelines.matrix.argument` writes those of a
    matrix."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(value: object) -> object:
    """A value as a table shows it: of a number four digits, wherever its point is."""
    return f"{value:.4g}" if isinstance(value, float) else value


class TrialWorker(ItemWorker):
    """Runs trials. The items of `given` are `TrialItem`, its work is `TrialWork`."""

    def __init__(self, plan: Plan, parameters: Parameters, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._plan = plan
        self._parameters = parameters
        self._root: Path = self._output
        self._output = self._root / FOLDER
        self._run = dataclasses.replace(self._run, output=self._output)
        self._earlier_runs = EarlierRuns(self._root, FOLDER)
        self._reports: Reports | None = None

    def _assignment(self) -> Assignment:
        assignment = super()._assignment()
        self._parameters.ended = assignment.ended
        return assignment

    def _places(self, item: Item, directory: Path) -> dict[str, str]:
        assert isinstance(item, TrialItem)
        chosen = {name: argument(value) for name, value in self._parameters.of(item).items()}
        shown = ", ".join(f"{name} {value}" for name, value in chosen.items())
        print(f"{item.name}: {shown}", flush=True)
        return {"{output}": str(directory), **{f"{{{name}}}": value for name, value in chosen.items()}}

    def _run_program(self, task: Task, directory: Path, program: Program) -> Ending:
        assert isinstance(task.item, TrialItem)
        self._reports = None
        if not self._plan.stop:
            return super()._run_program(task, directory, program)
        self._reports = reports = Reports(directory, self._plan.reports, self._parameters.judge(task.item))
        printed = Printed(directory, self._plan.reports) if self._plan.reports.startswith(PRINTED) else None
        with reports.watched(self._runner.stop_early):
            ending = super()._run_program(task, directory, dataclasses.replace(program, heard=printed))
            if printed is not None:
                printed.end(whole=not ending.stopped and not ending.reason)
        if printed is not None and printed.remark and not ending.stopped:
            self._say(f"{task.item.name}: {printed.remark}")
        if not reports.pruned:
            return ending
        # A program that ended before it was told to is stopped all the same: its reports decide, not their time.
        return dataclasses.replace(ending, reason="", stopped=False)

    def _result(self, task: Task, directory: Path, work: Manifest, ending: Ending, earlier: Earlier) -> Any:
        assert isinstance(task.item, TrialItem)
        if not ending.reason:
            if (directory / FOLDER).exists():
                return f"the program wrote {FOLDER}, which is the folder of the search: let it write another name"
            reports = self._reports
            try:
                pruned = reports is not None and reports.pruned
                value = reports.last if reports and pruned else number_at(directory, self._plan.by)
            except AbsentError as error:
                return f"{self._plan.by}: {error}"
            if pruned:
                self._say(f"{task.item.name}: stopped early, after step {max(reports.seen) if reports else 0}")
            content = {
                "parameters": dict(self._parameters.of(task.item)),
                "state": "pruned" if pruned else "complete",
                "value": value,
                "reports": list(reports.seen.items()) if reports else [],
                "notes": reports.notes if reports else {},
                "begun": round(time.time() - ending.seconds, 3),
                "seconds": round(ending.seconds, 3),
            }
            with store_errors(directory):
                write_atomically(directory / TRIAL, f"{json.dumps(content, indent=2)}\n".encode())
        return super()._result(task, directory, work, ending, earlier)

    def _publish(self, ended: Report) -> Manifest:
        files = {f"{FOLDER}/{items.ITEMS}": write_list(self._output, ended, self._options.allow_failed)}
        trials, best, path = self._trials(ended)
        source = ended.results[path]
        with store_errors(self._root):
            for name, entry in source.files.items():
                target = self._root / name
                if not target.is_file() or digest_of(target) != entry:
                    copy_atomically(self._output / path / name, target)
                files[name] = entry
            for name, content in self._shown(trials, ended).items():
                write_atomically(self._output / name, content)
                files[f"{FOLDER}/{name}"] = digest_of(self._output / name)
        require(self._root, files, self._options.results)
        summary = {"trials": len(trials), "failed": len(ended.failed), "best": path.partition("/")[0]}
        manifest = dataclasses.replace(self._whole, files=files, summary={**self._whole.summary, **summary})
        with store_errors(self._root):
            write_atomically(self._root / MANIFEST, manifest.encode())
        name, shown = path.partition("/")[0], json.dumps(best.parameters)
        self._say(f"The best of {len(trials)} trials is {name}: {self._plan.by} is {best.value:g} with {shown}")
        return manifest

    def _trials(self, ended: Report) -> tuple[list[Trial], Trial, str]:
        """All trials, the best one, and where its result is below the folder of the search."""
        by_name = {outcome.item: outcome.record for outcome in ended.outcomes}
        trials = [self._parameters.trial(item, by_name[item.name]) for item in listed(self._plan.trials)]
        pairs = zip(trials, by_name)  # noqa: B905
        done = [(trial, item) for trial, item in pairs if trial.state == "complete"]
        if not done:
            raise StepError(ITEMS_FAILED, f"none of the {len(trials)} trials has a result")
        choose = max if self._plan.of == "max" else min
        # Of equal ones the first, as with a matrix.
        best, name = choose(done, key=lambda pair: pair[0].value)
        record = by_name[name]
        assert record is not None
        return trials, best, f"{name}/{record.attempt}"

    def _shown(self, trials: Sequence[Trial], ended: Report) -> dict[str, bytes]:
        """The table, the study and the pictures, by name; equal for equal trials."""
        from slipway.features.search.pod import study

        made, log = study.write(self._plan, trials)
        pairs = zip(trials, ended.outcomes)  # noqa: B905
        rows = [
            {
                "trial": outcome.item,
                "state": trial.state,
                "value": trial.value,
                "parameters": dict(trial.parameters),
                **{f"parameter_{name}": _short(value) for name, value in trial.parameters.items()},
                "attempts": outcome.attempts,
                "seconds": trial.seconds,
                "reason": outcome.reason,
            }
            for trial, outcome in pairs
        ]
        table = ",\n".join(json.dumps(row) for row in rows)
        with tempfile.TemporaryDirectory(prefix="slipway-matplotlib-") as folder:
            # The home directory of a pod cannot be written.
            os.environ["MPLCONFIGDIR"] = folder
            from slipway.features.search.pod import pictures

            drawn = pictures.draw(made, self._plan.by.rpartition("/")[2])
        return {TABLE: f"[\n{table}\n]\n".encode(), STUDY: log, **drawn}
