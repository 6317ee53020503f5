"""The stack output that tells the stacks of other teams what they need to run Jobs on a stack's clusters.

A stack exports it where its file names teams under ``slipway:teams``. It has nothing secret: kubeconfigs are in
the output ``kubeconfig``, which is a secret. These classes describe the format.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from slipway.infra.platform import (
    Egress,
    Interconnect,
    MigStrategy,
    Platform,
    Pool,
    QueueAccess,
    RequestRules,
    Store,
    Taint,
    TaintEffect,
)
from slipway.infra.platform import Resources as NodeResources
from slipway.infra.schema.base import PoolSettings, Team

OUTPUT = "platform"
"""The name of the stack output."""

VERSION = 1
"""The version of the format. It is raised where a key goes or means something else. A key may be added without
that: readers pass over keys that they do not know."""


class UnreadableStackError(Exception):
    """The outputs of another stack cannot be had. ``reason`` says why, and ``fix`` what to do."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason, self.fix = reason, fix


Resolve = Callable[[str], Mapping[str, Any]]
"""Returns the outputs of the stack of a name, as plain values that are all known, without those that are secret.

The name is as the stack file has it: ``platform-dev``, or with organization and project before it. The answer is
empty for a stack that has not been brought up, or was destroyed. It is called more than once for a stack. Raises
UnreadableStackError.
"""


class _Fact(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TaintFact(_Fact):
    """A node taint, with the effect in Kubernetes' spelling."""

    key: str
    value: str = ""
    effect: TaintEffect

    def taint(self) -> Taint:
        """As the rest of the program has it."""
        return Taint(self.key, self.value, self.effect)


class PoolFacts(PoolSettings):
    """A node pool: the fields of `slipway.infra.platform.Pool` that are plain values."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    # The stack file that has them is another one.
    node_keys: ClassVar[Mapping[str, tuple[str, ...]]] = dict.fromkeys(
        ("cpu", "memory", "ephemeral_storage", "gpus"), ()
    )

    selector: dict[str, str]
    taints: tuple[TaintFact, ...] = ()
    allocatable: NodeResources
    max_nodes: int
    min_nodes: int = 0
    accelerator: str | None = None
    shared_gpus: bool = False
    gpu_clients: int = 1
    mig_strategy: MigStrategy = "none"
    requests: RequestRules | None = None
    movable: bool = False
    interconnect: Interconnect | None = None
    runtime_class: str | None = None

    def node(self) -> NodeResources:
        """What one node leaves to pods."""
        return self.allocatable

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return self.accelerator is not None or self.allocatable.gpus > 0

    @property
    def shares_gpus(self) -> bool:
        """Whether it slices or partitions its GPUs."""
        return self.shared_gpus

    @property
    def most_nodes(self) -> int:
        """The most nodes that it can have."""
        return self.max_nodes


class ClaimFact(_Fact):
    """The PersistentVolumeClaim that the team's namespace needs: the fields of `slipway.infra.platform.Claim`."""

    name: str
    size: str
    access_mode: str
    storage_class: str | None = None
    volume_name: str | None = None


class CsiVolume(_Fact):
    """A volume that a CSI driver mounts straight into a pod, as Kubernetes writes it in a pod."""

    driver: str
    volume_attributes: dict[str, str] = Field(default_factory=dict[str, str], alias="volumeAttributes")


class ClaimVolume(_Fact):
    """A volume that a pod has through a claim, as Kubernetes writes it in a pod."""

    claim_name: str = Field(alias="claimName")


class Volume(_Fact):
    """The pod volume that mounts the store, as Kubernetes writes it: ``csi`` or ``persistentVolumeClaim``."""

    name: str
    csi: CsiVolume | None = None
    persistent_volume_claim: ClaimVolume | None = Field(default=None, alias="persistentVolumeClaim")


class StoreFacts(_Fact):
    """The store as one team has it: its root is the team's own folder. ``url`` names that for people.

    ``reader`` is what the cloud's package needs to read its files, None where only pods can.
    """

    url: str
    volume: Volume
    pod_annotations: dict[str, str] = Field(default_factory=dict[str, str])
    sidecar: NodeResources = NodeResources(cpu=0, memory=0)
    claim: ClaimFact | None = None
    reader: dict[str, str] | None = None


class TeamAppFact(_Fact):
    """What an app of a team's stack has of the store: the fields of `slipway.infra.platform.TeamApp`."""

    writes: bool = False
    annotations: dict[str, str] = Field(default_factory=dict[str, str])


class TeamAccess(_Fact):
    """What one team has of one cluster: its store, what its service account is annotated with, its queue, and the
    identities of its apps by their service accounts.
    """

    store: StoreFacts
    service_account_annotations: dict[str, str] = Field(default_factory=dict[str, str])
    apps: dict[str, TeamAppFact] = Field(default_factory=dict[str, TeamAppFact])
    queue: QueueAccess | None = None


class ClusterFacts(_Fact):
    """One cluster. What is None has no key in the output.

    ``context`` is that of the kubeconfig, where it is not its current one.

    ``creates_namespace`` says whether a team's stack may create its namespace. The other fields are those of
    `slipway.infra.platform.Platform`.
    """

    cloud: str
    pools: dict[str, PoolFacts]
    teams: dict[str, TeamAccess]
    connect: str
    kubectl: str
    context: str | None = None
    pod_user: int | None = None
    egress: tuple[Egress, ...]
    creates_namespace: bool = True


class TeamFacts(_Fact):
    """Which pods are a team's: those of one service account in one namespace, on each of the clusters."""

    namespace: str
    service_account: str


class PlatformFacts(_Fact):
    """The whole output. ``teams`` are by name; so are what they have of each cluster."""

    version: Literal[1] = VERSION
    teams: dict[str, TeamFacts]
    clusters: dict[str, ClusterFacts]


def published(
    teams: Mapping[str, Team],
    platforms: Mapping[str, tuple[str, Platform]],
    queues: Mapping[str, Mapping[str, QueueAccess]] = MappingProxyType({}),
) -> dict[str, Any]:
    """The output of a stack with these ``teams``: the same as `PlatformFacts`, of values that may be outputs.

    ``platforms`` are the clusters by name, each after its cloud, and ``queues`` what Kueue has there by namespace.
    """
    return {
        "version": VERSION,
        "teams": {
            name: team_facts.model_dump(include={*TeamFacts.model_fields}) for name, team_facts in teams.items()
        },
        "clusters": {
            name: _cluster(cloud, platform, teams, queues.get(name, {}))
            for name, (cloud, platform) in platforms.items()
        },
    }


def _cluster(
    cloud: str, platform: Platform, teams: Mapping[str, Team], queues: Mapping[str, QueueAccess]
) -> dict[str, Any]:
    return {
        "cloud": cloud,
        "pools": {name: _pool(pool) for name, pool in platform.pools.items()},
        "teams": {
            name: {
                "store": _store(access.store),
                "service_account_annotations": dict(access.service_account_annotations),
                **({"queue": _plain(queue)} if (queue := queues.get(teams[name].namespace)) else {}),
                **({"apps": _plain(access.apps)} if access.apps else {}),
            }
            for name, access in platform.teams.items()
        },
        "connect": platform.connect,
        "kubectl": platform.kubectl,
        "context": platform.context,
        "pod_user": platform.pod_user,
        "egress": _plain(platform.egress),
        "creates_namespace": platform.creates_namespace,
    }


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "selector": dict(pool.selector),
        "taints": _plain(pool.taints),
        "allocatable": _plain(pool.allocatable),
        "max_nodes": pool.max_nodes,
        "min_nodes": pool.min_nodes,
        "accelerator": pool.accelerator,
        "shared_gpus": pool.shared_gpus,
        "gpu_clients": pool.gpu_clients,
        "mig_strategy": pool.mig_strategy,
        **({"requests": _plain(pool.requests)} if pool.requests else {}),
        **({"movable": True} if pool.movable else {}),
        **({"interconnect": _plain(pool.interconnect)} if pool.interconnect else {}),
        **({"runtime_class": pool.runtime_class} if pool.runtime_class else {}),
    }


def _store(store: Store) -> dict[str, Any]:
    """As `StoreFacts`. A volume is one that a CSI driver mounts, or claimed: the program has no others."""
    volume: Any = store.volume
    facts: dict[str, Any] = {"name": volume.name}
    if volume.csi:
        facts["csi"] = {"driver": volume.csi.driver, "volumeAttributes": volume.csi.volume_attributes}
    if volume.persistent_volume_claim:
        facts["persistentVolumeClaim"] = {"claimName": volume.persistent_volume_claim.claim_name}
    return {
        "url": store.url,
        "volume": facts,
        "pod_annotations": dict(store.pod_annotations),
        "sidecar": _plain(store.sidecar),
        "claim": _plain(store.claim) if store.claim else None,
        "reader": dict(store.reader) if store.reader else None,
    }


def _plain(value: Any) -> Any:
    """``value`` with dataclasses as mappings; unlike `dataclasses.asdict`, without copies of outputs."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in cast("Mapping[str, Any]", value).items()}
    return [*map(_plain, cast("Sequence[Any]", value))] if isinstance(value, tuple | list) else value
