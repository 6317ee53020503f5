"""What the nodes of a run, and of a month, cost so far, and whether that is as much as the stack may spend.

Each pod counts for itself, from the records that all pods of the stack keep in the store
(`slipway.runtime.usage.figures`): all of them come to the same answer. Nobody else runs for it. Standard
library only, Python 3.9.

A node is paid from its boot to the last word of the last pod on it, and for the time that an autoscaler keeps it
afterwards. Two pods on one node are paid once. Lengths are differences of one node's clock; the clocks of two
nodes are never compared: how old another pod's record is, a pod measures by how long it has seen no other one
there.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from slipway.runtime.exits import BUDGET_SPENT, GPU_IDLE
from slipway.runtime.store import write_atomically

USAGE = ".usage"
"""The store's folder of what pods used: `.usage/<path of the result>/<index>.json`."""

INTERVAL = 30.0
"""Seconds between two looks of a pod, and at most between two writes of its record."""

GRACE = 60.0
"""Seconds that a program has to end, once a limit is reached. No node goes away in the meantime."""

SILENT = 4
"""Intervals without another record after which a pod counts as gone. Mounts of buckets show a new file up to a
minute late."""

BOOT = 1800.0
"""Seconds from the boot of a node to a pod after which the node was there for others, and counts from the pod on.
"""

CLOSED = 900.0
"""Seconds after which the record of a silent pod of the month is not read any more."""

MONTHS = ".months"
"""The folder beside the records of results that has those of a month, by stack:
`.months/<stack>/2026-11/<pod>.json`. Results of old runs are deleted with their records; these are not."""

ITSELF, TOLD = "itself", "told"
"""How a pod ended, as its record has it: its program, or that was told to from outside."""

RUN, MONTH, IDLE = "run", "month", "idle"
"""Kinds of limits: the keys of `slipway:budget`, and idle GPUs."""

_AT_ONCE = 8
_RUN_BY_CLOCK = re.compile(r"-(\d{8}-\d{4})$")


@dataclass(frozen=True)
class Reached:
    """A limit that ended a program, or that keeps one from being started.

    `dollars` were spent where a price is known. Of a budget `limit` is what may be spent, and `month` the one that
    it is of; GPUs were idle for `seconds`. `words` are those of the log, a part of a sentence.
    """

    kind: str
    words: str
    dollars: float | None = None
    limit: float | None = None
    month: str = ""
    seconds: float | None = None

    @property
    def code(self) -> int:
        """The exit code of a program that it ended."""
        return GPU_IDLE if self.kind == IDLE else BUDGET_SPENT

    @property
    def says(self) -> str:
        """What it did, in short: `ended by the budget: $40.02 of $40.00`."""
        paid = "" if self.dollars is None else f"${self.dollars:.2f}"
        if self.kind == IDLE:
            return ", ".join(filter(None, [f"ended: GPUs idle for {_length(self.seconds or 0.0)}", paid]))
        return f"ended by the budget{self.month and f' of {self.month}'}: {paid} of ${self.limit or 0.0:.2f}"

    @property
    def fix(self) -> str:
        """What lets the run go on."""
        more = (
            "mend what keeps the GPUs waiting, or raise `idle.after` of the step"
            if self.kind == IDLE
            else f"raise `slipway:budget.{self.kind}` above ${self.dollars or 0.0:.2f}"
        )
        return f"{more}, then `pulumi up`: work goes on from its newest checkpoint"

    def record(self) -> dict[str, Any]:
        """As a pod's record has it, in JSON values."""
        return {key: value for key, value in vars(self).items() if value not in (None, "")}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Reached | None:
        """What ended the program of a pod by its record; None where no limit did."""
        with contextlib.suppress(TypeError, ValueError):
            content = record.get("limit")
            return None if not content or record.get("done") else cls(**content)
        return None

    @classmethod
    def parse(cls, text: str) -> Reached | None:
        """What the words of a pod's log say; None where they say nothing of a limit."""
        if budget := _BUDGET_WORDS.search(text):
            dollars, limit = float(budget["dollars"]), float(budget["limit"])
            return cls(budget["kind"], budget[0], dollars, limit, budget["month"] or "")
        if idle := _IDLE_WORDS.search(text):
            seconds = float(idle["length"]) * (60 if idle["unit"] == "min" else 1)
            return cls(IDLE, idle[0], float(idle["dollars"]) if idle["dollars"] else None, seconds=seconds)
        return None

    def holds(self, limits: Limits, month: str) -> bool:
        """Whether it is a budget that still is spent in `month` under those limits, for what costs never shrinks:
        of a run, where the limits are of the same one.
        """
        limit = limits.month if self.kind == MONTH else limits.run
        if self.kind == IDLE or limit is None or self.dollars is None:
            return False
        return self.dollars >= limit and self.month == (month if self.kind == MONTH else "")


@dataclass(frozen=True)
class Price:
    """`dollars` are those of an hour of a node or, with `by_pod`, of a pod. Without pods a node is paid for
    `kept` seconds more."""

    dollars: float
    kept: float = 0.0
    by_pod: bool = False

    def record(self) -> dict[str, Any]:
        """As a pod's record has it."""
        return {"dollars": self.dollars, "kept": self.kept, "by_pod": self.by_pod}


@dataclass(frozen=True)
class Limits:
    """What the stack `stack` may spend in US dollars on a run and in a month; None: without limit.

    `runs` are the directories of the results that an update makes, below the store's root. `prices` are by step
    and pool.
    """

    stack: str
    run: float | None = None
    month: float | None = None
    runs: Sequence[str] = ()
    prices: Mapping[str, Mapping[str, Price]] = field(default_factory=dict[str, Mapping[str, Price]])

    @classmethod
    def read(cls, file: Path) -> Limits:
        """Raises OSError, ValueError, TypeError or KeyError."""
        return cls.of(json.loads(file.read_text()))

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Limits:
        """The limits as JSON has them. Raises TypeError or KeyError."""
        values: dict[str, Any] = {**content}
        prices = {
            step: {pool: Price(**price) for pool, price in pools.items()}
            for step, pools in values.pop("prices").items()
        }
        return cls(**values, prices=prices)

    def price(self, step: str, pool: str) -> Price | None:
        """That of a pod of the step on the pool; None where it is not known."""
        return self.prices.get(step, {}).get(pool)

    def dearest(self, step: str) -> Price | None:
        """The highest price of the step: that of a record which does not say its pool."""
        return max(self.prices.get(step, {}).values(), key=lambda price: price.dollars, default=None)


@dataclass(frozen=True)
class Stay:
    """A pod on a node: what is paid, for an hour of it `dollars`. Times are seconds since the epoch by the clock
    of the node."""

    node: str
    begins: float
    ends: float
    dollars: float


def stay_of(
    record: Mapping[str, Any], price: Price | None, more: float = 0.0, *, kept: bool = True
) -> Stay | None:
    """What is paid for the pod of `record`; None where its price is not known, or it is no record.

    `price` is that of a record that has none. The pod goes on for `more` seconds after the record; its node is
    gone with it unless it is `kept`.
    """
    try:
        known = Price(**record["price"]) if record.get("price") else price
        began = datetime.fromisoformat(record["began"]).timestamp()
        ends = began + float(record["seconds"]) + more
        booted = float(record.get("node_booted") or began)
        node, pod = str(record.get("boot") or ""), str(record.get("pod") or "")
    except (KeyError, TypeError, ValueError):
        return None
    if known is None:
        return None
    if known.by_pod or not node:
        return Stay(f"pod:{pod}:{began:.0f}", began, ends, known.dollars)
    begins = booted if 0 <= began - booted <= BOOT else began
    return Stay(node, begins, ends + (known.kept if kept else 0.0), known.dollars)


def cost(stays: Iterable[Stay], since: float = float("-inf")) -> float:
    """US dollars for all nodes, each moment of a node once, at its highest price. What was before `since` is
    left out."""
    of_nodes: dict[str, list[Stay]] = {}
    for stay in stays:
        of_nodes.setdefault(stay.node, []).append(stay)
    total = 0.0
    for of_node in of_nodes.values():
        seconds, until = 0.0, since
        for stay in sorted(of_node, key=lambda stay: stay.begins):
            seconds += max(0.0, stay.ends - max(stay.begins, until))
            until = max(until, stay.ends)
        total += seconds * max(stay.dollars for stay in of_node) / 3600
    return total


def month_of(now: float) -> tuple[str, float]:
    """The month at `now`, as `2026-11`, and when it began, both by UTC."""
    day = datetime.fromtimestamp(now, timezone.utc)  # noqa: UP017
    first = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first.strftime("%Y-%m"), first.timestamp()


@dataclass
class _Known:
    """The record that a file had last, since when it has had it by this pod's clock, and how often it was new."""

    record: dict[str, Any]
    since: float
    versions: int = 1


class Records:
    """The records of other pods, as far as they were read. `clock` are seconds that never go back; a pod writes
    its record `every` so many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, every: float = INTERVAL) -> None:
        self._clock = clock
        self._every = every
        self._known: dict[Path, _Known] = {}

    def read(self, files: Sequence[Path]) -> None:
        """Read those files. What cannot be read, or is damaged, is what it was."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for file, record in zip(files, pool.map(_read, files)):  # noqa: B905
                known = self._known.get(file)
                if record is None:
                    continue
                if known is None:
                    self._known[file] = _Known(record, self._clock())
                elif record != known.record:
                    self._known[file] = _Known(record, self._clock(), known.versions + 1)

    def is_closed(self, file: Path) -> bool:
        """Whether the file, that of one pod alone, will not have another record."""
        known = self._known.get(file)
        return known is not None and (bool(known.record.get("ended")) or self._clock() - known.since > CLOSED)

    def all_of(self, files: Iterable[Path]) -> Iterator[tuple[dict[str, Any], float | None]]:
        """The records of those files with the ones before them, and for how long each pod that runs went on since,
        which is not seen yet; None of one that does not run.
        """
        for file in files:
            if (known := self._known.get(file)) is None:
                continue
            yield known.record, self._more(known)
            for before in known.record.get("before") or ():
                yield before, None

    def _more(self, known: _Known) -> float | None:
        silent = self._clock() - known.since
        runs = known.versions > 1 and not known.record.get("ended") and silent <= SILENT * self._every
        return silent if runs else None


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    record = cast("dict[str, Any]", content)
    record.pop("course", None)
    return record


class Guard:
    """Says when a pod has to end since its stack has spent what it may.

    `read` gives the limits, which may change while it runs. `record` is where the pod's own record is kept, below
    the folder of all records; `step` and `pool` are its own. A pod looks, and writes its record, `every` so
    many seconds; `grace` more go by before a program has ended which is told to.
    """

    def __init__(
        self,
        read: Callable[[], Limits],
        record: Path,
        step: str,
        pool: str,
        *,
        every: float = INTERVAL,
        grace: float,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._record = record
        self._root = record.parents[3]
        self._path = record.parent.relative_to(self._root).as_posix()
        self._step, self._pool = step, pool
        self._every, self._reserve = every, every + grace
        self._now = now
        self._records = Records(clock, every)
        self.limits = read()

    @property
    def price(self) -> Price | None:
        """That of the pod; None where it is not known."""
        return self.limits.price(self._step, self._pool)

    def look(self, current: Mapping[str, Any], pods: int = 1) -> Reached | None:
        """Why the pod has to end; None while it need not. `current` is its record, and that of `pods` like it."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            self.limits = self._read()
        limits = self.limits
        if limits.run is not None:
            files = [file for file in self._of_run() if file != self._record]
            self._records.read(files)
            spent = cost(self._stays(files, current, pods))
            if spent >= limits.run:
                return _budget(RUN, spent, limits.run)
        if limits.month is not None:
            month, first = month_of(self._now())
            folder = self._root / MONTHS / limits.stack / month
            files = [file for file in _files(folder) if file.stem != current["pod"]]
            self._records.read([file for file in files if not self._records.is_closed(file)])
            spent = cost(self._stays(files, current, pods), first)
            if spent >= limits.month:
                return _budget(MONTH, spent, limits.month, month)
        return None

    def look_ahead(self, pods: int) -> Reached | None:
        """Why so many pods need not be started: they would have to end as soon as their nodes are there."""
        began = datetime.fromtimestamp(self._now(), timezone.utc).isoformat()  # noqa: UP017
        return self.look({"step": self._step, "pod": "", "began": began, "seconds": 0.0, "boot": "to come"}, pods)

    def keep(self, current: Mapping[str, Any]) -> None:
        """Keep the pod's record among those of the month, where that has a limit. Raises OSError."""
        if self.limits.month is None:
            return
        month, _ = month_of(self._now())
        file = self._root / MONTHS / self.limits.stack / month / f"{current['pod']}.json"
        kept = {key: value for key, value in current.items() if key != "course"}
        write_atomically(file, f"{json.dumps(kept)}\n".encode())

    def _of_run(self) -> list[Path]:
        """The files of the run's records. A run by the clock has directories with its time in their names."""
        clock = _RUN_BY_CLOCK.search(self._path)
        if clock is None:
            return [file for path in {*self.limits.runs, self._path} for file in _files(self._root / path)]
        pipeline = self._path.split("/")[0]
        return sorted(self._root.glob(f"{pipeline}/*/*-{clock[1]}/[!.]*.json"))

    def _stays(self, files: Sequence[Path], current: Mapping[str, Any], pods: int) -> list[Stay]:
        # The pods that had its place before are in its own record.
        others = [*((record, None) for record in current.get("before") or ()), *self._records.all_of(files)]
        stay = stay_of(current, self.price, self._reserve)
        stays = [stay and replace(stay, node=f"{stay.node}{'+' * index}") for index in range(pods)]
        for record, more in others:
            price = self.limits.dearest(str(record.get("step")))
            if more is None:
                # Of a pod that was told to end, or said nothing any more, the node was mostly taken away, too. It
                # may have gone on for as long as it had no record due.
                ended = record.get("ended")
                stays.append(stay_of(record, price, 0.0 if ended else self._every, kept=ended == ITSELF))
            else:
                # Whoever still runs is told at the same time, and takes as long.
                stays.append(stay_of(record, price, more + self._reserve))
        return [stay for stay in stays if stay is not None]


@dataclass
class Idle:
    """GPUs that are busy for fewer than `below` percent on average, for `after` seconds in a row. `stops` says
    that the program is ended; else it is said again after as long."""

    below: int
    after: float
    stops: bool
    _said: float = 0.0

    def look(self, seconds: float, gpus: int, price: Mapping[str, Any]) -> Reached | None:
        """What is to be said of `gpus` that were idle for `seconds` up to now; None for nothing."""
        if seconds < self._said:
            self._said = 0.0
        if seconds < self._said + self.after:
            return None
        self._said = seconds
        rate = price.get("dollars")
        dollars = round(rate * seconds / 3600, 2) if isinstance(rate, (int, float)) else None
        paid = "" if dollars is None else f", ${dollars:.2f}"
        what = "its GPU" if gpus == 1 else f"its {gpus} GPUs"
        words = f"{what} held {_length(seconds)} idle, below {self.below} %{paid}"
        return Reached(IDLE, words, dollars, seconds=round(seconds, 1))


def _files(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(".json") and not name.startswith(".")]


def _budget(kind: str, spent: float, limit: float, month: str = "") -> Reached:
    what = f"{month} so far" if month else "this run"
    words = (
        f"the nodes of {what} cost ${spent:.2f}, until they are gone, and `slipway:budget.{kind}` is ${limit:.2f}"
    )
    return Reached(kind, words, round(spent, 2), round(limit, 2), month)


_BUDGET_WORDS = re.compile(
    r"the nodes of (?:this run|(?P<month>\d{4}-\d{2}) so far) cost \$(?P<dollars>\d+\.\d+), until they are gone, "
    r"and `slipway:budget\.(?P<kind>run|month)` is \$(?P<limit>\d+\.\d+)"
)
_IDLE_WORDS = re.compile(
    r"its (?:GPU|\d+ GPUs) held (?P<length>\d+) (?P<unit>min|s) idle, below \d+ %(?:, \$(?P<dollars>\d+\.\d+))?"
)


def _length(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def pause(interval: float) -> float:
    """Seconds until the next look: not all pods of a run read the store at the same moment."""
    return interval * random.uniform(0.8, 1.0)
