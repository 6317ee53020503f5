"""Policies about changes of services: queues that are created anew, new passwords, volumes out of reach."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.kubernetes.review import CLAIM, METRICS_CLAIM, PROMETHEUS, RELEASE, SECRET, secrets_of
from infra.review.contract import Harm, Severity, Violation
from infra.review.stack import Resource, Stack, at, mapping, mappings, texts
from offline.evaluated.model import Operation
from offline.evaluated.operations import GOES, ResourceDiff
from offline.evaluated.workloads import DEPLOYMENT, STATEFUL_SET, Workload, workload_of
from offline.policies.changes import Change, ChangePolicy, cause, undo
from offline.policies.security import find_holding

CHANGED_STORAGE = "; or change its storage with it, which makes its volume anew"
WITHOUT_IT = "; or copy its data away, and take it out of the stack file for one update"
WITHOUT_METRICS = "; or take the metrics out of the stack file for one update, which deletes what there is of them"
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
        if compared.after.type not in {STATEFUL_SET, DEPLOYMENT, RELEASE}:
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
    if after.type == RELEASE:
        return WITHOUT_METRICS if all(at(side.properties, *METRICS_CLAIM) for side in (before, after)) else ""
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
    pools = _pods_of(resource, stack).suitable_pools(stack)
    if not pools or not all(pool.zones for pool in pools):
        return None
    return _Places(
        "`, `".join(pool.name for pool in pools), frozenset(zone for pool in pools for zone in pool.zones)
    )


def _pods_of(resource: Resource, stack: Stack) -> Workload:
    """The pods of a resource; of a release, those that its operator makes for Prometheus."""
    if resource.type != RELEASE:
        return workload_of(resource, stack)
    prometheus = mapping(at(resource.properties, *PROMETHEUS))
    placed = {key: prometheus.get(key) for key in ("nodeSelector", "tolerations")}
    template = {"spec": {**placed, "containers": [{"resources": prometheus.get("resources")}]}}
    return Workload(resource, stack.cluster_of(resource), template)


POLICIES: Sequence[ChangePolicy] = (
    ChangePolicy(
        "deletes-queue",
        Severity.WARNING,
        "A change deletes or replaces no queue: what is in it is found again from the store, but who works waits.",
        _find_rebuilt,
        "Run `pulumi up` while nothing works on its items, or leave it as it is.",
        harm=Harm.INTERRUPTION,
    ),
    ChangePolicy(
        "password-out-of-step",
        Severity.ERROR,
        "A change gives no new password to some pods while others go on with the old one.",
        _find_passwords,
        "Leave it as it is, or start the pods of the service anew with it.",
        harm=Harm.INTERRUPTION,
    ),
    ChangePolicy(
        "volume-out-of-reach",
        Severity.ERROR,
        "A change moves no pod, and no nodes of its pool, away from the zone in which its volume is.",
        _find_out_of_reach,
        "Keep the zones, or take a pool with nodes in the same zone.",
        harm=Harm.INTERRUPTION,
    ),
)
