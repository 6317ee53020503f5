"""A search by Optuna: which parameters a trial has, and the study that Optuna's own tools open.

The parameters of a trial are a function of the plan, of its number and of the results of the trials that come at
least `at_once` places before it; of those in between their parameters count alone. So they do not depend on which
worker is quick, or dies: a search with kills tries what one without them does. Needs Optuna.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.WARNING)

NAME = "search"
"""The name of the study in its file."""

_WRITER = "slipway"


@dataclass(frozen=True)
class Plan:
    """What is searched for. `parameters` has by name a list of values, or a mapping with `low`, `high`, `type`
    (`integer` or `number`) and maybe `log` or `step`. `by` is a value of a JSON file of each result, `of` is max
    or min, and `method` is tpe, random or grid. `stop` is median, hyperband or empty; with it `reports` is a file
    of JSON lines of each result, `#` and the pointer of a value of each line, or `printed:` and a pattern.
    """

    parameters: Mapping[str, Any]
    trials: int
    at_once: int
    by: str
    of: str
    method: str
    seed: int
    stop: str = ""
    reports: str = ""

    @staticmethod
    def parse(text: str) -> Plan:
        """The inverse of JSON. Raises ValueError and TypeError."""
        return Plan(**json.loads(text))

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters as Optuna has them."""
        return {name: _distribution(values) for name, values in self.parameters.items()}


@dataclass(frozen=True)
class Trial:
    """A trial: `state` is complete, pruned, failed or running, `value` the number that counts of one that is
    complete, and the last report of one that was pruned.

    `begun` is in seconds since 1970, `seconds` how long the program ran. `reports` are by their steps, and `notes`
    what a pruner keeps of it.
    """

    parameters: Mapping[str, Any]
    state: str = "running"
    value: float | None = None
    begun: float = 0.0
    seconds: float = 0.0
    reports: Mapping[int, float] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


def suggest(plan: Plan, before: Sequence[Trial]) -> dict[str, Any]:
    """The parameters of the trial that follows those `before`, of which the last may be running."""
    number = len(before)
    if plan.method == "grid":
        values = [list(_values(parameter)) for parameter in plan.parameters.values()]
        chosen = next(itertools.islice(itertools.product(*values), number, None))
        return dict(zip(plan.parameters, chosen))  # noqa: B905
    study = _study(plan, before, _sampler(plan, number))
    return dict(study.ask(plan.distributions).params)


class Judge:
    """Says whether a trial that runs is stopped early, by its reports and by those of the trials `before` that
    have ended: the same whenever it is asked.
    """

    def __init__(self, plan: Plan, before: Sequence[Trial], parameters: Mapping[str, Any]) -> None:
        self._study = _study(plan, [*before, Trial(parameters)], None)
        self._trial = optuna.trial.Trial(self._study, self._study.trials[-1]._trial_id)

    def stops(self, step: int, value: float) -> bool:
        """Whether the trial ends with this report; steps grow."""
        self._trial.report(value, step)
        return self._trial.should_prune()

    @property
    def notes(self) -> dict[str, Any]:
        """What the pruner keeps of the trial, for those after it."""
        return dict(self._study.trials[-1].system_attrs)


def write(plan: Plan, trials: Sequence[Trial]) -> tuple[Study, bytes]:
    """The study with `trials`, and the content of the file of Optuna's JournalStorage that has it.

    Equal for equal trials: two workers may write the file at once.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-study-") as folder:
        path = Path(folder) / "study.log"
        _study(plan, trials, None, JournalStorage(JournalFileBackend(str(path))))
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    text = "".join(f"{json.dumps({**line, 'worker_id': _WRITER}, separators=(',', ':'))}\n" for line in lines)
    return _study(plan, trials, None), text.encode()


def _study(
    plan: Plan, trials: Sequence[Trial], sampler: BaseSampler | None, storage: BaseStorage | None = None
) -> Study:
    direction = "maximize" if plan.of == "max" else "minimize"
    study = optuna.create_study(
        storage=storage,
        study_name=NAME,
        direction=direction,
        sampler=sampler or RandomSampler(seed=plan.seed),
        pruner=_PRUNERS[plan.stop](),
    )
    distributions = plan.distributions
    for trial in trials:
        study.add_trial(_frozen(trial, distributions))
    return study


_PRUNERS: Mapping[str, Callable[[], BasePruner]] = {
    "": NopPruner,
    "median": MedianPruner,
    "hyperband": HyperbandPruner,
}

_STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "running": TrialState.RUNNING,
}


def _frozen(trial: Trial, distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    frozen = create_trial(
        state=_STATES[trial.state],
        params=dict(trial.parameters),
        distributions=dict(distributions),
        value=trial.value,
        intermediate_values=dict(trial.reports),
        system_attrs=dict(trial.notes),
    )
    frozen.datetime_start = _time(trial.begun)
    if trial.state != "running":
        frozen.datetime_complete = _time(trial.begun + trial.seconds)
    return frozen


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _sampler(plan: Plan, number: int) -> BaseSampler:
    # A seed of its own for each trial: what was drawn before, in whatever process, has no say.
    digest = hashlib.sha256(f"{plan.seed}:{number}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    if plan.method == "random":
        return RandomSampler(seed=seed)
    # Trials that run count as bad ones, so that those at once do not all try the same place.
    return TPESampler(seed=seed, constant_liar=True)


def _distribution(values: Any) -> BaseDistribution:
    if isinstance(values, list):
        return CategoricalDistribution(values)
    low, high, log, step = values["low"], values["high"], bool(values.get("log")), values.get("step")
    if values["type"] == "integer":
        return IntDistribution(low, high, log=log, step=step or 1)
    return FloatDistribution(low, high, log=log, step=step)


def _values(parameter: Any) -> Sequence[Any]:
    """All values of a parameter of a grid."""
    if isinstance(parameter, list):
        return parameter
    low, high, step = parameter["low"], parameter["high"], parameter.get("step") or 1
    count = int((high - low) / step + 1e-9) + 1
    return [low + index * step for index in range(count)]
