"""Steps, services and apps of pipelines against the pools they ask for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipway.infra.features import parts
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings
from slipway.infra.pipelines.contract import (
    PodSettings,
    StepDeclaration,
    StepSettings,
    Supplement,
    placements,
)
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.pipelines.discovery import lacked_by, mounts_store
from slipway.infra.pipelines.file.shape import STEP_KEYS
from slipway.infra.pipelines.images import GPU_IMAGE
from slipway.infra.pipelines.inputs import data_of
from slipway.infra.pipelines.residents import Resident, residents
from slipway.infra.platform import Resources, add
from slipway.infra.schema.base import PoolSettings
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.quantities import cpu_millicores, mebibytes
from slipway.infra.schema.rules import Section
from slipway.infra.settings.checks.pipelines import RULES, pools_of
from slipway.infra.settings.model import KEY as REGISTRY
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY, apps_if_any, place_of, services_if_any, steps_if_any


def staying(draft: Draft) -> list[Resident]:
    """What stays on pools: services, what the stack installs, and apps, in this order."""
    programs = [
        resident
        for name, settings in draft.pipelines.items()
        for resident in residents(name, services_if_any(name, settings), apps_if_any(name, settings))
    ]
    for cluster in draft.clusters.values():
        host = next((name for name, pool in cluster.pools.items() if not pool.has_gpus), None)
        if host is not None and not cluster.other_stack:
            programs += [resident for of in parts("feature", "residents") for resident in of(draft, host)]
    return sorted(programs, key=lambda resident: resident.kind == "app")


def in_words(resident: Resident) -> str:
    """What ``resident`` is, in words."""
    match resident.kind:
        case "service":
            return f"the service `{resident.name}`"
        case "app":
            pods = len(resident.all_pods)
            return f"{pods} pods of the app `{resident.name}`" if pods > 1 else f"the app `{resident.name}`"
        case _:
            return f"{resident.name} itself"


LEAST_CACHE = 1024
"""MiB that a cache has at least: of less, what file systems take for themselves is a part worth naming."""


def check_caches(reading: Reading) -> Iterator[Finding]:
    """Findings about the caches of steps."""
    for name, settings in reading.draft.pipelines.items():
        for step in steps_if_any(name, settings):
            if step.placed_by.cache is not None:
                yield from _cache((*place_of(name, settings, step), "cache"), step, step.placed_by.cache)


def _cache(at: Path, step: StepDeclaration, size: str) -> Iterator[Finding]:
    if step.command is None:
        reason = "its program is a module of the pipeline, which opens the store itself"
        yield Finding(at, size, reason, "remove it, or write the step in a `pipeline.yaml`")
    elif not step.inputs and not step.data:
        reason = "the step reads neither results of other steps nor inputs, so that there is nothing to keep"
        yield Finding(at, size, reason, "remove it")
    elif mebibytes(size) < LEAST_CACHE:
        yield Finding(
            at, size, f"a cache of less than {LEAST_CACHE}Mi keeps little", f"write `{LEAST_CACHE}Mi` or more"
        )


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
    by_name: dict[str, Target] = {}
    for name, (at, pool) in pools_of(draft).items():
        cluster = draft.clusters[str(at[1])]
        key = () if cluster.other_stack else (*at, cluster.nodes_key_of(pool))
        by_name[name] = Target(at, name, pool, cluster.node_of(pool), cluster.most_nodes_of(pool), key)
    return by_name


WORDS: Mapping[str, tuple[str, str]] = {
    "cpu": ("m", " of CPU"),
    "memory": ("Mi", " of memory"),
    "ephemeral_storage": ("Mi", " of ephemeral storage"),
    "gpus": ("", " GPUs"),
}
"""Unit and name of each field of `Resources`."""


def check_steps(reading: Reading) -> Iterator[Finding]:
    """Findings about the pool and the resources of each step, service and app."""
    pools = targets(reading.draft)
    known = {pool for _, pool in reading.names}
    sections = (
        *placements(reading.draft.pipelines, (KEY,)),
        *placements(reading.draft.registry, (REGISTRY,)),
    )
    for at, placed in sections:
        if isinstance(placed, StepSettings | AppSettings):
            yield from _scratch(at, placed, reading.draft)
        for place, on_pool in placed.on_pools:
            named = (*at, *place)
            if on_pool.pool in pools:
                findings = _fits(at, on_pool, pools[on_pool.pool], reading.draft)
                yield from (
                    findings
                    if place == ("pool",)
                    else (_of_variant(finding, named, on_pool) for finding in findings)
                )
            elif on_pool.pool not in known:
                yield _no_pool(named, on_pool.pool, reading, sorted(known))


def _no_pool(named: Path, pool: str, reading: Reading, pools: Sequence[str]) -> Finding:
    """The finding about a name of a pool that no cluster has, or about one that is missing."""
    others = {cluster.other_stack for cluster in reading.draft.clusters.values()} - {None}
    reason = "no cluster of the stack has a pool of that name" if pool else "required, and not there"
    if pool and others:
        reason += f"; its pools are those that the file of stack {listed(others, 'and')} declares"
    fix = did_you_mean(pool, pools, f"write {listed(pools)}" if pools else "declare it")
    home = next((name for name, cluster in reading.draft.clusters.items() if not cluster.other_stack), None)
    if pool and pools and home:
        new = f"new one is declared as `slipway:clusters.{home}.pools.{pool}`"
        fix += f"{' A' if fix.endswith('?') else '; a'} {new}"
    return Finding(
        named,
        pool or None,
        reason,
        fix,
        read=(
            ("clusters",),
            *(("clusters", cluster, key) for cluster in reading.clusters for key in ("pools", "cloud")),
        ),
    )


def _of_variant(finding: Finding, named: Path, step: PodSettings) -> Finding:
    """The finding about a step that runs on several pools, at the name of the one that does not suit it."""
    key = str(finding.path[-1])
    with_it = "" if key == "pool" else f"with `{key}: {getattr(step, key)}`: "
    return Finding(named, step.pool, f"{with_it}{finding.reason}", finding.fix, (*finding.read, finding.path))


def _fits(at: Path, placed: PodSettings, target: Target, draft: Draft) -> Iterator[Finding]:
    here = Section(RULES["step"], at, placed)
    if isinstance(placed, StepSettings | AppSettings):
        wrong = [finding for key in STEP_KEYS for finding in key.target_findings(at, placed, target, draft)]
        yield from wrong
        if not (target.pool.has_gpus and wrong):
            yield from _gpus(here, placed, target, draft)
        if isinstance(placed, StepSettings) and placed.shm and mebibytes(placed.shm) > mebibytes(placed.memory):
            yield here.found("shm", step=placed)
    elif target.pool.has_gpus:
        without = [name for name, other in targets(draft).items() if not other.pool.has_gpus]
        instead = f": {listed(without)}" if without else ""
        yield here.found("pool-with-gpus", read=target.keys_of("gpus"), instead=instead)
    if target.pool.most_nodes == 0:
        yield here.found("no-node", read=((*target.at, "nodes"),), target=target)
    if target.node is not None:
        yield from _amounts(at, placed, target, target.node, draft)


def _gpus(here: Section, step: StepSettings | AppSettings, target: Target, draft: Draft) -> Iterator[Finding]:
    read = target.keys_of("gpus")
    if step.gpus and not target.pool.has_gpus:
        with_gpus = [name for name, other in targets(draft).items() if other.pool.has_gpus]
        instead = f"take a pool with GPUs ({listed(with_gpus)}), or " if with_gpus else ""
        yield here.found("no-gpus", read=read, target=target, instead=instead)
    elif not step.gpus and target.pool.has_gpus:
        without = [name for name, other in targets(draft).items() if not other.pool.has_gpus]
        what, instead = (
            "step" if isinstance(step, StepSettings) else "app",
            f": {listed(without)}" if without else "",
        )
        yield here.found("idle-gpus", read=read, target=target, what=what, instead=instead)
    elif step.gpus > 1 and target.pool.shares_gpus:
        yield here.found("one-share", read=read, target=target)
    elif target.node is not None and step.gpus > target.node.gpus > 0:
        yield here.found("few-gpus", read=read, target=target)


def _scratch(at: Path, placed: StepSettings | AppSettings, draft: Draft) -> Iterator[Finding]:
    for supplement in _supplements(placed, draft):
        if mebibytes(placed.ephemeral_storage) < mebibytes(supplement.scratch):
            yield Section(RULES["step"], at, placed).found("scratch", supplement=supplement)


def _supplements(placed: StepSettings | AppSettings, draft: Draft) -> Iterator[Supplement]:
    """What its image lacks, where the settings tell its image."""
    if isinstance(placed, AppSettings):
        for app in _apps(draft):
            if app.placed_by is placed:
                yield from lacked_by(app).values()
    elif placed.gpus and placed.image is None:
        yield from (supplement for supplement in SUPPLEMENTS.values() if supplement.is_lacking(GPU_IMAGE))


def _apps(draft: Draft) -> Iterator[AppDeclaration]:
    for name, settings in draft.pipelines.items():
        yield from apps_if_any(name, settings)


def _mounting(draft: Draft) -> set[int]:
    """The identities of the settings of apps that have the store mounted."""
    return {id(app.placed_by) for app in _apps(draft) if mounts_store(app)}


def _mounted_buckets(placed: PodSettings, draft: Draft) -> int:
    """How many buckets of inputs the pods mount that ``placed`` places."""
    sections = [(name, settings) for name, settings in draft.pipelines.items() if data_of(settings)]
    steps = [step for section in sections for step in steps_if_any(*section) if step.placed_by is placed]
    return max((sum(not data.in_store for data in step.data.values()) for step in steps), default=0)


_MOUNT_TAKES = "the store's mount takes"


def _amounts(at: Path, placed: PodSettings, target: Target, node: Resources, draft: Draft) -> Iterator[Finding]:
    cluster = draft.clusters[str(target.at[1])]
    # Services and some apps do not mount the store. That of another stack is not in this file, and so not wrong.
    mounts = isinstance(placed, StepSettings) or id(placed) in _mounting(draft)
    buckets = [draft.store.beside] * _mounted_buckets(placed, draft) if draft.store else []
    store = add(draft.store.sidecar, *buckets) if draft.store else cluster.sidecar
    sidecar = (store if mounts else None) or Resources(cpu=0, memory=0)
    mount: tuple[Path, ...] = (("store", "kind"),) if mounts and not cluster.other_stack else ()
    cached = isinstance(placed, StepSettings) and placed.cache is not None
    disk, scratch = "cache" if cached else "ephemeral_storage", mebibytes(placed.ephemeral_storage)
    amounts = {
        "cpu": (cpu_millicores(placed.cpu), sidecar.cpu, node.cpu, "m", "CPU"),
        "memory": (mebibytes(placed.memory), sidecar.memory, node.memory, "Mi", "memory"),
        disk: (
            placed.asked.ephemeral_storage - (scratch if cached else 0),
            sidecar.ephemeral_storage + (scratch if cached else 0),
            node.ephemeral_storage,
            "Mi",
            "ephemeral storage",
        ),
    }
    for key, (amount, beside, capacity, unit, words) in amounts.items():
        if amount + beside <= capacity:
            continue
        takes = "the step's `ephemeral_storage` and the store's mount take" if key == "cache" else _MOUNT_TAKES
        store = f" and {takes} {beside}{unit} of it" if beside else ""
        room = max(0, capacity - beside)
        yield Finding(
            (*at, key),
            getattr(placed, key),
            f"one node of pool `{target.name}` has {capacity}{unit} of {words} for pods{store}",
            f"write `{key}: {room}{unit}` or less, or take a pool with larger nodes"
            if room
            else "take a pool with larger nodes",
            read=((*at, "pool"), *mount, *target.keys_of("ephemeral_storage" if key == disk else key)),
        )
