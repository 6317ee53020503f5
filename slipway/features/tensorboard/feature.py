"""Apps of the kind `tensorboard`: TensorBoard over the runs of a pipeline, finished and in progress."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from slipway.infra.features import Feature
from slipway.infra.pipelines.app_kinds.contract import AppInFile, AppInStack, AppKind
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings
from slipway.infra.pipelines.contract import literal
from slipway.infra.pipelines.pods import Probe
from slipway.infra.schema.base import Cpu, Memory, Size
from slipway.infra.schema.problems import Finding

MODULE = "slipway.features.tensorboard.pod.serve"
"""What becomes TensorBoard."""

REQUIREMENTS = "slipway/features/tensorboard/pod/requirements.txt"
"""TensorBoard with all that it needs: TensorFlow's image is without it from 2.21 on (METADATA of its wheel, seen
November 2026)."""

PORT = 6006
"""TensorBoard's own."""


class TensorBoardSettings(AppSettings):
    """Where TensorBoard runs."""

    cpu: Cpu = Field(default="250m", description="CPU asked for.")
    # 120 MB with a hundred runs of a thousand points.
    memory: Memory = Field(default="1Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="1Gi", description="Scratch space, with the packages.")


class TensorBoardApp(AppKind):
    """TensorBoard over the runs of the pipeline, finished and in progress."""

    kind: Literal["tensorboard"] = Field(description="TensorBoard.")
    settings = TensorBoardSettings

    step: str | None = Field(
        default=None, description="The step whose runs it shows; default: those of all steps."
    )

    def findings(self, app: AppInFile) -> Iterator[Finding]:
        """A finding about its step."""
        if self.step is not None:
            yield from app.step_findings(("step",), self.step)

    def declare(self, app: AppInStack) -> AppDeclaration:
        """TensorBoard over all variants of its step."""
        return declaration(app.name, app.placed_by, *(app.variants_of(self.step) if self.step else []))


def declaration(name: str, settings: AppSettings, *steps: str, title: str = "TensorBoard") -> AppDeclaration:
    """TensorBoard called ``name``, over all runs of ``steps``, or of the whole pipeline where there are none.

    Of a step with variants these are all of them. It waits for no step: people watch a training with it.
    """
    if len(steps) > 1:
        read = ["--below", "{pipeline}", *(word for step in steps for word in ("--step", literal(step)))]
    else:
        read = ["--logdir", "/".join(["{pipeline}", *map(literal, steps)])]
    return AppDeclaration(
        name=name,
        title=title,
        placed_by=settings,
        port=PORT,
        module=MODULE,
        arguments=[*read, *("--host", "0.0.0.0"), *("--port", "{port}")],
        requirements=REQUIREMENTS,
        probe=Probe("/"),
        grace=10,
    )


FEATURE = Feature(app_kinds=(TensorBoardApp,))
