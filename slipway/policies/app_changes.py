"""Policies about a change of Kueue's API, and about files that no revision has."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipway.infra.pipelines.discovery import outside
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import key_of
from slipway.infra.settings.pipelines import KEY
from slipway.policies.changes import Change, cause, undo

RELEASE = "kubernetes:helm.sh/v3:Release"

KUEUE = "kueue"
"""The name of the release, which charts of other places have, too."""


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
        "deletes-queue-api": _find_kueue,
        "not-comparable": _find_uncompared,
    },
)
