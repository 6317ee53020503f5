"""What a program left in its directory: the files of its result, and whether those that it promised are there.

Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slipway.runtime.exits import BAD_INPUT, USAGE, StepError
from slipway.runtime.json_values import AbsentError, split, value_at
from slipway.runtime.store import (
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

NO_RESULT = 9
"""Exit code: the program ended well, and what it left is not the result that was declared."""

_SHOWN = 20
_PAUSES = (0.2, 0.5, 1.0, 2.0)
"""Seconds to wait, one after the other, for a file that is still being written."""


class NoResultError(StepError):
    """The program ended well, and what it left is not the result that was declared."""

    def __init__(self, message: str) -> None:
        super().__init__(NO_RESULT, message)


@dataclass(frozen=True)
class Declared:
    """A result that has to be there: a file, a folder with files, or a value of a JSON file."""

    name: str
    reference: str

    @staticmethod
    def parse(text: str) -> Declared:
        """The result of a `--result NAME=FILE[#/pointer]`. Raises StepError with USAGE."""
        name, _, reference = text.partition("=")
        path = PurePosixPath(split(reference)[0])
        if not name or not path.parts or path.is_absolute() or ".." in path.parts:
            raise StepError(USAGE, f"--result {text!r}; write NAME=FILE or NAME=FILE#/pointer")
        return Declared(name, reference)

    def absence(self, directory: Path, files: Mapping[str, Entry]) -> str:
        """What keeps it from being one of `files`, the result in `directory`; empty where it is there."""
        file, pointer = split(self.reference)
        wanted = PurePosixPath(file).as_posix()
        if wanted not in files and not any(name.startswith(f"{wanted}/") for name in files):
            return f"there is no file {file}"
        if not pointer:
            return ""
        try:
            value_at(directory, self.reference)
        except AbsentError as error:
            return str(error)
        return ""


def require(directory: Path, files: Mapping[str, Entry], declared: Sequence[Declared]) -> None:
    """Raise NoResultError, which names all that are missing of `declared`, and the files that are there."""
    missing = [f"{result.name}: {why}" for result in declared if (why := result.absence(directory, files))]
    if not missing:
        return
    names = list(files)[:_SHOWN]
    more = f" and {len(files) - len(names)} more" if len(files) > len(names) else ""
    raise NoResultError(
        f"the program ended well, but {len(missing)} of its {len(declared)} results "
        f"{'is' if len(missing) == 1 else 'are'} not in {directory}: {'; '.join(missing)}. "
        f"It wrote {', '.join(names) + more if names else 'no file'}"
    )


def collect(directory: Path) -> dict[str, Entry]:
    """Size and SHA-256 of every file below `directory`, by its path with `/`.

    Temporary files of Slipway are none of them. What is no file, or a link to none within the directory, is left
    out by name on standard error.

    Raises:
        NoResultError: a file of the name of the manifest, one whose name is not UTF-8, or one that changes while
            it is read.
        StoreError: the store cannot be read.
    """
    unsteady: list[str] = []
    for pause in (*_PAUSES, None):
        with store_errors(directory):
            names, left_out = _list_files(directory)
            if MANIFEST in names or any(name.startswith(f"{MANIFEST}/") for name in names):
                raise NoResultError(
                    f"the program wrote {directory / MANIFEST}, which is the name of Slipway's list of the "
                    "result's files: let it write another name, or into a folder"
                )
            if unreadable := [shown for shown, utf8 in map(_printable, names) if not utf8]:
                raise NoResultError(
                    f"{len(unreadable)} names in {directory} are not UTF-8, as those of a result have to be: "
                    f"{', '.join(unreadable[:_SHOWN])}. Let the program write other names, and delete "
                    "these files: the next start finds them as they are"
                )
            steady = {name: _steady(directory / name) for name in names}
            entries = {name: entry for name, entry in steady.items() if entry is not None}
            unsteady = sorted({*steady} - {*entries} | {*names} ^ {*_list_files(directory)[0]})
        if not unsteady:
            for line in left_out:
                print(f"warning: left out of the result: {line}", file=sys.stderr, flush=True)
            return entries
        if pause is not None:
            time.sleep(pause)
    raise NoResultError(
        f"files in {directory} still change after the program ended: {', '.join(unsteady[:_SHOWN])}; does it "
        "leave processes behind?"
    )


def _printable(name: str) -> tuple[str, bool]:
    """A name as it can be printed, and whether it is UTF-8."""
    shown = name.encode(errors="backslashreplace").decode()
    return shown, shown == name


def _steady(path: Path) -> Entry | None:
    """The file's entry; None where it vanishes or is written meanwhile."""
    try:
        before = path.stat()
        entry = digest_of(path)
        after = path.stat()
    except FileNotFoundError:
        return None
    if entry.size != after.st_size or before.st_size != after.st_size:
        return None
    # A store may learn a file's time of change late: then its content decides.
    return entry if before.st_mtime_ns == after.st_mtime_ns or digest_of(path) == entry else None


def _list_files(directory: Path) -> tuple[list[str], list[str]]:
    """The files of the result, sorted, and what is left out, each with the reason."""
    names: list[str] = []
    left_out: list[str] = []
    inside = directory.resolve()
    for folder, folders, files in os.walk(directory, onerror=_unless_gone):
        # Slipway's own, with what was in a result's place in them.
        folders[:] = [name for name in folders if not name.endswith(TEMPORARY_SUFFIX)]
        for name in (*folders, *files):
            path = Path(folder) / name
            shown = path.relative_to(directory).as_posix()
            if name.endswith(TEMPORARY_SUFFIX) or (name in folders and not path.is_symlink()):
                continue
            if path.is_symlink():
                target = path.resolve()
                if inside not in target.parents:
                    left_out.append(f"{shown} is a link out of {directory}")
                    continue
                if target.is_dir():
                    # Its files are listed under their own names.
                    left_out.append(f"{shown} is a link to a folder")
                    continue
            if path.is_file():
                names.append(shown)
            elif os.path.lexists(path):
                left_out.append(f"{shown} is {'a link to no file' if path.is_symlink() else 'no regular file'}")
    return sorted(names), sorted(left_out)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


# What earlier attempts of a program left in the directory of its result, and whether the next one may go on.
#
# A record beside the files says which work they belong to, so that a program is never given what another command
# line or other inputs left.


RECORD = f"attempt{TEMPORARY_SUFFIX}"
"""The record: a manifest of the work that is being done. Once the program has ended well, it has its files."""

_RESULTS = "results"


def refuse_other_work(directory: Path, work: Manifest) -> None:
    """Raise StepError with BAD_INPUT where `directory` is that of another step or another command line.

    Its files would be replaced; somebody may still want them.
    """
    for earlier in (_load_published(directory), load_record(directory)):
        if earlier is None or _is_bare(directory):
            continue
        if earlier.step != work.step:
            raise _refusal(directory, f"has files of the step {earlier.step}")
        if not dataclasses.replace(earlier, inputs=work.inputs).same_work(work):
            raise _refusal(directory, "has files of another command line")


def begin(directory: Path, work: Manifest) -> None:
    """Make `directory` ready for the program: nothing in it is a result any more, and all is of the same work.

    Files of a result are deleted where they were altered, or where they were made from other inputs.

    Raises:
        StepError: BAD_INPUT where an attempt on other inputs left files; StoreError.
    """
    published, recorded = _load_published(directory), load_record(directory)
    if recorded is not None and not recorded.same_work(work) and not _is_bare(directory):
        raise _refusal(directory, "has files of an attempt whose inputs were others")
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
    recorded = load_record(directory)
    if recorded is None or not recorded.same_work(work) or recorded.summary.get(_RESULTS) in (None, list(results)):
        return None
    with store_errors(directory):
        return recorded if all(_is(directory / name, entry) for name, entry in recorded.files.items()) else None


def end(directory: Path) -> None:
    """Remove the record, now that there is a manifest, and what attempts that were killed left of other files."""
    with contextlib.suppress(OSError):
        (directory / RECORD).unlink()
    remove_stale(directory)


def _load_published(directory: Path) -> Manifest | None:
    try:
        return load_manifest(directory)
    except NotWholeError:
        return None


def load_record(directory: Path) -> Manifest | None:
    """What the record of an attempt says; None where there is none that is whole."""
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


def _refusal(directory: Path, what: str) -> StepError:
    return StepError(
        BAD_INPUT, f"{directory} {what}: name another directory, or delete this one with all that is in it"
    )
