"""The end of a step that works on items: the list of all of them, and the manifest that makes it a result.

Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.runtime.earlier_runs import row
from workloads.runtime.exits import StepError
from workloads.runtime.item_assignment import Outcome
from workloads.runtime.items import ITEMS, Record, at_once, whole_result
from workloads.runtime.outputs import Declared, require
from workloads.runtime.store import (
    MANIFEST,
    Entry,
    Manifest,
    digest_of,
    store_errors,
    write_atomically,
)

ITEMS_FAILED = 10
"""Exit code: more items were set aside than may be."""

_SHOWN = 20


@dataclass(frozen=True)
class Report:
    """How all items ended. `results` are the manifests of those that are done, by the path of their directory."""

    outcomes: Sequence[Outcome]
    results: dict[str, Manifest]
    broken: Sequence[str]
    """Items whose record names a result that is not there, or whose files are not as they were."""

    @property
    def failed(self) -> list[Outcome]:
        """The items that were set aside."""
        return [each for each in self.outcomes if each.record is None]


def report(output: Path, outcomes: Sequence[Outcome], read: Container[Record] = ()) -> Report:
    """Read all results and compare their files with their manifests, but not of those in `read`, whose files
    this process has read before. Raises StoreError.
    """
    results: dict[str, Manifest] = {}
    broken: list[str] = []
    for outcome, manifest in at_once(lambda each: (each, _manifest(output, each, read)), outcomes):
        if manifest is not None and outcome.record is not None:
            results[f"{outcome.item}/{outcome.record.attempt}"] = manifest
        elif not outcome.reason:
            broken.append(outcome.item)
    return Report(outcomes, results, broken)


def publish(output: Path, work: Manifest, ended: Report, allowed: int, declared: Sequence[Declared]) -> Manifest:
    """Write the list of all items and, where no more than `allowed` failed, the manifest.

    Both follow from the records of the items alone: two workers that do this at once write the same.

    Raises:
        StepError: ITEMS_FAILED naming the items and why they failed, NO_RESULT; StoreError.
    """
    rows = [_row(each, ended.results) for each in ended.outcomes]
    lines = ",\n".join(json.dumps(each, allow_nan=False) for each in rows)
    with store_errors(output):
        write_atomically(output / ITEMS, f"[\n{lines}\n]\n".encode())
        listed = digest_of(output / ITEMS)
    if len(ended.failed) > allowed:
        raise StepError(ITEMS_FAILED, _failures(ended, allowed))
    files: dict[str, Entry] = {ITEMS: listed}
    for path, manifest in ended.results.items():
        files.update({f"{path}/{name}": entry for name, entry in manifest.files.items()})
    require(output, files, declared)
    summary = {**work.summary, "items": len(ended.outcomes), "failed": len(ended.failed)}
    whole = dataclasses.replace(work, files=files, summary=summary)
    with store_errors(output):
        write_atomically(output / MANIFEST, whole.encode())
    return whole


def _manifest(output: Path, outcome: Outcome, read: Container[Record]) -> Manifest | None:
    record = outcome.record
    return whole_result(output, record, files=record not in read) if record is not None else None


def _row(outcome: Outcome, results: dict[str, Manifest]) -> dict[str, Any]:
    if outcome.record is None:
        return {"item": outcome.item, "state": "failed", "attempts": outcome.attempts, "reason": outcome.reason}
    own = {"item": outcome.item, "state": "done", **row(outcome.record)}
    return {**own, **{name: value for name, value in results[own["path"]].summary.items() if name not in own}}


def _failures(ended: Report, allowed: int) -> str:
    failed = ended.failed
    shown = "; ".join(f"{each.item}: {each.reason} ({_times(each.attempts)})" for each in failed[:_SHOWN])
    more = f"; and {len(failed) - _SHOWN} more, which {ITEMS} names" if len(failed) > _SHOWN else ""
    return (
        f"{len(failed)} of {len(ended.outcomes)} items failed, and {allowed or 'none'} may: {shown}{more}. "
        "The next start tries them again, and only them"
    )


def _times(attempts: int) -> str:
    return "tried once" if attempts == 1 else f"tried {attempts} times"
