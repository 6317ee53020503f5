"""Apps of the kind `notebook`: JupyterLab beside the store, with the pipeline's steps at hand."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from slipway.infra.pipelines.app_kinds.contract import AppInFile, AppInStack, AppKind
from slipway.infra.pipelines.app_kinds.tensorflow_serving import client_findings
from slipway.infra.pipelines.apps import AppDeclaration, KeptAppSettings
from slipway.infra.pipelines.contract import StepDeclaration, literal
from slipway.infra.pipelines.pods import Command, Probe, Word
from slipway.infra.schema.base import Duration, Size, refuse
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.renamed import Removed

MODULE = "slipway.workloads.apps.notebook.serve"
"""What becomes JupyterLab."""

LIBRARY = (
    "slipway.workloads.apps.notebook.drawing",
    "slipway.workloads.apps.notebook.examples",
    "slipway.workloads.apps.notebook.served",
)
"""What the starting notebook imports beside what `MODULE` does."""

REQUIREMENTS = "slipway/workloads/apps/notebook/requirements.txt"
"""JupyterLab and what draws, for TensorFlow's image."""

PORT = 8888
"""Jupyter's own."""

OPENED = "/api"
"""What answers without the token: the server's version
(jupyter_server 2.21, services/api/handlers.py, `allow_unauthenticated`)."""

GRACE = 25
"""Seconds in which Jupyter ends its kernels."""


SHORTEST_IDLE = 300
"""Seconds. Kernels are ended with their variables after as long, so that less takes them from readers."""


def _idle(value: str) -> str:
    if seconds(value) < SHORTEST_IDLE:
        reason = "kernels with all their variables would be ended while somebody reads what they printed"
        raise refuse(reason, "write 5 minutes or more: `5m`, `1h`")
    return value


class NotebookSettings(KeptAppSettings):
    """Where a notebook runs, and how long it keeps what nobody uses."""

    # Of all apps it alone has `idle`.
    removed: ClassVar[Mapping[str, Removed]] = {}

    storage: Size = Field(
        default="10Gi",
        description="Size of the volume with its folder: notebooks, and what a person installs.",
    )
    idle: Annotated[Duration, AfterValidator(_idle)] = Field(
        default="1h",
        description="Kernels and terminals that nobody used for so long are ended, with their variables.",
    )


class NotebookApp(AppKind):
    """JupyterLab beside the store, with the pipeline's steps at hand. It asks for its token, which is an output of
    the stack, and keeps its folder on a volume.
    """

    kind: Literal["notebook"] = Field(description="A notebook.")
    settings = NotebookSettings

    serving: str | None = Field(
        default=None, description="An app that serves a model, which the notebook may ask."
    )
    model: str = Field(default="", description="The model's name there.")
    examples: Word = Field(
        default="", description="A pattern of files of the store to ask it with: `{prepare}/images/*.png`."
    )

    def words(self) -> Sequence[tuple[Path, str]]:
        """Where its examples are."""
        return [(("examples",), self.examples)]

    def connections(self) -> Sequence[tuple[Path, str]]:
        """The app that serves the model, where it has one."""
        return [(("serving",), self.serving)] if self.serving else []

    def connection_findings(self, app: AppInFile, other: str) -> Iterator[Finding]:
        """Findings about the model that ``other`` serves."""
        yield from client_findings(app, other, self.model)

    def declare(self, app: AppInStack) -> AppDeclaration:
        """The notebook, with all steps of the pipeline's file."""
        return declaration(
            app.name,
            app.placed_by,
            app.steps,
            serving=self.serving,
            model=self.model,
            examples=app.fill(self.examples),
        )


def declaration(
    name: str,
    settings: NotebookSettings,
    steps: Sequence[StepDeclaration],
    *,
    serving: str | None = None,
    model: str = "",
    examples: str = "",
) -> AppDeclaration:
    """A notebook called ``name`` of a pipeline with ``steps``.

    It waits for the steps, but does not restart when one runs again: that would end what somebody computes in it.
    It finds the newest results by itself. ``serving`` is the app that serves ``model``, and ``examples`` a pattern
    of files of the store to ask it with, such as ``{prepare}/images/*.png``.
    """
    commands = [step.command for step in steps if step.command]
    at_hand = [step for step in steps if not step.command or step.command.code == commands[0].code]
    environment = {
        "JUPYTER_TOKEN": "{token}",
        "SLIPWAY_STORE": "{store}",
        "SLIPWAY_PIPELINE": "{pipeline}",
        "SLIPWAY_STEPS": literal(json.dumps(_descriptions(at_hand), sort_keys=True)),
    }
    if serving:
        environment |= {"SLIPWAY_MODEL": literal(model), "SLIPWAY_EXAMPLES": literal(examples)}
    return AppDeclaration(
        name=name,
        title="Notebook",
        placed_by=settings,
        port=PORT,
        module=MODULE,
        modules=[*LIBRARY, *dict.fromkeys(step.module for step in at_hand if step.module)],
        # All its Python files: what a notebook imports is not known beforehand.
        command=Command(commands[0].code, files=("**/*.py",)) if commands else None,
        arguments=[
            *("--folder", "{data}", "--listen", "*", "--port", "{port}"),
            *("--idle", str(seconds(settings.idle))),
        ],
        after=[step.name for step in steps],
        connects=(serving,) if serving else (),
        environment=environment,
        requirements=REQUIREMENTS,
        probe=Probe(OPENED),
        path="/lab",
        token=True,
        keeps_data=True,
        grace=GRACE,
    )


def _descriptions(steps: Sequence[StepDeclaration]) -> Mapping[str, Any]:
    """What `slipway.workloads.apps.notebook.runs` knows of each step, by its name."""
    variants: dict[str, list[str]] = {}
    for step in steps:
        variants.setdefault(step.variant.of if step.variant else step.name, []).append(step.name)
    best = {step.variant.of: _best(step) for step in steps if step.variant and step.best}
    return {
        step.name: {
            "words": [*(["python3", "-m", step.module] if step.module else []), *step.arguments],
            "inputs": {name: variants.get(other, [other]) for name, other in step.inputs.items()},
            "best": {name: best[other] for name, other in step.inputs.items() if other in best},
            "environment": dict(step.environment),
            "results": [result.model_dump(mode="json") for result in step.results],
            "code": CODE if step.command else None,
        }
        for step in steps
    }


def _best(step: StepDeclaration) -> Mapping[str, str]:
    assert step.best is not None
    number = next(result for result in step.results if result.name == step.best.by)
    return {"path": number.path, "select": number.select, "of": step.best.of}


CODE = "code"
"""The folder of a bundle that has a command's own files (`slipway.infra.placed.CODE`)."""
