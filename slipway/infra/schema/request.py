"""What a stack asks of a cloud: the part of its settings that a cloud's declarations and rules are given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TypeVar

from slipway.infra.platform import Data, Resources
from slipway.infra.schema.base import ClusterSettings, Model, StoreSettings, Team
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit
from slipway.infra.schema.problems import Finding, Path, listed

C = TypeVar("C", bound=ClusterSettings)


def builds_namespace(namespace: str) -> str:
    """The namespace beside ``namespace`` in which its images are built."""
    return fit(f"{namespace}-images", KUBERNETES_NAME_LIMIT)


@dataclass(frozen=True)
class AppAccess:
    """An app that has the store mounted: its Kubernetes service account, and the folder that it may write.

    ``folder`` is a path below the store's root; None for an app that only reads. ``name`` is unique in the stack,
    ``<pipeline>-<app>``, and ``pool`` is the one that its pods run on; that of another team's stack is not known.
    ``at`` is its place in the stack file.
    """

    name: str
    pool: str
    service_account: str
    folder: str | None = None
    at: Path = ()


@dataclass(frozen=True)
class AppVolume:
    """The volume of an app that keeps data: the name of its claim, the app's pool, and the size asked for.

    ``at`` is the place of the size in the stack file.
    """

    claim: str
    pool: str
    size: str
    at: Path


@dataclass(frozen=True)
class InputAccess:
    """Data in a bucket that steps read, which run on ``pools`` as the service account of Jobs.

    ``at`` is the place of the input in the stack file. Two inputs may be folders of one bucket, or the same one.
    """

    data: Data
    pools: Sequence[str]
    at: Path


@dataclass(frozen=True)
class Request:
    """The clusters of a stack, its store, and what both have in common.

    Rules are given what can be read of a stack file with mistakes: ``store`` is None and ``clusters`` lacks those
    whose section cannot be read. ``pool_names`` are the names of all pools in the file by cluster, those included
    that cannot be read. ``has_secrets`` says that the stack has secrets for steps: the clusters' Kubernetes
    providers then change Secrets in place, where they would otherwise delete one first and make it again
    (``enable_secret_mutable``). ``teams`` are those whose own stacks run Jobs on the clusters, by name.
    ``has_services`` says that a pipeline has a service, or an app that keeps data: both have a volume to
    themselves.
    ``apps`` are the apps of pipelines that have the store mounted, ``team_apps`` those of the teams' stacks by the
    team, with folders below the team's own.
    ``builds_on`` is the cluster on which images are built that go to the cloud's own registry, None where none
    are. ``app_volumes`` are those of apps that keep data. ``python_image`` is an image with Python, for what a
    cloud runs itself. ``inputs`` are the data of further buckets that steps read.
    """

    clusters: Mapping[str, ClusterSettings]
    store: StoreSettings | None
    namespace: str
    service_account: str
    protect: bool
    pool_names: Mapping[str, Sequence[str]]
    has_secrets: bool = False
    teams: Mapping[str, Team] = field(default_factory=dict[str, Team])
    has_services: bool = False
    apps: Sequence[AppAccess] = ()
    builds_on: str | None = None
    team_apps: Mapping[str, Sequence[AppAccess]] = field(default_factory=dict[str, Sequence[AppAccess]])
    app_volumes: Sequence[AppVolume] = ()
    python_image: str = ""
    inputs: Sequence[InputAccess] = ()

    @property
    def builds_in(self) -> str:
        """The namespace in which images are built."""
        return builds_namespace(self.namespace)

    def clusters_of(self, kind: type[C]) -> Mapping[str, C]:
        """The clusters of one cloud, by name."""
        return {name: cluster for name, cluster in self.clusters.items() if isinstance(cluster, kind)}

    def apps_on(self, cluster: str) -> Sequence[AppAccess]:
        """Those of ``apps`` whose pool is one of the cluster's."""
        return [app for app in self.apps if app.pool in self.pool_names.get(cluster, ())]

    def inputs_on(self, cluster: str) -> Sequence[InputAccess]:
        """Those of ``inputs`` that steps on one of the cluster's pools read."""
        names = set(self.pool_names.get(cluster, ()))
        return [access for access in self.inputs if names & set(access.pools)]

    def app_volumes_on(self, cluster: str) -> Sequence[AppVolume]:
        """Those of ``app_volumes`` whose app's pool is one of the cluster's."""
        return [
            app_volume for app_volume in self.app_volumes if app_volume.pool in self.pool_names.get(cluster, ())
        ]

    @property
    def cloud_places(self) -> tuple[Path, ...]:
        """Where in the stack file the clouds of the clusters stand."""
        return tuple(("clusters", name, "cloud") for name in self.clusters)


CPU_POOL, GPU_POOL = "cpu", "gpu"
"""Names of the pools of a new stack."""

NOTHING = Resources(cpu=0, memory=0)


@dataclass(frozen=True)
class Wish:
    """What a new stack should be able to run.

    ``region`` and ``accelerator`` are as they were asked for; None leaves them to the cloud. ``cpu_steps`` is the
    most that any step or app without GPUs asks for, and ``gpu_steps`` the most of any with GPUs: None where there
    is none. ``apps`` is what all apps without GPUs ask for together, which stay beside the steps.
    """

    region: str | None
    accelerator: str | None
    cpu_steps: Resources
    gpu_steps: Resources | None
    apps: Resources = NOTHING


@dataclass(frozen=True)
class Starter:
    """The part of a new stack file that its cloud decides.

    ``template`` is a Jinja template of the whole file. It is given ``values``, and beside them the functions
    `command` and `shared_page` as ``command`` and ``page``, the stack's name as ``stack``, the name of what it
    runs as ``runs``, the key `slipway:pipelines` with all below it as ``pipelines``, whether the stack is for
    production as ``protect``, a namespace that is the stack's alone as ``namespace``, and the most nodes of each
    pool that a step runs on at once as ``cpu_nodes`` and ``gpu_nodes``.
    ``before`` says in lines what has to be done before the first `pulumi up`; there ``{stack}`` is the stack's
    name. Without ``gpu_pool`` the stack has no pool `GPU_POOL`, and its steps run without GPUs. ``repository``
    stands for one of a registry to be named, where the cloud brings none.
    """

    template: FilePath
    values: Mapping[str, object]
    before: Sequence[str]
    gpu_pool: bool
    repository: str | None = None


def has_room(node: Resources | None, step: Resources, beside: Resources = NOTHING) -> bool:
    """Whether a step fits on a node that leaves ``node`` to pods; ``beside`` is what the store's mount takes."""
    return node is not None and all(
        wanted + taken <= amount
        for amount, wanted, taken in (
            (node.cpu, step.cpu, beside.cpu),
            (node.memory, step.memory, beside.memory),
            (node.ephemeral_storage, step.ephemeral_storage, beside.ephemeral_storage),
            (node.gpus, step.gpus, beside.gpus),
        )
    )


def node_count_findings(place: Path, nodes: Model) -> Iterator[Finding]:
    """What is wrong with the section at ``place`` that says how many nodes a pool has."""
    said: dict[str, int] = nodes.model_dump(exclude_none=True)
    per_zone = [key for key in ("min", "max") if key in said]
    total = [key for key in ("total_min", "total_max") if key in said]
    here = {key: (*place, key) for key in type(nodes).model_fields}
    if "count" in said and (limits := [*per_zone, *total]):
        reason = f"a fixed number, and {listed(limits, 'and')} let the autoscaler choose"
        read = tuple(here[key] for key in limits)
        yield Finding(here["count"], said["count"], reason, "keep `count`, or the limits", read)
    if per_zone and total:
        counts = f"{listed(per_zone, 'and')} count them per zone; a pool takes one kind"
        reason, fix = (
            f"counts nodes over all zones, and {counts}",
            "keep `min` and `max`, or `total_min` and `total_max`",
        )
        yield Finding(here[total[0]], said[total[0]], reason, fix, tuple(here[key] for key in per_zone))
    for least, most in (("min", "max"), ("total_min", "total_max")):
        low, high = said.get(least), said.get(most)
        if low is not None and high is None:
            fix = f"add `{most}`, or write `count: {low}`"
            yield Finding(here[least], low, f"the autoscaler needs `{most}` as well", fix, (here[most],))
        elif low is not None and high is not None and low > high:
            reason, fix = f"more than `{most}`, which is {high}", f"write `{least}: {high}` or less"
            yield Finding(here[least], low, reason, fix, (here[most],))
