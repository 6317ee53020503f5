"""The contract of a kind of app, and what is checked of apps of all kinds in a ``pipeline.yaml``.

Each kind is one class: `program` in a file beside this one, all others in the folders of features
(`slipway.infra.features`). Nothing else asks of which kind an app is.

A kind of app is a subclass of `AppKind`. Its fields are the keys that a ``pipeline.yaml`` may have of an app of
this kind, and its name is the type of the key ``kind``. Its docstring and the descriptions of its fields are its
part of docs/pipeline.md, and those of ``settings`` its part of docs/settings.md. The smallest one::

    class HelloSettings(AppSettings):
        "Where a greeting runs."

        cpu: Cpu = Field(default="50m", description="CPU asked for, as a Kubernetes quantity.")


    class HelloApp(AppKind):
        "A page that greets whoever opens it."

        kind: Literal["hello"] = Field(description="A greeting.")
        text: str = Field(default="Hello", description="What it says.")
        settings = HelloSettings

        def declare(self, app: AppInStack) -> AppDeclaration:
            return AppDeclaration(
                name=app.name,
                title="Greeting",
                placed_by=app.placed_by,
                port=8080,
                module="slipway.features.hello.pod.serve",
                arguments=["--port", "{port}", "--text", literal(app.fill(self.text))],
            )
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar

from pydantic import Field

from slipway.infra.commands import page
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings, address_variables, told_twice
from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.pipelines.matrix import NAME_LIMIT
from slipway.infra.pipelines.pods import Build, Place
from slipway.infra.schema.base import Cpu, Int, Memory, Model, Size
from slipway.infra.schema.names import Image, name_findings
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.renamed import Removed

APPS = "apps"
"""The section of a ``pipeline.yaml`` that declares apps, and of a stack file that says where they run."""

REMOVED = {"mlflow": Removed(f"let programs log to a tracking server of yours: {page('your-program.md')}")}
"""Kinds of apps that an earlier release had, and what to write instead."""


def circle_of(needs: Mapping[str, set[str]]) -> Sequence[str]:
    """The steps of a circle in ``needs``, which has by each step those that it waits for; empty where none is."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return error.args[1][:-1]
    return []


@dataclass(frozen=True)
class AppInFile:
    """An app of a ``pipeline.yaml`` as its checks see it: its place, its name, and what else the file has.

    ``variants`` are those of the ``steps`` that become several, without a `best` that says which one is read.
    """

    at: Path
    name: str
    parameters: Collection[str]
    steps: Collection[str]
    variants: Collection[str]
    services: Collection[str]
    apps: Mapping[str, AppKind]
    inputs: Collection[str] = ()

    def word_findings(self, key: Path, word: str, references: Collection[str]) -> Iterator[Finding]:
        """Findings about the references in ``word``, below ``key`` of the app.

        It may refer to steps, parameters and ``references``. One that is an item of a list becomes several where
        it is nothing but a reference to a step with variants.
        """
        at = (*self.at, *key)
        for name in pods.names(word):
            if name in self.services:
                reason = f"`{name}` is a service, to which steps alone connect"
                yield Finding(at, word, reason, "remove it", read=(("services", name),))
                return
            if name in self.apps and name not in self.steps:
                variable = address_variables(name)[0]
                reason = f"`{name}` is an app, whose address other apps find in their environment"
                fix = f"name it in `connects`, and read `{variable}`"
                yield Finding(at, word, reason, fix, read=((APPS, name),))
                return
            if name in self.inputs:
                reason = f"`{name}` is an input, which steps alone read"
                fix = "let a step write what the app needs, and name that step"
                yield Finding(at, word, reason, fix, read=(("inputs", name),))
                return
            in_list = isinstance(key[-1], int)
            if name in self.variants and not (in_list and word == f"{{{name}}}"):
                reason = f"`{name}` has a matrix, and so is several steps"
                alone = f", or write `{{{name}}}` alone, which becomes one word for each" if in_list else ""
                yield Finding(
                    at, word, reason, f"add `best` to the step{alone}", read=(("steps", name, "matrix"),)
                )
                return
        yield from pods.reference_findings(at, word, [*references, *self.parameters, *self.steps])

    def step_findings(self, key: Path, step: str) -> Iterator[Finding]:
        """A finding where there is no ``step``, which ``key`` of the app names."""
        if step not in self.steps:
            fix = did_you_mean(step, self.steps, f"write {listed(self.steps)}")
            yield Finding((*self.at, *key), step, "there is no such step", fix, read=(("steps", step),))


@dataclass(frozen=True)
class AppInStack:
    """An app of a ``pipeline.yaml`` that a stack file names, as its declaration is made.

    ``placed_by`` is of the type `AppKind.settings_model`. ``steps`` are those of the file as the stack has them,
    variants in place of a step with a matrix. ``apps`` are the names of all apps of the file, and ``build`` is the
    image at its top. ``fill`` puts the values of parameters in place of the references to them.
    """

    name: str
    placed_by: Any
    steps: Sequence[StepDeclaration]
    apps: Collection[str]
    build: Build | None
    fill: Callable[[str], str]
    place: Place

    def inputs(self, words: Iterable[str]) -> dict[str, str]:
        """The steps to which ``words`` refer, by the input's name."""
        steps = {step.variant.of if step.variant else step.name for step in self.steps}
        names = dict.fromkeys(name for word in words for name in pods.names(word))
        return {name: name for name in names if name in steps}

    def variants_of(self, step: str) -> list[str]:
        """The steps that are made of ``step``, or that one itself."""
        return [variant.name for variant in self.steps if variant.variant and variant.variant.of == step] or [step]


class AppResources(Model):
    """What each pod of an app asks for where the stack file does not say it. Where neither does, it is what the
    kind of the app asks for; a program of your own gets one CPU, 4Gi of memory and 4Gi of scratch space.
    """

    cpu: Cpu | None = Field(default=None, description="CPU asked for.")
    memory: Memory | None = Field(default=None, description="Memory asked for, and its limit.")
    ephemeral_storage: Size | None = Field(default=None, description="Scratch space for temporary files.")
    gpus: Int | None = Field(default=None, ge=0, description="GPUs, or shares of one.")


class AppKind(Model, ABC):
    """What an app of any kind may have."""

    settings: ClassVar[type[AppSettings]] = AppSettings
    """What a stack file may say of an app of this kind, with the kind's defaults."""

    removed_kinds = REMOVED

    references: ClassVar[Collection[str]] = ()
    """What its words may refer to beside steps and parameters: some of `slipway.infra.pipelines.apps.OF_APPS`."""

    description: str | None = Field(default=None, description="What the app does.")
    image: Image | None = Field(default=None, description="Its image by digest; default: that of its kind.")
    resources: AppResources = Field(default_factory=AppResources, description="What each of its pods asks for.")

    def settings_model(self) -> type[AppSettings]:
        """What a stack file may say of this app: ``settings``, unless the file's keys decide on it."""
        return self.settings

    def defaults(self) -> dict[str, Any]:
        """What its file has for keys of the stack file, by key; None leaves the default of ``settings``."""
        return self.resources.model_dump()

    def words(self) -> Sequence[tuple[Path, str]]:
        """What of it may hold references, each with its place below that of the app."""
        return ()

    def connections(self) -> Sequence[tuple[Path, str]]:
        """The apps that it connects to, each with its place below that of the app."""
        return ()

    def other_ports(self) -> Collection[str]:
        """The names of its ports beside `http`. Apps that connect to it get the address of each in a variable."""
        return ()

    def model_served(self) -> str | None:
        """The model that it serves; None where its keys do not say which."""
        return None

    def findings(self, app: AppInFile) -> Iterator[Finding]:  # noqa: ARG002
        """Findings about what is peculiar to this kind; names, references and connections are checked of all."""
        yield from ()

    def connection_findings(self, app: AppInFile, other: str) -> Iterator[Finding]:  # noqa: ARG002
        """Findings about this app and ``other``, which it connects to and which is in ``app.apps``."""
        yield from ()

    def steps(self, app: AppInStack) -> Sequence[StepDeclaration]:  # noqa: ARG002
        """The steps that run for it, beside those of the file, where the stack file names the app."""
        return ()

    @abstractmethod
    def declare(self, app: AppInStack) -> AppDeclaration:
        """What runs. The image of its file, where that has one, is put in place of the declaration's."""

    def word_findings(self, app: AppInFile) -> list[Finding]:
        """Findings about the references in its `words`."""
        return [finding for key, word in self.words() for finding in app.word_findings(key, word, self.references)]


def app_findings(kind: AppKind, app: AppInFile) -> Iterator[Finding]:
    """Findings about an app of any kind, without those about its name."""
    yield from kind.word_findings(app)
    yield from _connections(kind, app)
    yield from kind.findings(app)


def program_name_findings(
    at: Path, name: str, whose: str, others: Mapping[str, tuple[str, Collection[str]]]
) -> Iterator[Finding]:
    """Findings about the name of a service or an app; ``whose`` says which, as in `a service's`.

    ``others`` are the sections whose names it may not have, too: what they call one of theirs, and these names.
    """
    if len(name) > NAME_LIMIT:
        yield Finding(at, name, f"{len(name)} characters, and {whose} name has at most {NAME_LIMIT}", "shorten it")
        return
    yield from name_findings(at, name)
    if name[:1].isdigit():
        reason = "its environment variables begin with its name, and none begins with a digit"
        yield Finding(at, name, reason, "begin it with a letter")
    for section, (title, names) in others.items():
        if name in names:
            yield Finding(at, name, f"{title} has that name too", "rename one of them", read=((section, name),))


def _connections(kind: AppKind, app: AppInFile) -> Iterator[Finding]:
    others = [name for name in app.apps if name != app.name]
    places = {other: (*app.at, *key) for key, other in kind.connections() if other in others}
    told = {other: address_variables(other, app.apps[other].other_ports()) for other in places}
    for variable, (first, second) in told_twice(told).items():
        reason = f"`{variable}` would be an address of the app `{first}`, too"
        fix = "rename one of the two apps, or the port"
        yield Finding(places[second], second, reason, fix, read=((APPS, first),))
    seen: set[str] = set()
    for key, other in kind.connections():
        at = (*app.at, *key)
        if other in seen:
            yield Finding(at, other, "it stands here twice", "remove one of them")
        elif other == app.name:
            yield Finding(at, other, "the app itself", "remove it")
        elif other in app.services:
            reason = "a service, to which steps alone connect"
            yield Finding(at, other, reason, "name an app, or remove it", read=(("services", other),))
        elif other not in app.apps:
            fix = did_you_mean(other, others, f"write {listed(others)}" if others else "remove it")
            yield Finding(at, other, "there is no such app", fix, read=((APPS, other),))
        else:
            yield from kind.connection_findings(app, other)
        seen.add(other)


def circle_findings(apps: Mapping[str, AppKind]) -> Iterator[Finding]:
    """A finding where ``apps`` wait for one another."""
    needs = {
        name: {other for _, other in kind.connections() if other in apps and other != name}
        for name, kind in apps.items()
    }
    if circle := circle_of(needs):
        first = min(circle, key=list(apps).index)
        reason = f"the apps {listed(circle, 'and')} wait for one another"
        yield Finding((APPS, first), first, reason, "remove one of them from `connects`")
