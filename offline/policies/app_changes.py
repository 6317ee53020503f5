"""Policies about a change of what apps serve and of Kueue's API, and about files that no revision has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.infra.pipelines.discovery import outside
from slipway.infra.review.contract import Harm, Severity, Violation
from slipway.infra.review.stack import JOB, Resource, at, items, mapping, mappings
from slipway.infra.schema.problems import key_of
from slipway.infra.settings.pipelines import KEY
from slipway.offline.policies.changes import Change, ChangePolicy, cause, undo

RELEASE = "kubernetes:helm.sh/v3:Release"

KUEUE = "kueue"
"""The name of the release, which charts of other places have, too."""

PUBLISHES = {
    "slipway.workloads.apps.tensorflow_serving.publish",
    "workloads.apps.tensorflow_serving.publish",
    "workloads.serving.publish",
}
"""The module of the steps that publish (`slipway.infra.pipelines.app_kinds.tensorflow_serving`), and its names of
before."""


def _find_versions(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        if compared.before is None or compared.after is None or compared.after.type != JOB:
            continue
        before, after = _kept(compared.before), _kept(compared.after)
        if before is not None and after is not None and after < before:
            newest = f"the newest {after}" if after > 1 else "the newest"
            yield Violation(
                compared.resource.urn,
                f"deletes versions of the model from the store: all but {newest} and those that a label names, "
                f"where {before} stayed",
                f"leave `keep` at {before}; or copy the versions away first",
            )


def _kept(job: Resource) -> int | None:
    """How many versions a step that publishes leaves; None for any other Job."""
    for container in mappings(at(job.properties, "spec", "template", "spec", "containers")):
        words = [*items(container.get("command")), *items(container.get("args"))]
        if PUBLISHES & set(map(str, words)) and "--keep" in words[:-1]:
            number = str(words[words.index("--keep") + 1])
            return int(number) if number.isdecimal() else None
    return None


def _find_kueue(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        release = compared.deleted
        if release and release.type == RELEASE and release.properties.get("name") == KUEUE:
            yield Violation(
                compared.resource.urn,
                f"deletes Kueue's API, and with it everybody's queues on that cluster: {cause(compared)}; Jobs of "
                "other stacks that wait there wait for ever",
                f"{undo(compared)}; or first take `slipway:kueue` out of the stacks that have queues there",
            )


APP_CHANGE_POLICIES = (
    ChangePolicy(
        "deletes-model-versions",
        Severity.WARNING,
        "A change lets no step that publishes delete versions of a model that it kept before.",
        _find_versions,
        "Leave `keep` as it is; or copy the versions away first.",
        harm=Harm.LOSS,
    ),
    ChangePolicy(
        "deletes-queue-api",
        Severity.WARNING,
        "A change does not take Kueue from a cluster, where other stacks may have queues.",
        _find_kueue,
        "Leave it there; or first take `slipway:kueue` out of the stacks that have queues there.",
        harm=Harm.INTERRUPTION,
    ),
)


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


OUTSIDE_FOLDER_POLICIES: Sequence[ChangePolicy] = (
    ChangePolicy(
        "not-comparable",
        Severity.WARNING,
        "A preview has both revisions of all files: those of each pipeline are in the repository.",
        _find_uncompared,
        "Compare with what is up by `pulumi preview`; or move the folder below `workloads/`.",
        harm=None,
    ),
)
