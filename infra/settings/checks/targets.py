"""The pools that steps and services ask for."""

from dataclasses import dataclass

from infra.platform import Resources
from infra.schema.base import PoolSettings
from infra.schema.problems import Path
from infra.settings.checks.pipelines import pools_of
from infra.settings.parsing import Draft


@dataclass(frozen=True)
class Target:
    """The pool a step or service asks for: where it stands, what it is, and what one node leaves to pods.

    ``node`` is None where that is not known, and ``most_nodes`` where no number says how many there can be.
    ``nodes_key`` is the place that decides on that, empty where another stack's file has it.
    """

    at: Path
    name: str
    pool: PoolSettings
    node: Resources | None
    most_nodes: int | None
    nodes_key: Path

    def keys_of(self, resource: str) -> tuple[Path, ...]:
        """Where the pool's keys stand that decide how much of ``resource`` one of its nodes leaves to pods."""
        return tuple((*self.at, key) for key in self.pool.node_keys[resource])


def targets(draft: Draft) -> dict[str, Target]:
    """The pools of the stack that can be read, by name."""
    found: dict[str, Target] = {}
    for name, (at, pool) in pools_of(draft).items():
        cluster = draft.clusters[str(at[1])]
        key = () if cluster.other_stack else (*at, cluster.nodes_key_of(pool))
        found[name] = Target(at, name, pool, cluster.node_of(pool), cluster.most_nodes_of(pool), key)
    return found
