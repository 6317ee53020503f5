"""Policies about a change from one stack to another: what an update would delete, open or fail at."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from slipway.evaluated.model import Operation
from slipway.evaluated.operations import GOES, ResourceDiff
from slipway.evaluated.scheduling import find_untolerated, taints_of
from slipway.evaluated.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET, unevictable, workloads
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.kubernetes.review import CLAIM, CLIENT_SERVICE, NAMESPACE, VOLUME
from slipway.infra.pipelines.discovery import outside
from slipway.infra.placed import SCHEDULED_RUN
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.effects import Consequence
from slipway.infra.review.facts import Effect
from slipway.infra.review.property_diff import Difference, path_text, without_indices
from slipway.infra.review.stack import JOB, Resource, Stack, at, mapping, strings, text, whole_internet, within
from slipway.infra.schema.problems import key_of
from slipway.infra.settings.pipelines import KEY
from slipway.policies.security import find_holding

NODE_PATCH = "kubernetes:core/v1:NodePatch"

MOST_NAMES = 6
"""How many Jobs, services and apps on one pool are named."""


@dataclass(frozen=True)
class Change:
    """An update: the stack ``before`` it and ``after`` it, and the operation on each resource."""

    before: Stack
    after: Stack
    compared: Sequence[ResourceDiff]

    @cached_property
    def by_urn(self) -> Mapping[str, ResourceDiff]:
        """The comparison of each resource of the stack before, by the URN that it has there."""
        return {resource.before.urn: resource for resource in self.compared if resource.before}

    @cached_property
    def _users(self) -> Mapping[str, Sequence[str]]:
        """The names of what runs on each pool before the update, by the pool's URN."""
        names: dict[str, list[str]] = {}
        for workload in workloads(self.before):
            if (pool := workload.pool(self.before)) is not None:
                names.setdefault(pool.urn, []).append(workload.resource.name)
        return names

    def users_of(self, compared: ResourceDiff) -> str:
        """Which Jobs, services and apps run on a pool, as ``: train, predict``; empty where none does."""
        names = self._users.get(compared.before.urn, ()) if compared.before else ()
        more = f" and {len(names) - MOST_NAMES} more" if names[MOST_NAMES:] else ""
        return f": {', '.join(names[:MOST_NAMES])}{more}" if names else ""

    def ends(self, urn: str) -> bool:
        """Whether the update deletes or replaces the resource with this URN."""
        compared = self.by_urn.get(urn)
        return compared is not None and compared.deleted is not None


def _find_lost(change: Change) -> Iterator[Violation]:
    for compared, consequence in _consequences(change, Effect.DELETES_DATA):
        yield Violation(
            compared.resource.urn,
            f"{consequence.fact.note}: {_from_to(consequence)}; {consequence.fact.restore}",
            f"{consequence.fact.fix}; or copy it away first, and suppress `deletes-data` with the reason",
        )
    for compared in change.compared:
        if compared.before is None or compared.protected or compared.retained:
            continue
        held = find_holding(compared.before, change.before)
        if held is None or held.kept or held.rebuilt:
            continue
        goes = compared.operation in GOES
        with_it = sorted(urn for urn in held.within if change.ends(urn))
        if held.refused or not (goes or with_it):
            continue
        why = (
            cause(compared)
            if goes
            else f"{_describe(change.by_urn[with_it[0]].resource)} goes, with all that is in it"
        )
        unless = f", unless {compared.unless}" if compared.unless else ""
        first = "" if held.meant else "copy what is in it away first, and "
        yield Violation(
            compared.resource.urn,
            f"deletes {held.lost}: {why}; {held.restore}{unless}",
            f"{undo(compared)}; or {first}suppress `deletes-data` with the reason",
        )


def _find_refused(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        if compared.before is None or compared.operation not in GOES:
            continue
        # Pulumi checks protection first, even of a resource that it would only remove from its state.
        if compared.protected:
            yield Violation(
                compared.resource.urn,
                f"`pulumi up` refuses the update: {cause(compared)}, and it is protected",
                f"{undo(compared)}; or take its protection away first, in an update of its own",
            )
        elif not compared.retained and (held := find_holding(compared.before, change.before)) and held.refused:
            yield Violation(
                compared.resource.urn,
                f"`pulumi up` fails half-way: {cause(compared)}, and {held.refused}",
                f"{undo(compared)}; or empty it, or let it be deleted, in an update of its own",
            )
    yield from _find_held_elsewhere(change)
    yield from _find_held_by_runs(change)
    yield from _find_held_by_taints(change)


def _find_held_by_taints(change: Change) -> Iterator[Violation]:
    """Taints that the stack takes back, at the end of an update, from nodes whose pods no longer tolerate them."""
    for compared in change.compared:
        patch = compared.deleted
        if patch is None or patch.type != NODE_PATCH:
            continue
        patched = at(patch.properties, "metadata", "name")
        taints = taints_of(at(patch.properties, "spec", "taints"))
        labels = [
            strings(at(labelled.properties, "metadata", "labels"))
            for labelled in change.after.resources.values()
            if labelled.type == NODE_PATCH and at(labelled.properties, "metadata", "name") == patched
        ]
        requests = (workload.request for workload in (workloads(change.after) if taints and labels else ()))
        if any(
            find_untolerated(request.tolerations, taints) and labels[0].items() <= request.selector.items()
            for request in requests
            if request
        ):
            yield Violation(
                compared.resource.urn,
                f"`pulumi up` refuses it: node {patched} loses its taint at the end of the update, and pods that "
                "do not tolerate it would wait for that",
                "for one update, leave `taint_nodes: true` and write `taints: []`; then remove `taint_nodes`",
            )


def _find_held_elsewhere(change: Change) -> Iterator[Violation]:
    """Volumes that are replaced while the claim that they are bound to is not the stack's own.

    A bound volume has the finalizer kubernetes.io/pv-protection: it goes after its claim (Kubernetes 1.34).
    """
    for compared in change.compared:
        volume = compared.deleted
        if volume is None or volume.type != VOLUME or compared.operation is not Operation.REPLACE:
            continue
        claim = at(volume.properties, "spec", "claimRef")
        name, namespace = text(at(claim, "name")), text(at(claim, "namespace"))
        declared = any(
            known.provider == volume.provider and at(known.properties, "metadata", "namespace") == namespace
            for known in change.before.of_type(CLAIM)
        )
        if not (name and namespace) or declared:
            continue
        yield Violation(
            compared.resource.urn,
            f"`pulumi up` fails half-way: {cause(compared)}, and it goes only after the claim {name} in namespace "
            f"{namespace}, which another stack has; that stack's Jobs count as done and do not run again by "
            "themselves",
            f"{undo(compared)}; or destroy the stack that runs Jobs in {namespace} first, bring it up again after "
            "this update, and suppress `deletion-refused` with the reason",
        )


def _find_held_by_runs(change: Change) -> Iterator[Violation]:
    """Claims that go while the Jobs of a CronJob that stays mount them.

    The pods of its last runs stay for their logs, and a claim has the finalizer kubernetes.io/pvc-protection: it
    goes after every pod object that names it (Kubernetes 1.34).
    """
    for compared in change.compared:
        claim = compared.deleted
        if claim is None or claim.type != CLAIM or compared.operation is not Operation.DELETE:
            continue
        users = [
            workload
            for workload in workloads(change.before, JOB, CRON_JOB)
            if workload.resource.provider == claim.provider
            and workload.namespace == at(claim.properties, "metadata", "namespace")
        ]
        if not any(at(claim.properties, "metadata", "name") in user.claims for user in users):
            continue
        for clock in users:
            runs = at(clock.resource.properties, "metadata", "labels", NAME) == SCHEDULED_RUN
            if runs and clock.resource.type == CRON_JOB and not change.ends(clock.resource.urn):
                yield Violation(
                    compared.resource.urn,
                    f"`pulumi up` fails half-way: {cause(compared)}, and it goes only after the pods of the runs "
                    f"of {clock.resource.name}, which stay for their logs",
                    f"{undo(compared)}; or take the pipeline's `schedule` out of the stack file for this update, "
                    "and suppress `deletion-refused` with the reason",
                )


def _find_not_carried_out(change: Change) -> Iterator[Violation]:
    for compared, consequence in _consequences(change, Effect.REFUSED):
        reason = f"another {_properties(consequence)} is not carried out: {consequence.fact.note}"
        yield Violation(compared.resource.urn, reason, consequence.fact.fix)
    for compared, consequence in _consequences(change, Effect.CUTS_OFF):
        reason = f"`pulumi up` fails half-way: {consequence.fact.note} ({_from_to(consequence)})"
        yield Violation(compared.resource.urn, reason, consequence.fact.fix)
    yield from _find_blocked(change)


def _find_blocked(change: Change) -> Iterator[Violation]:
    """Updates of node pools that wait for the eviction of pods which a budget never lets go."""
    for compared in change.compared:
        blocked = next((known.fact.blocked for known in compared.consequences if known.fact.blocked), "")
        if not blocked or compared.before is None:
            continue
        for workload in workloads(change.before, STATEFUL_SET, DEPLOYMENT):
            pool, budget = workload.pool(change.before), unevictable(workload, change.before)
            if budget is None or pool is None or pool.urn != compared.before.urn:
                continue
            name, namespace = workload.resource.name, workload.namespace
            labels = ",".join(f"{key}={label}" for key, label in workload.labels.items())
            yield Violation(
                compared.resource.urn,
                f"`pulumi up` fails half-way: {blocked}; the PodDisruptionBudget {budget.name} lets no pod of "
                f"{name} go, which runs on this pool",
                f"leave the pool as it is; or run `pulumi up` while nothing uses {name}, delete its pod once its "
                f"node is cordoned (`kubectl delete pod -n {namespace} -l {labels}`), which no budget stops, and "
                "suppress `update-refused` for this update",
            )


def _find_unguarded(change: Change) -> Iterator[Violation]:
    for compared, consequence in _consequences(change, Effect.UNGUARDS):
        yield Violation(
            compared.resource.urn, f"{consequence.fact.note} ({_from_to(consequence)})", consequence.fact.fix
        )


def _find_left(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        if compared.operation not in GOES or compared.protected or not compared.retained:
            continue
        billed = [
            charge for charge in change.before.charges if compared.before and charge.urn == compared.before.urn
        ]
        if billed:
            yield Violation(
                compared.resource.urn,
                f"stays in its cloud, which goes on billing it ({billed[0].what}), and no `pulumi destroy` "
                f"deletes it any more: {cause(compared)}",
                f"{undo(compared)}; or delete or switch it off by hand once nothing needs it",
            )


def _find_new_access(change: Change) -> Iterator[Violation]:
    before: dict[str, set[str]] = {}
    for grant in change.before.grants:
        before.setdefault(grant.may, set()).add(grant.who)
    for grant in change.after.grants:
        known = before.get(grant.may, set())
        if grant.who in known or within(grant.who, known):
            continue
        if grant.signs_in and grant.resource not in change.before.resources:
            continue
        yield Violation(
            grant.resource,
            f"lets {'every address' if whole_internet([grant.who]) else grant.who} {grant.may}",
            "go on where it is meant; else take it out of the stack file",
        )


def _find_ended_work(change: Change) -> Iterator[Violation]:
    yield from _find_ended_pools(change)
    for compared in change.compared:
        effects = {consequence.fact.effect for consequence in compared.consequences}
        if Effect.REFUSED in effects:
            # Nothing of the update happens.
            continue
        for consequence in compared.consequences:
            if consequence.fact.effect is Effect.ENDS_WORK:
                reason = f"{consequence.fact.note}{change.users_of(compared)} (another {_properties(consequence)})"
                yield Violation(compared.resource.urn, reason, consequence.fact.fix)


def _find_ended_pools(change: Change) -> Iterator[Violation]:
    """Node pools that go, with whatever runs on their nodes."""
    pools = {pool.urn: pool for pool in change.before.pools if pool.urn and not pool.stack and pool.max_nodes}
    for compared in change.compared:
        if (gone := compared.deleted) and (pool := pools.get(gone.urn)):
            yield Violation(
                compared.resource.urn,
                f"ends all nodes of the pool `{pool.name}` and what runs on them{change.users_of(compared)} "
                f"({cause(compared)})",
                f"{undo(compared)}; or run `pulumi up` while nothing runs on the pool",
            )


def _find_lost_namespaces(change: Change) -> Iterator[Violation]:
    """Namespaces that go with nothing in them that `deletes-data` names."""
    for compared in change.compared:
        if (gone := compared.deleted) is None or gone.type != NAMESPACE:
            continue
        name = at(gone.properties, "metadata", "name")
        inside = [
            other
            for other in change.before.resources.values()
            if other.provider == gone.provider and at(other.properties, "metadata", "namespace") == name
        ]
        held = [find_holding(other, change.before) for other in change.before.resources.values()]
        lost = any(data and gone.urn in data.within and not (data.kept or data.rebuilt) for data in held)
        if lost or find_holding(gone, change.before):
            continue
        names = [other.name for other in inside if other.type in {DEPLOYMENT, STATEFUL_SET, CRON_JOB, JOB}]
        more = f" and {len(names) - MOST_NAMES} more" if names[MOST_NAMES:] else ""
        known = f": {', '.join(names[:MOST_NAMES])}{more}" if names else ""
        yield Violation(
            compared.resource.urn,
            f"deletes the namespace {name} and everything in it, also what others put there{known} "
            f"({cause(compared)})",
            f"{undo(compared)}; or look what is in it first: `kubectl get all,pvc,secrets -n {name}`",
        )


def _find_stopped(change: Change) -> Iterator[Violation]:
    """Services whose Deployments go with them, and CronJobs. What StatefulSets hold, other policies name."""
    for compared in change.compared:
        gone = compared.deleted
        if gone is None or compared.operation is not Operation.DELETE:
            continue
        spec = at(gone.properties, "spec")
        if gone.type == CLIENT_SERVICE:
            selector = strings(at(spec, "selector"))
            if not any(
                selector and selector.items() <= workload.labels.items() and change.ends(workload.resource.urn)
                for workload in workloads(change.before, DEPLOYMENT)
                if workload.resource.provider == gone.provider
            ):
                continue
            metadata = strings(at(gone.properties, "metadata"))
            reason = f"nobody answers at {metadata.get('name')}.{metadata.get('namespace')} any more"
        elif gone.type == CRON_JOB:
            when = " ".join(filter(None, [text(at(spec, "schedule")), text(at(spec, "timeZone"))]))
            reason = f"{gone.name} no longer runs by itself ({when})"
        else:
            continue
        yield Violation(compared.resource.urn, f"{reason}: {cause(compared)}", f"{undo(compared)}; else go on")


def _consequences(change: Change, effect: Effect) -> Iterator[tuple[ResourceDiff, Consequence]]:
    """What has this effect, with the resource that is updated."""
    for compared in change.compared:
        yield from (
            (compared, consequence) for consequence in compared.consequences if consequence.fact.effect is effect
        )


def cause(change: ResourceDiff) -> str:
    """Why the resource is deleted, as a sentence."""
    if change.operation is Operation.DELETE:
        return "the stack no longer has it"
    if change.forcing:
        return f"another {', '.join(_paths(change.forcing))} replaces it"
    return f"{change.because}, which replaces it" if change.because else "it is replaced"


def undo(change: ResourceDiff) -> str:
    """What keeps the resource from being deleted."""
    if change.operation is Operation.DELETE:
        return "keep it in the stack"
    if change.forcing:
        return f"leave {', '.join(_paths(change.forcing))} as before"
    return "leave what replaces it as before"


def _paths(differences: Sequence[Difference]) -> list[str]:
    return list(dict.fromkeys(path_text(difference.path) for difference in differences))


def _properties(consequence: Consequence) -> str:
    paths = dict.fromkeys(path_text(without_indices(difference.path)) for difference in consequence.differences)
    return ", ".join(paths)


def _from_to(consequence: Consequence) -> str:
    """``retentionInDays 90 → 7``; for a mapping or a list only the name."""
    return ", ".join(
        dict.fromkeys(
            f"{path_text(without_indices(change.path))} {_short(change.before)} → {_short(change.after)}"
            for change in consequence.differences
        )
    )


def _short(value: object) -> str:
    if value is None:
        return "unset"
    return json.dumps(value) if isinstance(value, bool | int | float | str) else "…"


def _describe(resource: Resource) -> str:
    return f"its {resource.type.rpartition(':')[2].lower()} {resource.name}"


SECTION = f"slipway:{KEY}"


def find_uncompared(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """The folders outside of the repository that pipelines of both configurations run, by pipeline."""
    sections, now = mapping(before.get(SECTION)), mapping(after.get(SECTION))
    folders = {name: mapping(section).get("uses", name) for name, section in sections.items() if name in now}
    return {name: folder for name, folder in folders.items() if isinstance(folder, str) and outside(folder)}


def _find_uncompared(change: Change) -> Iterator[Violation]:
    for name, folder in find_uncompared(change.before.configuration, change.after.configuration).items():
        yield Violation(
            key_of((name,), f"{SECTION}."),
            f"its folder {folder} is outside of the repository, so both revisions have its files as they are: "
            "whether a change of them runs Jobs again is unknown",
            "compare with what is up by `pulumi preview`; or move the folder below `workloads/`",
        )


POLICIES = policies_of(
    Path(__file__).with_name("policies.toml"),
    {
        "deletes-data": _find_lost,
        "deletion-refused": _find_refused,
        "update-refused": _find_not_carried_out,
        "lets-in": _find_new_access,
        "safeguard-off": _find_unguarded,
        "ends-running-pods": _find_ended_work,
        "deletes-namespace": _find_lost_namespaces,
        "stops-answering": _find_stopped,
        "leaves-billed": _find_left,
        "not-comparable": _find_uncompared,
    },
)
