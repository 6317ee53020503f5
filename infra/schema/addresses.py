"""What a block of addresses is for, where it cannot be the addresses of nodes and pods."""

from collections.abc import Iterable
from ipaddress import IPv4Network


def misuse(block: IPv4Network, usable: Iterable[IPv4Network]) -> str | None:
    """Why the block cannot be used; None where it is within one of those that are ``usable``."""
    if any(block.subnet_of(each) for each in usable):
        return None
    if block.is_loopback:
        return "loopback addresses, with which every machine reaches itself"
    if block.is_link_local:
        return "link-local addresses, among them that of the machines' metadata service"
    if block.is_multicast:
        return "multicast addresses, which no machine can have"
    return "addresses of the Internet, which pods could then not reach"
