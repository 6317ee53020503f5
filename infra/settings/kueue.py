"""What a stack file says of Kueue, which decides when a Job starts that shares its nodes with others."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from infra.platform import Resources
from infra.schema.base import ChartSettings, Duration, Int, Team

MOST_SHARE = 1000

REPLICAS = 2
"""Kueue's own pods. While none answers, nobody can create a Job in the namespaces that it looks after."""

REQUESTS = Resources(cpu=100, memory=512)
"""Of each of them. The chart's half a core is for clusters with thousands of Jobs; they may use what is idle."""

OWN_PODS = Resources(cpu=REPLICAS * REQUESTS.cpu, memory=REPLICAS * REQUESTS.memory)
"""What they ask for together."""


class KueueSettings(ChartSettings):
    """Kueue, which lets a Job start once there is room for all of its pods. Without the section every Job starts
    at once, and its pods wait for nodes one by one.

    A team's stack has only `wait`: the rest is in the file of the stack that has the clusters.
    """

    install: bool = Field(
        default=True,
        description="Install Kueue in each cluster. `false`: it is there already (its API `v1beta2`), and the "
        "stack declares its own queues only.",
    )
    namespace: str = Field(default="kueue-system", description="Namespace of Kueue's own pods.")
    namespaces: list[str] = Field(
        default_factory=list[str],
        description="More namespaces whose Jobs Kueue looks after, beside those of this stack and its teams: of "
        "stacks with `install: false`. It does not touch Jobs of other namespaces.",
    )
    local_queue: str | None = Field(
        default=None,
        description="Name of the LocalQueue that somebody else made in the namespace. The stack then declares "
        "nothing of Kueue; its Jobs name this queue.",
    )
    shares: dict[str, Int] = Field(
        default_factory=dict[str, Int],
        description="How the pools are divided between namespaces: this stack's own and its teams'. One with 2 "
        "may have twice as much at all times as one with 1, one with 0 only what the others leave. Default: 1 "
        "each; for the stack's own, 0 where it runs no pipeline.",
    )
    preemption: Literal["never", "lower-priority", "shares"] = Field(
        default="never",
        description="Which running Jobs a waiting one may stop; a Job that was stopped waits again, and starts "
        "from its newest checkpoint. `lower-priority`: those with a lower `priority`, of its own namespace, and "
        "of others beyond their shares. `shares`: also any of another namespace that uses more than its share.",
    )
    ready_within: Duration = Field(
        default="30m",
        description="A Job whose pods are not all running so long after it was let in is stopped, frees its "
        "nodes, and waits again. For clusters where nodes or images take longer, write more.",
    )
    wait: Duration = Field(
        default="24h",
        description="How long `pulumi up` waits for each Job to be let in, beside the step's `time_limit`, which "
        "begins then.",
    )

    def shares_of(self, namespace: str, teams: Mapping[str, Team], *, runs_pipelines: bool) -> dict[str, int]:
        """The share of each namespace: the stack's own, ``namespace``, and those of its ``teams``."""
        own = 1 if runs_pipelines or not teams else 0
        found = {namespace: own, **{each.namespace: 1 for each in teams.values()}}
        return {name: self.shares.get(name, share) for name, share in found.items()}
