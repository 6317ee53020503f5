"""Services and apps: whether their nodes stay, who may connect, and what an update does to them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.evaluated.model import Operation
from slipway.evaluated.operations import GOES, ResourceDiff
from slipway.evaluated.pod_rules import lets_all_in
from slipway.evaluated.scheduling import find_shortages, has_gpus, pools_of
from slipway.evaluated.workloads import (
    CRON_JOB,
    DEPLOYMENT,
    STATEFUL_SET,
    Workload,
    as_patched,
    workload_of,
    workloads,
)
from slipway.infra.kubernetes.labels import RUN_ANNOTATION, inputs_of
from slipway.infra.kubernetes.review import CLAIM, CLIENT_SERVICE, SECRET, secrets_of
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, mapping, mappings, strings, texts
from slipway.policies.changes import Change, cause, undo
from slipway.policies.security import find_holding


def list_servers(stack: Stack) -> Iterator[tuple[Resource, Workload]]:
    """Each Service with what its selector picks, in the same namespace."""
    pods = list(workloads(stack))
    for service in as_patched(stack, CLIENT_SERVICE):
        selector = strings(at(service.properties, "spec", "selector"))
        namespace = at(service.properties, "metadata", "namespace") or "default"
        for pod in pods:
            same = pod.resource.provider == service.provider and pod.namespace == namespace
            if same and selector and selector.items() <= pod.labels.items():
                yield service, pod


def _servers(stack: Stack) -> list[Workload]:
    """What a Service leads to and runs beside Jobs, each once.

    A Job with a Service is none: its pods find one another by it, and it ends.
    """
    return list({server.resource.urn: server for _, server in list_servers(stack) if not server.job}.values())


def _list_staying(stack: Stack) -> list[Workload]:
    """What serves, and every StatefulSet, each once."""
    workloads_ = [*_servers(stack), *workloads(stack, STATEFUL_SET)]
    return list({workload.resource.urn: workload for workload in workloads_}.values())


def _find_on_spot(stack: Stack) -> Iterator[Violation]:
    for workload in _list_staying(stack):
        pools = workload.suitable_pools(stack)
        if not pools or not all(map(_goes, pools)):
            continue
        others = [pool.name for pool in pools_of(stack, workload.cluster) if _could_take(pool, workload)]
        fix = f"place it on {' or '.join(f'`{name}`' for name in others)}" if others else "add a pool for it"
        why = ", ".join(f"{pool.name}: {_why(pool)}" for pool in pools)
        yield Violation(
            workload.resource.urn,
            f"its nodes are taken back ({why}), and all that connect to it wait until it has come up on another",
            f"{fix}, whose nodes stay",
        )


def _goes(pool: NodePool) -> bool:
    return pool.spot or pool.run_limit is not None


def _why(pool: NodePool) -> str:
    return "Spot" if pool.spot else "each runs for a limited time"


def _could_take(pool: NodePool, workload: Workload) -> bool:
    """Whether the pool's nodes stay and have room for the pod, whatever it selects now."""
    wanted = workload.requests
    return (
        not _goes(pool)
        and not has_gpus(pool)
        and pool.max_nodes > 0
        and wanted is not None
        and not find_shortages(wanted, pool.allocatable)
    )


def _find_open(stack: Stack) -> Iterator[Violation]:
    for service, workload in list_servers(stack):
        if lets_all_in(stack, workload):
            yield Violation(
                service.urn,
                f"every pod of the cluster may connect to {workload.resource.name}: no NetworkPolicy says who may",
                "add a NetworkPolicy for its pods whose ingress comes from the pods that need it",
            )


def _find_behind_schedule(stack: Stack) -> Iterator[Violation]:
    """Apps that read the results of the last update only, while the same steps run again by the clock."""
    scheduled = {
        at(stack.resources[job].properties, "metadata", "annotations", RUN_ANNOTATION): resource.name
        for resource in stack.of_type(CRON_JOB)
        for job in resource.dependencies
        if job in stack.resources and stack.resources[job].type == JOB
    }
    for workload in workloads(stack, DEPLOYMENT, STATEFUL_SET):
        read = inputs_of(mapping(at(workload.template, "metadata", "annotations")))
        steps = {name: scheduled[path] for name, path in read.items() if path in scheduled}
        if steps:
            names = ", ".join(f"`{name}`" for name in steps)
            by = ", ".join(dict.fromkeys(steps.values()))
            yield Violation(
                workload.resource.urn,
                f"it reads {names} of the last `up` for ever: the results that {by} makes are billed, and it does "
                "not show them",
                "write `follow: newest` at the app in the stack file, or remove the pipeline's `schedule`",
            )


TABLE = Path(__file__).with_name("policies.toml")

POLICIES = policies_of(
    TABLE,
    {
        "app-behind-schedule": _find_behind_schedule,
        "service-on-spot": _find_on_spot,
        "service-open-to-all": _find_open,
    },
)


CHANGED_STORAGE = "; or change its storage with it, which makes its volume anew"
WITHOUT_IT = "; or copy its data away, and take it out of the stack file for one update"
"""The ends of fixes: what makes a volume anew."""


def _find_rebuilt(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        held = find_holding(compared.deleted, change.before) if compared.deleted else None
        if held is not None and held.rebuilt:
            yield Violation(
                compared.resource.urn,
                f"deletes {held.lost}: {cause(compared)}; {held.rebuilt}",
                f"{undo(compared)}, or go on",
            )


def _find_passwords(change: Change) -> Iterator[Violation]:
    """Of pods that stay, the ones that go on with the old password while new pods are given the new one."""
    for secret in change.compared:
        if secret.resource.type != SECRET or secret.after is None or secret.before is None or not secret.operation:
            continue
        if not any(difference.path[0] in {"data", "stringData"} for difference in secret.differences):
            continue
        for server in _find_keeping(change, secret.after):
            why = cause(secret) if secret.operation in GOES else "it changes"
            yield Violation(
                server.urn,
                f"{server.name} goes on with the values of {secret.resource.name} that it started with, and pods "
                f"that start from now on get new ones: {why}",
                f"{undo(secret)}; or start the pods anew after the update, with `kubectl rollout restart`",
            )


def _find_keeping(change: Change, secret: Resource) -> Iterator[Resource]:
    """The services that read the Secret when they start, and that the update does not start anew."""
    name = at(secret.properties, "metadata", "name")
    for compared in change.compared:
        if compared.after is None or compared.before is None or compared.after.provider != secret.provider:
            continue
        spec = at(compared.after.properties, "spec", "template", "spec")
        if compared.after.type != STATEFUL_SET or not isinstance(name, str) or name not in secrets_of(spec):
            continue
        anew = compared.operation is Operation.REPLACE or any(
            difference.path[:2] == ("spec", "template") for difference in compared.differences
        )
        if not anew:
            yield compared.after


def _find_out_of_reach(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        if compared.before is None or compared.after is None:
            continue
        if compared.after.type not in {STATEFUL_SET, DEPLOYMENT}:
            continue
        if not (volume := _volume_that_stays(compared, change)):
            continue
        old, new = _places(compared.before, change.before), _places(compared.after, change.after)
        if old is None or new is None or old.zones <= new.zones:
            continue
        maybe = "may be" if old.zones & new.zones else "is"
        old_zones, here = ", ".join(sorted(old.zones)), ", ".join(sorted(new.zones))
        moves = (
            f"the nodes of `{old.pools}` move from {old_zones} to {here}"
            if old.pools == new.pools
            else f"its pod moves from `{old.pools}` to `{new.pools}`, whose nodes are in {here}"
        )
        stay = (
            f"keep {old_zones} in the zones of `{old.pools}`"
            if old.pools == new.pools
            else f"leave it on `{old.pools}`"
        )
        yield Violation(
            compared.resource.urn,
            f"{moves}, and its volume {maybe} in another zone ({old_zones}), where it stays: "
            "the pod waits for ever",
            f"{stay}; or take a pool with nodes in {old_zones}{volume}",
        )


def _volume_that_stays(compared: ResourceDiff, change: Change) -> str:
    """How a volume that the update keeps, and that one node mounts, is made anew, as the end of a fix; empty where
    the pods have no such volume.

    A volume of this kind is taken to be in one zone, as EBS and persistent disks are.
    """
    before, after = compared.before, compared.after
    assert before is not None
    assert after is not None
    templates = mappings(at(after.properties, "spec", "volumeClaimTemplates"))
    if compared.operation is not Operation.REPLACE and any(map(_of_one_node, templates)):
        held = find_holding(before, change.before)
        return CHANGED_STORAGE if held and held.rebuilt else WITHOUT_IT
    names = workload_of(after, change.after).claims
    for claim in change.compared:
        resource = claim.after
        if resource is None or resource.type != CLAIM or claim.before is None or claim.operation in GOES:
            continue
        same_place = resource.provider == after.provider and _namespace(resource) == _namespace(after)
        if (
            same_place
            and at(resource.properties, "metadata", "name") in names
            and _of_one_node(resource.properties)
        ):
            return WITHOUT_IT
    return ""


def _of_one_node(claim: Mapping[str, Any]) -> bool:
    """Whether a storage class makes the volume, for the pods of one node at a time."""
    shared = {"ReadWriteMany", "ReadOnlyMany"} & set(texts(at(claim, "spec", "accessModes")))
    return not shared and at(claim, "spec", "storageClassName") != "" and not at(claim, "spec", "volumeName")


def _namespace(resource: Resource) -> object:
    return at(resource.properties, "metadata", "namespace")


@dataclass(frozen=True)
class _Places:
    """The pools that may take a pod, as text, and the zones of their nodes."""

    pools: str
    zones: frozenset[str]


def _places(resource: Resource, stack: Stack) -> _Places | None:
    """Where the pods of ``resource`` may run; None where a pool's zones are not known."""
    pools = workload_of(resource, stack).suitable_pools(stack)
    if not pools or not all(pool.zones for pool in pools):
        return None
    return _Places(
        "`, `".join(pool.name for pool in pools), frozenset(zone for pool in pools for zone in pool.zones)
    )


CHANGE_POLICIES = policies_of(
    TABLE,
    {
        "deletes-queue": _find_rebuilt,
        "password-out-of-step": _find_passwords,
        "volume-out-of-reach": _find_out_of_reach,
    },
)
