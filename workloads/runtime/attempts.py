"""What earlier attempts of a program left in the directory of its result, and whether the next one may go on.

A record beside the files says which work they belong to, so that a program is never given what another command
line or other inputs left. Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from workloads.runtime.exits import BAD_INPUT, StepError
from workloads.runtime.store import (
    MANIFEST,
    TEMPORARY_SUFFIX,
    Entry,
    Manifest,
    NotWholeError,
    decode,
    digest_of,
    load_manifest,
    read_file,
    remove_file,
    remove_stale,
    store_errors,
    write_atomically,
)

RECORD = f"attempt{TEMPORARY_SUFFIX}"
"""The record: a manifest of the work that is being done. Once the program has ended well, it has its files."""

_RESULTS = "results"


def refuse_other_work(directory: Path, work: Manifest) -> None:
    """Raise StepError with BAD_INPUT where `directory` is that of another step or another command line.

    Its files would be replaced; somebody may still want them.
    """
    for found in (_published(directory), _recorded(directory)):
        if found is None or _is_bare(directory):
            continue
        if found.step != work.step:
            raise _refused(directory, f"has files of the step {found.step}")
        if not dataclasses.replace(found, inputs=work.inputs).same_work(work):
            raise _refused(directory, "has files of another command line")


def begin(directory: Path, work: Manifest) -> None:
    """Make `directory` ready for the program: nothing in it is a result any more, and all is of the same work.

    Files of a result are deleted where they were altered, or where they were made from other inputs.

    Raises:
        StepError: BAD_INPUT where an attempt on other inputs left files; StoreError.
    """
    published, recorded = _published(directory), _recorded(directory)
    if recorded is not None and not recorded.same_work(work) and not _is_bare(directory):
        raise _refused(directory, "has files of an attempt whose inputs were others")
    with store_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        # First of all: nobody may take for a result what is about to change.
        remove_file(directory / MANIFEST)
        if published is not None:
            outdated = not published.same_work(work)
            for name, entry in published.files.items():
                if outdated or not _is(directory / name, entry):
                    remove_file(directory / name)
        write_atomically(directory / RECORD, work.encode())


def keep(directory: Path, ended: Manifest, results: Sequence[str]) -> None:
    """Record that the program ended well and left the files of `ended`, but not all of the declared `results`."""
    with store_errors(directory):
        record = dataclasses.replace(ended, summary={**ended.summary, _RESULTS: list(results)})
        write_atomically(directory / RECORD, record.encode())


def kept(directory: Path, work: Manifest, results: Sequence[str]) -> Manifest | None:
    """What `keep` recorded, where other `results` are declared by now and all files are as they were.

    None where the program has to run.
    """
    found = _recorded(directory)
    if found is None or not found.same_work(work) or found.summary.get(_RESULTS) in (None, list(results)):
        return None
    with store_errors(directory):
        return found if all(_is(directory / name, entry) for name, entry in found.files.items()) else None


def end(directory: Path) -> None:
    """Remove the record, now that there is a manifest, and what attempts that were killed left of other files."""
    with contextlib.suppress(OSError):
        (directory / RECORD).unlink()
    remove_stale(directory)


def _published(directory: Path) -> Manifest | None:
    try:
        return load_manifest(directory)
    except NotWholeError:
        return None


def _recorded(directory: Path) -> Manifest | None:
    with store_errors(directory):
        content = read_file(directory / RECORD)
    with contextlib.suppress(ValueError):
        return None if content is None else decode(content)
    return None


def _is_bare(directory: Path) -> bool:
    """Whether no attempt left anything: it may be gone on with by any other work."""
    with store_errors(directory):
        return all(path.name == RECORD for path in directory.iterdir())


def _is(path: Path, entry: Entry) -> bool:
    return path.is_file() and digest_of(path) == entry


def _refused(directory: Path, what: str) -> StepError:
    return StepError(
        BAD_INPUT, f"{directory} {what}: name another directory, or delete this one with all that is in it"
    )
