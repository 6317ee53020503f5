"""A client of Valkey and Redis: commands and replies over one connection (RESP 2). Standard library only.

A client library would have to be installed in every image that a step runs in; this needs Python 3.9 alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Sequence
from typing import Any, BinaryIO


class ReplyError(Exception):
    """The server answered with an error. `kind` is its first word: LOADING, WRONGPASS, OOM, …"""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.kind = message.partition(" ")[0]


class Script:
    """A Lua script, sent whole only where the server does not know it yet."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = hashlib.sha1(source.encode()).hexdigest()


class Connection:
    """One connection, made when it is first used, and made anew after an error.

    `timeout` is in seconds and holds for each read and write. A command may have been carried out though its reply
    was lost: who repeats it has to make sure that this does no harm.
    """

    def __init__(self, host: str, port: int, password: str = "", timeout: float = 5.0) -> None:
        self.host = host
        self.port = port
        self._password = password
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def call(self, *words: object) -> Any:
        """The reply to one command: an int, bytes, None, or a list of these.

        Raises:
            ReplyError: the server refused the command, or the password.
            OSError: the server cannot be reached, or does not answer in time.
        """
        return self.pipeline([words])[0]

    def script(self, script: Script, keys: Sequence[str], arguments: Sequence[object]) -> Any:
        """What `script` returns. Raises as `call` does."""
        return self.scripts([(script, keys, arguments)])[0]

    def scripts(self, calls: Sequence[tuple[Script, Sequence[str], Sequence[object]]]) -> list[Any]:
        """What each script returns, all sent at once. Raises as `call` does, for the first that failed.

        Where the server lacks one of them, all are sent again: repeating them must do no harm.
        """
        try:
            return self.pipeline(
                [("EVALSHA", script.digest, len(keys), *keys, *words) for script, keys, words in calls]
            )
        except ReplyError as error:
            if error.kind != "NOSCRIPT":
                raise
        # Those before it were carried out and are repeated here.
        self.pipeline([("SCRIPT", "LOAD", script.source) for script in {call[0] for call in calls}])
        return self.pipeline(
            [("EVALSHA", script.digest, len(keys), *keys, *words) for script, keys, words in calls]
        )

    def pipeline(self, commands: Sequence[Sequence[object]], patience: float = 0.0) -> list[Any]:
        """The replies to several commands that are sent at once. Raises as `call` does, for the first that failed.

        `patience` is added to the timeout, for commands that wait at the server.
        """
        try:
            stream = self._connect()
            assert self._socket is not None
            self._socket.settimeout(self._timeout + patience)
            self._socket.sendall(b"".join(_encode(words) for words in commands))
            replies = [_read(stream) for _ in commands]
        except BaseException:
            # Replies that are still on their way must not be taken for those of the next command.
            self.close()
            raise
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        return replies

    def close(self) -> None:
        """Close the connection; the next command makes a new one."""
        for resource in (self._stream, self._socket):
            if resource is not None:
                with contextlib.suppress(OSError):
                    resource.close()
        self._socket = self._stream = None

    def _connect(self) -> BinaryIO:
        if self._stream is not None:
            return self._stream
        self._socket = socket.create_connection((self.host, self.port), self._timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._stream = stream = self._socket.makefile("rb")
        # Without a password where one is wanted, longer commands are refused as errors of the protocol.
        self._socket.sendall(_encode(("AUTH", self._password) if self._password else ("PING",)))
        reply = _read(stream)
        if isinstance(reply, ReplyError):
            raise reply
        return stream


def _encode(words: Sequence[object]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(text), text))
    return b"".join(parts)


def _read(stream: BinaryIO) -> Any:
    """One reply; an error is returned, not raised."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the connection was closed")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b"-":
        return ReplyError(rest.decode(errors="replace"))
    if kind == b":":
        return int(rest)
    if kind == b"$":
        size = int(rest)
        if size < 0:
            return None
        content = stream.read(size + 2)
        if len(content) < size + 2:
            raise ConnectionResetError("the connection was closed")
        return content[:-2]
    if kind == b"*":
        return None if int(rest) < 0 else [_read(stream) for _ in range(int(rest))]
    raise ConnectionResetError(f"what answers there speaks another protocol: {line[:40]!r}")
