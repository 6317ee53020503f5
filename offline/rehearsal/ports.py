"""Free ports of this machine, for what stays at one address as long as it is there."""

import fcntl
import functools
import os
import random
import socket
import tempfile
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
    """Ports at which nothing listens, and that no process of this user gave to anybody else.

    They are given until this process ends. On Linux no connection takes one of them for its own end: a program
    that is started again finds its port free.
    """
    with _lock:
        found: list[int] = []
        candidates = _candidates()
        for port in random.sample(candidates, len(candidates)):
            if len(found) == count:
                break
            if _take(port):
                found.append(port)
        while len(found) < count:
            found.append(_any_free())
        return found


def as_declared(wanted: Sequence[int]) -> list[int]:
    """The ports ``wanted`` themselves, as far as nothing listens at them and anybody may; others for the rest."""
    found: list[int] = []
    for port in wanted:
        with _lock:
            own = port >= UNPRIVILEGED and _take(port)
        found.append(port if own else free_ports(1)[0])
    return found


def _candidates() -> Sequence[int]:
    try:
        first = int(OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return ()
    return range(LOWEST, first) if first > LOWEST else ()


def _take(port: int) -> bool:
    if port in _given or not _is_free(port) or not _claimed(port):
        return False
    _given.add(port)
    return True


def _claimed(port: int) -> bool:
    """Whether this process holds the lock of the port now; it does until it ends.

    A server listens some time after its port was found: another rehearsal must not find it in between.
    """
    try:
        # One byte of the file stands for each port.
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    return True


@functools.cache
def _locks() -> int:
    # Never closed: that would end every lock that this process holds in the file.
    file = Path(tempfile.gettempdir()) / f"slipway-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    # At all addresses, since a program may listen at more of them than the one that it is told; and at the one,
    # since macOS lets a second program have all of them beside it.
    for address in ("", LOOPBACK):
        with socket.socket() as one:
            # As servers do: connections that ended a minute ago or less take the port from nobody.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((address, port))
            except OSError:
                return False
    return True


def _any_free() -> int:
    while True:
        with socket.socket() as one:
            one.bind((LOOPBACK, 0))
            port = int(one.getsockname()[1])
        if _take(port):
            return port
