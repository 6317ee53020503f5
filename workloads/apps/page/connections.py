"""How connections end: the slow ones, those of one address that are too many, and all when the server ends.

uvicorn 0.54 closes connections on which nobody waits for an answer as soon as it has SIGTERM, and with them the
request that is on its way (`H11Protocol.shutdown`, read November 2026). A browser asks again; a proxy in front of
the page answers 502.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from slipway.workloads.apps.page.limits import client_of

# How connections end when the server does: after an answer that says so, and not under a request.


LINGER = 2.0
"""Seconds for which an idle connection stays open once the server ends. What is used comes sooner."""


class Leaving(H11Protocol):
    """uvicorn's protocol for HTTP, whose idle connections take one more request while the server ends.

    It is answered with `Connection: close`. ``linger`` are the seconds until one that is still idle is closed.
    """

    linger = LINGER
    _closing: asyncio.TimerHandle | None = None

    def shutdown(self) -> None:
        """Called by the server when it ends."""
        if self.cycle is not None and not self.cycle.response_complete:
            super().shutdown()
        elif self._closing is None and not self.transport.is_closing():
            self._closing = self.loop.call_later(self.linger, self._close)

    def _close(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Called with what came."""
        super().data_received(data)
        if self._closing is not None and self.cycle is not None and not self.cycle.response_complete:
            # uvicorn answers a request that asks for the end of the connection with the same header.
            if CLOSE_HEADER not in self.cycle.scope["headers"]:
                self.cycle.scope["headers"] = [*self.cycle.scope["headers"], CLOSE_HEADER]
            self.cycle.keep_alive = False


# Connections that take too long to say what they want, and those of one address that are too many, are closed.


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
