"""What a stack file says of Kueue, against its clusters, teams and pools."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from slipway.infra.pipelines.contract import StepSettings, placements
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.placed import GATES_FOLDER
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.settings.model import MOST_SHARE, KueueSettings
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY as PIPELINES

KEY = "kueue"

MOST_FLAVORS = 64
"""Pools of one cluster that a ClusterQueue can have quotas of, and `MOST_LABELS` labels or taints of one
(clusterqueue_types.go and resourceflavor_types.go in apis/kueue/v1beta2 of github.com/kubernetes-sigs/kueue,
v0.19.2)."""

MOST_LABELS = 8

INSTALLATION = ("namespace", "namespaces", "ready_within")
"""Keys that say how Kueue is installed."""

HARD_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep off a pod which does not tolerate them."""

DECLARED = ("shares", "preemption")
"""Keys that say what the stack declares of it."""


def check_kueue(reading: Reading) -> Iterator[Finding]:
    """Findings about the section, and about steps with a `priority` where there is no queue."""
    draft = reading.draft
    others = {cluster.other_stack for cluster in draft.clusters.values()} - {None}
    if draft.kueue is None:
        yield from _queued_provisioning(draft)
        if not others:
            yield from _priorities(draft, "jobs", "write `slipway:kueue: {}`, or remove it")
        elif not _has_queue(draft):
            whose = f"the file of stack {listed(sorted(map(str, others)), 'and')} has no `slipway:kueue`, so that "
            yield from _priorities(draft, whose + "Jobs", "remove it, or have Kueue added there")
        return
    if others:
        yield from _of_a_team(draft.kueue, sorted(map(str, others)), draft)
        return
    yield from _installation(draft.kueue)
    yield from _namespaces(draft.kueue, draft)
    yield from _found_queue(draft.kueue, draft)
    yield from _shares(draft.kueue, draft)
    yield from _pools(draft)
    if draft.kueue.local_queue is None:
        yield from _indistinct(draft)


def _queued_provisioning(draft: Draft) -> Iterator[Finding]:
    for name, cluster in draft.clusters.items():
        for pool, settings in cluster.pools.items():
            # Where the cluster brings nodes by itself, the cloud's own check refuses the key.
            if getattr(settings, "queued_provisioning", False) and not getattr(cluster, "autopilot", False):
                yield Finding(
                    ("clusters", name, "pools", pool, "queued_provisioning"),
                    True,
                    "Kueue alone asks for such nodes, so that without it none would ever come",
                    "write `slipway:kueue: {}`, or remove it",
                    read=((KEY,),),
                )


def _has_queue(draft: Draft) -> bool:
    """Whether another stack that has the clusters declares queues there for this one."""
    return any(getattr(getattr(cluster, "access", None), "queue", None) for cluster in draft.clusters.values())


def _priorities(draft: Draft, whose: str, fix: str) -> Iterator[Finding]:
    whose = "without `slipway:kueue` Jobs" if whose == "jobs" else whose
    for at, placed in placements(draft.pipelines, (PIPELINES,)):
        if isinstance(placed, StepSettings) and placed.priority is not None:
            yield Finding(
                (*at, "priority"), placed.priority, f"{whose} wait in no queue", fix, read=((KEY,), ("clusters",))
            )


def _keys_in_file(settings: KueueSettings, keys: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Those of the keys that the file has."""
    for key in keys:
        if key in settings.model_fields_set:
            yield key, getattr(settings, key)


def _of_a_team(settings: KueueSettings, stacks: list[str], draft: Draft) -> Iterator[Finding]:
    whose = f"stack {listed(stacks, 'and')}"
    keys = ("install", *INSTALLATION, "local_queue", *DECLARED)
    for key, value in _keys_in_file(settings, keys):
        yield Finding((KEY, key), value, f"the file of {whose} says it, which has the clusters", "remove it")
    if any(cluster.pools for cluster in draft.clusters.values()) and not _has_queue(draft):
        yield Finding(
            (KEY,),
            None,
            f"the file of {whose} has no `slipway:kueue`, and its clusters no queue for this stack",
            "remove it, or have Kueue added there",
            read=(("clusters",),),
        )


def _installation(settings: KueueSettings) -> Iterator[Finding]:
    yield from name_findings((KEY, "namespace"), settings.namespace)
    for index, namespace in enumerate(settings.namespaces):
        yield from name_findings((KEY, "namespaces", index), namespace)
    if not settings.install:
        for key, value in _keys_in_file(settings, INSTALLATION):
            yield Finding(
                (KEY, key),
                value,
                "a setting of Kueue's installation, and the stack does not install it",
                "remove it, or write `install: true`",
                read=((KEY, "install"),),
            )


def _namespaces(settings: KueueSettings, draft: Draft) -> Iterator[Finding]:
    """Findings about namespaces that Kueue shares with Jobs, and about those where it may not hold up any."""
    if not settings.install:
        return
    read: tuple[Path, ...] = (("namespace",), ("teams",), (KEY, "install"))
    if settings.namespace in {draft.namespace, *(team.namespace for team in draft.teams.values())}:
        yield Finding(
            (KEY, "namespace"),
            settings.namespace,
            "a namespace of Jobs, whose quota, policies and queue are not made for Kueue's own pods",
            "write another name, such as `kueue-system`",
            read=read,
        )
    for index, namespace in enumerate(settings.namespaces):
        whose = "the cluster's own" if namespace.startswith("kube-") else "Kueue's own"
        if namespace.startswith("kube-") or namespace == settings.namespace:
            yield Finding(
                (KEY, "namespaces", index),
                namespace,
                f"{whose} namespace, in which nobody could create a Job while Kueue does not answer",
                "remove it",
                read=((KEY, "namespace"), *read),
            )


def _found_queue(settings: KueueSettings, draft: Draft) -> Iterator[Finding]:
    at: Path = (KEY, "local_queue")
    for name, cluster in draft.clusters.items():
        if getattr(cluster, "access", None) == "namespace" and settings.local_queue is None:
            yield Finding(
                (KEY,),
                None,
                f"queues are objects of the whole cluster, and cluster `{name}` has `access: namespace`",
                "have a LocalQueue made in the namespace, and write `{install: false, local_queue: <its name>}`",
                read=(("clusters", name, "access"), at),
            )
    if settings.local_queue is None:
        return
    yield from name_findings(at, settings.local_queue)
    if settings.install:
        yield Finding(
            at,
            settings.local_queue,
            "somebody else's queue, which is in no cluster that this stack installs Kueue in",
            "write `install: false` beside it, or remove it",
            read=((KEY, "install"),),
        )
    for key, value in _keys_in_file(settings, DECLARED):
        yield Finding(
            (KEY, key),
            value,
            "whoever made the queue that `local_queue` names decides it",
            "remove it, or `local_queue`",
            read=(at,),
        )
    if draft.teams:
        yield Finding(
            at,
            settings.local_queue,
            "teams need queues of their own, and the stack declares none",
            "remove it",
            read=(("teams",),),
        )
    yield from _priorities(draft, "what comes first is up to who made the queue, so that Jobs", "remove it")


def _shares(settings: KueueSettings, draft: Draft) -> Iterator[Finding]:
    at: Path = (KEY, "shares")
    known = [draft.namespace, *(team.namespace for team in draft.teams.values())]
    read = (("namespace",), ("teams",))
    for namespace, share in settings.shares.items():
        if namespace not in known:
            yield Finding(
                (*at, namespace),
                share,
                "neither this stack's namespace nor that of one of its teams",
                f"write {listed(known)}",
                read=read,
            )
        elif not 0 <= share <= MOST_SHARE:
            yield Finding(
                (*at, namespace), share, "not a share", f"write a whole number from 0 to {MOST_SHARE}", read=read
            )
    if settings.shares and not draft.teams:
        yield Finding(
            at,
            None,
            "the stack has no `teams`, so that its own Jobs have all of the pools",
            "remove it, or name teams",
            read=read,
        )
    elif not any(settings.shares_of(draft.namespace, draft.teams, runs_pipelines=bool(draft.pipelines)).values()):
        yield Finding(
            at, None, "no namespace has a share, so that no Job would ever start", "give one a share", read=read
        )


def _pools(draft: Draft) -> Iterator[Finding]:
    for name, cluster in draft.clusters.items():
        at: Path = ("clusters", name, "pools")
        if len(cluster.pools) > MOST_FLAVORS:
            yield Finding(
                at,
                None,
                f"{len(cluster.pools)} pools, and Kueue can divide at most {MOST_FLAVORS} of a cluster",
                "merge pools that are alike, or remove `slipway:kueue`",
                read=((KEY,),),
            )
        for pool, settings in cluster.pools.items():
            for key in ("selector", "taints"):
                labels = getattr(settings, key, None) or ()
                if len(labels) > MOST_LABELS:
                    yield Finding(
                        (*at, pool, key),
                        None,
                        f"{len(labels)} of them, and Kueue knows a pool by at most {MOST_LABELS}",
                        f"name at most {MOST_LABELS}",
                        read=((KEY,),),
                    )


@dataclass(frozen=True)
class _Nodes:
    """What of a pool Kueue compares with Jobs. ``taints`` are those that keep pods off."""

    labels: Mapping[str, str]
    taints: frozenset[tuple[str, str, str]]
    has_gpus: bool

    @property
    def keys(self) -> str:
        """The keys of its labels."""
        return listed(sorted(self.labels), "and")


def _indistinct(draft: Draft) -> Iterator[Finding]:
    """Of each cluster, the first two pools of which Kueue would send Jobs to the nodes of the wrong one.

    Of a pod's node selector Kueue compares with a flavor only the keys that the flavor's labels have, and then
    adds the flavor's labels to the selector (pkg/scheduler/flavorassigner/flavorassigner.go, `flavorSelector`, and
    pkg/podset/podset.go of github.com/kubernetes-sigs/kueue, v0.19.2).
    """
    for cluster, settings in draft.clusters.items():
        at: Path = ("clusters", cluster, "pools")
        pools = {name: _nodes(pool) for name, pool in settings.pools.items() if hasattr(pool, "selector")}
        for (name, pool), (other, flavor) in permutations(pools.items(), 2):
            if not _takes_jobs(flavor, pool):
                continue
            yield Finding(
                (*at, name, "selector"),
                dict(pool.labels),
                f"Kueue compares the labels of pools key by key, and pool `{other}` ({flavor.keys}) shares no key "
                f"with it ({pool.keys}) under which they have different values: Kueue could admit a Job of "
                f"`{name}` for `{other}`, give it the labels of both, and leave its pods Pending",
                "add one label to both selectors, with the same key and a different value in each, such as "
                "`node.kubernetes.io/instance-type`; or one that `label_nodes` gives to the nodes",
                all_of=tuple(
                    (*at, pool_name, key) for pool_name in (name, other) for key in ("selector", "taints")
                ),
                read=((KEY,),),
            )
            break


def _nodes(pool: Any) -> _Nodes:
    taints = [(taint.key, taint.value, taint.effect) for taint in pool.taints if taint.effect in HARD_EFFECTS]
    return _Nodes(pool.selector, frozenset(taints), pool.has_gpus)


def _takes_jobs(flavor: _Nodes, pool: _Nodes) -> bool:
    """Whether Kueue takes Jobs of ``pool`` for those of ``flavor``, and changes their node selector then."""
    compared = flavor.labels.keys() & pool.labels.keys()
    alike = all(flavor.labels[key] == pool.labels[key] for key in compared)
    if pool.has_gpus and not flavor.has_gpus:
        # A step on a pool with GPUs asks for some, of which the flavor has no quota.
        return False
    return alike and flavor.taints <= pool.taints and not flavor.labels.items() <= pool.labels.items()


TEAM_KEY = "teams"

NAME_LIMIT = 30
"""Characters of a team's name, of which names of service accounts, volumes and folders are made."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the teams' names, and about namespaces that two would share."""
    draft = reading.draft
    if not draft.teams:
        return
    taken = {
        **dict.fromkeys(draft.pipelines, "a pipeline of this stack has a folder of that name in the store"),
        **dict.fromkeys((GATES_FOLDER, *SUPPLEMENTS), "gates and supplements have that folder of the store"),
    }
    first: dict[str, str] = {}
    for name, team in draft.teams.items():
        at: Path = (TEAM_KEY, name)
        if len(name) > NAME_LIMIT:
            yield Finding(
                at, name, f"{len(name)} characters, and a team's name has at most {NAME_LIMIT}", "shorten it"
            )
        else:
            yield from name_findings(at, name)
        if name in taken:
            yield Finding(at, name, taken[name], "choose another name", read=(("pipelines",),))
        yield from _own(at, team.namespace, team.service_account)
        for pipeline, apps in team.apps.items():
            yield from name_findings((*at, "apps", pipeline), pipeline)
            for app in apps:
                yield from name_findings((*at, "apps", pipeline, app), app)
        if team.namespace == draft.namespace:
            yield Finding(
                (*at, "namespace"),
                team.namespace,
                "the namespace of this stack's own Jobs, and each namespace has one stack that owns it",
                "name one for the team alone",
                read=(("namespace",),),
            )
        elif team.namespace in first:
            yield Finding(
                (*at, "namespace"),
                team.namespace,
                f"team `{first[team.namespace]}` has that namespace, and each has one stack that owns it",
                "name one for the team alone",
                read=((TEAM_KEY, first[team.namespace], "namespace"),),
            )
        first.setdefault(team.namespace, name)


def _own(at: Path, namespace: str, account: str) -> Iterator[Finding]:
    """What can be neither a namespace nor a service account of a stack's own."""
    yield from name_findings((*at, "namespace"), namespace)
    yield from name_findings((*at, "service_account"), account)
    if namespace == "default" or namespace.startswith("kube-"):
        reason = "a namespace that every cluster has already, and the team's stack owns its own"
        yield Finding((*at, "namespace"), namespace, reason, "choose another name, such as the team's")
    if account == "default":
        reason = "Kubernetes makes a service account of that name in every namespace"
        yield Finding((*at, "service_account"), account, reason, "choose another name, such as `runner`")
