"""Connections that take too long to say what they want, and those of one address that are too many, are closed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from workloads.apps.page.leaving import Leaving
from workloads.apps.page.limits import client_of

HEADER_SECONDS = 10.0
"""Seconds within which the header of a request has to be here. uvicorn 0.54 bounds only idle connections, and one
is idle no more after its first byte (uvicorn/protocols/http/h11_impl.py, read November 2026)."""

CONNECTIONS = 512
"""Open connections, all together."""

CONNECTIONS_OF_ONE = 64
"""Open connections from one address, of IPv6 from one /64, where no proxy stands in front. A browser has up to six
for a page."""


def protocol(header_seconds: float = HEADER_SECONDS, of_one: int | None = CONNECTIONS_OF_ONE) -> type[H11Protocol]:
    """uvicorn's protocol for HTTP with these bounds. h11 bounds the size of a header, at 64 kB.

    With ``of_one`` None any number of connections may come from one address, as they do from a proxy.
    """
    open_connections = Counter[str]()

    class Bounded(Leaving):
        _waiting: asyncio.TimerHandle | None = None
        _address = ""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._address = client_of(str(self.client[0]) if self.client else "", (), 0)
            open_connections[self._address] += 1
            if of_one is not None and open_connections[self._address] > of_one:
                transport.close()
                return
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            open_connections[self._address] -= 1
            if open_connections[self._address] <= 0:
                del open_connections[self._address]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._waiting is None and not self.transport.is_closing():
                self._wait()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.their_state is h11.SEND_BODY:
                # The request was answered before all of it was here. If the connection closed at once, its client
                # might not read the answer.
                self.loop.call_later(header_seconds, self._goes_on, self.cycle)

        def _goes_on(self, cycle: object) -> None:
            if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
                self.transport.abort()

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(header_seconds, self._too_slow)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _too_slow(self) -> None:
            self._waiting = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.abort()

    return Bounded
