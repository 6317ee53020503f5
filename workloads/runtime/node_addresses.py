"""Addresses of the pods of one step: how they are written, named where one is missing, and left by old programs.

Standard library only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 5
"""How many ranks a line names."""

_PORTS = range(20000, 32000)
"""Below the ports that Linux gives to outgoing connections (32768 and above by default)."""


@dataclass(frozen=True)
class Address:
    """A host, by its name or IP address, and a port."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """The address of `HOST:PORT`; an IPv6 address is in brackets. Raises ValueError."""
        host, _, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return Address(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_name(host: str) -> bool:
    """Whether it is a name, and no IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def leads_there(found: str) -> bool:
    """Whether this is the address of another machine, and not that of a proxy beside the pod."""
    try:
        return not ipaddress.ip_address(found).is_loopback
    except ValueError:
        return False


def absence(nodes: Sequence[Address], meet: Address, missing: Sequence[int], waited: float, wait: float) -> str:
    """Which pods are missing, by rank and address, and for how long of how many seconds they are waited for."""
    named = [f"rank {rank} at {nodes[rank] if rank else meet}" for rank in missing[:SHOWN]]
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"{len(missing)} of {len(nodes)} pods: {', '.join(named)}{more}, {waited:.0f} s of {wait:.0f} s"


def free_port(port: int) -> int:
    """`port`, or another one where connections of an earlier program still hold it.

    A program that does not reuse addresses would fail there for a minute.
    """
    ports = random.SystemRandom()
    for candidate in [port, *(ports.choice(_PORTS) for _ in range(20))]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", candidate))
            return candidate
    return port
