"""A pod's connection to the place where the pods of its step meet. Standard library only."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from workloads.runtime.node_addresses import Address
from workloads.runtime.node_group import BEAT, SILENCE, Memory, Message
from workloads.runtime.rendezvous import LONGEST_LINE, LOOPBACK, PROTOCOL, RETRY, Identity, Lines, encode

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
            own = self._identity
            hello = {
                "type": "hello",
                "protocol": PROTOCOL,
                "job": own.job,
                "rank": own.rank,
                "pods": own.count,
                "token": own.token,
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
