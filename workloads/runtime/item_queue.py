"""Items of a run that several workers share, held by a Valkey server: claimed by one at a time, and none lost.

A claim is a lease that has to be renewed. What a worker holds is named by a token of its own, and nothing is
accepted for a token that has lost its lease. Every operation may be repeated: after a broken connection it is.
Standard library only.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from workloads.runtime import queue_scripts
from workloads.runtime.exits import INTERRUPTED, USAGE, StepError
from workloads.runtime.resp import Connection, ReplyError, Script

QUEUE_TROUBLE = 13
"""Exit code: the queue cannot be reached, or refuses what it is asked."""

KEPT_FOR = 14 * 86400
"""Seconds for which the server keeps a run after the last result."""

PATIENCE = 600.0
"""Default for the seconds to wait for the server: a volume that moves to another node takes some minutes."""

_BATCH = 1000
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_PASSING = {"LOADING", "BUSY", "MISCONF", "TRYAGAIN", "READONLY", "MASTERDOWN"}
"""Errors that a server gives while it starts, or while its disk is full."""
_ADVICE = {
    "WRONGPASS": "is its password the one that this worker was given?",
    "NOAUTH": "it wants a password, and this worker was given none",
    "OOM": "its memory is full: raise the memory of the service",
}

_T = TypeVar("_T")


class Unreachable(Exception):  # noqa: N818
    """The server cannot be reached at this moment."""


@dataclass(frozen=True)
class Claimed:
    """An item that this worker has now. `attempt` counts from 1 in each round.

    In the mode `ordered`, `before` is the item before it that was done last, and `record` that one's: empty where
    only the store has it. `aside` are items that this claim found to have lost too many workers.
    """

    item: str
    token: str
    attempt: int
    unfinished: int
    before: str = ""
    record: str = ""
    aside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nothing:
    """No item for now: ask again after `wait` seconds. Where `unfinished` is 0, all are done or set aside."""

    unfinished: int
    wait: float = 0.0
    aside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """What the queue knows of an item: `state` is ready, leased, done or aside."""

    item: str
    state: str
    attempts: int
    reason: str
    record: str


@dataclass(frozen=True)
class Rules:
    """How items are handed out: `lease` is in seconds."""

    mode: str = "parallel"
    attempts: int = 3
    lease: float = 60.0


class NotFilledError(Exception):
    """The server has no items of this run, or not all of them."""


class ItemQueue:
    """The items of the run `run`, for one thread.

    Operations wait up to `patience` seconds for a server that is away, and less where `stop` is set: then they
    raise StepError with QUEUE_TROUBLE or INTERRUPTED. `variable` is where the password came from, for errors.
    """

    def __init__(
        self,
        connection: Connection,
        run: str,
        rules: Rules,
        *,
        patience: float = PATIENCE,
        stop: threading.Event | None = None,
    ) -> None:
        self.rules = rules
        self._connection = connection
        self._keys = [f"slipway:{run}:{key}" for key in queue_scripts.KEYS]
        self._run_key = self._keys[-1]
        self._patience = patience
        self._stop = stop or threading.Event()

    def begin(self, round_: str) -> tuple[bool, int]:
        """Begin a round, where it is a new one: items that were set aside are tried again.

        Returns whether the queue has all items, and how many are tried again.

        Raises:
            StepError: also with USAGE, where the server keeps nothing on its disk.
        """
        filled, again = self._script(queue_scripts.BEGIN, round_, self.rules.mode)
        if "aof_enabled:1" not in self._ask(lambda: self._connection.call("INFO", "persistence")).decode():
            raise StepError(
                USAGE,
                f"the queue at {self._place} keeps no append-only file, and would lose its items: start it with "
                "--appendonly yes",
            )
        return bool(filled), again

    def fill(self, items: Sequence[tuple[str, bool]]) -> int:
        """Put items in, by name and whether they are done, in their order; returns how many it did not have.

        What it has stays as it is, but for an item that nobody works on and that is done.
        """
        added = 0
        for start in range(0, max(len(items), 1), _BATCH):
            words: list[object] = [int(start + _BATCH >= len(items))]
            for place, (name, done) in enumerate(items[start : start + _BATCH], start):
                words += [place, name, int(done)]
            added += self._script(queue_scripts.FILL, *words)
        return added

    def claim(self, token: str) -> Claimed | Nothing:
        """Claim the next item under `token`, which is new, or that of a claim whose answer did not arrive.

        Raises:
            NotFilledError: the server has lost the run; fill it again.
        """
        rules = self.rules
        what, unfinished, lost, *rest = self._script(
            queue_scripts.CLAIM, token, _milliseconds(rules.lease), rules.attempts, rules.mode
        )
        aside = tuple(name.decode() for name in lost)
        if what == b"empty":
            raise NotFilledError
        if what == b"item":
            name, attempt, before, record = rest
            before, record = (before or b"").decode(), (record or b"").decode()
            return Claimed(name.decode(), token, attempt, unfinished, before, record, aside)
        return Nothing(unfinished, rest[0] / 1000 if rest else 0.0, aside)

    def renew(self, token: str, *, giving_back: bool = False) -> bool:
        """Renew a lease; False where it is lost. With `giving_back` the attempt counts no more, however it ends.

        Raises:
            Unreachable: at once, where the server cannot be reached.
        """
        words = (token, _milliseconds(self.rules.lease), int(giving_back))
        return bool(self._once(lambda: self._connection.script(queue_scripts.RENEW, self._keys, words)))

    def commit(self, token: str, item: str, record: str) -> bool:
        """Make `record` the result of `item`; False where the lease is lost, and nothing was accepted."""
        return bool(self._script(queue_scripts.COMMIT, token, item, record))

    def commit_for_good(self, commits: Sequence[tuple[str, str, str]]) -> list[bool]:
        """`commit` for each (token, item, record), once the server's disk has them: a server that loses its last
        second has lost nothing of what this returned.
        """

        def ask() -> list[bool]:
            calls = [(queue_scripts.COMMIT, self._keys, each) for each in commits]
            accepted = self._connection.scripts(calls) if calls else []
            # WAITAOF waits for what this connection wrote, and a commit that was there already wrote nothing.
            kept = [("EXPIRE", key, KEPT_FOR) for key in self._keys]
            written = self._connection.pipeline(
                [("HINCRBY", self._run_key, "synced", 1), *kept, ("WAITAOF", 1, 0, 5000)], 5.0
            )[-1]
            if not written[0]:
                raise ConnectionError("its disk does not take what is written")
            return [bool(each) for each in accepted]

        return self._ask(ask)

    def fail(self, token: str, reason: str) -> tuple[bool, bool]:
        """Give an item back that failed; returns whether the lease was held, and whether the item is set aside."""
        held, aside = self._script(queue_scripts.FAIL, token, reason, self.rules.attempts)
        return bool(held), bool(aside)

    def release(self, token: str) -> bool:
        """Give an item back as if it had not been claimed; False where the lease is lost."""
        return bool(self._script(queue_scripts.RELEASE, token))

    def reopen(self, records: Sequence[tuple[str, str]]) -> int:
        """Let items be worked on again that are done with these records; returns how many still were.

        A record is empty where only the store had it when the queue was filled.
        """
        words = [word for each in records for word in each]
        return sum(
            self._script(queue_scripts.REOPEN, *words[start : start + _BATCH])
            for start in range(0, len(words), _BATCH)
        )

    def state(self) -> dict[str, int]:
        """How many items are `ready`, `done`, `aside`, and how many `leases` there are."""
        counts = self._ask(lambda: self._connection.pipeline([("ZCARD", key) for key in self._keys[1:5]]))
        return {key: counts[place] for place, key in enumerate(queue_scripts.KEYS[1:5])}

    def rows(self, names: Sequence[str]) -> list[Row]:
        """What the queue knows of these items; those that it does not have are left out."""
        rows: list[Row] = []
        for start in range(0, len(names), _BATCH):
            some = names[start : start + _BATCH]
            texts = self._ask(lambda some=some: self._connection.call("HMGET", self._keys[0], *some))
            found = {name: texts[place] for place, name in enumerate(some) if texts[place] is not None}
            rows += [_row(name, json.loads(text)) for name, text in found.items()]
        return rows

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def _place(self) -> str:
        return f"{self._connection.host}:{self._connection.port}"

    def _script(self, script: Script, *words: object) -> Any:
        return self._ask(lambda: self._connection.script(script, self._keys, words))

    def _ask(self, operation: Callable[[], _T]) -> _T:
        """Do it, and again after each interruption, as long as the patience lasts."""
        started = time.monotonic()
        tried = 0
        while True:
            try:
                return self._once(operation)
            except Unreachable as error:
                if time.monotonic() - started >= self._patience:
                    raise StepError(
                        QUEUE_TROUBLE,
                        f"the queue at {self._place} could not be reached for {self._patience:g} s: {error}; "
                        "is the service running?",
                    ) from error
            # Workers that lost the server together do not come back together.
            if self._stop.wait(_PAUSES[min(tried, len(_PAUSES) - 1)]):
                raise StepError(INTERRUPTED, "stopped by SIGTERM while the queue could not be reached")
            tried += 1

    def _once(self, operation: Callable[[], _T]) -> _T:
        try:
            return operation()
        except OSError as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        except ReplyError as error:
            if error.kind in _PASSING:
                raise Unreachable(str(error)) from error
            advice = _ADVICE.get(error.kind, "")
            raise StepError(
                QUEUE_TROUBLE, f"the queue at {self._place} refused: {error}{f'; {advice}' if advice else ''}"
            ) from error


def _row(name: str, raw: dict[str, Any]) -> Row:
    state = {"r": "ready", "l": "leased", "d": "done", "a": "aside"}[raw["s"]]
    return Row(name, state, int(raw["a"]), raw.get("w", ""), raw.get("c", ""))


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
