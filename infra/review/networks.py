"""Address blocks as firewalls and endpoints take them."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

EVERYWHERE = "0.0.0.0/0"
"""Every IPv4 address."""


def whole_internet(blocks: Iterable[str]) -> bool:
    """Whether these blocks together are every IPv4 or every IPv6 address. What is no block is left out."""
    four: list[IPv4Network] = []
    six: list[IPv6Network] = []
    for block in blocks:
        network = _network(block)
        if isinstance(network, IPv4Network):
            four.append(network)
        elif network is not None:
            six.append(network)
    together = [*collapse_addresses(four), *collapse_addresses(six)]
    return any(network.prefixlen == 0 for network in together)


def within(block: str, blocks: Iterable[str]) -> bool:
    """Whether one of ``blocks`` has every address of ``block``. Text that is no block is in none, and has none."""
    inner = _network(block)
    return inner is not None and any(_has(_network(outer), inner) for outer in blocks)


def _network(block: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(block, strict=False)
    except ValueError:
        return None


def _has(outer: IPv4Network | IPv6Network | None, inner: IPv4Network | IPv6Network) -> bool:
    if isinstance(outer, IPv4Network):
        return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
    return outer is not None and isinstance(inner, IPv6Network) and inner.subnet_of(outer)
