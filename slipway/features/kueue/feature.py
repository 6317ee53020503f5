"""Kueue, which holds each Job back until there is room for all of its pods: its section of a stack file."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from slipway.infra.features import Feature
from slipway.infra.pipelines.residents import Resident
from slipway.infra.platform import Resources
from slipway.infra.review.stack import mapping
from slipway.infra.schema.base import Duration, Int, Model, Team
from slipway.infra.schema.renamed import CHART_KEYS, Removed

KEY = "kueue"

API = "kueue.x-k8s.io/v1beta2"
"""The one version of Kueue's API that 0.20 serves, and the storage version of 0.19
(github.com/kubernetes-sigs/kueue)."""

KINDS = frozenset(
    {
        *("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "WorkloadPriorityClass", "Topology"),
        *("AdmissionCheck", "ProvisioningRequestConfig"),
    }
)
"""The kinds of this version that people declare."""

DEFAULT_QUEUE = "default"
"""The LocalQueue whose label Kueue gives to Jobs that name no queue (pkg/controller/jobframework/defaults.go of
github.com/kubernetes-sigs/kueue, v0.19.2, seen November 2026)."""

MOST_SHARE = 1000

REPLICAS = 2
"""Kueue's own pods. While none answers, nobody can create a Job in the namespaces that it looks after."""

REQUESTS = Resources(cpu=100, memory=512)
"""Of each of them. The chart's half a core is for clusters with thousands of Jobs; they may use what is idle."""


class KueueSettings(Model):
    """Kueue, which lets a Job start once there is room for all of its pods. Without the section every Job starts
    at once, and its pods wait for nodes one by one.

    A team's stack has only `wait`: the rest is in the file of the stack that has the clusters.
    """

    removed: ClassVar[Mapping[str, Removed]] = CHART_KEYS

    install: bool = Field(
        default=True,
        description="Install Kueue in each cluster. `false`: it is there already (its API `v1beta2`), and the "
        "stack declares its own queues only.",
    )
    namespace: str = Field(default="kueue-system", description="Namespace of Kueue's own pods.")
    namespaces: list[str] = Field(
        default_factory=list[str],
        description="Namespaces of stacks with `install: false`, whose Jobs Kueue looks after, too. It touches "
        "Jobs of no others but this stack's and its teams'.",
    )
    local_queue: str | None = Field(
        default=None,
        description="Name of the LocalQueue that somebody else made in the namespace. The stack then declares "
        "nothing of Kueue; its Jobs name this queue.",
    )
    shares: dict[str, Int] = Field(
        default_factory=dict[str, Int],
        description="Shares of the pools by namespace, this stack's and its teams': 2 is twice as much as 1, and "
        "0 is what the others leave. Default: 1; for the stack's own, 0 where it runs no pipeline.",
    )
    preemption: Literal["never", "lower-priority", "shares"] = Field(
        default="never",
        description="Which running Jobs a waiting one may stop; they wait again, and resume from their newest "
        "checkpoint. `lower-priority`: those with a lower `priority`, of its namespace, and of others "
        "beyond their shares. `shares`: also any of a namespace that uses more than its share.",
    )
    ready_within: Duration = Field(
        default="30m",
        description="A Job whose pods do not all run so long after it was let in is stopped, and waits again. "
        "Write more where nodes or images take longer.",
    )
    wait: Duration = Field(
        default="24h",
        description="How long `pulumi up` waits for each Job to be let in, beside the step's `time_limit`, which "
        "begins then.",
    )

    def shares_of(self, namespace: str, teams: Mapping[str, Team], *, runs_pipelines: bool) -> dict[str, int]:
        """The share of each namespace: the stack's own, ``namespace``, and those of its ``teams``."""
        share = 1 if runs_pipelines or not teams else 0
        shares = {namespace: share, **{team.namespace: 1 for team in teams.values()}}
        return {name: self.shares.get(name, share) for name, share in shares.items()}


def section_of(settings: Any) -> KueueSettings | None:
    """The section of `Settings` or of a `Draft`."""
    return getattr(settings, KEY)


def residents(settings: Any, host: str) -> Iterator[Resident]:
    """Kueue's own pods."""
    section = section_of(settings)
    if section and section.install and not section.local_queue:
        yield Resident("installed", host, [REQUESTS] * REPLICAS, name="Kueue")


def leave_pipelines_out(values: dict[str, Any]) -> None:
    """Writes out the share that the stack's own pipelines give its namespace."""
    section = mapping(values.get(f"slipway:{KEY}"))
    if isinstance(values.get(f"slipway:{KEY}"), Mapping) and values.get("slipway:teams"):
        shares = {values.get("slipway:namespace", "slipway"): 1, **mapping(section.get("shares"))}
        values[f"slipway:{KEY}"] = {**section, "shares": shares}


SECTION = Field(
    default=None,
    description="Holds each Job back until there is room for all of its pods. A team's stack has that of the "
    "stack with the clusters.",
)
FEATURE = Feature(
    sections={KEY: (KueueSettings | None, SECTION)}, served={API: KINDS}, watched={"workloads": f"/apis/{API}"}
)
