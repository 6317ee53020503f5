"""One pod of several, from its start to its exit code: it does what the group says, and says what happens to it.

Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from slipway.features.nodes.pod.group import (
    KILLED_AGAIN,
    NEIGHBOUR_FAILED,
    NODES_MISSING,
    Address,
    Group,
    absence,
    free_port,
)
from slipway.features.nodes.pod.rendezvous import Coordinator, Identity, Member
from slipway.features.nodes.pod.work import ENDLESS, Work, variables
from slipway.runtime.exits import (
    INTERRUPTED,
    INTERRUPTED_BY_KEYBOARD,
    OK,
    RECORD_VARIABLE,
    UNEXPECTED,
    StepError,
)
from slipway.runtime.failures import explain
from slipway.runtime.masking import Masker
from slipway.runtime.steps.program import Program, Runner, Tail, readable, tell_cause
from slipway.runtime.store import NotWholeError

_READ_FOR_CAUSE = 4096

_CONSEQUENCES = re.compile(
    r"UnavailableError|UNAVAILABLE|Connection (?:reset|refused|closed|aborted)|Broken pipe|Socket closed|"
    r"Connection\w*Error|BrokenPipeError|ncclRemoteError|DistNetworkError|heartbeat timeout|"
    r"remote process exited|failed to connect to all addresses|CancelledError|AbortedError|ABORTED",
)
"""What programs write that lost a neighbour: TensorFlow, gRPC, gloo, NCCL and Python (TensorFlow's words: 2.21,
seen November 2026). They only decide which of several failures of the same seconds is the cause."""


@dataclass(frozen=True)
class Ending:
    """How a program ended. `how` is `well`, `failed`, or `killed`; `stopped` says that it had been told to.

    `words` are the line of its error, or its last one, or the signal that killed it. `consequent` says that it
    wrote what a program writes whose neighbour is gone.
    """

    how: str
    code: int
    words: str
    consequent: bool
    stopped: bool


class NodeRunner(Runner):
    """Runs the program of one pod. `on_end` is called from another thread, with the generation that it was."""

    def __init__(self, on_end: Callable[[int, Ending], None]) -> None:
        super().__init__()
        self._on_end = on_end

    def start(self, program: Program, generation: int) -> None:
        """Start it. Raises StepError where that cannot be done."""
        with self._lock:
            process, tail, copying = self._begin(program)

        def wait() -> None:
            code = process.wait()
            # Busy until nothing is left of it: the next generation may not meet the last one's processes.
            self._clean_up(process, copying)
            self._on_end(generation, _ending(code, tail, stopped=self._is_over()))

        threading.Thread(target=wait, daemon=True).start()


def _ending(code: int, tail: Tail, *, stopped: bool) -> Ending:
    killer = -code if code < 0 else code - 128
    if killer in (signal.SIGKILL, signal.SIGTERM):
        return Ending("killed", INTERRUPTED, signal.Signals(killer).name, consequent=False, stopped=stopped)
    if code == 0:
        return Ending("well", 0, "", consequent=False, stopped=stopped)
    failure = explain(tail.text)
    tell_cause(failure)
    line = failure.line or failure.last
    consequent = bool(_CONSEQUENCES.search(tail.text[-_READ_FOR_CAUSE:]))
    return Ending("failed", code if code > 0 else 128 - code, readable(line), consequent, stopped)


GRACE = 20.0
"""Seconds that a program has after SIGTERM where its pod is told to end, or all is done. A pod has 25."""
STOP_GRACE = 5.0
"""Seconds that it has where another pod was lost: what it does with the others cannot succeed any more."""
LINGER = 30.0
"""Seconds in which the others wait for the end of a Job whose program failed in one pod."""

_PATIENCE = 5.0
_LOOK_AGAIN = 10.0
_WORDS = (2.0, 10.0, 30.0, 60.0)
_CODES = {int(signal.SIGTERM): INTERRUPTED, int(signal.SIGINT): INTERRUPTED_BY_KEYBOARD}
_STOPPED = {int(signal.SIGTERM): "stopped by SIGTERM", int(signal.SIGINT): "interrupted"}


@dataclass(frozen=True)
class Place:
    """Where a pod stands in its group: the addresses and roles of all by rank, where they meet, and its own rank.

    `wait` is in seconds; `gpus` are those of each pod; `job` is the UID of the Job.
    """

    rank: int
    nodes: Sequence[Address]
    roles: Sequence[str]
    meet: Address
    wait: float
    gpus: int
    job: str


class Pod:
    """Runs the program as often as it takes. Make it in the main thread: it handles SIGTERM and Ctrl-C."""

    def __init__(self, place: Place, work: Work, masker: Masker) -> None:
        self._place = place
        self._work = work
        self._masker = masker
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._at_once = True
        for number in _CODES:
            signal.signal(number, self._handle)
        self._runner = NodeRunner(lambda generation, ending: self._put(type="ended", of=generation, ending=ending))
        self._coordinator: Coordinator | None = None
        self._member: Member | None = None
        self._program: Program | None = None
        self._prepared = False
        self._published = False
        self._generation = 0
        self._failed_in = 0
        self._told_to_stop = 0
        self._signalled = False
        self._verdict: dict[str, Any] | None = None
        self._ended_at: float | None = None
        self._looked = 0.0
        self._said = 0.0

    def run(self) -> int:
        """The exit code. Raises StepError."""
        try:
            if self._work.is_done():
                return self._nothing_to_do()
            self._meet()
            try:
                if self._work.inspect():
                    self._published = True
                    if self._place.rank:
                        return OK
                else:
                    self._program = self._work.prepare()
            except StepError as error:
                self._report(error)
                raise
            self._prepared, self._at_once = True, False
            self._ready()
            while self._verdict is None:
                self._take(self._next(1.0))
                self._search()
                self._explain()
            return self._end(self._verdict)
        except _DoneElsewhere:
            return self._nothing_to_do()
        finally:
            self._end_program(0.0)
            self._work.finish(lambda: self._signalled)
            self._work.close()

    def _nothing_to_do(self) -> int:
        print("Nothing to do: the result is there", flush=True)
        return OK

    def _meet(self) -> None:
        place = self._place
        identity = Identity(place.rank, len(place.nodes), place.job)
        if place.rank == 0:
            decides = [role not in ENDLESS for role in place.roles]
            group = Group(place.nodes, place.meet, decides, place.wait, time.monotonic())
            self._coordinator = Coordinator(group, identity, place.meet)
        self._member = Member(identity, place.meet, self._events.put)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._at_once:
            print(f"error: {_STOPPED[number]}: the same command goes on", file=sys.stderr, flush=True)
            os._exit(_CODES[number])
        self._signalled = True
        self._put(type="signal", number=number)

    def _put(self, **event: Any) -> None:
        self._events.put(event)

    def _send(self, **message: Any) -> None:
        if self._member is not None:
            self._member.send(message)

    def _next(self, timeout: float) -> dict[str, Any]:
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return {"type": "nothing"}

    def _take(self, event: dict[str, Any]) -> None:
        handler = getattr(self, f"_on_{event['type']}", None)
        if handler is not None:
            handler(event)

    def _on_say(self, event: dict[str, Any]) -> None:
        print(event["text"], flush=True)

    def _on_connected(self, _: dict[str, Any]) -> None:
        self._ready()

    def _on_lost(self, event: dict[str, Any]) -> None:
        if self._runner.busy:
            print(f"Generation {self._generation} ended: pod 0 was lost ({event['reason']})", flush=True)
            self._runner.stop(STOP_GRACE)

    def _on_start(self, event: dict[str, Any]) -> None:
        if self._told_to_stop:
            return
        assert self._program is not None
        place = self._place
        print(event["text"], flush=True)
        self._generation = event["generation"]
        self._ended_at = None
        nodes = [Address(host, port) for host, port in event["nodes"]]
        if nodes[place.rank].port != place.nodes[place.rank].port:
            print(
                f"port {place.nodes[place.rank].port} is still held by connections of before: the program has "
                f"{nodes[place.rank].port}",
                flush=True,
            )
        told = variables(place.rank, nodes, place.roles, place.gpus, self._generation)
        program = dataclasses.replace(self._program, environment={**self._program.environment, **told})
        try:
            with self._ending_at_once():
                program = self._work.begin(program, event.get("checkpoint", ""), event.get("attempt", ""))
            self._runner.start(program, self._generation)
        except NotWholeError as error:
            print(f"The checkpoint is not taken again: {error.reason}", flush=True)
            ending = Ending("killed", INTERRUPTED, "a damaged checkpoint", consequent=False, stopped=False)
            self._put(type="ended", of=self._generation, ending=ending)
        except StepError as error:
            self._report(error)
            raise

    def _on_stop(self, _: dict[str, Any], grace: float = STOP_GRACE) -> None:
        if self._runner.busy:
            self._runner.stop(grace)
        else:
            self._ready()

    def _on_finish(self, event: dict[str, Any]) -> None:
        self._on_stop(event, GRACE)

    def _on_publish(self, _: dict[str, Any]) -> None:
        if not self._published:
            with self._ending_at_once():
                try:
                    self._work.publish()
                except StepError as error:
                    self._report(error)
                    raise
            self._published = True
        self._send(type="published")

    def _on_ended(self, event: dict[str, Any]) -> None:
        ending: Ending = event["ending"]
        if self._told_to_stop:
            if self._member is not None:
                # The others need not wait for the copy of a checkpoint.
                self._member.close()
            raise StepError(
                _CODES[self._told_to_stop], f"{_STOPPED[self._told_to_stop]}: the same command goes on"
            )
        if ending.stopped:
            self._ready()
            return
        if ending.how == "failed":
            self._failed_in = self._generation
        elif ending.how == "well":
            self._ended_at = time.monotonic()
        self._send(
            type="ended",
            generation=event["of"],
            how=ending.how,
            code=ending.code,
            words=ending.words,
            consequent=ending.consequent,
        )

    def _on_replaced(self, _: dict[str, Any]) -> None:
        self._end_program(0.0)
        raise StepError(INTERRUPTED, "another pod has taken the place of this one")

    def _on_signal(self, event: dict[str, Any]) -> None:
        again, self._told_to_stop = self._told_to_stop, event["number"]
        self._send(type="leaving")
        if not self._runner.busy:
            self._on_ended({"ending": None})
        grace, number = self._work.give_notice() or (GRACE, signal.SIGTERM)
        self._runner.stop(0.0 if again else grace, number)

    def _on_done(self, event: dict[str, Any]) -> None:
        self._verdict = event

    _on_failed = _on_missing = _on_done

    def _ready(self) -> None:
        """Say that a program may start here, once that is so."""
        if not self._prepared or self._runner.busy or self._told_to_stop:
            return
        if self._program is None:
            # There is a result, or there is all that it takes to make one.
            self._on_publish({})
            return
        self._work.finish(lambda: self._signalled)
        if self._signalled:
            return
        of_rank_0: dict[str, str] = {}
        if self._place.rank == 0:
            # Of those that all pods have copied whole until now.
            newest = self._work.newest()
            of_rank_0 = {"checkpoint": newest, "attempt": secrets.token_hex(4), "progress": self._work.progress()}
        port = free_port(self._place.nodes[self._place.rank].port)
        address, rank_0 = self._member.ends() if self._member is not None else ("", "")
        known = {"port": port, "own": address, "rank_0": rank_0}
        self._send(type="ready", generation=self._generation, **of_rank_0, **known)

    def _search(self) -> None:
        """What there is to do while rank 0 cannot be reached."""
        since = self._member.searching_since if self._member is not None else None
        now = time.monotonic()
        if since is None or self._told_to_stop:
            self._looked = self._said = 0.0
            return
        waited, place = now - since, self._place
        if self._runner.busy:
            return
        if waited > 1.0 and now >= self._looked + _LOOK_AGAIN:
            self._looked = now
            if self._work.is_done():
                raise _DoneElsewhere
        text = absence(place.nodes, place.meet, [0], min(waited, place.wait), place.wait)
        if waited >= place.wait:
            assert self._member is not None
            hint = f"; the last attempt: {self._member.obstacle}" if self._member.obstacle else ""
            raise StepError(NODES_MISSING, f"waited for {text}{hint}")
        if waited >= next((word for word in _WORDS if word > self._said), self._said + _WORDS[-1]):
            self._said = waited
            print(f"waiting for {text}", flush=True)

    def _explain(self) -> None:
        """Say why nothing happens here, where the programs of the others take longer."""
        if self._ended_at is not None and time.monotonic() - self._ended_at > _WORDS[0]:
            self._ended_at = None
            print("the program of this pod ended well; those of other pods are still at work", flush=True)

    def _report(self, error: StepError) -> None:
        """Tell the others of an error of this pod, so that they end, too."""
        words = self._masker.mask(str(error))
        end = time.monotonic() + _PATIENCE
        while self._member is not None and time.monotonic() < end:
            self._send(type="broken", code=_final(error.code), words=words)
            event = self._next(0.5)
            if event["type"] in ("failed", "missing") or self._signalled:
                break
            if self._member.searching_since is not None and self._coordinator is None:
                break
        self._see_off(_PATIENCE)

    def _see_off(self, patience: float) -> None:
        """Confirm the end; at rank 0, until the others have confirmed it."""
        if self._member is not None:
            self._member.leave()
        if self._coordinator is not None:
            while not self._coordinator.is_over(patience) and not self._signalled:
                self._next(0.1)

    def _end(self, verdict: dict[str, Any]) -> int:
        is_own = verdict.get("rank") == self._place.rank
        self._end_program(GRACE if verdict["type"] == "done" else STOP_GRACE)
        if verdict["type"] == "done":
            self._work.discard()
            self._see_off(_PATIENCE)
            if self._place.rank:
                # The result is that of rank 0, and so is the record of it.
                os.environ.pop(RECORD_VARIABLE, None)
            return OK
        if verdict["type"] == "missing":
            self._see_off(_PATIENCE)
            raise StepError(
                NODES_MISSING,
                f"waited for {verdict['text']}; is there a node for each pod, with what the step asks for?",
            )
        if is_own:
            self._see_off(_PATIENCE)
            raise self._own_error(verdict)
        if self._member is not None:
            self._member.leave()
        print(verdict["text"], flush=True)
        if self._place.job:
            end = time.monotonic() + LINGER
            while time.monotonic() < end and not self._signalled:
                self._next(0.5)
        raise StepError(NEIGHBOUR_FAILED, f"stopped: {verdict['text']}")

    def _own_error(self, verdict: dict[str, Any]) -> StepError:
        code = _final(verdict["code"])
        if verdict["code"] == KILLED_AGAIN:
            return StepError(code, f"this pod {verdict['words']}")
        if not self._failed_in:
            return StepError(code, f"{verdict['text']}; what it wrote is in the log of the pod before this one")
        remark = f"; its exit code was {verdict['code']}" if verdict["code"] != code else ""
        return StepError(code, f"{verdict['words'] or 'its program failed without a word'}{remark}")

    def _end_program(self, grace: float) -> None:
        """Stop the program, if there is one, and wait for its end."""
        if self._runner.busy:
            self._runner.stop(grace)
        while self._runner.busy:
            self._next(0.1)

    @contextlib.contextmanager
    def _ending_at_once(self) -> Iterator[None]:
        """While this is entered, SIGTERM ends the process: nobody looks at the events."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False


class _DoneElsewhere(Exception):  # noqa: N818
    """The result is there, though nobody said so."""


def _final(code: int) -> int:
    """The exit code for an error that has to end the Job, which ignores some."""
    return UNEXPECTED if code in (OK, NEIGHBOUR_FAILED, INTERRUPTED, 137) else code
