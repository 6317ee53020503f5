"""What a worker does beside its item: it keeps the lease, and records results once the queue cannot lose them.

Standard library only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from workloads.runtime.exits import StepError
from workloads.runtime.item_queue import ItemQueue, Unreachable

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
            asked = time.monotonic()
            held = self._renewed(token, giving_back)
            with self._changed:
                if token != self._token:
                    continue
                if held:
                    self._held_at = asked
                    self._due = 0.0 if self._giving_back and not giving_back else asked + self._lease / 3
                    continue
                self._due = time.monotonic() + min(_RETRY, self._lease / 10)
                if held is None and self._fresh():
                    continue
                away = "the queue could not be reached for longer than the lease"
                self.lost = away if held is None else "another worker may have it: its lease ran out"
                self._token = None
            self._on_lost()

    def _renewed(self, token: str, giving_back: bool) -> bool | None:
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
        self._refused = refused
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
                accepted = self._queue.commit_for_good([each[:3] for each in batch])
                for held, (_, item, record, then) in zip(accepted, batch):  # noqa: B905
                    if held:
                        self._write(item, record)
                        then()
                    else:
                        self._refused(item)
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
