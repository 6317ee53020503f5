"""What every pod that a pipeline declares has: where it runs, what it may use, and what it starts.

Then the same as a ``pipeline.yaml`` writes it of steps, services and apps alike, and what can be wrong with it.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field

from slipway.infra.pipelines.images import ImageBuild
from slipway.infra.platform import Resources
from slipway.infra.schema.base import Cpu, Memory, Model, Size, refuse
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.paths import below_problem
from slipway.infra.schema.problems import Finding, Path, listed, nearest
from slipway.infra.schema.quantities import cpu_millicores, mebibytes


class PodSettings(Model):
    """Where a pod runs and what it may use."""

    pool: str = Field(description="Name of a pool of any of the stack's clusters.")
    cpu: Cpu = Field(default="1", description="CPU asked for.")
    memory: Memory = Field(default="4Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="4Gi", description="Scratch space for temporary files.")

    @property
    def asked_gpus(self) -> int:
        """The GPUs (or shares of one) that it asks for."""
        return 0

    @property
    def asked(self) -> Resources:
        """What each pod asks for."""
        return Resources(
            cpu=cpu_millicores(self.cpu),
            memory=mebibytes(self.memory),
            ephemeral_storage=mebibytes(self.ephemeral_storage),
            gpus=self.asked_gpus,
        )

    @property
    def on_pools(self) -> Sequence[tuple[Path, Self]]:
        """The settings for each pool that they name, with the place of its name in them.

        That is these settings themselves, or copies where a step runs on several pools.
        """
        return self.copies or ((("pool",), self),)

    @cached_property
    def copies(self) -> Sequence[tuple[Path, Self]]:
        """Those of `on_pools` that are copies. Settings that kept themselves could not be compared."""
        return tuple(self._copies())

    def _copies(self) -> Iterator[tuple[Path, Self]]:
        yield from ()


@dataclass(frozen=True)
class Substitute:
    """What a rehearsal runs of a command that needs what this machine lacks.

    ``run`` takes the command's place where its program is not on this machine; it may hold the same references.
    ``requirements`` is the path of a lock file with the packages that the step's own image has. ``program`` is the
    one that has to be on this machine, where the command begins with another, such as a shell.
    """

    run: Sequence[str] = ()
    requirements: str | None = None
    program: str = ""


@dataclass(frozen=True)
class Source:
    """What a mount shows, or where a program starts: the folder that the reference ``name`` stands for, or the one
    ``below`` it.
    """

    name: str
    below: str = ""

    @property
    def text(self) -> str:
        """As it is written: `{train}/model`."""
        return "/".join([f"{{{self.name}}}", *([self.below] if self.below else [])])


@dataclass(frozen=True)
class ProgramMount:
    """A mount at ``path``, an absolute one. ``writable`` says whether the program may write there."""

    path: str
    source: Source
    writable: bool


@dataclass(frozen=True)
class Command:
    """A program of a step's image that knows nothing of Slipway. ``slipway.runtime.steps.command``
    starts it.

    ``code`` is the folder whose files ship with the step, and in which the program starts: a path relative to the
    repository, or absolute. Of its Python files those ship that the program imports, and those that one of
    ``files``, patterns below ``code``, names; of its other files all. With ``directory`` it starts elsewhere:
    ``{output}``, ``{scratch}``, a folder below one of them, or a path of ``mounts``.
    """

    code: str
    files: Sequence[str] = ()
    substitute: Substitute | None = None
    directory: str = ""
    mounts: Sequence[ProgramMount] = ()


@dataclass(frozen=True)
class Probe:
    """How a service shows that it is ready: by accepting a connection, by answering HTTP at ``path``, or by what
    ``command`` finds, which runs in its container and may hold ``{port}``."""

    path: str | None = None
    command: Sequence[str] = ()


OUTPUT, STORE = OWN = ("output", "store")
"""What every step may refer to: the directory that it writes, and the store."""

ITEM, PREVIOUS = OF_ITEMS = ("item", "previous")
"""What a step with items may refer to: the file of an item, and the result of the item before it."""

_PART = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<single>[{}])")


def names(text: str) -> Iterator[str]:
    """What ``text`` refers to, in its order."""
    for part in _PART.finditer(text):
        if part["name"] is not None:
            yield part["name"]


def single_brace(text: str) -> bool:
    """Whether ``text`` has a brace that is neither doubled nor one of a reference."""
    return any(part["single"] for part in _PART.finditer(text))


def replace_references(text: str, value: Callable[[str], str | None]) -> str:
    """``text`` with ``value`` of each name in place of its reference; what has none stays a reference."""

    def replacement(part: re.Match[str]) -> str:
        text = value(part["name"]) if part["name"] is not None else None
        return part.group() if text is None else text

    return _PART.sub(replacement, text)


def reference_findings(at: Path, word: str, known: Collection[str]) -> Iterator[Finding]:
    """Findings about single braces in ``word``, and about its references to what is not ``known``."""
    if single_brace(word):
        yield Finding(at, word, "a brace that belongs to no reference", "write `{{` and `}}` for braces")
        return
    for name in dict.fromkeys(names(word)):
        if name not in known:
            yield _unknown(at, word, name, known)


def _unknown(at: Path, word: str, name: str, known: Collection[str]) -> Finding:
    near = nearest(name, known)
    fix = f"did you mean `{{{near}}}`?" if near else f"write one of {listed(known)}, or `{{{{{name}}}}}`"
    fix += f"{'' if near else '.'} A new parameter is declared as `parameters: {{{name}: …}}`"
    if f"${{{name}}}" in word:
        fix = f"write `${{{{{name}}}}}` for a variable of the shell"
    read = (("parameters", name), ("steps", name), ("services", name), ("inputs", name))
    return Finding(at, word, f"no step and no parameter is called `{name}`", fix, read)


MOST_WORDS = 10_000
"""Words of a command line. The evaluation of a step with 50,000 takes over ten seconds of CPU time."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What environment variables and arguments of a Dockerfile can be called."""

LONGEST_COMMAND = 500
"""Characters of a text that is shown again as the list of words that it should be."""


def _word(value: Any) -> Any:
    """YAML reads ``--trees, 300`` as a number; a word of a command line is text."""
    if isinstance(value, bool):
        raise refuse("true or false, which programs spell differently", 'write it in quotes: `"true"`')
    return str(value) if isinstance(value, int | float) else value


Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str | int | float)]
"""A word of a command line, or the value of an environment variable."""


def _plain(word: str) -> str:
    """``word`` as an item of a list in YAML."""
    return word if re.fullmatch(r"[\w./-][\w./=+-]*", word) else json.dumps(word)


def _words(value: Any) -> Any:
    if isinstance(value, str):
        words = map(_plain, value.split()[:12]) if len(value) <= LONGEST_COMMAND else ()
        raise refuse(
            "one text, and a command is a list of its words, which no shell reads",
            f"write `[{', '.join(words) or 'python, train.py'}]`",
        )
    if value == []:
        raise refuse("empty", "write the program and its arguments: `[python, train.py]`")
    items = cast("list[object]", value) if isinstance(value, list) else []
    if len(items) > MOST_WORDS:
        raise refuse(
            f"{len(items)} words, and a command has at most {MOST_WORDS}",
            "write them to a file beside the program, and let it read that",
        )
    if items and isinstance(items[0], str) and len(first := items[0].split()) > 1:
        words = [*first, *map(str, items[1:])]
        raise refuse(
            "its first word has a space, and is the program alone",
            f"write each word as an item: `[{', '.join(map(_plain, words[:12]))}]`",
        )
    return cast("Any", value)


Words = Annotated[list[Word], Field(min_length=1), BeforeValidator(_words, json_schema_input_type=list[Word])]
"""A command: its program, and the program's arguments."""

OWN_VARIABLES = "SLIPWAY_"
"""What the environment variables begin with that Slipway sets."""

NODE_NAME = "NODE_NAME"
"""The environment variable with the node of a pod whose GPUs are tested first, of steps and apps."""

POD_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_IP": "status.podIP",
    NODE_NAME: "spec.nodeName",
    # Labels of the Job controller (kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026).
    "JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
    # The UID of a pod's Job is another one each time that the Job runs again.
    "JOB_UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
}
"""Environment variables that pods of steps have, and the field of the pod that each of them is. Where a list has a
name twice, the API server answers a server-side apply with HTTP 500 (Kubernetes 1.37.2, seen November 2026)."""

INDEX = "JOB_COMPLETION_INDEX"
"""The variable with the index of a pod in an Indexed Job, which the Job controller sets
(kubernetes.io/docs/concepts/workloads/controllers/job, seen November 2026)."""


def variables_of_steps(*, several: bool) -> set[str]:
    """The variables that nobody else sets in pods of steps; where a step has ``several``, the index of each too.

    The Job controller adds no index where it finds one.
    """
    return {*POD_FIELDS, *([INDEX] if several else [])}


def environment_findings(
    at: Path, environment: Mapping[str, str], secrets: Mapping[str, str], taken: Collection[str]
) -> Iterator[Finding]:
    """Findings about names of environment variables of a step or app at ``at``, and about its secrets.

    ``taken`` are those that Slipway or a controller sets there, beside all that begin with `OWN_VARIABLES`.
    """
    for section, names in (("environment", list(environment)), ("secrets", list(secrets))):
        for name in names:
            if not VARIABLE.fullmatch(name):
                fix = "write letters, digits and `_`, and no digit first"
                yield Finding((*at, section, name), name, "not the name of an environment variable", fix)
            elif name.startswith(OWN_VARIABLES):
                reason = f"variables that begin with `{OWN_VARIABLES}` are Slipway's"
                yield Finding((*at, section, name), name, reason, "choose another name")
            elif name in taken:
                reason = "its pods have a variable of that name, with a value of their own"
                yield Finding((*at, section, name), name, reason, "remove it, or choose another name")
    for name, secret in secrets.items():
        place = (*at, "secrets", name)
        yield from name_findings(place, secret)
        if name in environment:
            yield Finding(place, secret, "`environment` has that variable too", "remove one of them")


def path_findings(
    at: Path, path: str | None, around: str = "the pipeline's folder", *, folder: bool = False
) -> Iterator[Finding]:
    """A finding where ``path`` leads out of the folder ``around``. A ``folder`` may be that one itself."""
    if path is None or (folder and path in {".", "./"}):
        return
    if why := below_problem(path.removeprefix("./")):
        reason = f"not a path below {around}: {why}"
        yield Finding(at, path, reason, "write a path relative to it; move or copy what it names there")


def url_findings(at: Path, path: str | None) -> Iterator[Finding]:
    """A finding where ``path`` is not the path of a URL."""
    if path is not None and not path.startswith("/"):
        yield Finding(at, path, "not the path of a URL", "begin it with `/`")


def inside(folder: str) -> str:
    """``folder``, or `.` where it leads out: it is refused, and its files, which may be many, are not read."""
    return "." if below_problem(folder.removeprefix("./")) else folder


Place = Callable[[str], str]
"""A path below the pipeline's folder as a declaration names it: below the repository, or absolute."""

SUBSTITUTE = "rehearsal"
"""The key of a step, service or app with what runs in place of its command."""


class RehearsalCommand(Model):
    """What a rehearsal runs where this machine lacks the program, or the packages of its image."""

    run: Words | None = Field(default=None, description="The command in place of `run`.")
    requirements: str | None = Field(default=None, description="A lock file with the packages that the image has.")

    def substitute(self, fill: Callable[[str], str], place: Place) -> Substitute:
        """What a rehearsal runs; ``fill`` puts the values of parameters in place of references."""
        words = [fill(word) for word in self.run or ()]
        return Substitute(words, self.requirements and place(self.requirements))

    def findings(self, at: Path) -> Iterator[Finding]:
        """Findings about this section at ``at``, without those about references."""
        if self.run is None and self.requirements is None:
            yield Finding(at, None, "empty", "write `run`, `requirements` or both, or remove it", all_of=(at,))
        yield from path_findings((*at, "requirements"), self.requirements)


def _build(value: Any) -> Any:
    """The section that a text stands for: ``context: docker`` for ``docker``."""
    if isinstance(value, str):
        return {"context": value}
    if not isinstance(value, dict):
        raise refuse("neither a folder nor a section", "write a folder, `build: .`, or a section with `context`")
    return cast("dict[Any, Any]", value)


class Build(Model):
    """An image that is built in the cluster from a Dockerfile, as in a Compose file. All base images in it are
    named by digest, or the file is refused. The context are the files that git has or would take, without those
    that `.dockerignore` leaves out; together at most 1 MiB. The stack file says where it is built, and which
    registry it is pushed to: `slipway:registry`. It is built again only when the context or a value below `args`
    changed.
    """

    context: str = Field(default=".", description="The folder whose files the Dockerfile may copy.")
    dockerfile: str = Field(default="Dockerfile", description="The Dockerfile's path in that folder.")
    args: dict[str, Word] = Field(
        default_factory=dict[str, str],
        description="Values of its `ARG`. They stand in the image's history: no place for a secret.",
    )


Built = Annotated[Build, BeforeValidator(_build, json_schema_input_type=str | Build)]
"""An image that is built: a section, or the folder alone."""


def build_of(
    name: str, image: str | None, build: Build | None, of_pipeline: Build | None, place: Place
) -> ImageBuild | None:
    """The image that is built for the program ``name``; None where none is.

    ``image`` and ``build`` are what the file has for it: a step, a service, or an app that is a program.
    ``of_pipeline`` is the ``build`` at the top, for programs that have neither.
    """
    section = build or (of_pipeline if image is None else None)
    if section is None:
        return None
    context = place(inside(section.context))
    return ImageBuild(context, section.dockerfile, dict(section.args), name if build else "")


def build_findings(at: Path, build: Build | None, image: str | None = None) -> Iterator[Finding]:
    """Findings about the ``build`` at ``at``: paths that lead out, names that no ``ARG`` can have.

    ``image`` is the other image of the step, service or app that has the build.
    """
    if build is None:
        return
    if image:
        program = {"steps": "step", "services": "service", "apps": "app"}[str(at[0])]
        reason = f"the {program} has a `build` too, and only one of them can be its image"
        yield Finding((*at[:-1], "image"), image, reason, "remove one of them", read=(at,))
    yield from path_findings((*at, "context"), build.context, folder=True)
    yield from path_findings((*at, "dockerfile"), build.dockerfile, "the context")
    for name in build.args:
        if not VARIABLE.fullmatch(name):
            fix = "write letters, digits and `_`, and begin with a letter or `_`"
            yield Finding((*at, "args", name), name, "not the name of an argument", fix)
