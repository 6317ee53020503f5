"""What a stack file says of Kueue, against its clusters, teams and pools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from slipway.features.kueue.feature import DEFAULT_QUEUE, KEY, MOST_SHARE, KueueSettings, section_of
from slipway.infra.pipelines.contract import StepDeclaration, StepSettings, placements
from slipway.infra.pipelines.residents import Resident
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.settings.checks.steps import WORDS, Target, in_words, staying, targets
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY as PIPELINES
from slipway.infra.settings.pipelines import place_of, steps_if_any

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


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the section, and about steps with a `priority` where there is no queue."""
    draft = reading.draft
    section = section_of(draft)
    others = {cluster.other_stack for cluster in draft.clusters.values()} - {None}
    yield from _held_otherwise(section, draft)
    if section is None:
        yield from _queued_provisioning(draft)
        if not others:
            yield from _priorities(
                draft, "without `slipway:kueue` Jobs", "write `slipway:kueue: {}`, or remove it"
            )
        elif not _has_queue(draft):
            whose = f"the file of stack {listed(sorted(map(str, others)), 'and')} has no `slipway:kueue`, so that "
            yield from _priorities(draft, whose + "Jobs", "remove it, or have Kueue added there")
        return
    if others:
        yield from _of_a_team(section, sorted(map(str, others)), draft)
        return
    yield from _installation(section)
    yield from _namespaces(section, draft)
    yield from _found_queue(section, draft)
    yield from _shares(section, draft)
    yield from _pools(draft)
    if section.local_queue is None:
        yield from _indistinct(draft)
        yield from _never_admitted(section, draft)


def _held_otherwise(section: KueueSettings | None, draft: Draft) -> Iterator[Finding]:
    """Jobs that something else lets run, before which Kueue would."""
    queued = section is not None or _has_queue(draft)
    for name, settings in draft.pipelines.items():
        if queued and settings.runs == "cluster":
            reason = "Kueue lets a Job of its queue run as soon as there is quota, whatever comes before it"
            fix = "write `runs: up`, or do without `slipway:kueue`"
            yield Finding((PIPELINES, name, "runs"), "cluster", reason, fix, read=((KEY,), ("clusters",)))
        for step in steps_if_any(name, settings):
            if step.placed_by.places and section and section.local_queue == DEFAULT_QUEUE:
                yield Finding(
                    (*place_of(name, settings, step), "places"),
                    None,
                    f"Kueue puts each Job of a namespace with a LocalQueue `{DEFAULT_QUEUE}` into it once it is "
                    "made, and all places would run at once",
                    "have a LocalQueue of another name made, or write `pool`",
                    read=((KEY, "local_queue"),),
                )


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
        reason = f"the file of {whose} has no `slipway:kueue`, and its clusters no queue for this stack"
        yield Finding((KEY,), None, reason, "remove it, or have Kueue added there", read=(("clusters",),))


def _installation(settings: KueueSettings) -> Iterator[Finding]:
    yield from name_findings((KEY, "namespace"), settings.namespace)
    for index, namespace in enumerate(settings.namespaces):
        yield from name_findings((KEY, "namespaces", index), namespace)
    if not settings.install:
        for key, value in _keys_in_file(settings, INSTALLATION):
            reason = "a setting of Kueue's installation, and the stack does not install it"
            fix = "remove it, or write `install: true`"
            yield Finding((KEY, key), value, reason, fix, read=((KEY, "install"),))


def _namespaces(settings: KueueSettings, draft: Draft) -> Iterator[Finding]:
    """Findings about namespaces that Kueue shares with Jobs, and about those where it may not hold up any."""
    if not settings.install:
        return
    read: tuple[Path, ...] = (("namespace",), ("teams",), (KEY, "install"))
    if settings.namespace in {draft.namespace, *(team.namespace for team in draft.teams.values())}:
        reason = "a namespace of Jobs, whose quota, policies and queue are not made for Kueue's own pods"
        fix = "write another name, such as `kueue-system`"
        yield Finding((KEY, "namespace"), settings.namespace, reason, fix, read=read)
    for index, namespace in enumerate(settings.namespaces):
        whose = "the cluster's own" if namespace.startswith("kube-") else "Kueue's own"
        if namespace.startswith("kube-") or namespace == settings.namespace:
            reason = f"{whose} namespace, in which nobody could create a Job while Kueue does not answer"
            fix = "remove it"
            yield Finding((KEY, "namespaces", index), namespace, reason, fix, read=((KEY, "namespace"), *read))


def _found_queue(settings: KueueSettings, draft: Draft) -> Iterator[Finding]:
    at: Path = (KEY, "local_queue")
    for name, cluster in draft.clusters.items():
        if getattr(cluster, "access", None) == "namespace" and settings.local_queue is None:
            reason = f"queues are objects of the whole cluster, and cluster `{name}` has `access: namespace`"
            fix = "have a LocalQueue made in the namespace, and write `{install: false, local_queue: <its name>}`"
            yield Finding((KEY,), None, reason, fix, read=(("clusters", name, "access"), at))
    if settings.local_queue is None:
        return
    yield from name_findings(at, settings.local_queue)
    if settings.install:
        reason = "somebody else's queue, which is in no cluster that this stack installs Kueue in"
        fix = "write `install: false` beside it, or remove it"
        yield Finding(at, settings.local_queue, reason, fix, read=((KEY, "install"),))
    for key, value in _keys_in_file(settings, DECLARED):
        reason = "whoever made the queue that `local_queue` names decides it"
        yield Finding((KEY, key), value, reason, "remove it, or `local_queue`", read=(at,))
    if draft.teams:
        reason = "teams need queues of their own, and the stack declares none"
        yield Finding(at, settings.local_queue, reason, "remove it", read=(("teams",),))
    yield from _priorities(draft, "what comes first is up to who made the queue, so that Jobs", "remove it")


def _shares(settings: KueueSettings, draft: Draft) -> Iterator[Finding]:
    at: Path = (KEY, "shares")
    known = [draft.namespace, *(team.namespace for team in draft.teams.values())]
    read = (("namespace",), ("teams",))
    for namespace, share in settings.shares.items():
        if namespace not in known:
            reason = "neither this stack's namespace nor that of one of its teams"
            yield Finding((*at, namespace), share, reason, f"write {listed(known)}", read=read)
        elif not 0 <= share <= MOST_SHARE:
            yield Finding(
                (*at, namespace), share, "not a share", f"write a whole number from 0 to {MOST_SHARE}", read=read
            )
    if settings.shares and not draft.teams:
        reason = "the stack has no `teams`, so that its own Jobs have all of the pools"
        yield Finding(at, None, reason, "remove it, or name teams", read=read)
    elif not any(settings.shares_of(draft.namespace, draft.teams, runs_pipelines=bool(draft.pipelines)).values()):
        yield Finding(
            at, None, "no namespace has a share, so that no Job would ever start", "give one a share", read=read
        )


def _pools(draft: Draft) -> Iterator[Finding]:
    for name, cluster in draft.clusters.items():
        at: Path = ("clusters", name, "pools")
        if len(cluster.pools) > MOST_FLAVORS:
            reason = f"{len(cluster.pools)} pools, and Kueue can divide at most {MOST_FLAVORS} of a cluster"
            fix = "merge pools that are alike, or remove `slipway:kueue`"
            yield Finding(at, None, reason, fix, read=((KEY,),))
        for pool, settings in cluster.pools.items():
            for key in ("selector", "taints"):
                labels = getattr(settings, key, None) or ()
                if len(labels) > MOST_LABELS:
                    reason = f"{len(labels)} of them, and Kueue knows a pool by at most {MOST_LABELS}"
                    yield Finding((*at, pool, key), None, reason, f"name at most {MOST_LABELS}", read=((KEY,),))


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


def _never_admitted(section: KueueSettings, draft: Draft) -> Iterator[Finding]:
    """Findings about steps whose pods never run at once, where Kueue waits until all of them can."""
    pools, programs = targets(draft), staying(draft)
    for name, settings in draft.pipelines.items():
        for step in steps_if_any(name, settings):
            target = pools.get(step.placed_by.pool)
            on_pool = [resident for resident in programs if resident.pool == step.placed_by.pool]
            # Where not even what stays has room, a finding about the apps says so.
            if target and target.node and target.most_nodes and not _is_crowded(target, on_pool):
                at = place_of(name, settings, step)
                yield from _never(at, step, target, on_pool, section)


def _is_crowded(target: Target, held: Sequence[Resident]) -> bool:
    """Whether the pool has less than what is on it at all times asks for."""
    most = target.most_nodes or 0
    return any(
        sum(getattr(resident.least, name) for resident in held) > getattr(target.node, name) * most
        for name in WORDS
    )


def _never(
    at: Path, step: StepDeclaration, target: Target, held: Sequence[Resident], section: KueueSettings
) -> Iterator[Finding]:
    node, most = target.node, target.most_nodes
    assert node is not None
    assert most is not None
    wanted = step.placed_by.asked
    pods = step.pods
    if step.is_group and pods > most:
        # A finding about every step with nodes, with or without a queue.
        return
    key = (*at, step.pods_key)
    read: tuple[Path, ...] = ((KEY,), (*at, "pool"), *([target.nodes_key] if target.nodes_key else ()))
    plural = "s" * (most != 1)
    for name, (unit, words) in WORDS.items():
        amount, node_amount = getattr(wanted, name), getattr(node, name)
        if not amount or amount > node_amount:
            # What is too large for a node is a finding about every step.
            continue
        taken = [(in_words(resident), getattr(resident.most, name)) for resident in held]
        taken = [(what, part) for what, part in taken if part]
        quota = node_amount * most - sum(part for _, part in taken)
        if amount * pods > quota:
            less = "".join(f", less {part}{unit} for {what}" for what, part in taken)
            each_pod = " in each pod" if pods > 1 else ""
            # A step that an app brings along has no section of its own.
            has_section = at != (PIPELINES, at[1])
            one_pod = f"{'it' if has_section else f'its step `{step.name}`'} asks for {amount}{unit}"
            together = f"{pods} pods ask for {amount * pods}{unit}" if pods > 1 else one_pod
            less_of_it = f"ask for {quota // pods}{unit} or less{each_pod}, or " if quota >= pods else ""
            yield Finding(
                (key if pods > 1 else (*at, name)) if has_section else at,
                (pods if pods > 1 else getattr(step.placed_by, name, None)) if has_section else None,
                f"{together}{words}, and all of pool `{target.name}` is {max(quota, 0)}{unit} "
                f"({most} node{plural} with {node_amount}{unit}{less}): Kueue would never let the Job in",
                f"{less_of_it}let the pool have more nodes{'' if less_of_it else ', or take another pool'}",
                read=(*read, *target.keys_of(name)),
            )
            return
    room = most * min(
        (getattr(node, name) // getattr(wanted, name) for name in WORDS if getattr(wanted, name)), default=pods
    )
    if not step.is_group and pods > room > 0:
        reason = (
            f"pool `{target.name}` has room for {room} of its pods at once ({most} node{plural}), and Kueue "
            f"stops a Job whose pods do not all run within {section.ready_within}"
        )
        yield Finding(key, pods, reason, f"write {room}, or let the pool have more nodes", read=read)
