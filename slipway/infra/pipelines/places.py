"""The places where a step may run, in order, and when it goes from one to the next: as a stack file says it."""

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from slipway.infra.schema.base import Cpu, Int, Memory, Model, refuse
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

PLACES = "places"
"""The key of a step with its places."""

CONDITIONS = ("next_after", "returns", "deadline", "work", "max_price")
"""The keys of a step that say something about its places, and nothing where it has one pool."""


def mover_account(pipeline: str, step: str) -> str:
    """The Kubernetes service account of what decides at which place the step runs."""
    return fit(f"{pipeline}-{step}-mover", KUBERNETES_NAME_LIMIT)


def agent_account(pipeline: str, step: str, cluster: str) -> str:
    """The Kubernetes service account of what acts in another cluster for what moves the step."""
    return fit(f"{pipeline}-{step}-agent-{cluster}", KUBERNETES_NAME_LIMIT)


def orders_folder(pipeline: str, step: str) -> str:
    """The folder of the store, as a path below its root, by which a mover and its agents know of one another.

    It is at the root: who may write in it alone cannot make a folder on the way to it.
    """
    return f".moves-{mover_account(pipeline, step)}"


class Place(Model):
    """A pool where a step may run, with what it asks for there where that is not what it asks for elsewhere."""

    pool: str = Field(description="Name of a pool of any of the stack's clusters.")
    gpus: Int | None = Field(
        default=None, ge=0, description="GPUs there; default: those of the step. The program finds them itself."
    )
    cpu: Cpu | None = Field(default=None, description="CPU asked for there; default: that of the step.")
    memory: Memory | None = Field(default=None, description="Memory there; default: that of the step.")

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of the step that have another value there, its pool among them."""
        return self.model_dump(exclude_none=True)


def _section(value: Any) -> Any:
    return {"pool": value} if isinstance(value, str) else value


Places = list[Annotated[Place, BeforeValidator(_section, json_schema_input_type=str | Place)]]
"""Places in the order in which they are tried. The name of a pool is short for a section with nothing else."""


def with_first_pool(values: Any) -> Any:
    """``values``, plain ones of a step's section, with the first of their places as `pool`.

    Raises what pydantic shows where they have both.
    """
    if not isinstance(values, dict):
        return values
    section = cast("dict[str, Any]", values)
    places = section.get(PLACES)
    if not isinstance(places, list) or not places:
        return section
    entry: object = _section(places[0])
    first = entry.pool if isinstance(entry, Place) else _pool_in(entry)
    if section.get("pool") not in (None, "", first):
        raise refuse("both `pool` and `places`", "remove `pool`: the first of `places` is tried first")
    return {**section, "pool": first} if isinstance(first, str) else section


def _pool_in(entry: object) -> object:
    return cast("dict[str, Any]", entry).get("pool") if isinstance(entry, dict) else None
