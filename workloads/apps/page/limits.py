"""What visitors may take: so many requests a second, each and all together, and so many at once.

All is kept in memory and bounded, and holds for one process: behind a load balancer each pod counts for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass

ROOM_SECONDS = 2.0
"""When one who fills all the room that it may fill is to come back."""

CLIENTS = 20_000
"""Clients that are remembered. Beyond these the one that is longest silent is forgotten, as if it were new."""


@dataclass(frozen=True)
class Bounds:
    """What visitors may take. ``rate`` and ``rate_of_all`` are predictions a second, of each visitor and of all.

    ``body`` is in bytes, ``body_seconds`` how long its sending may take. ``parallel`` predictions are asked for at
    a time, each for at most ``timeout`` seconds, while ``waiting`` others wait. ``proxies`` stand in front of the
    page and write visitors' addresses down.
    """

    rate: float = 10.0
    rate_of_all: float = 200.0
    body: int = 8 * 2**20
    body_seconds: float = 20.0
    parallel: int = 16
    waiting: int = 128
    timeout: float = 5.0
    proxies: int = 0


class TooManyError(Exception):
    """A client, or all of them, asked for more than they may. ``seconds`` is when to come back."""

    def __init__(self, seconds: float, *, everyone: bool) -> None:
        super().__init__("too many requests")
        self.seconds = seconds
        self.everyone = everyone


class BusyError(Exception):
    """As many requests wait already as may wait."""


@dataclass
class _Bucket:
    tokens: float
    at: float


class Rate:
    """``of_one`` requests a second for every client, ``of_all`` together; those of ``burst`` seconds at once."""

    def __init__(
        self, of_one: float, of_all: float, burst: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = (of_one, of_all)
        self._most = (max(of_one * burst, 1.0), max(of_all * burst, 1.0))
        self._clock = clock
        self._clients: OrderedDict[str, _Bucket] = OrderedDict()
        self._all = _Bucket(self._most[1], clock())

    def take(self, client: str) -> None:
        """Count a request of ``client``.

        Raises:
            TooManyError: it, or all together, had as many as they may have.
        """
        now = self._clock()
        bucket_of_one = self._clients.pop(client, None) or _Bucket(self._most[0], now)
        self._clients[client] = bucket_of_one
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        buckets = (bucket_of_one, self._all)
        for place, bucket in enumerate(buckets):
            bucket.tokens = min(bucket.tokens + (now - bucket.at) * self._rates[place], self._most[place])
            bucket.at = now
        for place, bucket in enumerate(buckets):
            if bucket.tokens < 1:
                raise TooManyError((1 - bucket.tokens) / self._rates[place], everyone=place == 1)
        bucket_of_one.tokens -= 1
        self._all.tokens -= 1

    def __len__(self) -> int:
        return len(self._clients)


class ConcurrencyLimit:
    """Lets ``parallel`` through at a time, in the order of their coming, while at most ``most`` wait."""

    def __init__(self, parallel: int, most: int) -> None:
        self._slots = asyncio.Semaphore(parallel)
        self._most = most
        self.waiting = 0

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Waits for a slot, and has it until the block ends.

        Raises:
            BusyError: too many wait.
        """
        if self._slots.locked() and self.waiting >= self._most:
            raise BusyError
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._slots.release()


class Room:
    """``of_all`` bytes that all clients may fill at a time, and ``of_one`` those of one."""

    def __init__(self, of_one: int, of_all: int) -> None:
        self._of_one = of_one
        self._of_all = of_all
        self._held = Counter[str]()
        self._all = 0

    @contextlib.contextmanager
    def place(self, client: str) -> Generator[Callable[[int], None]]:
        """Gives what ``client`` calls with so many bytes more; they are free again when the block ends.

        It raises TooManyError where the client fills what one may fill, BusyError where all do.
        """
        taken = 0

        def take(more: int) -> None:
            nonlocal taken
            if self._held[client] + more > self._of_one:
                raise TooManyError(ROOM_SECONDS, everyone=False)
            if self._all + more > self._of_all:
                raise BusyError
            self._held[client] += more
            self._all += more
            taken += more

        try:
            yield take
        finally:
            self._all -= taken
            self._held[client] -= taken
            if self._held[client] <= 0:
                del self._held[client]


def client_of(peer: str, forwarded: Sequence[str], proxies: int) -> str:
    """Who asks: the address of the connection, or the one that the outermost of ``proxies`` wrote down.

    ``forwarded`` are the values of `X-Forwarded-For`. Each proxy appends whom it talks to, so that only the last
    ``proxies`` entries come from them: what stands before anybody can write. Of IPv6 the network counts, of which
    a client has every address.
    """
    if proxies:
        entries = [entry.strip() for value in forwarded for entry in value.split(",")]
        if len(entries) >= proxies:
            peer = entries[-proxies]
    try:
        address = ipaddress.ip_address(peer.strip("[]").partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)
