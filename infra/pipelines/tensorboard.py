"""Apps of the kind `tensorboard`: TensorBoard over the runs of a pipeline, finished and in progress."""

from pydantic import Field

from infra.pipelines.apps import AppDeclaration, AppSettings
from infra.pipelines.contract import literal
from infra.pipelines.pods import Probe
from infra.schema.base import Cpu, Memory, Size

KIND = "tensorboard"

MODULE = "workloads.apps.tensorboard.serve"
"""What becomes TensorBoard."""

REQUIREMENTS = "workloads/apps/tensorboard/requirements.txt"
"""TensorBoard with all that it needs: TensorFlow's image is without it from 2.21 on (METADATA of its wheel, seen
November 2026)."""

PORT = 6006
"""TensorBoard's own."""

RESOURCES = {"cpu": "250m", "memory": "1Gi", "ephemeral_storage": "1Gi"}
"""What it asks for where nobody says it: 120 MB with a hundred runs of a thousand points, and its packages."""


class TensorBoardSettings(AppSettings):
    """Where TensorBoard runs."""

    cpu: Cpu = Field(default=RESOURCES["cpu"], description="CPU asked for, as a Kubernetes quantity.")
    memory: Memory = Field(default=RESOURCES["memory"], description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(
        default=RESOURCES["ephemeral_storage"], description="Scratch space, with the packages."
    )


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
