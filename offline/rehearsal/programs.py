"""The programs that steps run: with which packages, and what stands in for one that this machine lacks."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.pipelines.contract import Command, StepDeclaration, Substitute
from infra.pipelines.declared import DeclaredPipeline
from infra.pipelines.images import has_tensorflow
from infra.schema.problems import Problem, SettingsError
from offline.rehearsal.environments import Software

PYTHON = ("python", "python3")
"""Programs that every environment has."""

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True)
class Program:
    """The program of a step, and what a rehearsal may run in its place.

    ``step`` is the step with its pipeline, ``churn.train``, and ``key`` the place of its command. ``words`` are
    its command line as declared. ``software`` is what its image and its lock files have; ``installed`` says that
    the program may be one of theirs. ``substitute`` is the command line for a machine that lacks the program, and
    empty where the pipeline has none.
    """

    step: str
    key: str
    words: Sequence[str]
    software: Software
    installed: bool
    substitute: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The first word of the command line."""
        return self.words[0]

    def is_here(self, *folders: Path) -> bool:
        """Whether this machine has the program, or one of ``folders``."""
        return _is_here(self.name, folders)

    @property
    def unknown(self) -> str:
        """Of a program that this machine lacks: what is asked for in vain, it or its substitute; or nothing."""
        if not self.substitute:
            return self.name
        return "" if _is_here(self.substitute[0]) else self.substitute[0]

    @property
    def replacing(self) -> str:
        """A sentence that says that the substitute runs."""
        instead, declared = shlex.join(self.substitute), shlex.join(self.words)
        return f"{self.step} runs `{instead}` in place of `{declared}`: `{self.name}` is not on this machine"

    @property
    def way_out(self) -> str:
        """What to do where the program is nowhere on this machine."""
        return (
            f"install `{self.unknown}` here, or let the pipeline say what a rehearsal runs instead: "
            "`rehearsal: {run: [python, …]}` of the step"
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
    given = [each for each in os.environ.get("PATH", "").split(os.pathsep) if Path(each).is_absolute()]
    return [
        each for each in dict.fromkeys((*given, *SYSTEM_PATH)) if not (Path(each).parent / "pyvenv.cfg").is_file()
    ]


def programs_of(pipelines: Iterable[DeclaredPipeline], root: Path) -> dict[str, Program]:
    """The programs of all steps that have one, by the name of the step's Job, in the order of the declaration.

    Of a declaration with mistakes, those of the steps that can be read.
    """
    found: dict[str, Program] = {}
    for pipeline in pipelines:
        with contextlib.suppress(SettingsError):
            for step in pipeline.unchecked:
                if step.command is not None and step.arguments:
                    found[f"{pipeline.name}-{step.name}"] = _program(pipeline, step, step.command, root)
    return found


def _program(pipeline: DeclaredPipeline, step: StepDeclaration, command: Command, root: Path) -> Program:
    name = step.variant.of if step.variant else step.name
    substitute = command.substitute or Substitute()
    words = [word for each in substitute.run for word in _for_variants(each, step, pipeline.unchecked)]
    locks = filter(None, (step.requirements, substitute.requirements))
    return Program(
        step=f"{pipeline.name}.{name}",
        key=pipeline.declared_at(step, "run"),
        words=step.arguments,
        software=Software(
            tuple(root / each for each in locks),
            step.placed_by.image is None or has_tensorflow(step.placed_by.image),
        ),
        # A lock file beside a substitute is for what the substitute imports.
        installed=bool(step.requirements or (substitute.requirements and not substitute.run)),
        substitute=words,
    )


def _for_variants(word: str, step: StepDeclaration, steps: Sequence[StepDeclaration]) -> list[str]:
    """``word``, or one for each variant where it is an input of ``step`` that has variants and no best."""
    for name, other in step.inputs.items():
        variants = [each for each in steps if each.variant and each.variant.of == other]
        if variants and not variants[0].best and word == f"{{{name}}}":
            return [f"{{{each.name}}}" for each in variants]
    return [word]


def substituted(programs: Iterable[Program]) -> list[str]:
    """A remark for each step whose program this machine certainly lacks, and that has a substitute."""
    return [each.replacing for each in _once(programs) if each.substitute]


def problems(programs: Iterable[Program]) -> list[Problem]:
    """A problem for each step whose program this machine certainly lacks, and its substitute where it has one."""
    return [
        Problem(
            each.key,
            each.unknown,
            f"step `{each.step}` runs it, and a rehearsal finds no such program on this machine",
            each.way_out,
        )
        for each in _once(programs)
        if each.unknown
    ]


def _once(programs: Iterable[Program]) -> Iterable[Program]:
    """Of each step the first variant whose program this machine certainly lacks.

    What the packages of a lock file bring is known once these are installed.
    """
    found: dict[str, Program] = {}
    for each in programs:
        if not each.installed and not each.is_here():
            found.setdefault(each.step, each)
    return found.values()
