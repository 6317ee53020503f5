"""Apps of the kind `notebook`: JupyterLab beside the store."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from slipway.infra.features import Feature
from slipway.infra.pipelines.app_kinds.contract import AppInStack, AppKind
from slipway.infra.pipelines.apps import AppDeclaration, KeptAppSettings
from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.pipelines.pods import Probe
from slipway.infra.schema.base import Duration, Size, refuse
from slipway.infra.schema.problems import Path
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.renamed import Removed

MODULE = "slipway.features.notebook.pod.serve"
"""What becomes JupyterLab."""

REQUIREMENTS = "slipway/features/notebook/pod/requirements.txt"
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
    """JupyterLab beside the store. It asks for its token, which is an output of the stack, and keeps its folder on
    a volume.
    """

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("model", "examples"), Removed("remove it: the notebook has no cells of its own that ask a model")
    )

    kind: Literal["notebook"] = Field(description="A notebook.")
    settings = NotebookSettings

    serving: str | None = Field(
        default=None,
        description="An app that the notebook may ask, such as a model server: it is told its address.",
    )

    def connections(self) -> Sequence[tuple[Path, str]]:
        """The app that serves the model, where it has one."""
        return [(("serving",), self.serving)] if self.serving else []

    def declare(self, app: AppInStack) -> AppDeclaration:
        """The notebook, after all steps of the pipeline's file."""
        return declaration(app.name, app.placed_by, app.steps, serving=self.serving)


def declaration(
    name: str, settings: NotebookSettings, steps: Sequence[StepDeclaration], *, serving: str | None = None
) -> AppDeclaration:
    """A notebook called ``name`` of a pipeline with ``steps``, and of the app ``serving``, which serves a model.

    It waits for the steps, but does not restart when one runs again: that would end what somebody computes in it.
    """
    return AppDeclaration(
        name=name,
        title="Notebook",
        placed_by=settings,
        port=PORT,
        module=MODULE,
        arguments=[
            *("--folder", "{data}", "--listen", "*", "--port", "{port}"),
            *("--idle", str(seconds(settings.idle))),
        ],
        after=[step.name for step in steps],
        connects=(serving,) if serving else (),
        environment={"JUPYTER_TOKEN": "{token}", "SLIPWAY_PIPELINE": "{pipeline}"},
        requirements=REQUIREMENTS,
        probe=Probe(OPENED),
        path="/lab",
        token=True,
        keeps_data=True,
        grace=GRACE,
    )


FEATURE = Feature(app_kinds=(NotebookApp,))
