"""The programs of steps, services and apps: their packages, and what runs in place of one that is not here."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slipway.infra.features import StandIn, features
from slipway.infra.kubernetes.apps.pod import RESULTS, filled_in
from slipway.infra.kubernetes.labels import inputs_of
from slipway.infra.kubernetes.pods.pod import STORE
from slipway.infra.kubernetes.service import word
from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.contract import (
    Command,
    ServiceDeclaration,
    StepDeclaration,
    Substitute,
    service_variables,
)
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.images import has_tensorflow
from slipway.infra.places import located
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.rehearse.machine import boxes
from slipway.rehearse.machine.environments import Software

PYTHON = ("python", "python3")
"""Programs that every environment has."""

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True)
class Program:
    """The program of a step, a service or an app, and what a rehearsal may run in its place.

    ``of`` is the step, service or app with its pipeline, ``churn.train``, ``kind`` which of these it is, and
    ``key`` the place of its command. ``words`` are its command line as declared. ``software`` is what its image
    and lock files have; ``installed`` says that the program may be one of theirs. ``substitute`` is the command
    line for a machine that lacks the program, and empty where the pipeline has none. ``app`` is the app that
    it is of. ``program`` is what has to be here, where the command line begins with what starts it. ``built_in``
    are the paths at which it has to find folders.
    """

    of: str
    key: str
    words: Sequence[str]
    software: Software
    installed: bool
    substitute: Sequence[str] = ()
    kind: Literal["step", "service", "app"] = "step"
    app: AppDeclaration | None = None
    program: str = ""
    built_in: Sequence[str] = ()

    @property
    def fake(self) -> StandIn | None:
        """What a rehearsal has of its own for this program; None where the pipeline says what runs instead."""
        if self.substitute:
            return None
        return next((f.stand_ins[self.name] for f in features() if self.name in f.stand_ins), None)

    def instead(self, annotations: Mapping[str, str], *, at_start: bool = False) -> list[str]:
        """The substitute's command line as it stands in the pod that has these ``annotations``.

        With ``at_start`` it learns which results it reads only when it starts.
        """
        if self.app is None:
            return list(self.substitute)
        inputs = {name: f"{STORE}/{path}" for name, path in inputs_of(annotations).items()}
        if at_start:
            inputs |= {name: f"{RESULTS}/{name}" for name in self.app.inputs}
        pipeline = self.of.rpartition(".")[0]
        return [filled_in(argument, pipeline, self.app, inputs) for argument in self.substitute]

    @property
    def name(self) -> str:
        """The program of the command line: its first word, or what that starts."""
        return self.program or self.words[0]

    def is_here(self, *folders: Path) -> bool:
        """Whether this machine has the program, or one of ``folders``."""
        return _is_here(self.name, folders)

    @property
    def unknown(self) -> str:
        """The program or substitute that this machine lacks; empty where one of them is here."""
        if not self.substitute:
            return "" if self.fake else self.name
        return "" if _is_here(self.substitute[0]) else self.substitute[0]

    @property
    def replacing(self) -> str:
        """A sentence that says that the substitute runs."""
        if fake := self.fake:
            return f"{self.of} runs {fake.title}: `{self.name}` is not on this machine"
        if any("\n" in word for word in self.substitute):
            return f"{self.of} runs what stands in for `{self.name}` with {self.software}: this machine has none"
        instead, declared = shlex.join(self.substitute), shlex.join(self.words)
        return f"{self.of} runs `{instead}` in place of `{declared}`: `{self.name}` is not on this machine"

    @property
    def way_out(self) -> str:
        """What to do where the program is nowhere on this machine."""
        return (
            f"install `{self.unknown}` here, or let the pipeline say what a rehearsal runs instead: "
            f"`rehearsal: {{run: [python, …]}}` of the {self.kind}"
        )

    @property
    def nowhere(self) -> str:
        """Why it cannot be started where it is neither on this machine nor in its environment."""
        return (
            f"{self.kind} {self.of} runs {self.name!r}, which is neither on this machine nor among the packages "
            f"of {self.software}; {self.way_out}"
        )


def _is_here(name: str, folders: Sequence[Path] = ()) -> bool:
    if "/" in name and not name.startswith("/"):
        # A file of the step's own: what is wrong with it is wrong on a cluster, too.
        return True
    path = os.pathsep.join([*map(str, folders), *search_path()])
    return name in PYTHON or shutil.which(name, path=path) is not None


def search_path() -> list[str]:
    """The folders in which programs of this machine are looked for.

    Those of virtual environments are left out: no lock file says what is in them.
    """
    folders = [part for part in os.environ.get("PATH", "").split(os.pathsep) if Path(part).is_absolute()]
    return [
        folder
        for folder in dict.fromkeys((*folders, *SYSTEM_PATH))
        if not (Path(folder).parent / "pyvenv.cfg").is_file()
    ]


def programs_of(pipelines: Iterable[DeclaredPipeline], root: Path) -> dict[str, Program]:
    """The programs of all steps, services and apps, by the logical name of the Job, StatefulSet or Deployment.

    They are in the order of the declaration. Of one with mistakes, there are those that can be read.
    """
    programs: dict[str, Program] = {}
    for pipeline in pipelines:
        with contextlib.suppress(SettingsError):
            for step in pipeline.unchecked:
                if step.command is not None and step.arguments:
                    programs[f"{pipeline.name}-{step.name}"] = _program(pipeline, step, step.command, root)
            for service in pipeline.services:
                programs[f"{pipeline.name}-{service.name}"] = _program_of_service(pipeline, service, root)
            for app in pipeline.apps:
                programs[f"{pipeline.name}-{app.name}"] = _program_of_app(pipeline, app, root)
    return programs


def _program_of_app(pipeline: DeclaredPipeline, app: AppDeclaration, root: Path) -> Program:
    substitute = app.substitute or Substitute()
    locks = filter(None, (app.requirements, substitute.requirements))
    return Program(
        of=f"{pipeline.name}.{app.name}",
        key=pipeline.key(app),
        words=["python3", "-m", app.module, *app.arguments] if app.module else app.arguments,
        software=Software(
            tuple(located(lock, root) for lock in locks), _with_tensorflow(app, app.placed_by.image or app.image)
        ),
        installed=bool(app.requirements or (substitute.requirements and not substitute.run)),
        substitute=substitute.run,
        kind="app",
        app=app,
    )


def _program_of_service(pipeline: DeclaredPipeline, service: ServiceDeclaration, root: Path) -> Program:
    substitute = service.substitute or Substitute()
    _, variable = service_variables(service.name)
    return Program(
        of=f"{pipeline.name}.{service.name}",
        key=pipeline.declared_at(service, "run"),
        words=service.arguments,
        software=Software((located(substitute.requirements, root),) if substitute.requirements else ()),
        installed=bool(substitute.requirements and not substitute.run),
        substitute=[word(argument, service.port, variable) for argument in substitute.run],
        kind="service",
        program=substitute.program,
    )


def _program(pipeline: DeclaredPipeline, step: StepDeclaration, command: Command, root: Path) -> Program:
    name = step.variant.of if step.variant else step.name
    substitute = command.substitute or Substitute()
    words = [word for argument in substitute.run for word in _for_variants(argument, step, pipeline.unchecked)]
    locks = filter(None, (step.requirements, substitute.requirements))
    return Program(
        of=f"{pipeline.name}.{name}",
        key=pipeline.declared_at(step, "run"),
        words=step.arguments,
        software=Software(
            tuple(located(lock, root) for lock in locks),
            _with_tensorflow(step, step.placed_by.image),
        ),
        # A lock file beside a substitute is for what the substitute imports.
        installed=bool(step.requirements or (substitute.requirements and not substitute.run)),
        substitute=words,
        built_in=[mount.path for mount in command.mounts],
    )


def _with_tensorflow(declared: StepDeclaration | AppDeclaration, image: str | None) -> bool:
    """Whether ``declared`` runs in an image of TensorFlow's: what one has that is built, nobody knows here."""
    return has_tensorflow(image) if image else declared.build is None


def _for_variants(word: str, step: StepDeclaration, steps: Sequence[StepDeclaration]) -> list[str]:
    """``word``, or one for each variant where it is an input of ``step`` that has variants and no best."""
    for name, other in step.inputs.items():
        variants = [variant for variant in steps if variant.variant and variant.variant.of == other]
        if variants and not variants[0].best and word == f"{{{name}}}":
            return [f"{{{variant.name}}}" for variant in variants]
    return [word]


def substitution_remarks(programs: Iterable[Program]) -> list[str]:
    """A remark for each program that this machine certainly lacks, and that has a substitute."""
    return [program.replacing for program in _once(programs) if program.substitute or program.fake]


def problems(programs: Iterable[Program]) -> list[Problem]:
    """A problem for each program that this machine certainly lacks, and its substitute where it has one.

    So is one for each that has paths built in which this machine cannot give it.
    """
    programs = list(programs)
    built_in = {program.of: program for program in programs if program.built_in}
    refused = [
        Problem(
            f"{program.key.removesuffix('.run')}.mounts",
            ", ".join(program.built_in),
            "this machine cannot show a program folders at paths of its own, so a rehearsal cannot run it",
            f"rehearse on {boxes.NEEDED}",
        )
        for program in built_in.values()
        if not boxes.available()
    ]
    lacking = [
        Problem(
            program.key,
            program.unknown,
            f"{program.kind} `{program.of}` runs it, and a rehearsal finds no such program on this machine",
            program.way_out,
        )
        for program in _once(programs)
        if program.unknown
    ]
    return [*refused, *lacking]


def _once(programs: Iterable[Program]) -> Iterable[Program]:
    """The programs that this machine certainly lacks: for each step that of its first variant.

    Programs of the packages in a lock file do not count: they are known only after installation.
    """
    by_name: dict[str, Program] = {}
    for program in programs:
        if not program.installed and not program.is_here():
            by_name.setdefault(program.of, program)
    return by_name.values()
