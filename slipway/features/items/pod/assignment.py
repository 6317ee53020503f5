"""Which items a worker gets: from a queue, one after the other, or a share of its own. Standard library only."""

from __future__ import annotations

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.features.items.pod import attempts as item_attempts
from slipway.features.items.pod import items
from slipway.features.items.pod.items import Failure, Item, Record, Work
from slipway.features.items.pod.queue import Claimed, ItemQueue, NotFilledError, Rules, Unreachable
from slipway.runtime.exits import BAD_INPUT, StepError

_RETRY = 0.5


class LeaseKeeper:
    """A thread that renews one lease at a time, every third of its time.

    It needs an ItemQueue of its own. When a lease is lost, or could not be renewed for as long as it lasts,
    `on_lost` is called from this thread.
    """

    def __init__(self, queue: ItemQueue, on_lost: Callable[[], None]) -> None:
        self._queue = queue
        self._lease = queue.rules.lease
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._token: str | None = None
        self._giving_back = False
        self._held_at = self._due = 0.0
        self.lost = ""
        """Why the lease was lost; empty as long as it is held."""
        threading.Thread(target=self._run, name="lease", daemon=True).start()

    def hold(self, token: str, since: float) -> None:
        """Renew the lease of `token`, which was claimed not before the time `since` of `time.monotonic`."""
        with self._changed:
            self._token, self.lost, self._giving_back = token, "", False
            self._held_at, self._due = since, since + self._lease / 3
            self._changed.notify()

    def give_back(self) -> None:
        """From now on the attempt does not count, even where this worker is killed."""
        with self._changed:
            self._giving_back, self._due = True, 0.0
            self._changed.notify()

    def drop(self) -> None:
        """Renew it no more."""
        with self._changed:
            self._token = None

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._token is None or (self._due > time.monotonic() and self._fresh()):
                    self._changed.wait(self._until_due() if self._token is not None else None)
                token, giving_back = self._token, self._giving_back
            asked_at = time.monotonic()
            held = self._renew(token, giving_back)
            with self._changed:
                if token != self._token:
                    continue
                if held:
                    self._held_at = asked_at
                    self._due = 0.0 if self._giving_back and not giving_back else asked_at + self._lease / 3
                    continue
                self._due = time.monotonic() + min(_RETRY, self._lease / 10)
                if held is None and self._fresh():
                    continue
                away = "the queue could not be reached for longer than the lease"
                self.lost = away if held is None else "another worker may have it: its lease ran out"
                self._token = None
            self._on_lost()

    def _renew(self, token: str, giving_back: bool) -> bool | None:
        """Whether the lease is held; None where that is not known."""
        try:
            return self._queue.renew(token, giving_back=giving_back)
        except (Unreachable, StepError):
            return None

    def _fresh(self) -> bool:
        return time.monotonic() - self._held_at <= self._lease

    def _until_due(self) -> float:
        return max(0.0, min(self._due, self._held_at + self._lease) - time.monotonic()) + 0.001


class Recorder:
    """A thread that records results that were committed, once the queue has them on its disk.

    It needs an ItemQueue of its own. Workers need not wait for the disk of the queue, which takes up to a second:
    should it lose its last second, it loses all that was built on that, too.
    """

    def __init__(
        self, queue: ItemQueue, write: Callable[[str, str], None], refused: Callable[[str], None]
    ) -> None:
        self._queue = queue
        self._write = write
        self._refuse = refused
        self._changed = threading.Condition()
        self._pending: list[tuple[str, str, str, Callable[[], None]]] = []
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="recorder", daemon=True).start()

    def add(self, token: str, item: str, record: str, then: Callable[[], None]) -> None:
        """Record this when it is safe, then call `then`. Raises what kept an earlier one from being recorded."""
        with self._changed:
            self._raise()
            self._pending.append((token, item, record, then))
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all is recorded; False where the time did not suffice. Raises as `add` does."""
        with self._changed:
            done = self._changed.wait_for(lambda: not self._pending or self._error is not None, timeout)
            self._raise()
            return done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending and self._error is None)
                batch = list(self._pending)
            try:
                accepted = self._queue.commit_for_good([commit[:3] for commit in batch])
                for held, (_, item, record, then) in zip(accepted, batch):  # noqa: B905
                    if held:
                        self._write(item, record)
                        then()
                    else:
                        self._refuse(item)
            except Exception as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                continue
            with self._changed:
                del self._pending[: len(batch)]
                self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


_POLL = 0.5
"""Seconds after which a worker that has nothing to do asks again: an item may have been given back meanwhile."""

LINGERING = 75.0
"""Seconds for which a worker that is through with its own items looks at the others'. The last one has to see that
all are finished, and a node may believe for 60 s that a file of NFS is not there (nfs(5), `acdirmax`)."""

_ASIDE, _AGAIN = "set aside", "to be tried again"

_LAST_MOMENT = 5.0
"""Seconds that a worker which was told to stop waits for the queue to confirm its results."""


@dataclass(frozen=True)
class Run:
    """What all workers of a step have in common.

    `output` is the directory of the step's result. What was set aside in one `round` is tried again in another.
    """

    output: Path
    items: Sequence[Item]
    work: Work
    rules: Rules
    round: str
    by_name: Mapping[str, Item] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {item.name: item for item in self.items})


@dataclass(frozen=True)
class Task:
    """An item that this worker has. `attempt` counts from 1; `previous` is, in order, the last that was done."""

    item: Item
    token: str
    attempt: int
    previous: Record | None = None


@dataclass(frozen=True)
class Outcome:
    """How an item ended: with a record, or set aside after some attempts, for a reason."""

    item: str
    record: Record | None
    attempts: int
    reason: str = ""


class Assignment(ABC):
    """Hands items to one worker, and takes their results."""

    unfinished = 0
    """How many items were neither done nor set aside when it was last asked for the next one."""

    def __init__(self, run: Run, index: int, on_lost: Callable[[], None], say: Callable[[str], None]) -> None:
        self.run = run
        self.index = index
        self.on_lost = on_lost
        self.say = say

    def _set_aside(self, name: str, reason: str, attempts: int) -> None:
        items.write_failure(self.run.output, name, Failure(reason, attempts, self.run.round))

    @abstractmethod
    def next(self) -> Task | float | None:
        """The next item; or the seconds after which to ask again; or None where this worker is not needed more."""

    def lost(self) -> str:
        """Why the item of the last `next` is not this worker's any more; empty where it is."""
        return ""

    def give_back(self) -> None:  # noqa: B027
        """Let the attempt at the item not count, whatever becomes of it. May be called from another thread."""

    @abstractmethod
    def commit(self, task: Task, record: Record, then: Callable[[], None]) -> bool:
        """Make this the result of the item; False where it is not this worker's any more.

        `then` is called when the result cannot be lost any more, maybe from another thread.
        """

    @abstractmethod
    def fail(self, task: Task, reason: str) -> str:
        """Give the item back, whose attempt failed; returns what becomes of it, in words."""

    def release(self, task: Task) -> bool:  # noqa: ARG002
        """Give the item back as if there had been no attempt; False where it is not this worker's any more."""
        return True

    @abstractmethod
    def ended(self, names: Sequence[str]) -> dict[str, Record | None]:
        """Those of these items that ended, with their records; None for one that was set aside."""

    @abstractmethod
    def outcomes(self) -> list[Outcome]:
        """How every item ended."""

    @abstractmethod
    def reopen(self, names: Sequence[str]) -> None:
        """Let these items be worked on again, whose results are not as they were."""

    def flush(self, *, stopping: bool = False) -> None:  # noqa: B027
        """Wait until all that this worker did is recorded."""


class Queued(Assignment):
    """Items from a queue, which `connect` opens: for this thread, for that of leases, and for that of records."""

    def __init__(
        self,
        run: Run,
        index: int,
        on_lost: Callable[[], None],
        say: Callable[[str], None],
        *,
        connect: Callable[[threading.Event | None, float], ItemQueue],
        stop: threading.Event,
        altered: Mapping[str, Record],
    ) -> None:
        super().__init__(run, index, on_lost, say)
        self._queue = connect(stop, 5.0)
        self._fill()
        # Of results that the queue was filled with it has no record.
        known = [(name, text) for name, record in altered.items() for text in (record.encode(), "")]
        self._queue.reopen(known)
        # A server that does not answer has to be noticed before the lease is over.
        self._keeper = LeaseKeeper(connect(stop, max(0.2, min(5.0, run.rules.lease / 6))), on_lost)
        self._recorder = Recorder(connect(None, 5.0), self._record, self._refuse)
        self._token = secrets.token_hex(8)

    def next(self) -> Task | float | None:
        since = time.monotonic()
        try:
            claim = self._queue.claim(self._token)
        except NotFilledError:
            self._fill()
            return 0.0
        self.unfinished = claim.unfinished
        for name in claim.aside:
            [row] = self._queue.rows([name])
            self._set_aside(name, row.reason, row.attempts)
        if isinstance(claim, Claimed):
            self._token = secrets.token_hex(8)
            previous = None
            if claim.before:
                previous = self._done(claim.before, claim.record)
                if previous is None:
                    self._queue.release(claim.token)
                    self.reopen([claim.before])
                    return 0.0
            self._keeper.hold(claim.token, since)
            return Task(self.run.by_name[claim.item], claim.token, claim.attempt, previous)
        if claim.unfinished <= self.index:
            return None
        return min(claim.wait, _POLL, max(self.run.rules.lease / 3, 0.01))

    def lost(self) -> str:
        return self._keeper.lost

    def give_back(self) -> None:
        self._keeper.give_back()

    def commit(self, task: Task, record: Record, then: Callable[[], None]) -> bool:
        text = record.encode()
        accepted = self._queue.commit(task.token, task.item.name, text)
        self._keeper.drop()
        if accepted:
            self._recorder.add(task.token, task.item.name, text, then)
        return accepted

    def fail(self, task: Task, reason: str) -> str:
        held, aside = self._queue.fail(task.token, reason)
        self._keeper.drop()
        if aside:
            self._set_aside(task.item.name, reason, task.attempt)
        return _ASIDE if aside else _AGAIN if held else "its lease had run out"

    def release(self, task: Task) -> bool:
        self._keeper.drop()
        return self._queue.release(task.token)

    def ended(self, names: Sequence[str]) -> dict[str, Record | None]:
        rows = self._queue.rows(names)
        done = {row.item: self._done(row.item, row.record) for row in rows if row.state == "done"}
        return {**done, **{row.item: None for row in rows if row.state == "aside"}}

    def outcomes(self) -> list[Outcome]:
        # Workers may have left with results that the queue's disk did not have yet.
        self._queue.commit_for_good([])
        rows = self._queue.rows([item.name for item in self.run.items])
        states = {row.item: row for row in rows}
        texts = {row.item: row.record for row in rows if row.state == "done"}
        records = dict(zip(texts, items.at_once(lambda name: self._write_record(name, texts[name]), texts)))  # noqa: B905
        return [
            Outcome(name, records.get(name), row.attempts, row.reason if row.state == "aside" else "")
            for name, row in states.items()
        ]

    def reopen(self, names: Sequence[str]) -> None:
        self.flush()
        for name in names:
            items.forget(self.run.output, name)
        self._queue.reopen([(row.item, row.record) for row in self._queue.rows(names)])

    def flush(self, *, stopping: bool = False) -> None:
        self._recorder.flush(_LAST_MOMENT if stopping else None)

    def _fill(self) -> None:
        filled, again = self._queue.begin(self.run.round)
        if again:
            self.say(f"{again} items that were set aside are tried again")
        if filled:
            return
        done = items.recorded(self.run.output, self.run.items, self.run.work)
        added = self._queue.fill([(item.name, item.name in done) for item in self.run.items])
        self.say(f"put {added} items into the queue, of which {len(done)} are done")

    def _done(self, name: str, text: str) -> Record | None:
        """The record of an item that is done: the queue has it, or, if it was done before, the store."""
        return items.decode(text) if text else items.read_record(self.run.output, name)

    def _write_record(self, name: str, text: str) -> Record | None:
        """The record of an item that is done, which is written where its worker did not live to do so."""
        stored = items.read_record(self.run.output, name)
        record = items.decode(text) if text else stored
        if record is not None and record != stored:
            items.write_record(self.run.output, record)
        return record

    def _record(self, _: str, text: str) -> None:
        items.write_record(self.run.output, items.decode(text))

    def _refuse(self, name: str) -> None:
        self.say(f"{name}: the queue lost this result before its disk had it: it is taken up again")


class Share(Assignment):
    """Every n-th item, without a queue. Whoever sees that all are finished makes the result of the step.

    A worker that is through with its own does not wait for the others: they may need its place.
    """

    def __init__(
        self,
        run: Run,
        index: int,
        on_lost: Callable[[], None],
        say: Callable[[str], None],
        *,
        workers: int,
        lingering: float,
    ) -> None:
        super().__init__(run, index, on_lost, say)
        self._lingering = lingering
        self._done = items.recorded(run.output, run.items, run.work)
        self._share = run.items[index::workers]
        self._own = deque(self._share)
        self._others = deque(item for place, item in enumerate(run.items) if place % workers != index)
        self._previous: Record | None = None
        self._leaves: float | None = None
        self._failed: dict[str, int] = {}

    def next(self) -> Task | float | None:
        while self._own:
            item = self._own[0]
            record = self._done.get(item.name)
            if record is not None:
                self._previous = record
            elif not self._is_aside(item.name):
                folder = item_attempts.earlier_attempts(self.run.output / item.name)
                counted = max(folder.counted(self.run.round), self._failed.get(item.name, 0))
                if counted < self.run.rules.attempts:
                    return Task(item, secrets.token_hex(8), counted + 1, self._previous)
                self._set_aside(item.name, f"its worker died; it was tried {counted} times", counted)
            self._own.popleft()
        if self._leaves is None:
            self._leaves = time.monotonic() + self._lingering
        while self._others and self._is_finished(self._others[0]):
            self._others.popleft()
        self.unfinished = len(self._others)
        return _POLL if self._others and time.monotonic() < self._leaves else None

    def commit(self, task: Task, record: Record, then: Callable[[], None]) -> bool:
        items.write_record(self.run.output, record)
        self._previous = self._done[task.item.name] = record
        then()
        return True

    def fail(self, task: Task, reason: str) -> str:
        self._failed[task.item.name] = task.attempt
        if task.attempt < self.run.rules.attempts:
            return _AGAIN
        self._set_aside(task.item.name, reason, task.attempt)
        return _ASIDE

    def ended(self, names: Sequence[str]) -> dict[str, Record | None]:
        done = {name: self._done[name] for name in names if name in self._done}
        return {**done, **{name: None for name in names if self._is_aside(name)}}

    def outcomes(self) -> list[Outcome]:
        names = [item.name for item in self.run.items]
        records = items.at_once(lambda name: items.read_record(self.run.output, name), names)
        failures = items.at_once(lambda name: items.read_failure(self.run.output, name), names)
        outcomes = []
        for name, record, failure in zip(names, records, failures):  # noqa: B905
            current = failure if failure is not None and failure.round == self.run.round else None
            if current is not None:
                outcomes.append(Outcome(name, None, current.attempts, current.reason))
            else:
                outcomes.append(Outcome(name, record, record.attempts if record else 0))
        return outcomes

    def reopen(self, names: Sequence[str]) -> None:
        for name in names:
            items.forget(self.run.output, name)
            self._done.pop(name, None)
        others = set(names) - {item.name for item in self._share}
        if others:
            raise StepError(
                BAD_INPUT,
                f"the results of {len(others)} items are not as they were: {', '.join(sorted(others)[:10])}. The "
                "next start works on them again",
            )
        self._own = deque(self._share)
        self._leaves = None
        self._previous = None

    def _is_aside(self, name: str) -> bool:
        failure = items.read_failure(self.run.output, name)
        return failure is not None and failure.round == self.run.round

    def _is_finished(self, item: Item) -> bool:
        if self._is_aside(item.name):
            return True
        record = items.read_record(self.run.output, item.name)
        return record is not None and record.work == self.run.work.of(item).digest
