"""Free ports of this machine, for what stays at one address as long as it is there."""

import random
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"

LOWEST = 20_000
"""Below are ports at which services of a machine often listen."""

UNPRIVILEGED = 1024
"""Below it only an administrator's programs may listen."""

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux keeps the range from which connections get the port of their own end."""

_given: set[int] = set()
_lock = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Ports at which nothing listens, and that this process gave to nobody else.

    On Linux no connection takes one of them for its own end: a program that is started again finds its port free.
    """
    with _lock:
        found: list[int] = []
        candidates = _candidates()
        for port in random.sample(candidates, len(candidates)):
            if len(found) == count:
                break
            if port not in _given and _is_free(port):
                found.append(port)
                _given.add(port)
        while len(found) < count:
            found.append(_any_free())
        return found


def as_declared(wanted: Sequence[int]) -> list[int]:
    """The ports ``wanted`` themselves, as far as nothing listens at them and anybody may; others for the rest."""
    found: list[int] = []
    for port in wanted:
        with _lock:
            own = port >= UNPRIVILEGED and port not in _given and _is_free(port)
            if own:
                _given.add(port)
        found.append(port if own else free_ports(1)[0])
    return found


def _candidates() -> Sequence[int]:
    try:
        first = int(OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return ()
    return range(LOWEST, first) if first > LOWEST else ()


def _is_free(port: int) -> bool:
    # At all addresses: a program may listen at more of them than the one that it is told.
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


def _any_free() -> int:
    while True:
        with socket.socket() as one:
            one.bind((LOOPBACK, 0))
            port = int(one.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port
