"""Policies about a change of services: queues that are made anew, new passwords, volumes out of reach."""

from collections.abc import Iterator, Sequence

from infra.kubernetes.review.clients import SECRET, secrets_of
from infra.review.policy import Harm, Severity, Violation
from infra.review.properties import at, items
from infra.review.stack import NodePool, Resource, Stack
from offline.policies.changes import GOES, Change, ChangePolicy, cause, undo
from offline.policies.protection import holding
from offline.policies.workloads import STATEFUL_SET, workload_of
from offline.preview.model import Operation


def _rebuilt(change: Change) -> Iterator[Violation]:
    for each in change.compared:
        if each.before is None or each.operation not in GOES or each.protected or each.retained:
            continue
        held = holding(each.before, change.before)
        if held is not None and held.rebuilt:
            yield Violation(
                each.resource.urn, f"deletes {held.lost}: {cause(each)}; {held.rebuilt}", f"{undo(each)}, or go on"
            )


def _passwords(change: Change) -> Iterator[Violation]:
    """Of pods that stay, the ones that go on with the old password while new pods are given the new one."""
    for secret in change.compared:
        if secret.resource.type != SECRET or secret.after is None or secret.before is None or not secret.operation:
            continue
        if not any(each.path[0] in {"data", "stringData"} for each in secret.differences):
            continue
        for server in _keeping(change, secret.after):
            why = cause(secret) if secret.operation in GOES else "it changes"
            yield Violation(
                server.urn,
                f"{server.name} goes on with the values of {secret.resource.name} that it started with, and pods "
                f"that start from now on get new ones: {why}",
                f"{undo(secret)}; or start the pods anew after the update, with `kubectl rollout restart`",
            )


def _keeping(change: Change, secret: Resource) -> Iterator[Resource]:
    """The services that read the Secret when they start, and that the update does not start anew."""
    name = at(secret.properties, "metadata", "name")
    for each in change.compared:
        if each.after is None or each.before is None or each.after.provider != secret.provider:
            continue
        spec = at(each.after.properties, "spec", "template", "spec")
        if each.after.type != STATEFUL_SET or not isinstance(name, str) or name not in secrets_of(spec):
            continue
        anew = each.operation is Operation.REPLACE or any(
            difference.path[:2] == ("spec", "template") for difference in each.differences
        )
        if not anew:
            yield each.after


def _out_of_reach(change: Change) -> Iterator[Violation]:
    for each in change.compared:
        if each.before is None or each.after is None or each.operation is not Operation.UPDATE:
            continue
        if each.after.type != STATEFUL_SET or not items(at(each.after.properties, "spec", "volumeClaimTemplates")):
            continue
        old, new = _pool(each.before, change.before), _pool(each.after, change.after)
        if old is None or new is None or not old.zones or not new.zones or set(old.zones) <= set(new.zones):
            continue
        held = holding(each.before, change.before)
        anew = "; or change its storage with it, which makes its volume anew" if held and held.rebuilt else ""
        maybe = "may be" if set(old.zones) & set(new.zones) else "is"
        yield Violation(
            each.resource.urn,
            f"its pod moves from `{old.name}` to `{new.name}`, whose nodes are in {', '.join(new.zones)}, and its "
            f"volume {maybe} in another zone ({', '.join(old.zones)}), where it stays: the pod waits for ever",
            f"leave it on `{old.name}`; or take a pool with nodes in {', '.join(old.zones)}{anew}",
        )


def _pool(set_: Resource, stack: Stack) -> NodePool | None:
    return workload_of(set_, stack).pool(stack)


POLICIES: Sequence[ChangePolicy] = (
    ChangePolicy(
        "deletes-queue",
        Severity.WARNING,
        "A change deletes or replaces no queue: what is in it is found again from the store, but who works waits.",
        _rebuilt,
        "Run `pulumi up` while nothing works on its items, or leave it as it is.",
        harm=Harm.INTERRUPTION,
    ),
    ChangePolicy(
        "password-out-of-step",
        Severity.ERROR,
        "A change gives no new password to some pods while others go on with the old one.",
        _passwords,
        "Leave it as it is, or start the pods of the service anew with it.",
        harm=Harm.INTERRUPTION,
    ),
    ChangePolicy(
        "volume-out-of-reach",
        Severity.ERROR,
        "A change moves no pod away from the zone in which its volume is.",
        _out_of_reach,
        "Take a pool with nodes in the same zone.",
        harm=Harm.INTERRUPTION,
    ),
)
