"""A step that searches: its program runs once for each trial, with parameters that Optuna chooses.

Trials are items of the queue; `slipway.runtime.search` runs them. What is left of a search is the result
of its best trial, with the study beside it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from slipway.infra.pipelines.contract import Search
from slipway.infra.pipelines.matrix import Bound, Scalar
from slipway.infra.pipelines.printed import EXAMPLE, check_pattern
from slipway.infra.pipelines.results import POINTER, Column, File, Picture, Result, Table, heading
from slipway.infra.schema.base import Int, Model, refuse
from slipway.infra.schema.paths import below_problem
from slipway.infra.schema.problems import Finding, Path

SEARCH, TRIALS, AT_ONCE, METHOD, STOP = "search", "trials", "at_once", "method", "stop"
"""Keys of a step: the first in a ``pipeline.yaml``, the others below it and in a stack file."""

IN_STACK = (TRIALS, AT_ONCE, METHOD, STOP)
"""What a stack file may change of a search."""

FOLDER = "search"
"""The folder of the study in the step's directory (`slipway.runtime.search.trial_worker`)."""

REQUIREMENTS = "slipway/runtime/search/requirements.txt"
"""The lock file of what chooses the parameters. The user's program finds nothing of it."""

MOST_TRIALS, MOST_AT_ONCE = 10_000, 1000

RESULTS = ("trials", "history", "importance", "parallel", "study")
"""The results that every search has."""


NUMBERS = ("integer", "number")
"""Types of parameters that may have a range."""


UNREPORTED = "nothing says where the program reports its steps"

PRINTED = "printed:"
"""What the reports of a `Search` begin with that are printed (`slipway.runtime.search.reports`)."""


class SearchParameter(Model):
    """The values of a parameter: a list of them, or a range."""

    values: Annotated[list[Scalar], Field(min_length=1)] | None = Field(
        default=None, description="The only values; a list alone means this."
    )
    low: Bound | None = Field(default=None, description="The least value of a range.")
    high: Bound | None = Field(default=None, description="The largest value of a range.")
    log: bool = Field(default=False, description="Whether its logarithm is what is spread evenly.")
    step: Bound | None = Field(default=None, description="The distance of its values; default: 1 of an integer.")

    def findings(self, at: Path, kind: str, method: str) -> Iterator[Finding]:
        """Findings about the values at ``at`` of a parameter of the type ``kind``."""
        ranged = {key: getattr(self, key) for key in ("low", "high", "step") if getattr(self, key) is not None}
        if self.values is not None:
            for key, value in ranged.items():
                yield Finding((*at, key), value, "the values are listed already", f"remove it, or `{VALUES}`")
            return
        if self.low is None or self.high is None:
            reason = "neither a list of values nor a range"
            read = tuple((*at, key) for key in ("low", "high"))
            yield Finding(at, ranged or None, reason, "write a list, or `low` and `high`", read=read)
            return
        if kind not in NUMBERS:
            yield Finding(at, ranged, f"a {kind} has no range", "write a list of values")
            return
        if self.low >= self.high:
            reason = f"`low` is not below `high`, {self.high}"
            yield Finding((*at, "low"), self.low, reason, "exchange them", read=((*at, "high"),))
        if self.log and self.low <= 0:
            reason = "a logarithm needs values above 0"
            yield Finding((*at, "low"), self.low, reason, "write a number above 0, or remove `log`")
        if self.step is not None and self.step <= 0:
            yield Finding((*at, "step"), self.step, "not above 0", "write a number above 0")
        elif self.step is not None and self.log:
            reason = "values that are spread by their logarithm have no even distance"
            yield Finding((*at, "step"), self.step, reason, "remove it, or `log`", read=((*at, "log"),))
        elif method == "grid" and self.log:
            reason = "a grid has values of even distance, or listed ones"
            yield Finding((*at, "log"), self.log, reason, "list the values, or write `method: tpe`")
        elif method == "grid" and self.step is None and kind == "number":
            reason = "a grid has only so many values, and this range has any number"
            yield Finding(at, ranged, reason, "add `step`, list the values, or write `method: tpe`")

    @property
    def count(self) -> int:
        """How many values a grid has of it; 0 where that cannot be told."""
        if self.values is not None:
            return len(self.values)
        if self.low is None or self.high is None or self.low >= self.high or (self.step or 1) <= 0:
            return 0
        if self.log or (self.step is None and not (self.low % 1 == self.high % 1 == 0)):
            return 0
        return int((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    def plain(self, kind: str) -> object:
        """The parameter, of the type ``kind``, as `slipway.runtime.search.study.Plan` has it."""
        if self.values is not None:
            return list(self.values)
        bounds: dict[str, object] = {"low": self.low, "high": self.high, "log": self.log, "type": kind}
        return bounds if self.step is None else {**bounds, "step": self.step}


VALUES = "values"


def _parameter_section(value: Any) -> Any:
    if isinstance(value, list):
        return {VALUES: cast("list[Any]", value)}
    if not isinstance(value, dict):
        raise refuse("neither a list of values nor a range", "write `[64, 128]`, or `{low: 1e-5, high: 0.1}`")
    return cast("dict[Any, Any]", value)


DeclaredParameter = Annotated[
    SearchParameter, BeforeValidator(_parameter_section, json_schema_input_type=list[Scalar] | SearchParameter)
]
"""The values of a parameter: a section, or their list alone."""


class StepSearch(Model):
    """Runs the program once for each trial, with parameters that Optuna chooses by the results of earlier trials,
    and leaves the result of the best one: later steps read that. In `run`, the name of a parameter in braces is
    the trial's value, and `{output}` a directory of the trial's own. Beside it `search/` has all trials, as
    a table, as pictures, and as a study that Optuna's own tools open. A search with the same seed tries the same,
    whichever workers die.
    """

    parameters: dict[str, DeclaredParameter] = Field(
        min_length=1, description="The values that parameters of the pipeline may have, by their names."
    )
    trials: Int | None = Field(
        default=None,
        ge=1,
        le=MOST_TRIALS,
        description="How many combinations are tried; a grid has all of its own. More trials than before run only "
        "those that are new.",
    )
    by: str = Field(description="The number among the step's results that is to be the best.")
    of: Literal["max", "min"] = Field(default="max", description="Whether the largest or the smallest is best.")
    method: Literal["tpe", "random", "grid"] = Field(
        default="tpe",
        description="`tpe`: where earlier results promise most (tree-structured Parzen estimator); `random`: "
        "anywhere; `grid`: every combination, in order.",
    )
    at_once: Int = Field(
        default=1,
        ge=1,
        le=MOST_AT_ONCE,
        description="Trials that run at once, each in a pod. A trial is chosen by the results of those that come "
        "at least so many places before it, so that it decides what is tried.",
    )
    queue: str | None = Field(
        default=None, description="The service that hands the trials out; more than one at once need it."
    )
    seed: Int = Field(default=0, ge=0, description="What random choices begin from.")
    stop: Literal["median", "hyperband"] | None = Field(
        default=None,
        description="Which trials are stopped early by what they report: `median`: those that are worse than half "
        "of the complete ones at the same step; `hyperband`: most, so that more can be tried. Default: none.",
    )
    reports: str | None = Field(
        default=None,
        description="The file of JSON lines to which the program adds a line for each step, and its value: "
        '`progress.jsonl#/accuracy` for `{"step": 3, "accuracy": 0.91}`. `stop` needs it, or `printed`.',
    )
    printed: Annotated[str, AfterValidator(check_pattern)] | None = Field(
        default=None,
        description="Where the program prints its steps instead: a regular expression, searched for in each line, "
        f"with the groups `step`, a whole number, and `value`: `{EXAMPLE}`. A line with the step alone names the "
        "step of the value after it. Without `step` the lines with a value are counted.",
    )
    attempts: Int = Field(
        default=3, ge=1, le=100, description="After so many failures a trial is set aside, and the others go on."
    )
    allow_failed: Int = Field(
        default=0, ge=0, description="The step fails in the end where more trials than this were set aside."
    )

    @property
    def combinations(self) -> int:
        """How many combinations a grid has; 0 where that cannot be told."""
        return math.prod(parameter.count for parameter in self.parameters.values())

    def in_stack(self, settings: object) -> "StepSearch":
        """The search as the ``settings`` of its step in a stack file change it."""
        return self.model_copy(update={key: getattr(settings, key) for key in IN_STACK})

    def count_findings(self, at: Path) -> Iterator[Finding]:
        """Findings about the number of trials, and of those at once, in the section at ``at``."""
        trials, at_once = self.trials, self.at_once
        if at_once > 1 and self.queue is None:
            reason = "several trials at once are handed out by a service, and none is named"
            fix = "write `at_once: 1`, or add `queue: <service>` to `search` in `pipeline.yaml`"
            yield Finding((*at, AT_ONCE), at_once, reason, fix, read=((*at, "queue"),))
        if self.method != "grid":
            if trials is None:
                reason = "required, and not there"
                yield Finding((*at, TRIALS), None, reason, "add it: how many combinations are tried")
            return
        count = self.combinations
        if count > MOST_TRIALS:
            reason = f"the grid has {count} combinations, and a search at most {MOST_TRIALS} trials"
            yield Finding(at, None, reason, "remove values, or write `method: tpe`")
        elif count and trials is not None and trials != count:
            what = "more" if count > trials else "fewer"
            reason = f"the grid has {what} combinations: {count}"
            yield Finding((*at, TRIALS), trials, reason, f"remove it, or write `{TRIALS}: {count}`")

    def changed_findings(self, at: Path, kinds: Mapping[str, str]) -> Iterator[Finding]:
        """Findings about the search where a stack file changed it, in the section at ``at`` of that file."""
        searched = {name: parameter for name, parameter in self.parameters.items() if name in kinds}
        for name, parameter in searched.items() if self.method == "grid" else ():
            for finding in parameter.findings((), kinds[name], self.method):
                reason = f"`{name}` of its `parameters`: {finding.reason}"
                fix = "write `method: tpe` or `random`, or change the parameter in `pipeline.yaml`"
                yield Finding((*at, METHOD), self.method, reason, fix)
        yield from self.count_findings(at)
        if self.stop and not (self.reports or self.printed):
            fix = "add `reports` or `printed` to `search` in `pipeline.yaml`, or remove `stop`"
            yield Finding((*at, STOP), self.stop, UNREPORTED, fix)

    def declare(self, kinds: Mapping[str, str], number: Result) -> Search:
        """The search; ``kinds`` are the types of parameters. Without a number of trials it has one."""
        return Search(
            parameters={name: parameter.plain(kinds[name]) for name, parameter in self.parameters.items()},
            trials=self.trials or 1,
            at_once=self.at_once,
            by=f"{number.path}#{getattr(number, 'select', '')}",
            of=self.of,
            method=self.method,
            seed=self.seed,
            stop=self.stop or "",
            # Where a stack file stops none, what the program reports decides nothing.
            reports=(f"{PRINTED}{self.printed}" if self.printed else self.reports or "") if self.stop else "",
        )

    def stop_findings(self, at: Path) -> Iterator[Finding]:
        """Findings about stopping trials early, in the section at ``at``."""
        named = {"reports": self.reports, "printed": self.printed}
        given = {key: value for key, value in named.items() if value is not None}
        if self.stop and not given:
            fix = "add `reports: progress.jsonl#/accuracy` or `printed`, or remove `stop`"
            yield Finding((*at, STOP), self.stop, UNREPORTED, fix, read=tuple((*at, key) for key in named))
        if len(given) > 1:
            reason = "the steps are reported in a file already"
            yield Finding(
                (*at, "printed"), self.printed, reason, "remove it, or `reports`", read=((*at, "reports"),)
            )
        if given and not self.stop:
            key, value = next(iter(given.items()))
            reason = "nothing is done with what the program reports"
            fix = "add `stop: median`, or remove it"
            yield Finding((*at, key), value, reason, fix, read=((*at, "stop"),))
        if self.reports is None:
            return
        file, _, pointer = self.reports.partition("#")
        if (why := below_problem(file)) or not pointer or not POINTER.fullmatch(pointer):
            reason = f"not a file below `{{output}}` and a value of its lines{f': {why}' if why else ''}"
            yield Finding((*at, "reports"), self.reports, reason, "write for example `progress.jsonl#/accuracy`")

    def results(self, kinds: Mapping[str, str]) -> Sequence[Result]:
        """What every search leaves that is worth showing; ``kinds`` are the types of parameters."""
        columns = [
            Column(key=f"parameter_{name}", title=name, format="integer" if kinds[name] == "integer" else "text")
            for name in self.parameters
        ]
        return [
            Table(
                name="trials",
                title="Trials",
                path=f"{FOLDER}/trials.json",
                columns=(
                    Column(key="trial", title="Trial"),
                    Column(key="state", title="State"),
                    Column(key="value", title=heading(self.by), format="number"),
                    *columns,
                    Column(key="attempts", title="Attempts", format="integer"),
                    Column(key="seconds", title="Seconds", format="number"),
                    Column(key="reason", title="Reason"),
                ),
            ),
            Picture(name="history", title="History of the search", path=f"{FOLDER}/history.png"),
            Picture(name="importance", title="Importance of the parameters", path=f"{FOLDER}/importance.png"),
            Picture(name="parallel", title="All trials", path=f"{FOLDER}/parallel.png"),
            File(name="study", title="Study of Optuna", path=f"{FOLDER}/study.log"),
        ]
