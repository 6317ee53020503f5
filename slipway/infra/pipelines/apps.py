"""What a pipeline declares of its apps: programs that run after its steps, for people and for one another.

A model server, a page, TensorBoard and a notebook are apps. A service, by contrast, is there before the steps and
for them. A stack runs an app where its section of the stack file names it; all others are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from slipway.infra.pipelines import pods
from slipway.infra.pipelines.images import ImageBuild
from slipway.infra.pipelines.pods import Command, PodSettings, Probe, Substitute
from slipway.infra.schema.base import Int, Model, Size, refuse
from slipway.infra.schema.ingress import IngressSettings
from slipway.infra.schema.names import DIGEST_LENGTH, KUBERNETES_NAME_LIMIT, Image, fit
from slipway.infra.schema.renamed import Removed

MOST_REPLICAS = 100
"""Pods of one app. A mistake has more."""

OF_APPS = ("store", "pipeline", "port", "data", "token")
"""References in the arguments of an app beside those to steps: the store, the pipeline's directory there, its
port, the directory of its volume, and its token."""

OF_STORE = ("store", "pipeline")
"""Those of `OF_APPS` that mean a place in the store."""

NAME_LIMIT = KUBERNETES_NAME_LIMIT - 12
"""Longest name of an app's objects, some of which have a word behind it."""


NEWEST = "newest"
"""The value of ``follow`` of an app that reads the newest good run; also the step that notes such runs, and its
folder in the store."""

RUN = re.compile(rf"\d{{8}}-\d{{4}}|[0-9a-f]{{{DIGEST_LENGTH}}}")
"""The name of a run, as `slipway.runtime.apps.newest` notes it."""


def _run(value: str) -> str:
    if value != NEWEST and not RUN.fullmatch(value):
        fix = f"write `{NEWEST}`, or one that `<pipeline>/{NEWEST}/runs.json` of the store has, in quotes"
        raise refuse("not the name of a run", fix)
    return value


Followed = Annotated[str, AfterValidator(_run)]
"""`NEWEST`, or the name of a run: the time for which it was scheduled, or the digest of one by `up`."""


class Autoscale(Model):
    """More pods while those that are there are busy, and fewer again when they are not."""

    most: Int = Field(ge=2, le=MOST_REPLICAS, description="Pods at most; `replicas` are the least.")
    cpu: Int = Field(
        default=70,
        ge=10,
        le=95,
        description="Percent of the CPU asked for that the pods use on average before there are more.",
    )


class AppSettings(PodSettings):
    """Where an app runs, what each of its pods may use, and who reaches it."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "idle": Removed("remove it, and write `replicas: 0` while nobody needs the app")
    }

    gpus: Int = Field(default=0, ge=0, description="GPUs (or shares of one) that each pod asks for.")
    replicas: Int = Field(
        default=1,
        ge=0,
        le=MOST_REPLICAS,
        description="Pods that answer. With 0 the app is stopped, and nodes go that nothing else needs; its "
        "volume, its token and its address stay.",
    )
    autoscale: Autoscale | None = Field(
        default=None, description="More pods while they are busy; default: always as many as `replicas`."
    )
    image: Image | None = Field(
        default=None, description="Image by digest (`…@sha256:…`); default: the one that the pipeline declares."
    )
    follow: Followed | None = Field(
        default=None,
        description="`newest`: reads the results of the newest good run, those by the clock included, and starts "
        "anew when there is a newer one. The name of a run, such as `20261122-0300`, goes back to it. Default: "
        "reads the results of the last `up`.",
    )
    ingress: IngressSettings | None = Field(
        default=None,
        description="How people reach it from outside the cluster: by HTTPS alone, and after a login; default: by "
        "port-forward only.",
    )

    @property
    def asked_gpus(self) -> int:
        """The GPUs (or shares of one) that it asks for."""
        return self.gpus

    @property
    def most(self) -> int:
        """The most pods that it has at once, but for those of an update; 0: it is stopped."""
        return self.autoscale.most if self.autoscale and self.replicas else self.replicas


class KeptAppSettings(AppSettings):
    """Where an app with a volume of its own runs. It has one pod."""

    storage: Size = Field(default="5Gi", description="Size of the volume that keeps its data.")


@dataclass(frozen=True)
class Metrics:
    """Where an app answers Prometheus: HTTP at ``path`` of the port called ``port``."""

    path: str = "/metrics"
    port: str = "http"


@dataclass(frozen=True)
class AppDeclaration:
    """One app: what it runs, what it reads, whom it asks, and which of the pipeline's settings place it.

    ``module`` is started as ``python -m <module>`` with ``arguments``. Where it is None, ``arguments`` are the
    whole command line; with ``command`` files ship with it. ``image`` is the one where the settings name none;
    None: TensorFlow's, unless ``build`` is one that is built in the cluster. ``arguments`` and the values of
    ``environment`` may hold ``{<input>}`` (the directory of a step's result), ``{<folder>}`` (a shipped folder)
    and what `OF_APPS` lists. An app that refers to the store or to a step has the store mounted: for reading,
    unless ``writes``.

    ``port`` speaks HTTP and is called ``http``; ``ports`` are others by name, such as ``grpc``. ``inputs`` are
    steps by the input's name: the app starts once they succeeded, and anew when one ran again. ``after`` are steps
    that only have to succeed first. ``connects`` are apps of the pipeline that it asks: it has their host and port
    as ``<APP>_ADDRESS`` in its environment, which `service_variables` names, and nobody else reaches them. An app
    that ``people`` use has a command in the stack's outputs that opens it, and an address in `make demo`; ``path``
    is its first page, and ``title`` what people call it.

    With ``token`` it is given a generated one, which ``{token}`` stands for, and which is a secret output. With
    ``keeps_data`` it has one pod and a volume, at ``{data}``; ``placed_by`` then is a `KeptAppSettings`.
    ``requirements`` is the path of a pinned requirements file, installed before it starts. ``files`` are files of
    the repository beside the module's own that it reads below its working directory. ``metrics`` says where
    Prometheus reads it. ``grace`` are the seconds between SIGTERM and SIGKILL. ``substitute`` is what a rehearsal
    runs where this machine lacks the program.
    """

    name: str
    title: str
    placed_by: AppSettings
    port: int
    arguments: Sequence[str]
    module: str | None = None
    command: Command | None = None
    image: str | None = None
    ports: Mapping[str, int] = field(default_factory=dict[str, int])
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    after: Sequence[str] = ()
    connects: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    requirements: str | None = None
    files: Sequence[str] = ()
    probe: Probe = field(default_factory=Probe)
    metrics: Metrics | None = None
    people: bool = True
    path: str = "/"
    writes: bool = False
    token: bool = False
    keeps_data: bool = False
    grace: int = 30
    build: ImageBuild | None = None
    substitute: Substitute | None = None

    @property
    def uses_store(self) -> bool:
        """Whether it refers to the store or to a step's result, and so has the store mounted."""
        places = {*OF_STORE, *self.inputs}
        words = [*self.arguments, *self.environment.values()]
        return any(name in places for word in words for name in pods.names(word))


def address_variables(name: str, ports: Iterable[str] = ()) -> list[str]:
    """The environment variables in which an app finds the addresses of the app ``name``: that of its HTTP port,
    and those of its other ``ports``, by their names.
    """
    return [f"{'_'.join(filter(None, (name, port))).upper().replace('-', '_')}_ADDRESS" for port in ("", *ports)]


def object_name(pipeline: str, app: str) -> str:
    """The name of an app's Kubernetes objects, its service account among them: ``<pipeline>-<app>``."""
    return fit(f"{pipeline}-{app}", NAME_LIMIT)


def token_variable(app: str) -> str:
    """The environment variable in which an app finds its token."""
    return f"{app.upper().replace('-', '_')}_TOKEN"


def told_twice(told: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, str]]:
    """The environment variables that would have the addresses of two apps, and which two.

    ``told`` has the variables of each app: `a` with a port `b`, and `a-b`, share `A_B_ADDRESS`.
    """
    first: dict[str, str] = {}
    twice: dict[str, tuple[str, str]] = {}
    for app, variables in told.items():
        for variable in variables:
            if first.setdefault(variable, app) != app:
                twice[variable] = (first[variable], app)
    return twice


def own_variables(app: str, *, token: bool) -> set[str]:
    """The environment variables that its pods have in any case, with a ``token`` that of the token among them."""
    return {pods.NODE_NAME, *([token_variable(app)] if token else [])}


def folder_of(pipeline: str, app: str) -> str:
    """The folder of the store, as a path below its root, that an app which writes has to itself."""
    return f"{pipeline}/{app}"


def runs_file(pipeline: str) -> str:
    """The file that has the good runs of ``pipeline``, the newest first, as a path below the store's root."""
    return f"{pipeline}/{NEWEST}/runs.json"
