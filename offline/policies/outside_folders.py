"""Pipelines whose files are outside of the repository: a preview has one revision of these, and cannot compare."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.pipelines.discovery import outside
from infra.review.policy import Severity, Violation
from infra.review.properties import mapping
from infra.schema.problems import key_of
from infra.settings.pipelines import KEY
from offline.policies.changes import Change, ChangePolicy

SECTION = f"slipway:{KEY}"


def uncompared(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """The folders outside of the repository that pipelines of both configurations run, by pipeline."""
    sections, now = mapping(before.get(SECTION)), mapping(after.get(SECTION))
    folders = {name: mapping(section).get("uses", name) for name, section in sections.items() if name in now}
    return {name: folder for name, folder in folders.items() if isinstance(folder, str) and outside(folder)}


def _uncompared(change: Change) -> Iterator[Violation]:
    for name, folder in uncompared(change.before.configuration, change.after.configuration).items():
        yield Violation(
            key_of((name,), f"{SECTION}."),
            f"its folder {folder} is outside of the repository, so both revisions have its files as they are: "
            "whether a change of them runs Jobs again is unknown",
            "compare with what is up by `pulumi preview`; or move the folder below `workloads/`",
        )


POLICIES: Sequence[ChangePolicy] = (
    ChangePolicy(
        "not-comparable",
        Severity.WARNING,
        "A preview has both revisions of all files: those of each pipeline are in the repository.",
        _uncompared,
        "Compare with what is up by `pulumi preview`; or move the folder below `workloads/`.",
        harm=None,
    ),
)
