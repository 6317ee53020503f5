"""How connections end when the server does: after an answer that says so, and not under a request.

uvicorn 0.54 closes connections on which nobody waits for an answer as soon as it has SIGTERM, and with them the
request that is on its way (`H11Protocol.shutdown`, read November 2026). A browser asks again; a proxy in front of
the page answers 502.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

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
