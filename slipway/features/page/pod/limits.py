"""What visitors may take: so many requests a second, each and all together, and so long for a header."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import h11
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

CLIENTS = 20_000
"""Clients that are remembered. Beyond these the one that is longest silent is forgotten, as if it were new."""

HEADER_SECONDS = 10.0
"""Seconds within which the header of a connection's first request has to be here."""


class Rate:
    """``of_one`` requests a second for every client, ``of_all`` together; those of two seconds at once."""

    def __init__(self, of_one: float, of_all: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates, self._clock = (of_one, of_all), clock
        # What is left to each client, and when that was so; of all together in `_all`.
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._all = (max(of_all * 2, 1.0), clock())

    def take(self, client: str) -> None:
        """Count a request of ``client``. Raises HTTPException, 429, with when to come back."""
        now, left = self._clock(), list[float]()
        buckets = (self._clients.pop(client, (self._rates[0] * 2, now)), self._all)
        for rate, (before, at) in zip(self._rates, buckets, strict=True):
            left.append(min(before + (now - at) * rate, max(rate * 2, 1.0)))
        taken = 1.0 if min(left) >= 1 else 0.0
        self._clients[client], self._all = (left[0] - taken, now), (left[1] - taken, now)
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        for place, rate in enumerate(self._rates):
            if left[place] < 1:
                who = "Too many people are here at the moment." if place else "That was too fast."
                later = {"retry-after": str(math.ceil((1 - left[place]) / rate))}
                raise HTTPException(429, f"{who} Wait a moment.", later)


class Bounded(H11Protocol):
    """uvicorn's protocol for HTTP, whose bound on idle connections holds until a header is whole.

    uvicorn 0.54 bounds no connection before its first request, and takes a connection for busy at the first byte
    (uvicorn/protocols/http/h11_impl.py, read November 2026). h11 bounds the size of a header, at 64 kB.
    """

    def connection_made(self, transport: Any) -> None:
        """Called with the connection."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Called with what came."""
        super().data_received(data)
        self._unset_keepalive_if_required()

    def _unset_keepalive_if_required(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            super()._unset_keepalive_if_required()
