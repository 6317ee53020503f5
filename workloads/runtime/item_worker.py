"""One worker of a step: it works on the items that it gets, and leaves the result of the step where none is left.

Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workloads.runtime import item_attempts, items
from workloads.runtime.earlier_runs import EarlierRuns, copy
from workloads.runtime.exits import OK, RECORD_VARIABLE, StepError
from workloads.runtime.item_assignment import Assignment, Queued, Run, Share, Task
from workloads.runtime.item_inputs import Given
from workloads.runtime.item_program import Ending, Runner
from workloads.runtime.item_queue import ItemQueue, Rules
from workloads.runtime.item_report import publish, report
from workloads.runtime.items import Item, Record
from workloads.runtime.masking import Masker
from workloads.runtime.outputs import NoResultError
from workloads.runtime.program import Program
from workloads.runtime.resp import Connection
from workloads.runtime.stopping import Stopping
from workloads.runtime.store import Manifest, NotWholeError, check


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
        self._runner = Runner()
        self._earlier_runs = EarlierRuns(self._output)
        self._read: set[Record] = set()
        # Where there is no Job, each start is a round of its own.
        round_ = os.environ.get("JOB_UID") or secrets.token_hex(8)
        rules = Rules(options.mode, options.attempts, options.lease)
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
        manifest = publish(self._output, self._whole, ended, self._options.allow_failed, self._options.results)
        self._say(f"Published {len(manifest.files)} files of {len(ended.outcomes)} items: {self._output}")
        return OK

    def _assignment(self) -> Assignment:
        options = self._options
        if options.queue is None:
            own = (self._run, options.index, self._runner.kill, self._say)
            return Share(*own, workers=options.workers, lingering=options.lingering)
        host, port = options.queue
        password = os.environ[options.queue_password] if options.queue_password else ""
        name = f"{options.step}:{self._output.name}:{self._whole.digest[:16]}"

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
        except _AlteredError as error:
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
        else:
            # Should the queue lose the result, whoever has an older lease goes on in a directory of these.
            remove_others = functools.partial(made.earlier.remove, made.record.directory(self._output))
            if assignment.commit(task, made.record, remove_others):
                self._say(f"{name}: {made.how}")
            else:
                self._say(f"{name}: not published: {assignment.lost() or 'its lease ran out'}")

    def _made(self, task: Task) -> _Made | _Stopped | str:
        """The result of an item, or why there is none."""
        item, folder = task.item, self._output / task.item.name
        if damage := item.damage():
            return damage
        work = self._given.work.of(item, task.previous)
        earlier = item_attempts.earlier_attempts(folder)
        if earlier.directories:
            record = items.read_record(self._output, item.name)
            if record is not None and record.work == work.digest and items.whole_result(self._output, record):
                return _Made(record, "done before", earlier)
            found = earlier.whole(work)
            if found is not None:
                directory, manifest = found
                record = _record(task, directory, work, manifest, 0.0)
                return _Made(record, "taken from an earlier attempt", earlier)
        copied = self._earlier_runs.find(item.name, work.digest)
        if copied is not None:
            source, record = copied
            directory = earlier.next_directory(folder, task.token)
            with contextlib.suppress(NotWholeError):
                copy(source, record, directory)
                record = dataclasses.replace(record, attempt=directory.name)
                return _Made(record, "taken from an earlier run", earlier)
        previous = contextlib.nullcontext(None)
        if task.previous is not None and self._options.mode == "ordered":
            where = task.previous.directory(self._output)
            try:
                check(where)
            except NotWholeError as error:
                raise _AlteredError(task.previous.item, error.reason) from error
            previous = contextlib.nullcontext(str(where))
        elif any("{previous}" in word for word in self._program.words):
            # The first in order, and in parallel each, has none before it.
            previous = tempfile.TemporaryDirectory(prefix="slipway-previous-")
        directory = item_attempts.begin(folder, earlier, work, task.token, self._run.round)
        with previous as before:
            ending = self._runner.run(self._filled(item, directory, before))
        if ending.stopped:
            item_attempts.give_back(directory, work)
            return _Stopped()
        return self._result(task, directory, work, ending, earlier)

    def _result(
        self, task: Task, directory: Path, work: Manifest, ending: Ending, earlier: item_attempts.Earlier
    ) -> _Made | str:
        if ending.reason:
            return self._masker.mask(ending.reason)
        try:
            manifest = item_attempts.end(directory, work)
        except NoResultError as error:
            return str(error)
        record = _record(task, directory, work, manifest, ending.seconds)
        return _Made(record, f"done in {ending.seconds:.1f} s", earlier)

    def _filled(self, item: Item, directory: Path, previous: str | None) -> Program:
        places = {"{item}": str(item.path), "{output}": str(directory)}
        if previous is not None:
            places["{previous}"] = previous

        # At once: a file may have the name of another reference.
        references = re.compile("|".join(map(re.escape, places)))

        def fill(text: str) -> str:
            return references.sub(lambda found: places[found[0]], text)

        program = self._program
        return dataclasses.replace(
            program,
            words=[fill(word) for word in program.words],
            environment={name: fill(value) for name, value in program.environment.items()},
        )

    def _say(self, text: str) -> None:
        print(self._masker.mask(text), flush=True)


@dataclass(frozen=True)
class _Made:
    """The result of an item, in words how it came about, and the attempts that are not needed any more."""

    record: Record
    how: str
    earlier: item_attempts.Earlier = field(default_factory=item_attempts.Earlier)


class _AlteredError(Exception):
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
