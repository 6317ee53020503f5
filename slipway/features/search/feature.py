"""A step that searches: its program runs once for each trial, with parameters that Optuna chooses.

Trials are items without files; `slipway.features.search.pod.worker` runs them. What is left of a search is the
result of its best trial, with the study beside it.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from slipway.features.items.feature import Items
from slipway.infra.features import Feature
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.matrix import Bound, Scalar
from slipway.infra.pipelines.results import POINTER, Column, File, Picture, Result, Table, heading
from slipway.infra.pipelines.step_keys import InPod, StepKey, StepPart, field_as
from slipway.infra.review.stack import mapping
from slipway.infra.schema.base import Int, Model, refuse
from slipway.infra.schema.paths import below_problem
from slipway.infra.schema.problems import PREFIX, Finding, Path, did_you_mean, listed, without_prefix

if TYPE_CHECKING:
    from slipway.infra.pipelines.file.shape import PipelineFile, PipelineStep

SEARCH, TRIALS, AT_ONCE, METHOD, STOP = "search", "trials", "at_once", "method", "stop"
"""Keys of a step: the first in a ``pipeline.yaml``, the others below it and in a stack file."""

IN_STACK = (TRIALS, AT_ONCE, METHOD, STOP)
"""What a stack file may change of a search."""

FOLDER = "search"
"""The folder of the study in the step's directory (`slipway.features.search.pod.trial_worker`)."""

SAMPLER = "sampler"
"""The flag with the packages that choose the parameters."""

REQUIREMENTS = "slipway/features/search/pod/requirements.txt"
"""The lock file of what chooses the parameters. The user's program finds nothing of it."""

MOST_TRIALS, MOST_AT_ONCE = 10_000, 1000

RESULTS = ("trials", "history", "importance", "parallel", "study")
"""The results that every search has."""


NUMBERS = ("integer", "number")
"""Types of parameters that may have a range."""


UNREPORTED = "nothing says where the program reports its steps"

PRINTED = "printed:"
"""What the reports of a `Search` begin with that are printed (`slipway.features.search.pod.reports`)."""


EXAMPLE = r"epoch (?P<step>\d+): .*accuracy (?P<value>[\d.]+)"

_STEP, _VALUE = "step", "value"

LONGEST = 200
"""Characters of a pattern."""

_WRITE = f"write for example `{EXAMPLE}`"

_LETTER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""A character that a backslash precedes, or a class of characters."""

_GROUP = re.compile(r"\((?P<inner>[^()]*)\)(?P<repeat>[*+]|\{\d*,\})?")
"""A group without others in it, and what repeats it any number of times."""

_REPEAT = re.compile(r"[*+]|\{\d*,\}")


def check_pattern(pattern: str) -> str:
    """The rule of a pattern of printed reports. Raises what `refuse` makes."""
    if len(pattern) > LONGEST:
        raise refuse(
            f"{len(pattern)} characters, and a pattern has at most {LONGEST}",
            "search for less of the line",
        )
    try:
        groups = {*re.compile(pattern).groupindex}
    except (re.error, RecursionError, OverflowError) as error:
        raise refuse(f"no regular expression of Python's: {error}", _WRITE) from error
    if _VALUE not in groups:
        raise refuse(f"it has no group `{_VALUE}`", _WRITE)
    if others := sorted(groups - {_STEP, _VALUE}):
        names = ", ".join(f"`{name}`" for name in others)
        raise refuse(f"it has a group {names}, and only `{_STEP}` and `{_VALUE}` mean something", _WRITE)
    if _nests(pattern):
        reason = "a repeated group has a repetition in it, which may search one line for years"
        raise refuse(reason, r"repeat only one of them: `[\w ]+` in place of `(\w+ ?)+`")
    return pattern


def _nests(pattern: str) -> bool:
    """Whether something that is repeated any number of times has such a repetition in it.

    Python's engine may try each way to divide a line among both: their number doubles with each character.
    """
    text = _LETTER.sub("x", pattern)
    while match := _GROUP.search(text):
        repeats = bool(_REPEAT.search(match["inner"]))
        if repeats and match["repeat"]:
            return True
        text = f"{text[: match.start()]}{'x*' if repeats or match['repeat'] else 'x'}{text[match.end() :]}"
    return False


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
        """The parameter, of the type ``kind``, as `slipway.features.search.pod.study.Plan` has it."""
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

    def plan(self, kinds: Mapping[str, str], number: Result) -> dict[str, Any]:
        """What decides which trials there are, as `slipway.features.search.pod.study.Plan` reads it; ``kinds`` are
        the types of parameters. Without a number of trials it has one.
        """
        return {
            "parameters": {name: parameter.plain(kinds[name]) for name, parameter in self.parameters.items()},
            "trials": self.trials or 1,
            "at_once": self.at_once,
            "by": f"{number.path}#{getattr(number, 'select', '')}",
            "of": self.of,
            "method": self.method,
            "seed": self.seed,
            "stop": self.stop or "",
            # Where a stack file stops none, what the program reports decides nothing.
            "reports": (f"{PRINTED}{self.printed}" if self.printed else self.reports or "") if self.stop else "",
        }

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


class WithSearch(Model):
    """The key of a step that searches."""

    search: StepSearch | None = Field(
        default=None, description="Runs its program with many parameters, and keeps the best result."
    )


@dataclass(frozen=True)
class Search(Items):
    """The trials of a step, which are items without files. ``plan`` is `StepSearch.plan`."""

    plan: Mapping[str, Any] = field(default_factory=dict[str, Any])

    key: ClassVar[str] = SEARCH
    module: ClassVar[str] = "slipway.features.search.pod.worker"
    packages: ClassVar[Mapping[str, str]] = {SAMPLER: REQUIREMENTS}

    @property
    def is_grid(self) -> bool:
        """Whether every combination is tried."""
        return self.plan["method"] == "grid"

    @property
    def references(self) -> Sequence[str]:
        """What is another with each trial."""
        return (pods.OUTPUT, *self.plan["parameters"])

    @property
    def decides(self) -> Mapping[str, object]:
        """What is tried."""
        return {SEARCH: dict(self.plan)}

    def work_flags(self, pod: InPod) -> list[str]:
        """What says which trials there are."""
        return ["--search", json.dumps(dict(self.plan))]


class SearchKey(StepKey):
    """The key `search`."""

    name: ClassVar[str] = SEARCH
    part: ClassVar[type[StepPart]] = Search
    fields: ClassVar[type[Model]] = WithSearch
    explains: ClassVar[Sequence[str]] = (SEARCH,)
    reserved: ClassVar[Sequence[str]] = (SAMPLER,)
    is_left_out: ClassVar[bool] = True

    def settings(self, step: Any) -> Mapping[str, Any]:
        """What a stack file may change; where the search cannot be read, with the defaults of any."""
        search = step.search
        known = StepSearch.model_fields
        defaults = {key: getattr(search, key) if search else known[key].default for key in IN_STACK}
        if search:
            defaults[TRIALS] = search.trials or search.combinations or None
        return {key: field_as(StepSearch, key, default) for key, default in defaults.items()}

    def findings(self, file: Any) -> Iterator[Finding]:
        """What is wrong with parameters, with the number that is the best, and what a search cannot be with."""
        yield from _check(file)

    def lighten(
        self, values: dict[str, Any], overlay: Mapping[str, Any], note: Callable[[str], None]
    ) -> dict[str, Any]:
        """A few trials are enough to see that it works."""
        return _few_trials(values, overlay, note)

    def kept(self, step: Any) -> Sequence[str]:
        """The parameters that it chooses."""
        search = step.search
        return [*search.parameters] if search else []

    def section_findings(self, at: Path, step: Any, settings: Any, file: Any) -> Iterator[Finding]:
        """What is wrong with a search that a stack file changed."""
        written: StepSearch = step.search
        search, trials = written.in_stack(settings), written.trials or written.combinations or None
        if search != written.model_copy(update={TRIALS: trials}):
            kinds = {name: parameter.type for name, parameter in file.parameters.items()}
            yield from search.changed_findings(at, kinds)

    def connects(self, step: Any, settings: Any = None) -> Mapping[str, Path]:
        """The service that hands the trials out."""
        search = step.search
        return {search.queue: (SEARCH, "queue")} if search and search.queue else {}

    def causes(self, old: Any, new: Any) -> Iterator[str]:
        """What is tried."""
        if old.decides.get(SEARCH) != new.decides.get(SEARCH):
            yield "what it searches for changed"

    def remarks(self, step: Any) -> Iterator[str]:
        """How much is tried."""
        if plan := step.decides.get(SEARCH):
            how_many = f"it tries {plan['trials']} combinations, {plan['at_once']} at once, "
            yield f"{how_many}but for those that it has tried before"

    def declare(self, step: Any, settings: Any, file: Any, fill: Callable[[str], str]) -> Search | None:
        """The trials, as a stack file has them."""
        if step.search is None:
            return None
        search: StepSearch = step.search.in_stack(settings)
        kinds = {name: file.parameters[name].type for name in search.parameters}
        return Search(
            files="",
            queue=search.queue,
            attempts=search.attempts,
            allow_failed=search.allow_failed,
            pods=search.at_once,
            results=search.results(kinds),
            plan=search.plan(kinds, step.results[search.by].declare(search.by)),
        )


OTHERS = {
    "matrix": "list the values in `search.parameters`, with `method: grid`",
    "items": "make two steps of it",
    "nodes": "make two steps of it",
    "best": "write `by` and `of` in `search`",
}
"""Keys that a step with a search cannot have, each with what to do instead."""


def _check(declared: Any) -> Iterator[Finding]:
    """Findings about searches: their parameters, the number that they are by, and what they cannot be with."""
    for name, step in declared.steps.items():
        search = step.search
        if search is not None:
            at: Path = ("steps", name, SEARCH)
            yield from _others(at, step)
            for key in search.parameters:
                yield from _parameter(at, key, step, search, declared)
            yield from _number(at, step, search)
            yield from search.stop_findings(at)
            yield from search.count_findings(at)


def _others(at: Path, step: "PipelineStep") -> Iterator[Finding]:
    """Keys of the step that it cannot have beside a search."""
    for key, fix in OTHERS.items():
        if getattr(step, key, None):
            reason = f"a step with `{SEARCH}` has no `{key}`"
            yield Finding((*at[:2], key), None, reason, f"remove it: {fix}", read=(at,))


def _parameter(
    at: Path, name: str, step: "PipelineStep", search: StepSearch, declared: "PipelineFile"
) -> Iterator[Finding]:
    parameter, known = search.parameters[name], declared.parameters.get(name)
    used = [word for text in step.run for word in pods.names(text) if word in declared.parameters]
    place = (*at, "parameters", name)
    if known is None:
        fix = did_you_mean(name, used, f"write {listed(used)}" if used else "add it to `parameters` of the file")
        yield Finding(place, name, "there is no such parameter", fix, read=(("parameters", name),))
        return
    if name not in used:
        reason = "`run` does not use that parameter, so all trials would be the same"
        yield Finding(place, name, reason, f"add `{{{name}}}` to `run`", read=((*at[:2], "run"),))
    for variable, word in step.environment.items():
        if name in pods.names(word):
            reason = f"`{{{name}}}` is another for each trial, and all trials have one environment"
            yield Finding((*at[:2], "environment", variable), word, reason, "write it in `run`", read=(at,))
    yield from parameter.findings(place, known.type, search.method)
    if parameter.values is not None or known.type in NUMBERS:
        yield from _values(place, name, parameter, declared)


def _values(place: Path, name: str, parameter: SearchParameter, declared: "PipelineFile") -> Iterator[Finding]:
    """Values that the parameter of the pipeline cannot have."""
    from slipway.infra.pipelines.file.checks import value_findings
    from slipway.infra.pipelines.file.section import annotation, axis

    known, read = declared.parameters[name], ("parameters", name)
    if parameter.values is not None:
        yield from value_findings(axis(known), parameter.values, (*place, "values"), read)
        return
    for key in ("low", "high"):
        yield from value_findings(annotation(known), getattr(parameter, key), (*place, key), read)
    if known.type == "integer":
        yield from value_findings(Int, parameter.step, (*place, "step"), read)


def _number(at: Path, step: "PipelineStep", search: StepSearch) -> Iterator[Finding]:
    numbers = [name for name, result in step.results.items() if result.number is not None]
    if search.by not in numbers:
        reason = "no number among the step's results has that name"
        fix = did_you_mean(search.by, numbers, f"write {listed(numbers)}" if numbers else "add it to `results`")
        yield Finding((*at, "by"), search.by, reason, fix, read=((*at[:2], "results", search.by),))
    for name in step.results:
        if name in RESULTS:
            reason = "every search has a result of that name"
            yield Finding((*at[:2], "results", name), name, reason, "choose another name", read=(at,))


FEW = 4
"""Trials that show that a search works."""


def _few_trials(values: dict[str, Any], overlay: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """The configuration ``values`` with at most `FEW` trials of each search of which ``overlay``, the section of
    rehearsals, does not say how many; ``note`` gets a remark for each. A grid is tried as a whole.
    """
    from slipway.infra.settings.loading import lay_over, pipelines_in
    from slipway.infra.settings.pipelines import steps_if_any

    said = mapping(overlay.get("pipelines"))
    for name, section in pipelines_in(without_prefix(values)).items():
        for step in steps_if_any(name, section):
            search = next((part for part in step.parts if isinstance(part, Search)), None)
            trials, key = search.plan["trials"] if search else 0, ("steps", step.name, TRIALS)
            if not search or trials <= FEW or search.is_grid or _has(mapping(said.get(name)), key):
                continue
            few = {name: {"steps": {step.name: {TRIALS: FEW}}}}
            values = lay_over(values, {f"{PREFIX}pipelines": few})
            note(
                f"{name}.{step.name} tries {FEW} of {trials} combinations, enough to see that it works; "
                f"`slipway:rehearsal: {{pipelines: {{{name}: {{steps: {{{step.name}: {{{TRIALS}: {trials}"
                "}}}}}` in the stack file tries all"
            )
    return values


def _has(section: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    first, *others = keys
    return first in section and (not others or _has(mapping(section[first]), tuple(others)))


FEATURE = Feature(step_keys=(SearchKey(),))
