"""Where the pods of one step meet: a server beside rank 0's program, to which every pod has a connection.

The protocol is lines of JSON over TCP. A pod says hello with the UID of its Job, so that nobody of another Job
joins, and is either welcome or refused. From then on both sides give a sign of life every second; who is silent
for ten is lost, however open the connection looks. What the messages mean is in `node_group`. A pod that loses the
server ends its program, since nobody may start another one beside it, and looks for the server again: the one of
the pod that takes the place of rank 0 learns from the others how far they were. Standard library only.

This is the only place that decides who belongs to a group. It encrypts nothing and trusts who knows the UID: in a
cluster the step's NetworkPolicy keeps all others away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from slipway.features.nodes.pod.group import BEAT, SILENCE, Address, Group, Memory, Message
from slipway.runtime.exits import UNEXPECTED, USAGE, StepError

PROTOCOL = 1
"""Version of the messages. All pods of a Job run the same code."""

LONGEST_LINE = 1 << 16
"""Bytes of a message."""
RETRY = 0.5
"""Seconds between two attempts to have a port, or a connection."""
_PORT_PATIENCE = 30.0
_TICK = 0.1
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that stand for pods on a machine that imitates them."""


def encode(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[dict[str, Any]]:
        """The messages that are whole now. Raises ValueError for what is none."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError("a line is too long")
        messages = [json.loads(line) for line in lines]
        if any(not isinstance(message, dict) or "type" not in message for message in messages):
            raise ValueError("a line is no message")
        return messages


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who a pod is: its rank among `count`, the UID of its Job, and a token that no other process has."""

    rank: int
    count: int
    job: str
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))


class _Guest:
    """A connection to the server."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.socket = connection
        self.lines = Lines()
        self.since = now
        self.rank: int | None = None
        self.token = ""


class Coordinator:
    """The server beside rank 0. It works in a thread of its own until the process ends."""

    def __init__(self, group: Group, identity: Identity, meet: Address) -> None:
        """Raises StepError where its port is in use."""
        self._group = group
        self._identity = identity
        self._seats: dict[int, _Guest] = {}
        self._guests: dict[socket.socket, _Guest] = {}
        self._replaced: set[str] = set()
        self._server = _listen(meet)
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._next_beat = 0.0
        self._over = threading.Event()
        self._patience = float("inf")
        threading.Thread(target=self._run, name="coordinator", daemon=True).start()

    def is_over(self, patience: float) -> bool:
        """Whether all pods know how the step ended; those that need not have `patience` seconds from its end."""
        self._patience = patience
        return self._over.is_set()

    def _run(self) -> None:
        try:
            while True:
                self._once()
        except BaseException:
            traceback.print_exc()
            # Without it all others wait for nothing. The guard ends the program.
            os._exit(UNEXPECTED)

    def _once(self) -> None:
        ready = self._selector.select(_TICK)
        now = time.monotonic()
        for key, _ in ready:
            if key.fileobj is self._server:
                self._accept(now)
            else:
                guest = self._guests.get(key.fileobj)  # type: ignore[arg-type]
                if guest is not None:
                    self._read(guest, now)
        # Only now: after a standstill of this process, signs of life may have waited to be read.
        for rank in self._group.silent(now):
            self._drop(self._seats[rank], f"it was silent for {SILENCE:g} s", now)
        for guest in list(self._guests.values()):
            if guest.rank is None and now - guest.since > SILENCE:
                self._drop(guest, "", now)
        self._group.tick(now)
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            for guest in list(self._seats.values()):
                self._send(guest, {"type": "beat"}, now)
        self._deliver(now)
        if self._group.is_over(now, self._patience):
            self._over.set()

    def _deliver(self, now: float) -> None:
        while self._group.outbox:
            rank, message = self._group.outbox.pop(0)
            guest = self._seats.get(rank)
            if guest is not None:
                self._send(guest, message, now)

    def _accept(self, now: float) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._guests[connection] = _Guest(connection, now)
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, guest: _Guest, now: float) -> None:
        try:
            piece = guest.socket.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(guest, f"its connection broke: {error.strerror or error}", now)
            return
        if not piece:
            self._drop(guest, "its connection was closed", now)
            return
        try:
            for message in guest.lines.feed(piece):
                self._take(guest, message, now)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            self._drop(guest, f"it sent what is no message: {error}", now)

    def _take(self, guest: _Guest, message: Mapping[str, Any], now: float) -> None:
        if guest.rank is None:
            self._welcome(guest, message, now)
        elif self._seats.get(guest.rank) is guest:
            self._group.hear(guest.rank, message, now)
            if message["type"] == "bye":
                self._deliver(now)
                self._drop(guest, "it left", now)

    def _welcome(self, guest: _Guest, hello: Mapping[str, Any], now: float) -> None:
        refused = self._refusal(hello)
        if refused is not None:
            self._send(guest, refused, now)
            self._drop(guest, "", now)
            return
        rank = int(hello["rank"])
        before = self._seats.get(rank)
        if before is not None:
            if before.token != hello["token"]:
                self._replaced.add(before.token)
                self._send(before, {"type": "replaced"}, now)
            self._drop(before, "another process has its place", now)
        guest.rank, guest.token = rank, str(hello["token"])
        self._seats[rank] = guest
        self._send(guest, {"type": "welcome"}, now)
        self._group.join(rank, Memory.parse(hello["memory"], self._identity.count), now)

    def _refusal(self, hello: Mapping[str, Any]) -> Message | None:
        identity = self._identity
        if hello["type"] != "hello" or hello["protocol"] != PROTOCOL:
            return {"type": "refused", "reason": "it speaks another protocol"}
        if hello["job"] != identity.job:
            return {"type": "refused", "reason": "it belongs to another Job"}
        if hello["pods"] != identity.count or not 0 <= int(hello["rank"]) < identity.count:
            return {"type": "refused", "reason": f"its Job has {identity.count} pods"}
        return {"type": "replaced"} if hello["token"] in self._replaced else None

    def _send(self, guest: _Guest, message: Message, now: float) -> None:
        line = encode(message)
        try:
            if guest.socket.send(line) == len(line):
                return
            reason = "it does not read what is sent to it"
        except BlockingIOError:
            reason = "it does not read what is sent to it"
        except OSError as error:
            reason = f"its connection broke: {error.strerror or error}"
        # A reader of this connection may be at work on it: it is dropped when the loop comes to it next.
        if self._guests.get(guest.socket) is guest:
            self._drop(guest, reason, now)

    def _drop(self, guest: _Guest, reason: str, now: float) -> None:
        if self._guests.pop(guest.socket, None) is None:
            return
        self._selector.unregister(guest.socket)
        guest.socket.close()
        if guest.rank is not None and self._seats.get(guest.rank) is guest:
            del self._seats[guest.rank]
            self._group.leave(guest.rank, reason, now)


def _listen(meet: Address) -> socket.socket:
    """A server at the port where the pods meet; on a machine that imitates pods, for this machine alone."""
    end = time.monotonic() + _PORT_PATIENCE
    while True:
        try:
            if meet.host in LOOPBACK:
                family = socket.AF_INET6 if ":" in meet.host else socket.AF_INET
                return socket.create_server((meet.host, meet.port), family=family, backlog=512)
            if socket.has_dualstack_ipv6():
                with contextlib.suppress(OSError):
                    return socket.create_server(
                        ("", meet.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512
                    )
            # A node may have been started without IPv6.
            return socket.create_server(("", meet.port), backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                reason = error.strerror or str(error)
                raise StepError(USAGE, f"--meet: port {meet.port} cannot be used: {reason}") from error
        time.sleep(RETRY)


_CONNECT = 3.0


class Member:
    """A pod's connection to the server, made anew whenever it is lost. It works in a thread of its own.

    `events` gets a message for everything that the server says, and `connected` and `lost` (with its reason).
    """

    def __init__(self, identity: Identity, meet: Address, put: Callable[[dict[str, Any]], None]) -> None:
        self._identity = identity
        self._meet = meet
        self._put = put
        self._memory = Memory()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._sent = 0.0
        self._closed = threading.Event()
        self.searching_since: float | None = time.monotonic()
        """Since when there has been no server, in seconds of `time.monotonic`; None where there is one."""
        self.obstacle = ""
        """Why the last attempt to reach the server failed."""
        self._thread = threading.Thread(target=self._run, name="member", daemon=True)
        self._thread.start()

    def ends(self) -> tuple[str, str]:
        """The IP addresses of this pod and of rank 0, as the connection has them; empty where there is none."""
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    return self._socket.getsockname()[0], self._socket.getpeername()[0]
        return "", ""

    def send(self, message: Message) -> None:
        """Send it, if there is a connection. Without one it is of no use: after a new one all is told anew."""
        with self._lock:
            if self._socket is None:
                return
            try:
                self._socket.sendall(encode(message))
                self._sent = time.monotonic()
            except OSError:
                # The thread that reads finds out, and says so.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Confirm that the end is known here, wait until that has arrived, and look for the server no more."""
        self._closed.set()
        self.send({"type": "bye"})
        self._thread.join(2 * BEAT)

    def close(self) -> None:
        """End the connection, and look for the server no more: this pod is lost to the others."""
        self._closed.set()
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(2 * BEAT)

    def _run(self) -> None:
        while not self._closed.is_set():
            connection = self._connect()
            if connection is None:
                self._closed.wait(RETRY)
                continue
            self.searching_since = None
            with self._lock:
                self._socket, self._sent = connection, time.monotonic()
            self._put({"type": "connected"})
            reason = self._talk(connection)
            with self._lock:
                self._socket = None
            connection.close()
            self.searching_since = time.monotonic()
            self._put({"type": "lost", "reason": reason})

    def _connect(self) -> socket.socket | None:
        place = self._meet
        if self._identity.rank == 0 and place.host not in LOOPBACK:
            # Its own name may not be known yet, and its address may not reach it from within.
            place = Address("127.0.0.1", place.port)
        connection = None
        try:
            connection = socket.create_connection((place.host, place.port), _CONNECT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            identity = self._identity
            hello = {
                "type": "hello",
                "protocol": PROTOCOL,
                "job": identity.job,
                "rank": identity.rank,
                "pods": identity.count,
                "token": identity.token,
                "memory": dataclasses.asdict(self._memory),
            }
            connection.sendall(encode(hello))
            # Where the process behind an open port stands still, nobody answers.
            connection.settimeout(SILENCE)
            self._lines, self._waiting = Lines(), []
            while not self._waiting:
                piece = connection.recv(LONGEST_LINE)
                if not piece:
                    raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
                self._waiting = self._lines.feed(piece)
            answer = self._waiting.pop(0)
            if answer["type"] == "welcome":
                connection.settimeout(BEAT / 2)
                return connection
            if answer["type"] == "replaced":
                self._put(answer)
            self.obstacle = f"refused: {answer.get('reason', answer['type'])}"
        except (OSError, ValueError) as error:
            self.obstacle = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if connection is not None:
            connection.close()
        return None

    def _talk(self, connection: socket.socket) -> str:
        """Exchange messages until the connection is gone; returns why it is."""
        heard = time.monotonic()
        messages = self._waiting
        while True:
            for message in messages:
                self._note(message)
            messages = []
            now = time.monotonic()
            if now - self._sent >= BEAT:
                self.send({"type": "beat"})
            try:
                piece = connection.recv(LONGEST_LINE)
                if not piece:
                    return "its connection was closed"
                heard = time.monotonic()
                messages = self._lines.feed(piece)
            except socket.timeout:  # noqa: UP041
                if now - heard > SILENCE:
                    return f"it was silent for {SILENCE:g} s"
            except OSError as error:
                return f"its connection broke: {error.strerror or error}"
            except ValueError as error:
                return f"it sent what is no message: {error}"

    def _note(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "beat":
            return
        if kind == "start":
            self._memory = Memory(message["generation"], list(message["kills"]), message["progress"], running=True)
        elif kind in ("stop", "finish", "publish"):
            self._memory.running = False
        elif kind == "leaving":
            self._memory.leaving = True
            return
        self._put(message)
