"""One rehearsal from its configuration to its report."""

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any

import pulumi
from pulumi.output import Unknown
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from slipway import files
from slipway.engine.evaluate import evaluate, load_with_placeholders
from slipway.engine.evaluation.encoding import Secrets
from slipway.engine.evaluation.remarks import remarks_on_unknown
from slipway.engine.evaluation.worker import message, watch, where, with_stand_ins
from slipway.engine.monitor import EvaluationError
from slipway.engine.other_stacks import OtherStacks
from slipway.engine.project import missing_value
from slipway.engine.stack_config import load_stack, project_name, references
from slipway.evaluated.places import is_held
from slipway.evaluated.workloads import STATEFUL_SET
from slipway.infra.clouds.registry import emulators
from slipway.infra.exits import Exit
from slipway.infra.features import parts
from slipway.infra.pipelines.discovery import pipeline
from slipway.infra.pipelines.file.shape import STEP_KEYS
from slipway.infra.places import in_package
from slipway.infra.program import declare
from slipway.infra.review.stack import JOB, Resource, mapping, strings
from slipway.infra.schema.problems import PREFIX, Problem, SettingsError, without_prefix
from slipway.infra.schema.secret_values import MASK
from slipway.infra.schema.yaml_files import ConfigError
from slipway.infra.settings.loading import lay_over, overlay_settings, pipelines_in
from slipway.infra.settings.model import Settings
from slipway.infra.settings.pipelines import apps_if_any, folder, steps_if_any
from slipway.infra.stack.configuration import pipelines_of, problems_beside
from slipway.rehearse import capacity as capacities
from slipway.rehearse import state as store_files
from slipway.rehearse.cluster.cluster_objects import cluster_of
from slipway.rehearse.cluster.containers import Containers
from slipway.rehearse.cluster.job_controller import Target
from slipway.rehearse.cluster.server_specs import app_of
from slipway.rehearse.engine import Engine
from slipway.rehearse.machine import boxes, launch, programs
from slipway.rehearse.machine.environments import ENVIRONMENTS, Environments
from slipway.rehearse.machine.processes import Reaper, end_left, handling
from slipway.rehearse.output import terminal
from slipway.rehearse.output.charts import usage_of
from slipway.rehearse.output.comparison import compare
from slipway.rehearse.output.outcome import Configuration, Options, Outcome
from slipway.rehearse.output.results import ITEMS_FAILED, collect
from slipway.rehearse.output.terminal import LiveDisplay, PlainDisplay
from slipway.rehearse.state import OUTPUTS, RESULTS, Phase, Place, Results, State, kept

KEY = f"{PREFIX}secrets"


_SECRETS = Secrets(b"")
"""The texts that the program makes secret, of all sessions of this process: its errors do not repeat them."""

VARIABLES = "SLIPWAY_SECRET_"


def variable(name: str) -> str:
    """The environment variable with the value that a rehearsal takes for the secret ``name``."""
    return f"{VARIABLES}{name.upper().replace('-', '_')}"


def with_hint(problem: Problem) -> Problem:
    """``problem`` with what is enough for a rehearsal, where it is that a secret is not set."""
    name = problem.key.removeprefix(f"{KEY}.")
    if name == problem.key or problem.value is not None:
        return problem
    return replace(problem, fix=f"{problem.fix}; for a rehearsal alone, set {variable(name)} in the environment")


def given_secrets(keys: Iterable[str], environment: Mapping[str, str]) -> tuple[dict[str, SecretStr], list[str]]:
    """The stack's secrets that ``environment`` has, by name, and the others of the encrypted ``keys``."""
    available: dict[str, SecretStr] = {}
    placeholders: list[str] = []
    for key in keys:
        name = key.removeprefix(f"{KEY}.")
        if name != key and (value := environment.get(variable(name))):
            available[name] = SecretStr(value)
        else:
            placeholders.append(key)
    return available, placeholders


def secret_remarks(names_set: Iterable[str], placeholders: Sequence[str]) -> list[str]:
    """Remarks on the secrets that this machine's environment has, and on those that it lacks."""
    texts = [f"secret {name} has the value of {variable(name)}" for name in names_set]
    if placeholders:
        settable = [variable(key.removeprefix(f"{KEY}.")) for key in placeholders if key.startswith(f"{KEY}.")]
        hint = f"; {', '.join(settable)} in the environment would give a value" if settable else ""
        names = ", ".join(placeholders)
        texts.append(f"secrets that only their passphrase opens have a placeholder: {names}{hint}")
    return texts


def secrets_laid_over(values: Mapping[str, Any], available: Mapping[str, SecretStr]) -> Mapping[str, Any]:
    """The configuration ``values`` with the secrets ``found``. It is for the program: nothing prints it."""
    if not available:
        return values
    return {
        **values,
        KEY: {
            **mapping(values.get(KEY)),
            **{name: secret.get_secret_value() for name, secret in available.items()},
        },
    }


OVERLAY = f"{PREFIX}rehearsal"

WRITES = (
    "warning: steps and apps may write wherever you may: this machine cannot keep them to where they may write in "
    "a cluster. What is written elsewhere is in no result, and fails there. To have it refused here takes "
    f"Linux 5.19 with Landlock, or {boxes.NEEDED}"
)

SHARED_TMP = (
    "note: /tmp of steps and apps is this machine's, where files stay; in a cluster each pod has its own. To have "
    f"it so here takes {boxes.NEEDED}"
)


def configure(
    stack: str,
    root: Path,
    file: Path | None = None,
    *,
    all_pipelines: bool = False,
    capacity: str | None = None,
) -> Configuration:
    """The stack's configuration with its rehearsal overlay. Raises ConfigError and SettingsError.

    ``capacity`` is the path of a trace, in place of that of the overlay. Without ``all_pipelines``, those that
    measure accelerators are left out, unless the stack has no others.
    """
    config = load_stack(stack, root, file)
    values = dict(config.values)
    overlay = mapping(values.get(OVERLAY))
    remarks: list[str] = []
    if overlay:
        values = lay_over(values, {f"{PREFIX}{key}": value for key, value in overlay_settings(overlay).items()})
        remarks.append(f"{OVERLAY} lays over the settings: {json.dumps(overlay)}")
    for key in STEP_KEYS:
        values = key.lighten(values, overlay, remarks.append)
    raw = without_prefix(values)
    others = OtherStacks(root, declare, preview=False).of(stack)
    try:
        may_stand_in = partial(_may_stand_in, raw)
        settings, placeholders, _ = load_with_placeholders(raw, others.resolve, may_stand_in)
    except SettingsError as error:
        readable = {key: value for key, value in values.items() if key not in config.secrets}
        missing = store_files.problems(strings(overlay.get("store_files")), root, mapping(raw.get("pipelines")))
        lacking = programs.problems(programs.programs_of(pipelines_of(pipelines_in(raw)), root).values())
        wrong = [*map(with_hint, error.problems), *problems_beside(raw, readable, root)]
        raise SettingsError([*wrong, *missing, *lacking]) from None
    if placeholders:
        values[KEY] = {**mapping(values.get(KEY)), **placeholders}
    missing = store_files.problems(settings.rehearsal.store_files, root, settings.pipelines)
    missing += store_files.input_problems(settings.request.inputs)
    trace = _trace(capacity or settings.rehearsal.capacity, root, settings)
    if isinstance(trace, Problem):
        missing.append(trace)
    # What was checked and laid over would be laid over what is left out below.
    values.pop(OVERLAY, None)
    if not all_pipelines and (left_out := _measuring(settings)):
        pipelines = mapping(values[f"{PREFIX}pipelines"])
        values[f"{PREFIX}pipelines"] = {name: pipelines[name] for name in pipelines if name not in left_out}
        kept = {name: section for name, section in settings.pipelines.items() if name not in left_out}
        settings = settings.model_copy(update={"pipelines": kept})
        remarks.append(
            f"left out: {', '.join(left_out)}, which measures accelerators, and this is a CPU; "
            "`--benchmark`, or `BENCHMARK=1` of make, runs it"
        )
    programs_by_name = programs.programs_of(pipelines_of(settings.pipelines), root)
    if problems := [*missing, *programs.problems(programs_by_name.values())]:
        raise SettingsError(problems)
    remarks += programs.substitution_remarks(programs_by_name.values())
    values = with_stand_ins(values, emulators(settings.request), remarks.append)
    unsent = [name for name in placeholders if not _has_value(name)]
    remarks += [f"secret {name} is not set: a rehearsal sends no notices of a schedule" for name in unsent]
    encrypted = [*config.secrets, *(f"{KEY}.{name}" for name in placeholders if name not in unsent)]
    set_secrets, placeholders = given_secrets(encrypted, os.environ)
    remarks += secret_remarks(set_secrets, placeholders)
    for name in others.asked:
        remarks.append(f"clusters of the stack {name} are as its file in this checkout declares them")
    assert not isinstance(trace, Problem)
    return Configuration(
        config, values, settings, overlay, tuple(remarks), others, programs_by_name, set_secrets, trace
    )


def _trace(file: str | None, root: Path, settings: Settings) -> capacities.Trace | Problem | None:
    """How many nodes the pools of the stack can have, as ``file`` says it; None where it has no such file."""
    pools = [pool for cluster in settings.clusters.values() for pool in cluster.pools]
    return capacities.read(root / file, pools) if file else None


def _may_stand_in(raw: Mapping[str, Any], secret: str) -> bool:
    """Whether the environment has the secret, or no program reads it: a rehearsal sends no notices."""
    return _has_value(secret) or all(
        secret not in consumer.secrets.values()
        for name, section in pipelines_in(raw).items()
        for consumer in (*steps_if_any(name, section), *apps_if_any(name, section))
    )


def _has_value(secret: str) -> bool:
    return bool(os.environ.get(variable(secret)))


def _measuring(settings: Settings) -> list[str]:
    """The stack's pipelines that measure accelerators; none where it has no others."""
    sections = settings.pipelines
    measuring = [name for name, section in sections.items() if pipeline(folder(name, section)).measures_devices]
    return measuring if len(measuring) < len(sections) else []


@dataclass(frozen=True)
class Session:
    """A rehearsal of ``program``, shown on ``console``.

    With ``keep`` its apps stay until that returns. It is called where all went well, after the report was written.
    ``is_beside`` says which resources are declared beside `slipway.run`: none of these is run.
    """

    program: Callable[[], object]
    configuration: Configuration
    options: Options
    console: Console
    keep: Callable[[Engine], None] | None = None
    is_beside: Callable[[Resource], bool] = lambda _: False

    def run(self) -> Outcome:
        """Runs it, shows it and writes the report. Raises BusyError, FolderError, and what the program raises."""
        place = Place(self.options.folder)
        lock = files.Lock(place.folder)
        try:
            if self.options.fresh:
                if text := place.cleared():
                    self.console.print(Text(text, "bold red"), soft_wrap=True)
                place.clear()
            state = State.load(place)
            remarks = [f"{state.problem}; every Job runs again"] if state.problem else []
            if left := end_left(place.pods):
                remarks.append(f"ended {left} processes of a rehearsal that was killed")
            remarks += place.create()
            if not boxes.available():
                remarks.append(WRITES if launch.landlock() < launch.LANDLOCK else SHARED_TMP)
            files_to_copy = self.configuration.settings.rehearsal.store_files
            remarks += store_files.give(files_to_copy, place.store, self.options.root)
            reaper = Reaper(lock.descriptor)
            try:
                return self._rehearse(place, state, reaper, remarks)
            finally:
                reaper.close()
        finally:
            lock.close()

    def _rehearse(self, place: Place, state: State, reaper: Reaper, remarks: Iterable[str]) -> Outcome:
        display: LiveDisplay | PlainDisplay = PlainDisplay(self.console, self.options.quiet)
        if self.console.is_interactive and not self.options.quiet:
            display = LiveDisplay(self.console, self.options.stack)
        engine = self._engine(place, state, reaper, display)
        for remark in (*self.configuration.remarks, *remarks):
            display.say(remark)
        with _warnings_to(display.say), _interrupting(engine):
            try:
                outcome = self._evaluate(place, state, engine, display)
                self._show(place, outcome)
                if self.keep and outcome.exit_code is Exit.DONE:
                    self.keep(engine)
                return outcome
            finally:
                engine.close()

    def _show(self, place: Place, outcome: Outcome) -> None:
        """Writes the report and prints the summary."""
        renamed, older = _keep_results(place, outcome)
        _report(place, outcome, self.console)
        for line in renamed:
            self.console.print(Text(line, "yellow"), soft_wrap=True)
        if older and not self.options.quiet:
            text = f"Kept from an earlier rehearsal, since this one made none: {', '.join(older)}"
            self.console.print(Text(text, "yellow"), soft_wrap=True)

    def _engine(self, place: Place, state: State, reaper: Reaper, display: "LiveDisplay | PlainDisplay") -> Engine:
        """What runs the Jobs, with the clusters of other stacks that the settings name."""
        options, configuration = self.options, self.configuration
        emulated = emulators(configuration.settings.request)
        known = {directory for job in state.jobs.values() for directory in job.results}
        results = Results.checked(place.store, known, options.root)
        # Where it is a link, checkouts share the environments.
        environments = Environments((options.root / ENVIRONMENTS).resolve(), reaper)
        containers = Containers(configuration.programs, environments)
        disrupt = Target.parse(options.disrupt) if options.disrupt else None
        engine = Engine(
            place, state, results, emulated, reaper, display, disrupt, containers, self.keep is not None
        )
        engine.is_beside = self.is_beside
        engine.follow(configuration.trace)
        engine.pipelines = mapping(without_prefix(configuration.values).get("pipelines"))
        recorders = parts("rehearsal", "Recorder")
        engine.recorders = [make(place.store, options.stack, options.root) for make in recorders]
        for reference in references(without_prefix(configuration.values)):
            for resource in configuration.others.find(reference.reference).evaluation.resources.values():
                if cluster_of(resource) == reference.cluster:
                    engine.objects.add(resource, reference.name)
        return engine

    def _run_program(self) -> None:
        """Runs the program. An error of the project's code becomes an EvaluationError that says its place."""
        try:
            self.program()
        except pulumi.ConfigMissingError as error:
            raise SettingsError([missing_value(error.key, secret=error.secret)]) from None
        except Exception as error:
            if isinstance(error, SettingsError | ConfigError | EvaluationError):
                raise
            self._raise_with_place(error)
            raise

    def _raise_with_place(self, error: BaseException) -> None:
        """Raises an EvaluationError with the text and the line of ``error`` where the project's code raised it."""
        place = where(error, self.options.root)
        if not place or in_package(str(self.options.root / place.rpartition(":")[0])):
            return
        text = _SECRETS.without_secrets(message(error))
        for secret in self.configuration.secrets.values():
            text = text.replace(secret.get_secret_value(), MASK)
        raise EvaluationError(f"{place}: {text}") from error

    def _evaluate(
        self, place: Place, state: State, engine: Engine, display: "LiveDisplay | PlainDisplay"
    ) -> Outcome:
        """Runs the Jobs and the apps. The apps end with it, unless they are kept."""
        began = time.time()
        options, configuration = self.options, self.configuration
        watch(_SECRETS)
        with display:
            try:
                evaluation = evaluate(
                    self._run_program,
                    project=project_name(options.root),
                    stack=options.stack,
                    config=secrets_laid_over(configuration.values, configuration.secrets),
                    secrets=[KEY] if configuration.secrets else [],
                    emulators=engine.emulators,
                    store=store_files.StoreFolder(place.store),
                    observer=engine,
                    stacks=configuration.others.exported,
                )
            except EvaluationError as error:
                # What a callback raised comes by way of the SDK.
                if error.__cause__ is not None and not isinstance(error.__cause__, EvaluationError):
                    self._raise_with_place(error.__cause__)
                raise
            finally:
                if not self.keep:
                    engine.close()
        for text in remarks_on_unknown(evaluation, options.root):
            display.say(text)
        declared_services = {
            resource.name for resource in evaluation.resources.values() if resource.type == STATEFUL_SET
        }
        place.forget_services(declared_services)
        missed = ""
        if options.disrupt and not engine.evicted:
            ran = ", ".join(engine.records[urn].name for urn in engine.executed)
            missed = (
                f"--disrupt {options.disrupt}: nothing was evicted. The Jobs that ran: {ran or 'none'}; `--fresh` "
                "runs all. A pod that prints no `epoch 3/12` or `step 20/200` is evicted with `:after=20s`"
            )
        # A Job at a place of a step, and what asks for nodes there, are parts of that step's own.
        jobs = [
            resource
            for resource in evaluation.resources.values()
            if resource.type == JOB and not is_held(resource)
        ]
        for gone in state.jobs.keys() - {job.urn for job in jobs}:
            del state.jobs[gone]
        state.save()
        ended = [(job, engine.records[job.urn]) for job in jobs]
        failed = [(job_, record.exit_code) for job_, record in ended if record.phase == Phase.FAILED]
        collected = collect(
            (job_ for job_, record in ended if record.phase.good),
            place.store,
            (job_ for job_, code in failed if code == ITEMS_FAILED),
            (job_ for job_, code in failed if code != ITEMS_FAILED),
        )
        declared = pipelines_of(configuration.settings.pipelines)
        order = [f"{pipeline.name}-{step.name}" for pipeline in declared for step in pipeline.steps]
        records = [engine.records[job.urn] for job in jobs]
        return Outcome(
            options=options,
            configuration=configuration,
            evaluation=evaluation,
            records=records,
            used=usage_of(records, evaluation.resources, place.store),
            services=engine.services.records,
            results=collected,
            comparisons=compare(jobs, evaluation.steps, engine.records, collected, order),
            executed=frozenset(engine.executed),
            beside=frozenset(
                resource.urn for resource in evaluation.resources.values() if self.is_beside(resource)
            ),
            began=began,
            ended=time.time(),
            interrupted=engine.interrupted,
            missed=missed,
        )


def _keep_results(place: Place, outcome: Outcome) -> tuple[list[str], list[str]]:
    """Leaves outputs and copies of the results beside the report.

    Returns a line for each file that it had to rename, and the copies that it did not replace: a Job's folder
    where none of its copies was replaced.
    """
    outputs = {name: output.shown for name, output in outcome.evaluation.outputs.items()}
    text = json.dumps(outputs, indent=2, sort_keys=True, default=_unknown_as_null) + "\n"
    files.write(place.folder / OUTPUTS, text)
    renamed: list[str] = []
    fresh: set[str] = set()
    for job in outcome.results.jobs:
        for path in job.files:
            renamed += place.keep(job.folder / path, job.job, path)
            fresh.add(kept(job.job, path))
    older = [PurePosixPath(name) for name in place.copies() if name not in fresh]
    folders = {kept(job.job) for job in outcome.results.jobs}
    whole = {copy: PurePosixPath(*copy.parts[:2]) for copy in older}
    return renamed, list(
        dict.fromkeys(str(copy if str(whole[copy]) in folders else whole[copy]) for copy in older)
    )


def _unknown_as_null(value: object) -> str | None:
    return None if isinstance(value, Unknown) else str(value)


def _report(place: Place, outcome: Outcome, console: Console) -> None:
    # jinja2 is not needed to find settings wrong.
    from slipway.rehearse.output.report import write_report  # noqa: PLC0415

    file = write_report(place, outcome)
    quiet = outcome.options.quiet
    records = outcome.records
    if outcome.exit_code is not Exit.DONE or quiet < 2:
        logs = {record.name: place.log(record.name) for record in records}
        jobs = {record.urn for record in records}
        resources, failed = outcome.evaluation.resources, outcome.evaluation.failed
        refused = {resources[urn].name: reason for urn, reason in failed.items() if urn not in jobs}
        apps = [resources[urn].name for urn in outcome.evaluation.skipped if app_of(resources[urn])]
        terminal.failures(console, records, logs, refused, apps, missed=outcome.missed)
    if not quiet:
        terminal.print_jobs(console, records, outcome.services, outcome.only_said, outcome.used)
        terminal.results(console, outcome.results, outcome.comparisons)
        terminal.stack_outputs(console, outcome.evaluation.outputs, outcome.results)
        console.print()
        ran = sum(record.urn in outcome.executed for record in records)
        unchanged = sum(record.phase is Phase.UNCHANGED for record in records)
        jobs_run = f"{ran} Job{'s' if ran != 1 else ''} run"
        line = f"{jobs_run}, {unchanged} unchanged, in {outcome.ended - outcome.began:.1f} s"
        console.print(Text(line, "bold"))
    if quiet < 2:
        if place.copies():
            console.print(Text(f"Results: {place.folder / RESULTS}"), soft_wrap=True)
        console.print(Text(f"Report: {file}"), soft_wrap=True)
    if outcome.interrupted:
        console.print(Text("Interrupted. The next rehearsal goes on from here.", "yellow"))


def _interrupting(engine: Engine) -> contextlib.AbstractContextManager[None]:
    """Handles SIGINT and SIGTERM: the first asks the Jobs to end, the second kills them."""
    signals = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            engine.interrupt()
        else:
            engine.interrupt(grace=0)

    return handling(handle, signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def _warnings_to(say: Callable[[str], None]) -> Generator[None]:
    """Hands the warnings and errors of `pulumi.log` to ``say``."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"{record.levelname.lower()}: {record.getMessage()}")

    handler = Handler(logging.WARNING)
    logger = logging.getLogger("pulumi")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
