"""Steps with items whose workers and queue are killed while they work, against a run without kills.

A plan of events is drawn from a seed: a worker with its program is killed (SIGKILL), the server of the queue is
killed, both are, the server's node loses power (with all that was not on its disk), or a worker stands still
(SIGSTOP) for longer than its lease and goes on (SIGCONT). Who died is started again, as a Job's and a
StatefulSet's controllers do. The plan is the same for the same seed; what each event meets depends on the machine,
too.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.features.items.pod.items import FAILED, ITEMS, RESULT
from slipway.features.items.pod.queue import ItemQueue, Row, Rules
from slipway.runtime.store import check
from tests.support.checkout import ROOT
from tests.support.processes import processes_with_mark
from tests.support.servers.valkey import PASSWORD, ValkeyServer

MODES = ("parallel", "ordered", "static")
"""The first two share a queue; in `static` each worker has its own share."""

SHARES = {"parallel": 0.5, "ordered": 0.35, "static": 0.15}
"""Of all events, how many happen in each mode."""

KINDS = {"worker": 6, "pause": 3, "server": 2, "server and worker": 2, "power": 2, "power and worker": 1}
"""Kinds of events, and how often each is drawn."""

WITHOUT_QUEUE = ("worker", "pause")
ON_WORKERS = ("worker", "pause", "server and worker", "power and worker")
ON_SERVER = ("server", "server and worker", "power", "power and worker")
POWER = ("power", "power and worker")

LEASE = 2.0
"""Seconds after which a silent worker loses its item."""


@dataclass(frozen=True)
class Event:
    """`after` is in seconds since the event before. `chosen` in [0, 1) says which worker of those that are alive,
    or, with `busy`, of those that have an item. `away` is for how many seconds it, or the server, is gone.
    """

    kind: str
    after: float
    chosen: float
    busy: bool
    away: float


def plan(seed: int, kills: int) -> dict[str, list[Event]]:
    """The events of each mode. Equal for equal arguments."""
    rest = kills
    events: dict[str, list[Event]] = {}
    for mode in MODES:
        count = min(rest, round(kills * SHARES[mode])) if mode != MODES[-1] else rest
        rest -= count
        dice = random.Random(f"{seed} {mode}")
        kinds = {kind: weight for kind, weight in KINDS.items() if mode != "static" or kind in WITHOUT_QUEUE}
        events[mode] = [_event(dice, kinds) for _ in range(count)]
    return events


def _event(dice: random.Random, kinds: dict[str, int]) -> Event:
    [kind] = dice.choices(list(kinds), weights=list(kinds.values()))
    away = dice.uniform(1.2, 2.0) * LEASE if kind == "pause" else dice.uniform(0.1, 1.0)
    # Now and then the server is away for longer than the leases last.
    if kind != "pause" and dice.random() < 0.2:
        away = dice.uniform(1.1, 1.6) * LEASE
    return Event(kind, dice.uniform(0.1, 1.6), dice.random(), dice.random() < 0.8, away)


WORKERS = 4
ATTEMPTS = 1000
"""None may be set aside: what is tested is that nothing is lost, however often its worker dies."""

LONGEST = 300.0
"""Seconds that one run may take."""

_DIFFERS = {"attempts", "seconds", "path"}

_MARK = "QUEUE_KILLS_POD"
"""The environment variable by which the processes of a worker are found."""

PROGRAM = """\
import hashlib, json, os, sys, time

item, output, previous = sys.argv[1:]
seconds = float(os.environ["SECONDS_PER_ITEM"])
text = open(item, encoding="utf-8").read()
checkpoint = os.path.join(output, "checkpoint.json")
state = {"done": 0, "value": ""}
if previous and os.path.exists(os.path.join(previous, "value.json")):
    state["value"] = json.load(open(os.path.join(previous, "value.json"), encoding="utf-8"))["value"]
if os.path.exists(checkpoint):
    state = json.load(open(checkpoint, encoding="utf-8"))
with open(os.environ["LOG_OF_STARTS"], "a", encoding="utf-8") as file:
    file.write(json.dumps({"item": os.path.basename(item), "from": state["done"]}) + "\\n")


def write(name, value):
    with open(os.path.join(output, name + ".new"), "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(os.path.join(output, name + ".new"), os.path.join(output, name))


while state["done"] < 5:
    time.sleep(seconds / 5)
    value = hashlib.sha256(f"{state['value']} {text} {state['done']}".encode()).hexdigest()
    state = {"done": state["done"] + 1, "value": value}
    write("checkpoint.json", state)
write("value.json", {"value": state["value"]})
write("summary.json", {"value": state["value"][:12], "steps": state["done"]})
"""
"""Waits, writes a checkpoint five times, and leaves a value that follows from its item and, in order, the one
before it: an item that was lost, mixed up or taken twice changes every value after it."""


@dataclass
class Found:
    """What one run left. `rows` are those of `items.json` without what may differ from attempt to attempt.

    They have the digest of each item's manifest, and with it that of every file of its result.
    """

    rows: list[dict[str, Any]]
    attempts: list[int]
    seconds: float
    replaced: list[str] = field(default_factory=list)
    """Items whose result was written twice with different contents."""
    unlike: list[str] = field(default_factory=list)
    """Items of which the queue and the store name different results."""
    starts: int = 0
    resumed: int = 0
    left_behind: int = 0
    lost_bytes: int = 0


class RunError(Exception):
    """A run did not end as it should. The message has the end of the logs."""


class Run:
    """One step with items, run by `WORKERS` workers from its beginning to its end."""

    def __init__(self, folder: Path, mode: str, items: int, seconds: float, server: ValkeyServer | None) -> None:
        self._folder = folder
        self._mode = mode
        self._server = server
        self._names = [f"day-{number:03}" for number in range(items)]
        self._output = folder / "out" / "days"
        self._log = folder / "starts"
        self._pods: dict[int, subprocess.Popen[bytes]] = {}
        self._again: dict[int, float] = {}
        """When a worker is to be started again, in seconds of `time.monotonic`."""
        self._paused: dict[int, float] = {}
        self._ours: set[int] = set()
        self._done: set[int] = set()
        self._restarting: list[threading.Thread] = []
        self._seconds = seconds
        self._mark = f"{folder}"
        # The same for all runs: where an item lies is part of the work on it.
        self._data = folder.parent / "data"
        self._data.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        for name in self._names:
            (self._data / f"{name}.csv").write_text(f"rows of {name}\n")
        self._log.touch()

    def run(self, events: Sequence[Event]) -> tuple[Found, int]:
        """Run it; returns what it left, and how many of the events happened before it was done.

        Raises RunError.
        """
        started = time.monotonic()
        ahead = list(events)
        due = started + ahead[0].after if ahead else float("inf")
        lost = 0
        with self._watched() as seen:
            try:
                for index in range(WORKERS):
                    self._start(index)
                while len(self._done) < WORKERS:
                    now = time.monotonic()
                    if now - started > LONGEST:
                        raise RunError(f"not done after {LONGEST:g} s\n{self._logs()}")
                    self._look_after(now)
                    if now >= due and not self._restarting:
                        if self._can_happen(ahead[0]):
                            lost += self._happen(ahead.pop(0), now)
                            due = time.monotonic() + ahead[0].after if ahead else float("inf")
                        else:
                            # At any moment of an item, not always at its beginning.
                            due = now + ahead[0].chosen * self._seconds
                    time.sleep(0.01)
                for thread in self._restarting:
                    thread.join()
            finally:
                left = self._left_behind()
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                for pod in self._pods.values():
                    pod.wait()
            seconds = time.monotonic() - started
        outcome = self._found(seconds, seen)
        outcome.left_behind, outcome.lost_bytes = len(left), lost
        return outcome, len(events) - len(ahead)

    def _start(self, index: int) -> None:
        mode = [] if self._mode == "static" else ["--mode", self._mode]
        queue = ["--queue", self._server.address, "--queue-password", "QUEUE_PASSWORD"] if self._server else []
        previous = "{previous}" if self._mode == "ordered" else ""
        command = [
            sys.executable, "-m", "slipway.features.items.pod.worker", "--step", "days",
            "--output", str(self._output),
            "--items", f"{self._data}/*.csv", "--workers", str(WORKERS), "--attempts", str(ATTEMPTS),
            "--lease", str(LEASE), *mode, *queue,
            "--", sys.executable, "-c", PROGRAM, "{item}", "{output}", previous,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "JOB_COMPLETION_INDEX": str(index),
            "JOB_UID": "one round",
            "QUEUE_PASSWORD": PASSWORD,
            "SECONDS_PER_ITEM": str(self._seconds),
            "LOG_OF_STARTS": str(self._log),
            "PYTHONDONTWRITEBYTECODE": "1",
            _MARK: f"{self._mark}:{index}:",
        }
        with (self._folder / f"worker-{index}.log").open("ab") as log:
            self._pods[index] = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _look_after(self, now: float) -> None:
        """What the controllers do: start again who was killed, as a Job does that ignores exit code 137."""
        for index, pod in self._pods.items():
            code = pod.poll()
            if code is None or index in self._done or index in self._again:
                continue
            if code == 0:
                self._done.add(index)
            elif code == -signal.SIGKILL and index in self._ours:
                self._ours.discard(index)
                self._again[index] = now + 0.3
            else:
                raise RunError(f"worker {index} ended with {code}, and the Job has failed\n{self._logs()}")
        for index in [ended for ended, at in self._again.items() if now >= at]:
            del self._again[index]
            self._start(index)
        for index in [paused for paused, at in self._paused.items() if now >= at]:
            del self._paused[index]
            self._signal(index, signal.SIGCONT)
        self._restarting = [thread for thread in self._restarting if thread.is_alive()]

    def _can_happen(self, event: Event) -> bool:
        """Whether it would meet somebody who has an item, where it has to."""
        return not (event.busy and event.kind in ON_WORKERS) or bool(self._busy())

    def _happen(self, event: Event, now: float) -> int:
        """Do it; returns how many bytes the server lost."""
        lost = 0
        if event.kind in ON_SERVER:
            assert self._server is not None
            if event.kind in POWER:
                lost = self._server.lose_power(min(0.7, event.away))
            else:
                self._server.kill()
            self._restarting.append(threading.Thread(target=self._restart, args=(event.away,)))
            self._restarting[-1].start()
        if event.kind in ON_WORKERS:
            index = self._choose(event)
            if index is None:
                return lost
            if event.kind == "pause":
                self._signal(index, signal.SIGSTOP)
                self._paused[index] = now + event.away
            else:
                self._ours.add(index)
                self._signal(index, signal.SIGKILL)
        return lost

    def _restart(self, away: float) -> None:
        time.sleep(away)
        assert self._server is not None
        self._server.start()

    def _choose(self, event: Event) -> int | None:
        some = (self._busy() if event.busy else []) or self._alive()
        return some[int(event.chosen * len(some))] if some else None

    def _alive(self) -> list[int]:
        return [
            index
            for index, pod in sorted(self._pods.items())
            if pod.poll() is None and index not in self._paused and index not in self._again
        ]

    def _busy(self) -> list[int]:
        """Workers whose program runs."""
        return [
            index for index in self._alive() if any(_is_program(process) for process in self._processes(index))
        ]

    def _left_behind(self) -> list[int]:
        """Processes that are still there a second after all workers ended."""
        end = time.monotonic() + 1.0
        while (left := self._processes()) and time.monotonic() < end:
            time.sleep(0.02)
        return left

    def _signal(self, index: int, number: int) -> None:
        for process in self._processes(index):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def _processes(self, index: int | None = None) -> list[int]:
        """The processes of a worker, or of all: with their programs, and whatever these started."""
        return processes_with_mark(_MARK, f"{self._mark}:{'' if index is None else f'{index}:'}")

    @contextlib.contextmanager
    def _watched(self) -> Iterator[dict[str, set[bytes]]]:
        """All contents that the files with the results had, each time that one was written."""
        seen: dict[str, set[bytes]] = {}
        last: dict[Path, tuple[int, int]] = {}
        over = threading.Event()
        files = [self._output / name / file for name in self._names for file in (RESULT, FAILED)]

        def look() -> None:
            for file in files:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    state = file.stat()
                    if last.get(file) != (state.st_ino, state.st_mtime_ns):
                        seen.setdefault(file.parent.name, set()).add(file.read_bytes())
                        last[file] = (state.st_ino, state.st_mtime_ns)

        def watch() -> None:
            while not over.wait(0.005):
                look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            thread.join()
            look()

    def _found(self, seconds: float, seen: dict[str, set[bytes]]) -> Found:
        check(self._output)
        rows = json.loads((self._output / ITEMS).read_bytes())
        held = self._held(self._server) if self._server else None
        starts = [json.loads(line) for line in self._log.read_text().splitlines()]
        return Found(
            rows=[{key: value for key, value in row.items() if key not in _DIFFERS} for row in rows],
            attempts=[row["attempts"] for row in rows],
            seconds=seconds,
            replaced=sorted(name for name, contents in seen.items() if len(contents) != 1),
            unlike=sorted(row["item"] for row in rows if not self._agrees(row, held)),
            starts=len(starts),
            resumed=sum(1 for start in starts if start["from"]),
        )

    def _agrees(self, row: dict[str, Any], rows: dict[str, Row] | None) -> bool:
        """Whether queue, store and list name the same attempt as the result of an item."""
        stored = json.loads((self._output / row["item"] / RESULT).read_bytes())
        if row["path"] != f"{row['item']}/{stored['attempt']}":
            return False
        if rows is None:
            return True
        held = rows.get(row["item"])
        # Of what was done before it was filled the queue has no record.
        return held is not None and held.state == "done" and json.loads(held.record or "null") in (None, stored)

    def _held(self, server: ValkeyServer) -> dict[str, Row]:
        """What the queue knows of each item."""
        connection = server.connection()
        [key] = connection.call("KEYS", "slipway:*:items")
        run = key.decode().removeprefix("slipway:").removesuffix(":items")
        queue = ItemQueue(connection, run, Rules(self._mode, ATTEMPTS, LEASE))
        rows = queue.rows(self._names)
        queue.close()
        return {row.item: row for row in rows}

    def _logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:])
            for path in sorted(self._folder.glob("worker-*.log"))
        )


def _is_program(process: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return words[1:3] == [b"-c", PROGRAM.encode()]
    return False


AT_MOST = 15
"""Events in one run."""


@dataclass
class Tally:
    """What the runs of one mode came to."""

    mode: str
    events: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    items: int = 0
    lost: int = 0
    replaced: int = 0
    different: int = 0
    left_behind: int = 0
    attempts: int = 0
    most: int = 0
    starts: int = 0
    resumed: int = 0
    seconds: float = 0.0
    lost_bytes: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, nothing reported twice, and all is as without kills."""
        return not (self.lost or self.replaced or self.different or self.left_behind)

    def add(self, outcome: Found, reference: Found, events: Sequence[Event]) -> None:
        """Count a run with these events."""
        self.events.update(event.kind for event in events)
        self.runs += 1
        self.items += len(reference.rows)
        done = {row["item"] for row in outcome.rows if row["state"] == "done"}
        self.lost += sum(row["item"] not in done for row in reference.rows)
        self.replaced += len(outcome.replaced)
        others = [row["item"] for row in outcome.rows if row not in reference.rows]
        self.different += len({*others, *outcome.unlike}) or int(outcome.rows != reference.rows)
        self.left_behind += outcome.left_behind
        self.attempts += sum(outcome.attempts)
        self.most = max(self.most, *outcome.attempts)
        self.starts += outcome.starts
        self.resumed += outcome.resumed
        self.seconds += outcome.seconds
        self.lost_bytes += outcome.lost_bytes


def measure(mode: str, events: Sequence[Event], items: int, seconds: float, scratch: Path) -> Tally:
    """Run a step as often as it takes for all events to happen, after once without any. Raises RunError."""
    tally = Tally(mode)
    data = scratch / mode
    reference, _ = _run(data / "reference", mode, items, seconds, [])
    ahead = list(events)
    while ahead:
        outcome, happened = _run(data / f"run-{tally.runs}", mode, items, seconds, ahead[:AT_MOST])
        tally.add(outcome, reference, ahead[:happened])
        ahead = ahead[happened:]
    return tally


def _run(folder: Path, mode: str, items: int, seconds: float, events: Sequence[Event]) -> tuple[Found, int]:
    server = None if mode == "static" else ValkeyServer(folder.with_name(f"{folder.name}-server"))
    if server is not None:
        server.start()
    try:
        return Run(folder, mode, items, seconds, server).run(events)
    finally:
        if server is not None:
            server.kill()
