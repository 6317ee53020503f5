"""Apps of the kind `tensorflow-serving`: TensorFlow Serving over what a step published last.

The server reads which version that is from `models.config` alone, which the step writes last: a version that is
copied by half is never seen, on a bucket either. Its flags are those of 2.21 (`model_servers/main.cc`).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field

from slipway.infra.features import Feature, StandIn
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.app_kinds.contract import AppInFile, AppInStack, AppKind
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings, Metrics
from slipway.infra.pipelines.contract import StepDeclaration, StepSettings, literal
from slipway.infra.pipelines.images import references
from slipway.infra.pipelines.pods import Probe
from slipway.infra.pipelines.results import Number
from slipway.infra.schema.base import Cpu, Float, Int, Memory, Model
from slipway.infra.schema.paths import below_problem
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.quantities import cpu_millicores
from slipway.infra.schema.renamed import Removed

MODULE = "slipway.features.serving.pod.publish"
REPORT = "published.json"
"""The file in which that module says which version answers."""

CPU_IMAGE, GPU_IMAGE = references("serving")
"""The official images, for x86-64 alone. The second has CUDA."""

REST, RPC = 8501, 8500
"""The ports of the official image."""

OTHER_PORTS: Mapping[str, int] = {"grpc": RPC}

METRICS = "/monitoring/prometheus/metrics"
"""Where Prometheus reads the server (`kPrometheusPath` in util/prometheus_exporter.cc of 2.21)."""


MODEL_NAME = re.compile(r"[A-Za-z][\w.-]{0,62}", re.ASCII)
"""A model's name: a folder's of the store, and in the paths of the server's REST."""


class Batching(Model):
    """How the server puts requests of several people together (`BatchingParameters` of TensorFlow Serving)."""

    largest: Int = Field(default=64, ge=1, le=65_536, description="Rows of a batch at most.")
    wait: Int = Field(
        default=2000, ge=0, le=1_000_000, description="Microseconds that a batch which is not full waits for more."
    )
    queued: Int = Field(
        default=100, ge=1, le=100_000, description="Batches that wait at most; further requests are refused (503)."
    )


class ServingSettings(AppSettings):
    """Where a model is served."""

    removed: ClassVar[Mapping[str, Removed]] = {
        **AppSettings.removed,
        "serve": Removed("drop it: the training that is published last answers; to go back, train as before"),
        "canary": Removed("drop it; to try another version, run a second server with a model config of your own"),
        "keep": Removed("drop it: no version is deleted; delete folders of old ones by hand"),
    }

    cpu: Cpu = Field(default="500m", description="CPU asked for.")
    memory: Memory = Field(
        default="1Gi",
        description="Memory asked for, and its limit: a new version is loaded before the old one goes.",
    )
    poll: Int = Field(
        default=5,
        ge=1,
        le=3600,
        description="Seconds between two looks of servers at which version is the newest.",
    )
    batching: Batching | None = Field(
        default=None, description="Requests of several people are computed together; default: each by itself."
    )
    publish: StepSettings | None = Field(
        default=None,
        description="Where the step that publishes runs; default: on the servers' pool, without GPUs, with "
        "1 CPU and 2 GiB of memory.",
    )

    @cached_property
    def publishing(self) -> StepSettings:
        """Where the step that publishes runs."""
        if self.publish is not None:
            return self.publish
        return StepSettings(
            pool=self.pool,
            cpu="1",
            memory="2Gi",
            ephemeral_storage=self.ephemeral_storage,
            time_limit="1h",
        )


class Served(Model):
    """A model that is served: the step that trains it, and what it has to answer before people ask it."""

    model: str = Field(description="Its name in the addresses of the server.")
    step: str = Field(description="The step that leaves the SavedModel.")
    path: str = Field(default="saved_model", description="The SavedModel's folder in that step's result.")
    requests: str = Field(
        description="Real requests, an `.npz` file or a JSON object of lists: `{prepare}/test.npz`. They are "
        "asked before a version is published."
    )
    inputs: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="The array of the requests for each input of the signature; default: the one of its name.",
    )
    truth: str | None = Field(default=None, description="The array with the right class of each request.")
    score: str | None = Field(
        default=None, description="The output that is compared with the truth; default: the only one."
    )
    min_accuracy: Float | None = Field(
        default=None, ge=0, le=1, description="The share of requests that have to be answered rightly."
    )
    signature: str = Field(default="serving_default", description="The signature that people ask.")


class ServingApp(AppKind, Served):
    """TensorFlow Serving over the versions of a model. A step, `<app>-publish`, makes a version of each training
    that answers real requests as it should; what is published before stays.
    """

    kind: Literal["tensorflow-serving"] = Field(description="The server, with the step that publishes for it.")
    settings = ServingSettings

    def words(self) -> Sequence[tuple[Path, str]]:
        """Where the requests are."""
        return [(("requests",), self.requests)]

    def other_ports(self) -> Collection[str]:
        """The one of gRPC."""
        return OTHER_PORTS

    def model_served(self) -> str:
        """The model that its step publishes."""
        return self.model

    def findings(self, app: AppInFile) -> Iterator[Finding]:
        """Findings about what the step that publishes cannot read, or would write into another step's result."""
        at = app.at
        yield from app.step_findings(("step",), self.step)
        if self.step in app.variants:
            reason = f"`{self.step}` becomes several steps, and a version is made of one"
            fix = f"add `best` to `{self.step}`"
            yield Finding((*at, "step"), self.step, reason, fix, read=(("steps", self.step),))
        if not MODEL_NAME.fullmatch(self.model):
            reason = "it names a folder of the store and a part of addresses"
            fix = "write letters, digits, `-`, `_` and `.`, a letter first"
            yield Finding((*at, "model"), self.model, reason, fix)
        if why := below_problem(self.path):
            reason = f"not a folder of the result of `{self.step}`: {why}"
            yield Finding((*at, "path"), self.path, reason, "write a path such as `saved_model`")
        names = set(pods.names(self.requests))
        if not pods.single_brace(self.requests) and names.isdisjoint(app.steps) and names <= {*app.parameters}:
            reason = "no step is named whose result has them"
            yield Finding((*at, "requests"), self.requests, reason, "write for example `{prepare}/test.npz`")
        step = step_name(app.name)
        if step in app.steps:
            reason = f"the step that publishes for the app `{app.name}` has that name"
            yield Finding(("steps", step), step, reason, "rename one of them", read=((*at, "kind"),))

    def steps(self, app: AppInStack) -> Sequence[StepDeclaration]:
        """The step that publishes."""
        requests = app.fill(self.requests)
        served = self.model_copy(update={"requests": requests})
        return [publishing(app.name, app.placed_by, served, app.inputs([requests]))]

    def declare(self, app: AppInStack) -> AppDeclaration:
        """The server."""
        return declaration(app.name, app.placed_by, self)


def step_name(app: str) -> str:
    """The name of the step that publishes what ``app`` serves."""
    return f"{app}-publish"


def publishing(name: str, settings: ServingSettings, served: Served, reads: Mapping[str, str]) -> StepDeclaration:
    """The step that publishes for the app ``name``. ``reads`` are the steps of `Served.requests`, by input."""
    options = {
        "truth": served.truth and literal(served.truth),
        "score": served.score and literal(served.score),
        "min-accuracy": repr(served.min_accuracy) if served.min_accuracy is not None else None,
        **_batching(settings.batching),
    }
    return StepDeclaration(
        name=step_name(name),
        module=MODULE,
        placed_by=settings.publishing,
        arguments=[
            *("--name", literal(served.model), "--model", f"{{{served.step}}}/{literal(served.path)}"),
            *("--versions", _versions(served), "--requests", served.requests, "--output", "{output}"),
            *(f"--input={literal(name)}={literal(array)}" for name, array in sorted(served.inputs.items())),
            *("--signature", literal(served.signature)),
            *(f"--{option}={value}" for option, value in options.items() if value is not None),
        ],
        inputs={served.step: served.step, **reads},
        results=(Number(name="version", title="Version", path=REPORT, select="/version", format="integer"),),
    )


def declaration(name: str, settings: ServingSettings, served: Served) -> AppDeclaration:
    """TensorFlow Serving called ``name`` over what its step has published.

    It is ready once a version answers. New versions come without a restart, so it waits for the step only before
    it starts for the first time.
    """
    model = literal(served.model)
    folder = _versions(served)
    return AppDeclaration(
        name=name,
        title="Model server",
        placed_by=settings,
        image=GPU_IMAGE if settings.gpus else CPU_IMAGE,
        port=REST,
        ports=OTHER_PORTS,
        arguments=[
            "tensorflow_model_server",
            *("--port=" + str(RPC), "--rest_api_port={port}"),
            f"--model_config_file={folder}/models.config",
            f"--model_config_file_poll_wait_seconds={settings.poll}",
            f"--file_system_poll_wait_seconds={settings.poll}",
            f"--monitoring_config_file={folder}/monitoring.config",
            *_batching_flags(settings, folder),
            *_threads(settings),
        ],
        after=[step_name(name)],
        probe=Probe(f"/v1/models/{model}/metadata"),
        metrics=Metrics(path=METRICS),
        path=f"/v1/models/{model}",
    )


def _versions(served: Served) -> str:
    return f"{{pipeline}}/models/{literal(served.model)}"


def _batching(batching: Batching | None) -> dict[str, int | None]:
    """The options of the step that leave the server's file about batches."""
    if batching is None:
        return {}
    return {"batch-largest": batching.largest, "batch-wait": batching.wait, "batch-queued": batching.queued}


def _batching_flags(settings: ServingSettings, folder: str) -> Sequence[str]:
    batching = settings.batching
    if batching is None:
        return []
    # The name says what is in it: another one starts the server anew, which reads it only then.
    file = f"batching-{batching.largest}-{batching.wait}-{batching.queued}.config"
    return ["--enable_batching=true", f"--batching_parameters_file={folder}/{file}"]


def _threads(settings: ServingSettings) -> Sequence[str]:
    """As many threads as the pod has CPUs: by default TensorFlow starts as many as the node has."""
    count = max(-(-cpu_millicores(settings.cpu) // 1000), 1)
    return [f"--tensorflow_intra_op_parallelism={count}", f"--tensorflow_inter_op_parallelism={count}"]


FEATURE = Feature(
    app_kinds=(ServingApp,),
    stand_ins={
        "tensorflow_model_server": StandIn(
            "slipway.features.serving.stub",
            "a stub of TensorFlow Serving that has status, metadata and predict alone, over REST",
        )
    },
)
