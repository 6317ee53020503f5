"""Apps of the kind `program`: a program of the pipeline's own, such as a web application."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slipway.infra.pipelines import pods
from slipway.infra.pipelines.app_kinds.contract import AppInFile, AppInStack, AppKind
from slipway.infra.pipelines.apps import (
    OF_APPS,
    AppDeclaration,
    AppSettings,
    KeptAppSettings,
    Metrics,
    address_variables,
    own_variables,
)
from slipway.infra.pipelines.pods import (
    SUBSTITUTE,
    Built,
    Command,
    Probe,
    RehearsalCommand,
    Word,
    Words,
    build_findings,
    build_of,
    environment_findings,
    path_findings,
    url_findings,
)
from slipway.infra.pipelines.results import heading
from slipway.infra.schema.base import Duration, Int, Model, Size
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.renamed import Removed

PYTHON = ("python", "python3")
"""The programs whose files an app needs from the pipeline's folder, whether it says so or not."""

PortNumber = Annotated[Int, Field(ge=1024, le=65535)]
"""A port that a program may listen on which is not root."""


PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LONGEST_PORT_NAME = 15
"""How Kubernetes has ports named: RFC 6335 (kubernetes.io/docs/reference/kubernetes-api, ServicePort.name and
ContainerPort.name, seen November 2026)."""

HTTP = "http"


def port_problem(name: str) -> tuple[str, str] | None:
    """Reason and fix where a port beside `HTTP` cannot be called ``name``."""
    if name == HTTP:
        return "`port` is called that", "choose another name"
    plain = PORT_NAME.fullmatch(name) and len(name) <= LONGEST_PORT_NAME
    if plain and "--" not in name and re.search("[a-z]", name):
        return None
    fix = (
        f"write at most {LONGEST_PORT_NAME} lower-case letters, digits and single hyphens, and a letter among them"
    )
    return "not the name of a port", fix


class AppProbe(Model):
    """How an app shows that it is ready for requests."""

    path: str = Field(description="The path at which it answers HTTP with a status below 400: `/healthz`.")


class AppMetrics(Model):
    """Where an app answers Prometheus."""

    path: str = Field(default="/metrics", description="The path.")
    port: str = Field(default="http", description="The port by its name: `http`, or one of `ports`.")


class ProgramApp(AppKind):
    """An app that is a program of your own: it starts after the steps that it reads, and stays. Only apps that
    connect to it reach it, and people by a port-forward.
    """

    references = OF_APPS

    removed: ClassVar[Mapping[str, Removed]] = {
        "visits": Removed("remove it, and write `replicas: 0` in the stack file while nobody needs the app")
    }

    kind: Literal["program"] = Field(description="A program of your own.")
    run: Words = Field(
        description="The command: its program and its arguments. `{port}` is the port on which it listens, "
        "`{<step>}` the output of a step, `{<parameter>}` a parameter's value, `{store}` the store, `{pipeline}` "
        "the pipeline's directory there, `{token}` a generated token that is an output of the stack, and `{data}` "
        "the directory of a volume of its own; `{{` and `}}` are braces."
    )
    build: Built | None = Field(
        default=None, description="Builds its image in the cluster; default: the `build` of the pipeline, if any."
    )
    port: PortNumber = Field(description="The port on which it answers HTTP, from 1024 on.")
    ports: dict[str, PortNumber] = Field(
        default_factory=dict[str, int], description="Other ports, by a name: `grpc: 8500`."
    )
    title: str | None = Field(default=None, description="What people call it; default: its name.")
    path: str = Field(default="/", description="Its first page.")
    people: bool = Field(default=True, description="Whether people use it, or other apps alone.")
    code: str | None = Field(
        default=None,
        description="The folder whose files it needs, and in which it starts; default: the pipeline's own where "
        "`run` begins with `python`, else none.",
    )
    files: list[str] = Field(
        default_factory=list[str],
        description="Patterns of Python files below `code` that are found by name and not imported. A folder "
        "stands for the files in it.",
    )
    requirements: str | None = Field(
        default=None,
        description="A lock file, with hashes, of the packages that its image lacks; each of its pods installs "
        "them before it starts.",
    )
    environment: dict[str, Word] = Field(
        default_factory=dict[str, str],
        description="Environment variables, with the same references as `run`.",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Environment variables with a secret: its name in the stack file's `slipway:secrets`.",
    )
    connects: list[str] = Field(
        default_factory=list[str],
        description="Apps that its program connects to. It has their host and port as `<APP>_ADDRESS` in its "
        "environment, and their other ports as `<APP>_<PORT>_ADDRESS`.",
    )
    after: list[str] = Field(
        default_factory=list[str],
        description="Steps that have to succeed before it starts. It does not start anew when one runs again, as "
        "it does for a step that `run` or `environment` refer to.",
    )
    probe: AppProbe | None = Field(
        default=None, description="How it shows that it is ready; default: it accepts a connection."
    )
    metrics: AppMetrics | None = Field(default=None, description="Where it answers Prometheus; default: nowhere.")
    writes: bool = Field(
        default=False, description="Whether it may write to the store, to `{pipeline}/<app>`; default: it reads."
    )
    storage: Size | None = Field(
        default=None, description="Size of its volume where the stack file does not say it; default: 5Gi."
    )
    grace: Duration = Field(
        default="30s", description="So long it may work on its last requests once it is told to stop."
    )
    rehearsal: RehearsalCommand | None = Field(
        default=None, description="What a rehearsal runs where this machine lacks the program."
    )

    @property
    def keeps_data(self) -> bool:
        """Whether it has a volume: where it refers to it."""
        return self.refers_to("data")

    def refers_to(self, name: str) -> bool:
        """Whether its command line or its environment refers to ``name``."""
        return any(name in pods.names(word) for word in (*self.run, *self.environment.values()))

    def settings_model(self) -> type[AppSettings]:
        """With a volume where it has one."""
        return KeptAppSettings if self.keeps_data else AppSettings

    def defaults(self) -> dict[str, Any]:
        """With the size of its volume, where it has one."""
        return {**super().defaults(), **({"storage": self.storage} if self.keeps_data else {})}

    def words(self) -> Sequence[tuple[Path, str]]:
        """Those of its command and its environment."""
        environment = [(("environment", name), word) for name, word in self.environment.items()]
        return [*((("run", index), word) for index, word in enumerate(self.run)), *environment]

    def connections(self) -> Sequence[tuple[Path, str]]:
        """Those that it names itself."""
        return [(("connects", index), name) for index, name in enumerate(self.connects)]

    def other_ports(self) -> Collection[str]:
        """Those that it names itself."""
        return self.ports

    def findings(self, app: AppInFile) -> Iterator[Finding]:
        """Findings about its image, its environment, its ports, and its paths."""
        at = app.at
        yield from build_findings((*at, "build"), self.build, self.image)
        yield from environment_findings(
            at, self.environment, self.secrets, own_variables(app.name, token=self.refers_to("token"))
        )
        yield from self._port_findings(app)
        yield from url_findings((*at, "path"), self.path)
        yield from url_findings((*at, "probe", "path"), self.probe and self.probe.path)
        yield from url_findings((*at, "metrics", "path"), self.metrics and self.metrics.path)
        for index, step in enumerate(self.after):
            yield from app.step_findings(("after", index), step)
        yield from path_findings((*at, "code"), self.code, folder=True)
        yield from path_findings((*at, "requirements"), self.requirements)
        for index, pattern in enumerate(self.files):
            yield from path_findings((*at, "files", index), pattern)
        if self.rehearsal:
            yield from self.rehearsal.findings((*at, SUBSTITUTE))
            for index, word in enumerate(self.rehearsal.run or ()):
                yield from app.word_findings((SUBSTITUTE, "run", index), word, self.references)

    def _port_findings(self, app: AppInFile) -> Iterator[Finding]:
        at = app.at
        numbers = {self.port: "`port`"}
        for name, number in self.ports.items():
            place = (*at, "ports", name)
            if why := port_problem(name):
                yield Finding(place, name, *why)
            if number in numbers:
                reason = f"{numbers[number]} is that port too"
                yield Finding(place, number, reason, "write another port", read=((*at, "port"),))
            numbers.setdefault(number, f"`{name}`")
        known = [HTTP, *self.ports]
        if self.metrics and self.metrics.port not in known:
            fix = did_you_mean(self.metrics.port, known, f"write {listed(known)}")
            place = (*at, "metrics", "port")
            yield Finding(place, self.metrics.port, "there is no port of that name", fix)
        if self.run and not self.refers_to("port") and not self.word_findings(app):
            fix = 'add `{port}` where it takes the port: `--port, "{port}"`'
            yield Finding((*at, "run"), self.run, "nothing tells the program on which port to listen", fix)

    def connection_findings(self, app: AppInFile, other: str) -> Iterator[Finding]:
        """Findings about its variables that would replace those with the addresses of the app ``other``."""
        for variable in address_variables(other, app.apps[other].other_ports()):
            for section, variables in (("environment", self.environment), ("secrets", self.secrets)):
                if variable in variables:
                    reason = f"the app is told of the app `{other}` in that variable"
                    fix = "remove it, or rename the app"
                    yield Finding((*app.at, section, variable), variable, reason, fix)

    def declare(self, app: AppInStack) -> AppDeclaration:
        """The program with its files; where it starts with Python, these are the pipeline's."""
        metrics = self.metrics and Metrics(self.metrics.path, self.metrics.port)
        code = self.code if self.code is not None else "." if self.run[:1] and self.run[0] in PYTHON else None
        return AppDeclaration(
            name=app.name,
            title=self.title or heading(app.name),
            placed_by=app.placed_by,
            port=self.port,
            ports=self.ports,
            arguments=[app.fill(word) for word in self.run],
            command=None if code is None else Command(app.place(pods.inside(code)), self.files),
            inputs=app.inputs(word for _, word in self.words()),
            after=self.after,
            connects=[name for name in self.connects if name in app.apps and name != app.name],
            environment={name: app.fill(word) for name, word in self.environment.items()},
            secrets=self.secrets,
            requirements=self.requirements and app.place(self.requirements),
            probe=Probe(self.probe and self.probe.path),
            metrics=metrics,
            people=self.people,
            path=self.path,
            writes=self.writes,
            token=self.refers_to("token"),
            keeps_data=self.keeps_data,
            grace=seconds(self.grace),
            build=None
            if app.placed_by.image
            else build_of(app.name, self.image, self.build, app.build, app.place),
            substitute=self.rehearsal and self.rehearsal.substitute(app.fill, app.place),
        )
