"""One worker of a step: it works on the items that it gets, and leaves the result of the step where none is left.

Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.features.items.pod import attempts, items
from slipway.features.items.pod.assignment import Assignment, Outcome, Queued, Run, Share, Task
from slipway.features.items.pod.attempts import EarlierRuns, copy, row
from slipway.features.items.pod.item_runner import Ending, ItemRunner, Stopping
from slipway.features.items.pod.items import ITEMS, Item, Record, Work, at_once, whole_result
from slipway.features.items.pod.queue import ItemQueue, Rules
from slipway.features.items.pod.resp import Connection
from slipway.runtime.exits import (
    OK,
    RECORD_VARIABLE,
    StepError,
)
from slipway.runtime.masking import Masker
from slipway.runtime.steps import command
from slipway.runtime.steps.attendant import Attendant, discard
from slipway.runtime.steps.outputs import Declared, NoResultError, require
from slipway.runtime.steps.program import Program
from slipway.runtime.store import (
    MANIFEST,
    Entry,
    Manifest,
    NotWholeError,
    check,
    digest_of,
    load_manifest,
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
        return [outcome for outcome in self.outcomes if outcome.record is None]


def report(output: Path, outcomes: Sequence[Outcome], read: Container[Record] = ()) -> Report:
    """Read all results and compare their files with their manifests, but not of those in `read`, whose files
    this process has read before. Raises StoreError.
    """
    results: dict[str, Manifest] = {}
    broken: list[str] = []
    for outcome, manifest in at_once(lambda outcome: (outcome, _manifest(output, outcome, read)), outcomes):
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
    listed = write_list(output, ended, allowed)
    files: dict[str, Entry] = {ITEMS: listed}
    for path, manifest in ended.results.items():
        files.update({f"{path}/{name}": entry for name, entry in manifest.files.items()})
    require(output, files, declared)
    summary = {**work.summary, "items": len(ended.outcomes), "failed": len(ended.failed)}
    whole = dataclasses.replace(work, files=files, summary=summary)
    with store_errors(output):
        write_atomically(output / MANIFEST, whole.encode())
    return whole


def write_list(output: Path, ended: Report, allowed: int) -> Entry:
    """Write the list of all items, from which later runs take results of equal work.

    Raises:
        StepError: ITEMS_FAILED where more than `allowed` failed, naming them and why; StoreError.
    """
    rows = [_row(outcome, ended.results) for outcome in ended.outcomes]
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    with store_errors(output):
        write_atomically(output / ITEMS, f"[\n{lines}\n]\n".encode())
        listed = digest_of(output / ITEMS)
    if len(ended.failed) > allowed:
        raise StepError(ITEMS_FAILED, _failures(ended, allowed))
    return listed


def _manifest(output: Path, outcome: Outcome, read: Container[Record]) -> Manifest | None:
    record = outcome.record
    return whole_result(output, record, files=record not in read) if record is not None else None


def _row(outcome: Outcome, results: dict[str, Manifest]) -> dict[str, Any]:
    if outcome.record is None:
        return {"item": outcome.item, "state": "failed", "attempts": outcome.attempts, "reason": outcome.reason}
    fields = {"item": outcome.item, "state": "done", **row(outcome.record)}
    return {
        **fields,
        **{name: value for name, value in results[fields["path"]].summary.items() if name not in fields},
    }


def _failures(ended: Report, allowed: int) -> str:
    failed = ended.failed
    reasons = [f"{outcome.item}: {outcome.reason} ({_times(outcome.attempts)})" for outcome in failed[:_SHOWN]]
    shown = "; ".join(reasons)
    more = f"; and {len(failed) - _SHOWN} more, which {ITEMS} names" if len(failed) > _SHOWN else ""
    return (
        f"{len(failed)} of {len(ended.outcomes)} items failed, and {allowed or 'none'} may: {shown}{more}. "
        "The next start tries them again, and only them"
    )


def _times(attempts: int) -> str:
    return "tried once" if attempts == 1 else f"tried {attempts} times"


@dataclass
class Given:
    """The items, the program's words and variables, and what decides the results of all items alike."""

    items: Sequence[Item]
    words: list[str]
    environment: dict[str, str]
    work: Work
    inputs: Mapping[str, str]
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def whole(self, options: argparse.Namespace) -> Manifest:
        """A manifest without files: what decides the result of the step."""
        settings = {**self.work.settings, "items": options.pattern, "mode": options.mode}
        return Manifest(options.step, {}, self.inputs, settings, {"best": dict(self.chosen)})


def give(options: argparse.Namespace) -> Given:
    """Check the inputs and list the items.

    The input that has the items is not read as a whole, unless the program reads it otherwise: each file is
    checked by the worker that gets it, and alone decides of its item. `options.pattern` becomes the portable one.

    Raises:
        StepError: BAD_INPUT where an input is not whole or has no items; StoreError.
    """
    chosen_from = {name for choice in options.choices for name in choice.among}
    source = items.source_of(options.items, options.inputs)
    apart = source is not None and source not in chosen_from and not _mentions(options, options.inputs[source])
    inputs = {name: place for name, place in options.inputs.items() if not (apart and name == source)}
    # As one of the words, the pattern gets the directory of the best, too.
    words = [*options.words, options.items]
    changed = argparse.Namespace(**{**vars(options), "inputs": inputs, "words": words})
    given = command.take_inputs(changed, kept=1)
    pattern = given.words.pop()
    source = items.source_of(pattern, options.inputs)
    matching = items.find(pattern, options.inputs[source] if source else None)
    supplied = {
        name: load_manifest(place).digest
        for name, place in (("packages", options.packages), ("libraries", options.libraries))
        if place is not None
    }
    *words, options.pattern = command.portable(
        argparse.Namespace(**{**vars(options), "words": [*options.words, options.items]})
    )
    settings = {
        "command": words,
        "code": items.digest_of_folder(options.code) if options.code != Path() else "",
        "fingerprint": options.fingerprint,
    }
    all_inputs = dict(given.inputs)
    if source is None:
        listed = Manifest("items", {}, {item.name: item.sha256 for item in matching})
        all_inputs["items"] = listed.digest
    elif apart:
        all_inputs[source] = load_manifest(options.inputs[source]).digest
    work = Work(options.step, {**given.inputs, **supplied}, settings, options.mode == "ordered")
    return Given(matching, given.words, given.environment, work, {**all_inputs, **supplied}, given.chosen)


def _mentions(options: argparse.Namespace, place: Path) -> bool:
    # As a whole path or as the beginning of one: `data` is not a part of `database`.
    pattern = re.compile(rf"(?<![\w./-]){re.escape(str(place))}(?![\w.-])")
    return any(pattern.search(text) for text in (*options.words, *os.environ.values()))


class ItemWorker:
    """Works on what its assignment gives it, and leaves the result of the step where nothing is left."""

    def __init__(
        self,
        options: argparse.Namespace,
        given: Given,
        program: Program,
        *,
        altered: Mapping[str, Record],
        masker: Masker,
        stopping: Stopping,
    ) -> None:
        self._options = options
        self._given = given
        self._program = program
        self._altered = altered
        self._masker = masker
        self._stopping = stopping
        self._output: Path = options.output
        self._whole = given.whole(options)
        self._runner = ItemRunner()
        self._earlier_runs = EarlierRuns(self._output)
        self._read: set[Record] = set()
        # Where there is no Job, each start is a round of its own.
        round_ = os.environ.get("JOB_UID") or secrets.token_hex(8)
        rules = Rules(options.mode, options.attempts, options.lease, getattr(options, "window", 0))
        self._run = Run(self._output, given.items, given.work, rules, round_)

    def run(self) -> int:
        """Work as long as this worker is needed; returns the exit code. Raises StepError."""
        assignment = self._assignment()
        while True:
            with self._stopping.gently(self._runner):
                self._work(assignment)
            assignment.flush()
            if assignment.unfinished:
                self._say(f"not needed: others work on {_count(assignment.unfinished)}")
                # The step has no result yet that the record would speak of.
                os.environ.pop(RECORD_VARIABLE, None)
                return OK
            ended = report(self._output, assignment.outcomes(), self._read)
            if not ended.broken:
                break
            self._say(f"the results of {_count(len(ended.broken))} are not as they were, and are made again")
            assignment.reopen(ended.broken)
        manifest = self._publish(ended)
        if self._options.checkpoints is not None:
            # Those of items that were set aside, too, and of those whose worker was killed when they were done.
            at_once(lambda outcome: discard(self._output / outcome.item), ended.outcomes)
        self._say(f"Published {len(manifest.files)} files of {len(ended.outcomes)} items: {self._output}")
        return OK

    def _publish(self, ended: Report) -> Manifest:
        """Make the result of the step. Raises StepError."""
        return publish(self._output, self._whole, ended, self._options.allow_failed, self._options.results)

    def _assignment(self) -> Assignment:
        options = self._options
        if options.queue is None:
            common = (self._run, options.index, self._runner.kill, self._say)
            return Share(*common, workers=options.workers, lingering=options.lingering)
        host, port = options.queue
        password = os.environ[options.queue_password] if options.queue_password else ""
        name = f"{options.step}:{options.output.name}:{self._whole.digest[:16]}"

        def connect(stop: threading.Event | None, timeout: float) -> ItemQueue:
            connection = Connection(host, port, password, timeout)
            return ItemQueue(connection, name, self._run.rules, patience=options.patience, stop=stop)

        stop = self._stopping.event
        others = (self._run, options.index, self._runner.kill, self._say)
        return Queued(*others, connect=connect, stop=stop, altered=self._altered)

    def _work(self, assignment: Assignment) -> None:
        stop = self._stopping.event
        waiting = False
        while True:
            self._runner.allow()
            task = assignment.next()
            if isinstance(task, Task):
                waiting = False
                if stop.is_set():
                    assignment.release(task)
                else:
                    self._one(assignment, task)
            elif task is None:
                return
            else:
                if task and not waiting:
                    self._say(f"waiting: others work on {_count(assignment.unfinished)}")
                    waiting = True
                stop.wait(task)
            if stop.is_set():
                with contextlib.suppress(StepError):
                    assignment.flush(stopping=True)
                self._stopping.leave()

    def _one(self, assignment: Assignment, task: Task) -> None:
        name = task.item.name
        self._say(f"{name}: claimed (attempt {task.attempt})")
        self._stopping.on_stop = assignment.give_back
        try:
            made = self._made(task)
            if isinstance(made, _Made):
                self._read.add(made.record)
        except AlteredError as error:
            self._say(f"{name}: given back: the result of {error.item} is made again: {error}")
            assignment.release(task)
            assignment.reopen([error.item])
            return
        except StepError as error:
            if assignment.release(task):
                raise
            # Whoever has it now may have deleted what this attempt wrote.
            self._say(f"{name}: stopped: its lease ran out, and {error}")
            return
        finally:
            self._stopping.on_stop = None
        if isinstance(made, _Stopped):
            if lost := assignment.lost():
                self._say(f"{name}: stopped: {lost}")
            else:
                self._say(f"{name}: given back")
            assignment.release(task)
        elif isinstance(made, str):
            self._say(f"{name}: failed: {made}; {assignment.fail(task, made)}")
        # Should the queue lose the result, whoever has an older lease goes on in a directory of these.
        elif assignment.commit(task, made.record, functools.partial(self._clean_up, made)):
            self._say(f"{name}: {made.how}")
        else:
            self._say(f"{name}: not published: {assignment.lost() or 'its lease ran out'}")

    def _clean_up(self, made: _Made) -> None:
        """Delete what nobody needs of an item that is done: other attempts, and its checkpoints."""
        directory = made.record.directory(self._output)
        made.earlier.remove(directory)
        if self._options.checkpoints is not None:
            discard(directory.parent)

    def _made(self, task: Task) -> _Made | _Stopped | str:
        """The result of an item, or why there is none."""
        item, folder = task.item, self._output / task.item.name
        if damage := item.damage():
            return damage
        work = self._given.work.of(item, task.previous)
        earlier = attempts.earlier_attempts(folder)
        if earlier.directories:
            record = items.read_record(self._output, item.name)
            if record is not None and record.work == work.digest and items.whole_result(self._output, record):
                return _Made(record, "done before", earlier)
            whole = earlier.whole(work)
            if whole is not None:
                directory, manifest = whole
                record = _record(task, directory, work, manifest, 0.0)
                return _Made(record, "taken from an earlier attempt", earlier)
        copied = self._earlier_runs.find(item.name, work.digest)
        if copied is not None:
            source, record = copied
            directory = earlier.next_directory(folder, task.token)
            with contextlib.suppress(NotWholeError):
                copy(source, record, directory)
                record = dataclasses.replace(record, item=item.name, attempt=directory.name)
                return _Made(record, "taken from an earlier run", earlier)
        previous = contextlib.nullcontext(None)
        if task.previous is not None and self._options.mode == "ordered":
            where = task.previous.directory(self._output)
            try:
                check(where)
            except NotWholeError as error:
                raise AlteredError(task.previous.item, error.reason) from error
            previous = contextlib.nullcontext(str(where))
        elif any("{previous}" in word for word in self._program.words):
            # The first in order, and in parallel each, has none before it.
            previous = tempfile.TemporaryDirectory(prefix="slipway-previous-")
        directory = attempts.begin(folder, earlier, work, task.token, self._run.round)
        with previous as before:
            run = functools.partial(self._run_program, task, directory)
            program = self._fill(item, directory, before)
            settings = self._options.checkpoints
            if settings is None:
                ending = run(program)
            else:
                ending = self._runner.run_attended(Attendant(settings, folder, work), run, program)
        if ending.stopped:
            attempts.give_back(directory, work)
            return _Stopped()
        return self._result(task, directory, work, ending, earlier)

    def _run_program(self, task: Task, directory: Path, program: Program) -> Ending:  # noqa: ARG002
        """Run the program of a task, which writes into `directory`. Raises StepError."""
        return self._runner.run(program)

    def _result(
        self, task: Task, directory: Path, work: Manifest, ending: Ending, earlier: attempts.Earlier
    ) -> _Made | str:
        if ending.reason:
            return self._masker.mask(ending.reason)
        try:
            manifest = attempts.end(directory, work)
        except NoResultError as error:
            return str(error)
        record = _record(task, directory, work, manifest, ending.seconds)
        return _Made(record, f"done in {ending.seconds:.1f} s", earlier)

    def _fill(self, item: Item, directory: Path, previous: str | None) -> Program:
        places = self._places(item, directory)
        if previous is not None:
            places["{previous}"] = previous

        # At once: a file may have the name of another reference.
        references = re.compile("|".join(map(re.escape, places)))

        def fill(text: str) -> str:
            return references.sub(lambda match: places[match[0]], text)

        program = self._program
        return dataclasses.replace(
            program,
            words=[fill(word) for word in program.words],
            environment={name: fill(value) for name, value in program.environment.items()},
        )

    def _places(self, item: Item, directory: Path) -> dict[str, str]:
        """What references in the words of the program stand for."""
        return {"{item}": str(item.path), "{output}": str(directory)}

    def _say(self, text: str) -> None:
        print(self._masker.mask(text), flush=True)


@dataclass(frozen=True)
class _Made:
    """The result of an item, in words how it came about, and the attempts that are not needed any more."""

    record: Record
    how: str
    earlier: attempts.Earlier = field(default_factory=attempts.Earlier)


class AlteredError(Exception):
    """The result of `item`, from which another one begins, is not as it was."""

    def __init__(self, item: str, reason: str) -> None:
        super().__init__(reason)
        self.item = item


class _Stopped:
    """The program was ended before it was done."""


def _record(task: Task, directory: Path, work: Manifest, manifest: Manifest, seconds: float) -> Record:
    return Record(task.item.name, directory.name, work.digest, manifest.digest, task.attempt, round(seconds, 3))


def _count(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"
