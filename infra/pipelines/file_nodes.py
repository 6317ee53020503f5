"""The shape of ``nodes`` of a step in ``pipeline.yaml``."""

from typing import Annotated, Any, cast

from pydantic import Field

from infra.pipelines.contract import MOST_NODES
from infra.pipelines.node_roles import ROLES
from infra.schema.base import Duration, Int, Model, refuse
from infra.schema.problems import listed

FIRST_PORT = 1025
"""The lowest port of a program on several nodes: a user's, as that below it is, at which the pods meet."""


def nodes_section(value: Any) -> Any:
    """The section that ``value``, plain YAML, stands for: ``count: 2`` for ``2``.

    Raises what pydantic shows for what is neither a section nor a number of nodes.
    """
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse("neither a number nor a section", "write `2`, or a section with `count`: `{count: 2}`")
    if not 1 <= value <= MOST_NODES:
        raise refuse(f"a step runs on 1 to {MOST_NODES} nodes", f"write a number from 1 to {MOST_NODES}")
    return {"count": value}


class StepNodes(Model):
    """The nodes on which a step runs at once: a pod on each, which asks for what `resources` say, and on a pool
    with GPUs for all of its node's. Each program finds the others in `TF_CONFIG`, and its place among them in
    `RANK` and `WORLD_SIZE`; `MASTER_ADDR` and `MASTER_PORT` are where those of PyTorch meet, and
    `JAX_COORDINATOR_ADDRESS` is where those of JAX do. All start together. Where a pod is lost, all start again
    once it is replaced: programs save checkpoints, and go on with the newest. `{output}` is one directory for all.
    """

    count: Int = Field(ge=1, le=MOST_NODES, description="Number of nodes; on one the step runs as any step.")
    roles: dict[str, Annotated[Int, Field(ge=1)]] = Field(
        default_factory=dict[str, int],
        description=f"How many pods have each of TensorFlow's roles ({listed(ROLES, 'and')}), in the order of "
        "their ranks: `{chief: 1, worker: 3}`. They add up to `count`. Default: all are workers.",
    )
    wait: Duration = Field(
        default="10m",
        description="Pods that are there wait so long for those that are missing; then the step fails, and frees "
        "its nodes.",
    )
    port: Int = Field(
        default=2222,
        ge=FIRST_PORT,
        le=65535,
        description="The port that the program of each pod has to itself; the pods meet at the one below it.",
    )
