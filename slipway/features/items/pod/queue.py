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

from slipway.features.items.pod.resp import Connection, ReplyError, Script
from slipway.runtime.exits import INTERRUPTED, USAGE, StepError

# What the server of a queue of items does in one go: Lua scripts. The methods of `ItemQueue` say what each is for.
#
# The keys of a run, in this order: `items` (a hash: the JSON below by name), `ready`, `done` and `aside` (sorted
# sets of names by their place in the order), `leases` (a sorted set of names by the time at which the lease ends,
# in milliseconds of the server's clock), `owners` (a hash: name by token) and `run` (a hash: `filled`, `round`,
# and `seen`, when a worker was last heard).
#
# An item: `o` its place in the order, `s` the state (r ready, l leased, d done, a set aside), `a` attempts counted
# in the round `r`, `l` how many of them ended with their worker, `t` the token of the lease, `x` whether the lease
# is being given back, `w` why the last attempt failed, `c` the record of the result. What workers ask for all the
# time looks at no more than a few items, however many there are.


KEYS = ("items", "ready", "done", "aside", "leases", "owners", "run")

_COMMON = """
local items, ready, done, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, owners, run = KEYS[5], KEYS[6], KEYS[7]
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function get(name)
  local text = redis.call('HGET', items, name)
  return text and cjson.decode(text)
end
local function put(name, item) redis.call('HSET', items, name, cjson.encode(item)) end
local function owned(token)
  local name = redis.call('HGET', owners, token)
  if name then return name, get(name) end
end
local function drop(name, item)
  redis.call('ZREM', leases, name)
  redis.call('HDEL', owners, item.t)
end
local function set_aside(name, item, why)
  item.s, item.w = 'a', why
  redis.call('ZADD', aside, item.o, name)
  put(name, item)
end
local function make_ready(name, item)
  item.s = 'r'
  redis.call('ZADD', ready, item.o, name)
  put(name, item)
end
local function times(n) return n == 1 and 'once' or n .. ' times' end
local function why_lost(item)
  local why = 'its worker died ' .. times(item.l)
  return item.w and why .. '; before: ' .. item.w or why
end
"""

BEGIN = Script(
    _COMMON
    + """
-- ARGV: round, mode. Returns whether all items are in, and how many items are tried again.
local again = 0
if redis.call('HGET', run, 'round') ~= ARGV[1] then
  redis.call('HSET', run, 'round', ARGV[1])
  local first = redis.call('ZRANGE', aside, 0, 0, 'WITHSCORES')[2]
  for _, name in ipairs(redis.call('ZRANGE', aside, 0, -1)) do
    make_ready(name, get(name))
    again = again + 1
  end
  redis.call('DEL', aside)
  if first and ARGV[2] == 'ordered' then
    -- What comes after an item that is tried again began from another one.
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', done, first, '+inf')) do
      local item = get(name)
      redis.call('ZREM', done, name)
      item.t, item.c = nil, nil
      make_ready(name, item)
    end
  end
end
return {redis.call('HEXISTS', run, 'filled'), again}
"""
)

FILL = Script(
    _COMMON
    + """
-- ARGV: whether these are the last, then for each item its place in the order, its name, and whether it is done.
local added = 0
for i = 2, #ARGV, 3 do
  local order, name, is_done = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2] == '1'
  local item = get(name)
  if not item then
    item = {o = order, a = 0, l = 0}
    added = added + 1
  end
  if is_done and (not item.s or item.s == 'r' or item.s == 'a') then
    redis.call('ZREM', ready, name)
    redis.call('ZREM', aside, name)
    item.s = 'd'
    redis.call('ZADD', done, item.o, name)
    put(name, item)
  elseif not item.s then
    make_ready(name, item)
  end
end
if ARGV[1] == '1' then redis.call('HSET', run, 'filled', 1) end
return added
"""
)

CLAIM = Script(
    _COMMON
    + """
-- ARGV: token, milliseconds of the lease, attempts, mode, window.
-- Returns {what, unfinished, names set aside, ...}; for an item its name, the attempt, the item done before it and
-- that one's record; for `wait` the milliseconds until a lease ends.
local token, lease, attempts, ordered = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == 'ordered'
local time = now()
local lost = {}
local function unfinished() return redis.call('ZCARD', ready) + redis.call('ZCARD', leases) end
local function hand_out(name, item)
  local before, record = false, false
  if ordered then
    before = redis.call('ZREVRANGEBYSCORE', done, '(' .. item.o, '-inf', 'LIMIT', 0, 1)[1] or false
    record = before and get(before).c or false
  end
  return {'item', unfinished(), lost, name, item.a, before, record}
end
if redis.call('HEXISTS', run, 'filled') == 0 then return {'empty', 0, lost} end

-- The reply to the claim before this one did not arrive.
local name, item = owned(token)
if name then return hand_out(name, item) end

-- Nobody who works was heard for so long that the server itself must have been away: the owners get the time back.
local seen = tonumber(redis.call('HGET', run, 'seen') or time)
redis.call('HSET', run, 'seen', time)
if time - seen > lease * 2 / 3 then
  for _, each in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', time + lease)) do
    redis.call('ZADD', leases, time + lease, each)
  end
end

for _, each in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', time, 'LIMIT', 0, 100)) do
  item = get(each)
  drop(each, item)
  if not item.x then item.l = item.l + 1 end
  item.t, item.x = nil, nil
  if item.a >= attempts then
    set_aside(each, item, why_lost(item))
    lost[#lost + 1] = each
  else
    make_ready(each, item)
  end
end

local next_lease = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
name = redis.call('ZRANGE', ready, 0, 0)[1]
if not name or (ordered and next_lease) then
  if not next_lease then return {'finished', 0, lost} end
  return {'wait', unfinished(), lost, math.max(1, next_lease - time)}
end
item = get(name)
local window = tonumber(ARGV[5])
if window > 0 and next_lease then
  -- All before this one that are neither done nor set aside are leased.
  for _, each in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    if get(each).o <= item.o - window then
      return {'wait', unfinished(), lost, math.max(1, next_lease - time)}
    end
  end
end
redis.call('ZREM', ready, name)
local round = redis.call('HGET', run, 'round')
if item.r ~= round then item.r, item.a, item.l, item.w = round, 0, 0, nil end
item.s, item.t, item.a = 'l', token, item.a + 1
put(name, item)
redis.call('ZADD', leases, time + lease, name)
redis.call('HSET', owners, token, name)
return hand_out(name, item)
"""
)

RENEW = Script(
    _COMMON
    + """
-- ARGV: token, milliseconds of the lease, whether the lease is to be given back. Returns whether it is held.
local name, item = owned(ARGV[1])
if not name then return 0 end
local time = now()
redis.call('HSET', run, 'seen', time)
redis.call('ZADD', leases, time + tonumber(ARGV[2]), name)
if ARGV[3] == '1' and not item.x then
  item.a, item.x = item.a - 1, 1
  put(name, item)
end
return 1
"""
)

COMMIT = Script(
    _COMMON
    + """
-- ARGV: token, name, record. Returns whether the record is the item's.
local item = get(ARGV[2])
if not item or item.t ~= ARGV[1] then return 0 end
if item.s == 'l' then
  drop(ARGV[2], item)
  item.s, item.c, item.w, item.x = 'd', ARGV[3], nil, nil
  redis.call('ZADD', done, item.o, ARGV[2])
  put(ARGV[2], item)
end
return 1
"""
)

FAIL = Script(
    _COMMON
    + """
-- ARGV: token, reason, attempts. Returns whether the lease was held, and whether the item was set aside.
local name, item = owned(ARGV[1])
if not name then return {0, 0} end
drop(name, item)
item.t, item.x = nil, nil
if item.a >= tonumber(ARGV[3]) then
  set_aside(name, item, ARGV[2])
  return {1, 1}
end
item.w = ARGV[2]
make_ready(name, item)
return {1, 0}
"""
)

RELEASE = Script(
    _COMMON
    + """
-- ARGV: token. Returns whether the lease was held.
local name, item = owned(ARGV[1])
if not name then return 0 end
drop(name, item)
if not item.x then item.a = item.a - 1 end
item.t, item.x = nil, nil
make_ready(name, item)
return 1
"""
)

REOPEN = Script(
    _COMMON
    + """
-- ARGV: for each item its name and the record that is not true any more. Returns how many are worked on again.
local again = 0
for i = 1, #ARGV, 2 do
  local item = get(ARGV[i])
  if item and item.s == 'd' and (item.c or '') == ARGV[i + 1] then
    redis.call('ZREM', done, ARGV[i])
    item.t, item.c, item.r = nil, nil, nil
    make_ready(ARGV[i], item)
    again = again + 1
  end
end
return again
"""
)


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
    """How items are handed out: `lease` is in seconds.

    With a `window`, an item is handed out once all are done or set aside that come so many places before it, or
    more.
    """

    mode: str = "parallel"
    attempts: int = 3
    lease: float = 60.0
    window: int = 0


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
        self._keys = [f"slipway:{run}:{key}" for key in KEYS]
        self._run_key = self._keys[-1]
        self._patience = patience
        self._stop = stop or threading.Event()

    def begin(self, round_: str) -> tuple[bool, int]:
        """Begin a round, where it is a new one: items that were set aside are tried again.

        Returns whether the queue has all items, and how many are tried again.

        Raises:
            StepError: also with USAGE, where the server keeps nothing on its disk.
        """
        filled, again = self._script(BEGIN, round_, self.rules.mode)
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
            added += self._script(FILL, *words)
        return added

    def claim(self, token: str) -> Claimed | Nothing:
        """Claim the next item under `token`, which is new, or that of a claim whose answer did not arrive.

        Raises:
            NotFilledError: the server has lost the run; fill it again.
        """
        rules = self.rules
        what, unfinished, lost, *rest = self._script(
            CLAIM, token, _milliseconds(rules.lease), rules.attempts, rules.mode, rules.window
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
        return bool(self._once(lambda: self._connection.script(RENEW, self._keys, words)))

    def commit(self, token: str, item: str, record: str) -> bool:
        """Make `record` the result of `item`; False where the lease is lost, and nothing was accepted."""
        return bool(self._script(COMMIT, token, item, record))

    def commit_for_good(self, commits: Sequence[tuple[str, str, str]]) -> list[bool]:
        """`commit` for each (token, item, record), once the server's disk has them: a server that loses its last
        second has lost nothing of what this returned.
        """

        def ask() -> list[bool]:
            calls = [(COMMIT, self._keys, commit) for commit in commits]
            accepted = self._connection.scripts(calls) if calls else []
            # WAITAOF waits for what this connection wrote, and a commit that was there already wrote nothing.
            kept = [("EXPIRE", key, KEPT_FOR) for key in self._keys]
            written = self._connection.pipeline(
                [("HINCRBY", self._run_key, "synced", 1), *kept, ("WAITAOF", 1, 0, 5000)], 5.0
            )[-1]
            if not written[0]:
                raise ConnectionError("its disk does not take what is written")
            return [bool(answer) for answer in accepted]

        return self._ask(ask)

    def fail(self, token: str, reason: str) -> tuple[bool, bool]:
        """Give an item back that failed; returns whether the lease was held, and whether the item is set aside."""
        held, aside = self._script(FAIL, token, reason, self.rules.attempts)
        return bool(held), bool(aside)

    def release(self, token: str) -> bool:
        """Give an item back as if it had not been claimed; False where the lease is lost."""
        return bool(self._script(RELEASE, token))

    def reopen(self, records: Sequence[tuple[str, str]]) -> int:
        """Let items be worked on again that are done with these records; returns how many still were.

        A record is empty where only the store had it when the queue was filled.
        """
        words = [word for record in records for word in record]
        return sum(self._script(REOPEN, *words[start : start + _BATCH]) for start in range(0, len(words), _BATCH))

    def state(self) -> dict[str, int]:
        """How many items are `ready`, `done`, `aside`, and how many `leases` there are."""
        counts = self._ask(lambda: self._connection.pipeline([("ZCARD", key) for key in self._keys[1:5]]))
        return {key: counts[place] for place, key in enumerate(KEYS[1:5])}

    def rows(self, names: Sequence[str]) -> list[Row]:
        """What the queue knows of these items; those that it does not have are left out."""
        rows: list[Row] = []
        for start in range(0, len(names), _BATCH):
            some = names[start : start + _BATCH]
            texts = self._ask(lambda some=some: self._connection.call("HMGET", self._keys[0], *some))
            known = {name: texts[place] for place, name in enumerate(some) if texts[place] is not None}
            rows += [_row(name, json.loads(text)) for name, text in known.items()]
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
