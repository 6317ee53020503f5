"""Policies about a change of what apps and queues leave behind: versions of models, and Kueue's own API."""

from collections.abc import Iterator

from infra.review.policy import Harm, Severity, Violation
from infra.review.properties import at, items, mappings
from infra.review.stack import JOB, Resource
from offline.policies.changes import GOES, Change, ChangePolicy, cause, undo

RELEASE = "kubernetes:helm.sh/v3:Release"

KUEUE = "kueue"
"""The name of the release, which charts of other places have, too."""

PUBLISHES = "workloads.serving.publish"
"""The module of the steps that publish (`infra.pipelines.tensorflow_serving`)."""


def _versions(change: Change) -> Iterator[Violation]:
    for each in change.compared:
        if each.before is None or each.after is None or each.after.type != JOB:
            continue
        before, after = _kept(each.before), _kept(each.after)
        if before is not None and after is not None and after < before:
            newest = f"the newest {after}" if after > 1 else "the newest"
            yield Violation(
                each.resource.urn,
                f"deletes versions of the model from the store: all but {newest} and those that a label names, "
                f"where {before} stayed",
                f"leave `keep` at {before}; or copy the versions away first",
            )


def _kept(job: Resource) -> int | None:
    """How many versions a step that publishes leaves; None for any other Job."""
    for container in mappings(at(job.properties, "spec", "template", "spec", "containers")):
        words = [*items(container.get("command")), *items(container.get("args"))]
        if PUBLISHES in words and "--keep" in words[:-1]:
            number = str(words[words.index("--keep") + 1])
            return int(number) if number.isdecimal() else None
    return None


def _kueue(change: Change) -> Iterator[Violation]:
    for each in change.compared:
        if each.before is None or each.before.type != RELEASE or each.before.properties.get("name") != KUEUE:
            continue
        if each.operation in GOES and not (each.protected or each.retained):
            yield Violation(
                each.resource.urn,
                f"deletes Kueue's API, and with it everybody's queues on that cluster: {cause(each)}; Jobs of "
                "other stacks that wait there wait for ever",
                f"{undo(each)}; or first take `slipway:kueue` out of the stacks that have queues there",
            )


POLICIES = (
    ChangePolicy(
        "deletes-model-versions",
        Severity.WARNING,
        "A change lets no step that publishes delete versions of a model that it kept before.",
        _versions,
        "Leave `keep` as it is; or copy the versions away first.",
        harm=Harm.LOSS,
    ),
    ChangePolicy(
        "deletes-queue-api",
        Severity.WARNING,
        "A change does not take Kueue from a cluster, where other stacks may have queues.",
        _kueue,
        "Leave it there; or first take `slipway:kueue` out of the stacks that have queues there.",
        harm=Harm.INTERRUPTION,
    ),
)
