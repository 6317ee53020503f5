"""Address blocks as firewalls and endpoints take them."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network


def whole_internet(blocks: Iterable[str]) -> bool:
    """Whether these blocks together are every IPv4 or every IPv6 address. What is no block is left out."""
    four: list[IPv4Network] = []
    six: list[IPv6Network] = []
    for block in blocks:
        try:
            network = ip_network(block, strict=False)
        except ValueError:
            continue
        if isinstance(network, IPv4Network):
            four.append(network)
        else:
            six.append(network)
    together = [*collapse_addresses(four), *collapse_addresses(six)]
    return any(network.prefixlen == 0 for network in together)
